package entry

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// SetField returns fields, which are in the order of their names, with f in its place.
func SetField(fields []Field, f Field) []Field {
	i, found := slices.BinarySearchFunc(fields, f.Name, func(a Field, name string) int { return strings.Compare(a.Name, name) })
	if found {
		fields[i] = f
		return fields
	}
	return slices.Insert(fields, i, f)
}

// GetField returns the value of a field, or nothing.
func GetField(fields []Field, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Raw
		}
	}
	return ""
}

// inField puts the name of a field on an error.
func inField(name string, err error) error {
	if e := errdefs.As(err); e != nil && e.Field == "" {
		return e.WithField(name)
	}
	return err
}

// maxAttributes bounds the bytes of all attributes of a config, and of all its unknown fields.
const maxAttributes = 64 << 10

func validateAttributes(m map[string]string) error {
	total := 0
	for k, v := range m {
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return ErrField.WithField("attributes").WithMsg("attribute %.80q", k).WithRemedy("use UTF-8, and a name that is not empty")
		}
		total += len(k) + len(v)
	}
	if total > maxAttributes {
		return ErrField.WithField("attributes").WithMsg("%d bytes", total).WithRemedy("use at most %d", maxAttributes)
	}
	return nil
}

// validateUnknown checks that fields can be written among those that props has.
func validateUnknown[T any](fields []Field, props []property[T]) error {
	total := 0
	for i, f := range fields {
		bad := ErrField.WithField("unknown").With("name", f.Name)
		switch {
		case f.Name == "" || !utf8.ValidString(f.Name) || known(props, f.Name):
			return bad.WithMsg("the name of a field that is not known").WithRemedy("use UTF-8, and none of the names of known fields")
		case i > 0 && fields[i-1].Name >= f.Name:
			return bad.WithMsg("the fields are not in the order of their names").WithRemedy("give each once, in order")
		case !fastjson.Compact(f.Raw):
			return bad.WithMsg("the value is not compact JSON").WithRemedy("leave out the blanks")
		}
		total += len(f.Name) + len(f.Raw)
	}
	if total > maxAttributes {
		return ErrField.WithField("unknown").WithMsg("%d bytes", total).WithRemedy("use at most %d", maxAttributes)
	}
	return nil
}

func known[T any](props []property[T], name string) bool {
	return slices.ContainsFunc(props, func(p property[T]) bool { return p.name == name })
}

// ReadInt32 reads an integer of 32 bits.
func ReadInt32(r *fastjson.Reader) (int32, error) {
	n, err := r.Int(math.MinInt32, math.MaxInt32)
	return int32(n), err
}

// ReadInt64 reads an integer of 64 bits.
func ReadInt64(r *fastjson.Reader) (int64, error) { return r.Int(math.MinInt64, math.MaxInt64) }

func intProp[T any](name string, def int32, at func(*T) *int32) property[T] {
	return property[T]{
		name: name,
		read: func(r *fastjson.Reader, v *T) (err error) {
			*at(v), err = ReadInt32(r)
			return err
		},
		write: func(w *fastjson.Writer, v *T) { w.Int(int64(*at(v))) },
		plain: func(v *T) bool { return *at(v) == def },
	}
}

func longProp[T any](name string, def int64, at func(*T) *int64) property[T] {
	return property[T]{
		name: name,
		read: func(r *fastjson.Reader, v *T) (err error) {
			*at(v), err = ReadInt64(r)
			return err
		},
		write: func(w *fastjson.Writer, v *T) { w.Int(*at(v)) },
		plain: func(v *T) bool { return *at(v) == def },
	}
}

func boolProp[T any](name string, def bool, at func(*T) *bool) property[T] {
	return property[T]{
		name: name,
		read: func(r *fastjson.Reader, v *T) (err error) {
			*at(v), err = r.Bool()
			return err
		},
		write: func(w *fastjson.Writer, v *T) { w.Bool(*at(v)) },
		plain: func(v *T) bool { return *at(v) == def },
	}
}

func stringProp[T any](name string, at func(*T) *string) property[T] {
	return property[T]{
		name: name,
		read: func(r *fastjson.Reader, v *T) (err error) {
			*at(v), err = r.String()
			return err
		},
		write: func(w *fastjson.Writer, v *T) { w.String(*at(v)) },
		plain: func(*T) bool { return false },
	}
}

func mapProp[T any](name string, at func(*T) *map[string]string) property[T] {
	return property[T]{
		name: name,
		read: func(r *fastjson.Reader, v *T) error {
			*at(v) = nil
			return r.Object(func(key []byte) error {
				k := string(key)
				s, err := r.String()
				if *at(v) == nil {
					*at(v) = map[string]string{}
				}
				(*at(v))[k] = s
				return err
			})
		},
		write: func(w *fastjson.Writer, v *T) {
			m := *at(v)
			w.Begin()
			if len(m) > 0 { // most have none, and sorting nothing allocates
				for _, k := range slices.Sorted(maps.Keys(m)) {
					w.Key(k)
					w.String(m[k])
				}
			}
			w.End()
		},
		plain: func(v *T) bool { return len(*at(v)) == 0 },
	}
}
