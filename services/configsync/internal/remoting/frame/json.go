package frame

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

func parseJSON(header []byte) (*Command, error) {
	c := &Command{Encoding: JSON, Language: Other}
	r := fastjson.NewReader(header)
	hasCode := false
	err := r.Object(func(key []byte) error {
		name := string(key)
		if r.Null() {
			return nil
		}
		switch name {
		case "code":
			hasCode = true
			return number(r, &c.Code)
		case "flag":
			return number(r, &c.Flag)
		case "opaque":
			return number(r, &c.Opaque)
		case "version":
			return number(r, &c.Version)
		case "language":
			text, err := anyText(r)
			c.Language = languageOf(text)
			return err
		case "remark":
			var err error
			c.Remark, err = anyText(r)
			return err
		case "extFields":
			return c.readFields(r)
		default:
			return r.Skip()
		}
	})
	if err == nil {
		err = r.End()
	}
	switch {
	case err != nil:
		return nil, ErrHeader.Wrap(err)
	case !hasCode:
		return nil, ErrHeader.WithMsg("a header without a code")
	}
	return c, nil
}

// number reads a number, or a string that is one.
func number(r *fastjson.Reader, into *int32) error {
	raw, err := r.Raw()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(strings.Trim(raw, `"`), 10, 32)
	if err != nil {
		return r.Shape("%.40s is no number of 32 bits", raw)
	}
	*into = int32(n)
	return nil
}

// anyText reads a string, or another value as it stands.
func anyText(r *fastjson.Reader) (string, error) {
	raw, err := r.Raw()
	if err != nil || !strings.HasPrefix(raw, `"`) {
		return raw, err
	}
	return fastjson.NewReader([]byte(raw)).String()
}

func (c *Command) readFields(r *fastjson.Reader) error {
	fields := map[string]string{}
	err := r.Object(func(key []byte) error {
		name := string(key)
		if r.Null() {
			return nil
		}
		var err error
		fields[name], err = anyText(r)
		return err
	})
	if len(fields) > 0 {
		c.Fields = fields
	}
	return err
}

// appendJSON writes the properties in the order of their names, as fastjson does.
func appendJSON(b []byte, c *Command) []byte {
	w := fastjson.NewWriter(b, false)
	w.Begin()
	integer := func(name string, n int32) {
		w.Key(name)
		w.Int(int64(n))
	}
	text := func(name, s string) {
		w.Key(name)
		w.String(s)
	}
	integer("code", c.Code)
	if len(c.Fields) > 0 {
		w.Key("extFields")
		w.Begin()
		for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
			text(name, c.Fields[name])
		}
		w.End()
	}
	integer("flag", c.Flag)
	if int(c.Language) < len(languages) {
		text("language", c.Language.String())
	} else {
		text("language", Other.String())
	}
	integer("opaque", c.Opaque)
	if c.Remark != "" {
		text("remark", c.Remark)
	}
	text("serializeTypeCurrentRPC", "JSON")
	integer("version", c.Version)
	w.End()
	return w.Bytes()
}
