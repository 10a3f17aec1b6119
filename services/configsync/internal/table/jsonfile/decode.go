package jsonfile

import (
	"errors"
	"math"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

const versionField = "dataVersion"

// tableField returns the name of the field that has the entries.
func tableField(kind entry.Kind) string {
	switch kind {
	case entry.Topics:
		return "topicConfigTable"
	case entry.Groups:
		return "subscriptionGroupTable"
	default:
		return "offsetTable"
	}
}

// wireOnly are fields that RocketMQ 5 adds to an answer and never writes to the file.
func wireOnly(name string) bool {
	return name == "mappingDataVersion" || name == "topicQueueMappingDetailMap" || name == "topicQueueMappingInfoMap"
}

// Decode reads a table. Its deltas reach back to the version that it has here.
func Decode(kind entry.Kind, data []byte) (*table.Table, error) {
	d := decoder{kind: kind, reader: fastjson.NewReader(data), build: table.NewBuilder(kind), form: table.FormNoVersion}
	// The version may stand behind the entries, and each entry has its counter.
	if err := d.findVersion(data); err != nil {
		return nil, err
	}
	seen := false
	err := d.reader.Object(func(key []byte) error {
		switch name := string(key); {
		case name == versionField:
			_, err := d.reader.Raw()
			return err
		case name == tableField(kind):
			if seen {
				return d.reader.Syntax("two tables")
			}
			seen = true
			return d.entries()
		default:
			return d.unknownField(name)
		}
	})
	if err == nil {
		err = d.reader.End()
	}
	if err == nil && !seen {
		err = d.reader.Shape("no %s", tableField(kind))
	}
	if err != nil {
		return nil, err
	}
	return d.build.Table(d.version, d.form, d.unknown), nil
}

type decoder struct {
	kind    entry.Kind
	reader  *fastjson.Reader
	build   *table.Builder
	version entry.Version
	form    table.Form
	unknown []entry.Field
	extra   int // bytes in unknown
}

func (d *decoder) unknownField(name string) error {
	raw, err := d.reader.Raw()
	if err != nil || d.kind == entry.Topics && wireOnly(name) {
		return err
	}
	if name != table.DerivedField {
		d.extra += len(name) + len(raw)
	}
	if d.extra > table.MaxEntry {
		return d.reader.Shape("more than %d bytes of fields that are not known", table.MaxEntry)
	}
	d.unknown = entry.SetField(d.unknown, entry.Field{Name: name, Raw: raw})
	return nil
}

// errFound ends the search for the version.
var errFound = errors.New("found")

// findVersion reads the version alone.
func (d *decoder) findVersion(data []byte) error {
	r := fastjson.NewReader(data)
	err := r.Object(func(key []byte) error {
		if string(key) != versionField {
			return r.Skip()
		}
		if r.Null() {
			return nil
		}
		d.form = table.FormNoState
		err := r.Object(func(key []byte) error {
			into := map[string]*int64{
				"counter": &d.version.Counter, "timestamp": &d.version.Timestamp, "timestatmp": &d.version.Timestamp,
				"stateVersion": &d.version.State,
			}[string(key)]
			if into == nil {
				return r.Skip()
			}
			if string(key) == "stateVersion" {
				d.form = table.FormFull
			}
			n, err := r.Int(0, math.MaxInt64)
			*into = n
			return err
		})
		if err == nil {
			err = errFound
		}
		return err
	})
	if errors.Is(err, errFound) {
		return nil
	}
	return err
}

func (d *decoder) entries() error {
	r := d.reader
	return r.Object(func(key []byte) error {
		e := table.Entry{Key: string(key), Change: d.version.Counter}
		var err error
		e.Value, err = d.value(e.Key)
		if err != nil {
			return within(e.Key, err)
		}
		return within(e.Key, d.build.Add(e))
	})
}

func (d *decoder) value(key string) (entry.Value, error) {
	switch d.kind {
	case entry.Topics:
		return entry.ReadTopic(d.reader, key)
	case entry.Groups:
		return entry.ReadGroup(d.reader, key)
	case entry.ConsumerOffsets:
		return entry.ReadOffsets(d.reader)
	default:
		offset, err := d.reader.Int(entry.NoOffset, math.MaxInt64)
		return &entry.Delay{Offset: offset}, err
	}
}
