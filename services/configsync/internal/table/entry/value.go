package entry

import (
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// Value is the value of an entry: *TopicConfig, *GroupConfig, *Offsets or *Delay.
type Value interface {
	// Kind says in which table the value belongs.
	Kind() Kind
	// Equal reports whether the other one is of the same kind and means the same.
	Equal(Value) bool
	// AppendJSON appends the value as RocketMQ writes it, in the compact form.
	AppendJSON([]byte) []byte
	// appendPacked appends a form that is the same for all values that are equal, and for no others.
	appendPacked([]byte) []byte
}

// Field is a JSON field that nobody here knows.
type Field struct {
	Name string
	Raw  string // its value, compact
}

// Hash returns a number that depends on the key and the meaning of the value and on nothing else: it is the same on every
// node. scratch is used as a buffer and returned for the next call.
func Hash(key string, v Value, scratch []byte) (uint64, []byte) {
	scratch = AppendPacked(scratch[:0], key, v)
	return HashPacked(scratch), scratch
}

// HashFields is Hash for the fields of a table.
func HashFields(fields []Field) uint64 {
	if len(fields) == 0 {
		return 0
	}
	return HashPacked(AppendFields(nil, fields))
}

// property describes one JSON field of a config T.
type property[T any] struct {
	name string
	// read takes the value.
	read func(r *fastjson.Reader, v *T) error
	// write writes it; nothing is called for a field that missing says was not there and that plain says has its default.
	write func(w *fastjson.Writer, v *T)
	plain func(v *T) bool
}

// readConfig reads a config. missing gets a bit for each property that the text has not.
func readConfig[T any](r *fastjson.Reader, props []property[T], v *T, missing *uint32, unknown *[]Field) error {
	*missing = 1<<len(props) - 1
	return r.Object(func(key []byte) error {
		for i := range props {
			if string(key) != props[i].name {
				continue
			}
			if r.Null() {
				return nil
			}
			*missing &^= 1 << i
			return inField(props[i].name, props[i].read(r, v))
		}
		name := string(key)
		raw, err := r.Raw()
		if err == nil {
			*unknown = SetField(*unknown, Field{Name: name, Raw: raw})
		}
		return err
	})
}

// writeConfig writes a config, the fields in the order of their names.
func writeConfig[T any](w *fastjson.Writer, props []property[T], v *T, missing uint32, unknown []Field) {
	w.Begin()
	for i := range props {
		for len(unknown) > 0 && unknown[0].Name < props[i].name {
			w.Key(unknown[0].Name)
			w.Raw(unknown[0].Raw)
			unknown = unknown[1:]
		}
		if missing&(1<<i) != 0 && props[i].plain(v) {
			continue
		}
		w.Key(props[i].name)
		props[i].write(w, v)
	}
	for _, f := range unknown {
		w.Key(f.Name)
		w.Raw(f.Raw)
	}
	w.End()
}
