package fastjson

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

func TestRawKeepsAllButBlanks(t *testing.T) {
	for in, want := range map[string]string{
		" { } ":                        "{}",
		"[ ]":                          "[]",
		`{ 0 : 5 , "1" :6, -3: null }`: `{0:5,"1":6,-3:null}`,
		`{"a":[1.50,-2e+9,{"b":"x y"}],"c":	true}`: `{"a":[1.50,-2e+9,{"b":"x y"}],"c":true}`,
		`"\u00e4\n\x41\v\0"`:                       `"\u00e4\n\x41\v\0"`,
		"{\"T@G\":{0:45,1:45\n\t\t}\n\t}":          `{"T@G":{0:45,1:45}}`,
	} {
		r := NewReader([]byte(in))
		got, err := r.Raw()
		if err = errors.Join(err, r.End()); got != want || err != nil {
			t.Errorf("%s: got %s, %v", in, got, err)
		}
	}
}

func TestStrings(t *testing.T) {
	for in, want := range map[string]string{
		`""`: "", `"a\tb"`: "a\tb", `"\ud83d\ude00"`: "😀", `"\/\'\""`: "/'\"", `"\x41\7\F"`: "A\a\f", `"ä"`: "ä",
	} {
		got, err := NewReader([]byte(in)).String()
		if got != want || err != nil {
			t.Errorf("%s: got %q, %v", in, got, err)
		}
		w := NewWriter(nil, false)
		w.String(got)
		if again, err := NewReader(w.Bytes()).String(); again != want || err != nil {
			t.Errorf("%s written as %s is read as %q, %v", in, w.Bytes(), again, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, in := range []string{
		"", " ", "{", "[", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{'a':1}`, "[1,]", "[1 2]", "nul", "tru", "-", "01",
		"1.", "1e", "{1.5:2}", `"`, `"\`, `"\q"`, `"\u12"`, `"\ud800"`, `"\ud800\u0041"`, "\"\x01\"", "\"\xff\"", "\"\\n\xff\"", "{}{}", "1 2",
		"\x00", "\xef\xbb\xbf{}", strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), "]", "}", ",", ":", "undefined",
	} {
		r := NewReader([]byte(in))
		_, err := r.Raw()
		if err == nil {
			err = r.End()
		}
		if !errors.Is(err, ErrSyntax) || errdefs.As(err).Meta["offset"] == "" {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestAnotherTypeIsAShapeAndGarbageIsNot(t *testing.T) {
	read := map[string]func(*Reader) error{
		"int":    func(r *Reader) error { _, err := r.Int(0, 10); return err },
		"bool":   func(r *Reader) error { _, err := r.Bool(); return err },
		"string": func(r *Reader) error { _, err := r.String(); return err },
		"object": func(r *Reader) error { return r.Object(func([]byte) error { return r.Skip() }) },
		"array":  func(r *Reader) error { return r.Array(r.Skip) },
	}
	fits := map[string]string{"int": "7", "bool": "true", "string": `"x"`, "object": `{"a":1}`, "array": "[1]"}
	for name, f := range read {
		for other, text := range fits {
			err := f(NewReader([]byte(text)))
			if (other == name) != (err == nil) || err != nil && !errors.Is(err, ErrShape) {
				t.Errorf("%s where %s is: %v", name, other, err)
			}
		}
		if err := f(NewReader([]byte("null"))); !errors.Is(err, ErrShape) {
			t.Errorf("%s where null is: %v", name, err)
		}
		if err := f(NewReader([]byte("?"))); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s where garbage is: %v", name, err)
		}
	}
	for _, text := range []string{"11", "-1", "1.5", "1e3", "99999999999999999999"} {
		if _, err := NewReader([]byte(text)).Int(0, 10); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if n, err := NewReader([]byte("-9223372036854775808")).Int(math.MinInt64, math.MaxInt64); n != math.MinInt64 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func write(pretty bool) string {
	w := NewWriter(nil, pretty)
	w.Begin()
	w.Key("empty")
	w.Begin()
	w.End()
	w.Key("list")
	w.BeginArray()
	w.String("A")
	w.Int(-1)
	w.End()
	w.Key("offsets")
	w.Begin()
	w.Key("T@G")
	w.Begin()
	w.IntKey(0)
	w.Int(45)
	w.IntKey(1)
	w.Int(46)
	w.End()
	w.End()
	w.Key("raw")
	w.Raw(`{"type":"CUSTOMIZED","n":{0:1}}`)
	w.Key("yes")
	w.Bool(true)
	w.End()
	return string(w.Bytes())
}

func TestWriter(t *testing.T) {
	compact := `{"empty":{},"list":["A",-1],"offsets":{"T@G":{0:45,1:46}},"raw":{"type":"CUSTOMIZED","n":{0:1}},"yes":true}`
	if got := write(false); got != compact {
		t.Errorf("compact: %s", got)
	}
	pretty := "{\n\t\"empty\":{},\n\t\"list\":[\"A\",-1],\n\t\"offsets\":{\n\t\t\"T@G\":{0:45,1:46\n\t\t}\n\t},\n" +
		"\t\"raw\":{\n\t\t\"type\":\"CUSTOMIZED\",\n\t\t\"n\":{0:1\n\t\t}\n\t},\n\t\"yes\":true\n}"
	if got := write(true); got != pretty {
		t.Errorf("pretty: %s", got)
	}
	raw, err := NewReader([]byte(pretty)).Raw()
	if raw != compact || err != nil {
		t.Errorf("read again: %s, %v", raw, err)
	}
}

func FuzzRaw(f *testing.F) {
	for _, seed := range []string{write(true), `{0:[{"a":"\u0041"}]}`, "[[[]]]", `"\ud83d\ude00"`, "{}}", "-0"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(slices.Clone(data))
		raw, err := r.Raw()
		if err != nil || r.End() != nil {
			return
		}
		w := NewWriter(nil, true)
		w.Raw(raw)
		again, err := NewReader(w.Bytes()).Raw()
		if again != raw || err != nil {
			t.Fatalf("%q became %q by way of %q: %v", raw, again, w.Bytes(), err)
		}
	})
}
