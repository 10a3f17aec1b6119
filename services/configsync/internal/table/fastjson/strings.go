package fastjson

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// String reads a string.
func (r *Reader) String() (string, error) {
	if r.peek() != '"' {
		return "", r.mismatch("a string")
	}
	var scratch []byte
	b, err := r.str(&scratch)
	return string(b), err
}

// str reads a string. The result lies in the text, or in scratch where escapes had to be resolved; with a nil scratch it is
// checked only.
func (r *Reader) str(scratch *[]byte) ([]byte, error) {
	r.pos++
	at := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			text := r.data[at:r.pos]
			if !utf8.Valid(text) {
				return nil, r.Syntax("a string that is not UTF-8")
			}
			r.pos++
			return text, nil
		case c == '\\':
			r.pos = at
			return r.escaped(scratch)
		case c < ' ':
			return nil, r.Syntax("byte %#02x in a string", c)
		default:
			r.pos++
		}
	}
	return nil, r.Syntax("the text ends in a string")
}

// escaped reads the rest of a string that has escapes.
func (r *Reader) escaped(scratch *[]byte) ([]byte, error) {
	var none []byte
	if scratch == nil {
		scratch = &none
	}
	out := (*scratch)[:0]
	for r.pos < len(r.data) {
		c := r.data[r.pos]
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return nil, r.Syntax("a string that is not UTF-8")
			}
			r.pos++
			*scratch = out
			return out, nil
		case c < ' ':
			return nil, r.Syntax("byte %#02x in a string", c)
		case c != '\\':
			out = append(out, c)
			r.pos++
			continue
		}
		var err error
		if out, err = r.escape(out); err != nil {
			return nil, err
		}
	}
	return nil, r.Syntax("the text ends in a string")
}

// escape resolves one escape; fastjson has a few that JSON has not.
func (r *Reader) escape(out []byte) ([]byte, error) {
	r.pos++
	if r.pos == len(r.data) {
		return nil, r.Syntax("the text ends in a string")
	}
	c := r.data[r.pos]
	r.pos++
	switch {
	case c == '"' || c == '\\' || c == '/' || c == '\'':
		return append(out, c), nil
	case '0' <= c && c <= '7':
		return append(out, c-'0'), nil
	case c == 'b':
		return append(out, '\b'), nil
	case c == 'f' || c == 'F':
		return append(out, '\f'), nil
	case c == 'n':
		return append(out, '\n'), nil
	case c == 'r':
		return append(out, '\r'), nil
	case c == 't':
		return append(out, '\t'), nil
	case c == 'v':
		return append(out, '\v'), nil
	case c == 'x':
		n, err := r.hex(2)
		return utf8.AppendRune(out, rune(n)), err
	case c == 'u':
		return r.unicode(out)
	}
	return nil, r.Syntax("escape %q", c)
}

func (r *Reader) unicode(out []byte) ([]byte, error) {
	n, err := r.hex(4)
	if err != nil {
		return nil, err
	}
	c := rune(n)
	if utf16.IsSurrogate(c) {
		if r.pos+1 >= len(r.data) || r.data[r.pos] != '\\' || r.data[r.pos+1] != 'u' {
			return nil, r.Syntax("half a surrogate pair")
		}
		r.pos += 2
		low, err := r.hex(4)
		if err != nil {
			return nil, err
		}
		if c = utf16.DecodeRune(c, rune(low)); c == utf8.RuneError {
			return nil, r.Syntax("half a surrogate pair")
		}
	}
	return utf8.AppendRune(out, c), nil
}

func (r *Reader) hex(digits int) (uint64, error) {
	if r.pos+digits > len(r.data) {
		return 0, r.Syntax("the text ends in a string")
	}
	n, err := strconv.ParseUint(string(r.data[r.pos:r.pos+digits]), 16, 32)
	if err != nil {
		return 0, r.Syntax("not %d hex digits", digits)
	}
	r.pos += digits
	return n, nil
}
