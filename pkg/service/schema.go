package service

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

var (
	durationType        = reflect.TypeFor[time.Duration]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// field is one key of a configuration: a value, or a struct with fields of its own.
type field struct {
	key  string // dotted, from the top
	name string
	v    reflect.Value // addressable
	sub  []*field      // of a struct
}

// fieldsOf lists the fields of the struct v below a key prefix; embedded structs are part of their parent.
func fieldsOf(v reflect.Value, prefix string) []*field {
	var out []*field
	t := v.Type()
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || (!sf.IsExported() && !sf.Anonymous):
			continue
		case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
			out = append(out, fieldsOf(v.Field(i), prefix)...)
			continue
		case name == "":
			first, n := utf8.DecodeRuneInString(sf.Name)
			name = string(unicode.ToLower(first)) + sf.Name[n:]
		}
		f := &field{key: join(prefix, name), name: name, v: v.Field(i)}
		if isStruct(sf.Type) {
			f.sub = fieldsOf(f.v, f.key)
		}
		out = append(out, f)
	}
	return out
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// isStruct reports whether t has fields of its own; a struct that reads itself from text is a value.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textUnmarshalerType)
}

// isList reports whether t is read element by element; a slice that reads itself from text is one value.
func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && !reflect.PointerTo(t).Implements(textUnmarshalerType)
}

// leaves calls f for each value below fields.
func leaves(fields []*field, f func(*field)) {
	for _, one := range fields {
		if one.sub != nil {
			leaves(one.sub, f)
		} else {
			f(one)
		}
	}
}

// envName is the environment variable of a key: ha.listenPort -> HA_LISTEN_PORT.
func envName(key string) string {
	var b strings.Builder
	runes := []rune(key)
	for i, r := range runes {
		switch {
		case r == '.' || r == '-':
			b.WriteByte('_')
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || unicode.IsDigit(runes[i-1]) ||
			(unicode.IsUpper(runes[i-1]) && i+1 < len(runes) && unicode.IsLower(runes[i+1]))):
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// setScalar sets v, no list or struct, from text. The error says what is wrong with the text, not where it stands.
func setScalar(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Type() == durationType {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no duration: write a number and a unit, such as 500ms, 5s, 1h30m", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	return setBasic(v, text)
}

func setBasic(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		switch text {
		case "true", "false":
			v.SetBool(text == "true")
		default:
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no whole number of %d bits", text, v.Type().Bits())
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no whole number from 0 of %d bits", text, v.Type().Bits())
		}
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no number", text)
		}
		v.SetFloat(n)
	default:
		return fmt.Errorf("a setting of type %s cannot be read from text", v.Type())
	}
	return nil
}
