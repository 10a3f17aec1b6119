package fastjson

import (
	"bytes"
	"strconv"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Errors of a Reader; both carry the byte offset.
var (
	// ErrSyntax: the text is empty, ends early or is not JSON of this dialect.
	ErrSyntax = errdefs.New(errdefs.InvalidArgument, "BROKEN_JSON", "not a whole JSON text")
	// ErrShape: the text is JSON, but what stands here is not what is known to stand here.
	ErrShape = errdefs.New(errdefs.InvalidArgument, "UNKNOWN_SHAPE", "a value of another shape than the known one")
)

// MaxDepth bounds how deeply objects and arrays may lie in each other.
const MaxDepth = 32

// Reader reads one text from its beginning to its end. After an error it must not be used any more.
type Reader struct {
	data  []byte
	pos   int
	depth int
	key   []byte // of an escaped key
}

// NewReader reads data, which must not change meanwhile.
func NewReader(data []byte) *Reader { return &Reader{data: data} }

// Syntax returns ErrSyntax at the present offset.
func (r *Reader) Syntax(format string, args ...any) error {
	return ErrSyntax.WithMsg(format, args...).With("offset", r.pos)
}

// Shape returns ErrShape at the present offset.
func (r *Reader) Shape(format string, args ...any) error {
	return ErrShape.WithMsg(format, args...).With("offset", r.pos)
}

// peek returns the next byte that is no blank, or 0 at the end.
func (r *Reader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

// open enters an object or array if one is here; empty: it ends at once.
func (r *Reader) open(left, right byte) (empty bool, err error) {
	c := r.peek()
	if c != left {
		return false, r.mismatch(string(left))
	}
	if r.depth++; r.depth > MaxDepth {
		return false, r.Syntax("more than %d levels", MaxDepth)
	}
	r.pos++
	if r.peek() == right {
		r.pos++
		r.depth--
		return true, nil
	}
	return false, nil
}

// next goes on behind a value: true behind a comma, false behind the end.
func (r *Reader) next(right byte) (bool, error) {
	switch c := r.peek(); c {
	case ',':
		r.pos++
		return true, nil
	case right:
		r.pos++
		r.depth--
		return false, nil
	case 0:
		return false, r.Syntax("the text ends in the middle")
	default:
		return false, r.Syntax("%q where a comma or %q is due", c, right)
	}
}

// mismatch is the error for a value of another kind: ErrShape where the value is whole, else ErrSyntax.
func (r *Reader) mismatch(want string) error {
	at := r.pos
	if err := r.skip(nil); err != nil {
		return err
	}
	r.pos = at
	return r.Shape("a value that is not %s", want)
}

// Object calls member for each key; it must read the value. The key is valid until it returns; an unquoted integer comes
// as its digits.
func (r *Reader) Object(member func(key []byte) error) error {
	empty, err := r.open('{', '}')
	if empty || err != nil {
		return err
	}
	for more := true; more; {
		key, err := r.readKey()
		if err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if more, err = r.next('}'); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) readKey() ([]byte, error) {
	key, _, err := r.keyToken()
	return key, err
}

// keyToken reads a key and its colon; raw is the key as it stands.
func (r *Reader) keyToken() (key, raw []byte, err error) {
	c := r.peek()
	at := r.pos
	switch {
	case c == '"':
		key, err = r.str(&r.key)
	case c == '-' || '0' <= c && c <= '9':
		key, err = r.integer()
	case c == 0:
		err = r.Syntax("the text ends in the middle")
	default:
		err = r.Syntax("%q where a key is due", c)
	}
	if err != nil {
		return nil, nil, err
	}
	raw = r.data[at:r.pos]
	if c := r.peek(); c != ':' {
		return nil, nil, r.Syntax("no colon behind a key")
	}
	r.pos++
	return key, raw, nil
}

// Array calls element before each value; it must read the value.
func (r *Reader) Array(element func() error) error {
	empty, err := r.open('[', ']')
	if empty || err != nil {
		return err
	}
	for more := true; more; {
		if err := element(); err != nil {
			return err
		}
		if more, err = r.next(']'); err != nil {
			return err
		}
	}
	return nil
}

// Null reads a null, if one is here.
func (r *Reader) Null() bool {
	if r.peek() != 'n' || !bytes.HasPrefix(r.data[r.pos:], []byte("null")) {
		return false
	}
	r.pos += len("null")
	return true
}

// integer reads the digits of an integer, as they stand.
func (r *Reader) integer() ([]byte, error) {
	at := r.pos
	if r.pos < len(r.data) && r.data[r.pos] == '-' {
		r.pos++
	}
	digits := r.digits()
	if digits == 0 || digits > 1 && r.data[r.pos-digits] == '0' {
		return nil, r.Syntax("not a number")
	}
	return r.data[at:r.pos], nil
}

func (r *Reader) digits() int {
	at := r.pos
	for r.pos < len(r.data) && '0' <= r.data[r.pos] && r.data[r.pos] <= '9' {
		r.pos++
	}
	return r.pos - at
}

// number reads any number, as it stands.
func (r *Reader) number() ([]byte, error) {
	at := r.pos
	if _, err := r.integer(); err != nil {
		return nil, err
	}
	if r.pos < len(r.data) && r.data[r.pos] == '.' {
		r.pos++
		if r.digits() == 0 {
			return nil, r.Syntax("not a number")
		}
	}
	if r.pos < len(r.data) && (r.data[r.pos] == 'e' || r.data[r.pos] == 'E') {
		r.pos++
		if r.pos < len(r.data) && (r.data[r.pos] == '+' || r.data[r.pos] == '-') {
			r.pos++
		}
		if r.digits() == 0 {
			return nil, r.Syntax("not a number")
		}
	}
	return r.data[at:r.pos], nil
}

// Int reads an integer within [low, high].
func (r *Reader) Int(low, high int64) (int64, error) {
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, r.mismatch("an integer")
	}
	at := r.pos
	text, err := r.number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < low || n > high {
		r.pos = at
		return 0, r.Shape("%.40s is not an integer from %d to %d", text, low, high)
	}
	return n, nil
}

// Bool reads true or false.
func (r *Reader) Bool() (bool, error) {
	r.peek()
	switch rest := r.data[r.pos:]; {
	case bytes.HasPrefix(rest, []byte("true")):
		r.pos += len("true")
		return true, nil
	case bytes.HasPrefix(rest, []byte("false")):
		r.pos += len("false")
		return false, nil
	}
	return false, r.mismatch("true or false")
}

// End checks that nothing but blanks follows.
func (r *Reader) End() error {
	if r.peek() != 0 || r.pos < len(r.data) {
		return r.Syntax("bytes behind the end")
	}
	return nil
}

// Raw reads any value and returns it without its blanks, for Writer.Raw.
func (r *Reader) Raw() (string, error) {
	var b []byte
	err := r.skip(&b)
	return string(b), err
}

// Compact reports whether text is one value as Raw returns it.
func Compact(text string) bool {
	r := NewReader([]byte(text))
	raw, err := r.Raw()
	return err == nil && raw == text && r.End() == nil
}

// skip reads any value and appends it without blanks to out, which may be nil.
func (r *Reader) skip(out *[]byte) error {
	put := func(b ...byte) {
		if out != nil {
			*out = append(*out, b...)
		}
	}
	c := r.peek()
	at := r.pos
	switch {
	case c == 0:
		return r.Syntax("the text ends in the middle")
	case c == '{' || c == '[':
		return r.skipNested(c, out, put)
	case c == '"':
		if _, err := r.str(nil); err != nil {
			return err
		}
	case c == '-' || '0' <= c && c <= '9':
		if _, err := r.number(); err != nil {
			return err
		}
	default:
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(r.data[r.pos:], []byte(word)) {
				r.pos += len(word)
				put(r.data[at:r.pos]...)
				return nil
			}
		}
		return r.Syntax("%q where a value is due", c)
	}
	put(r.data[at:r.pos]...)
	return nil
}

func (r *Reader) skipNested(left byte, out *[]byte, put func(...byte)) error {
	right := left + 2 // '{' and '}', '[' and ']' lie two apart
	put(left)
	empty, err := r.open(left, right)
	if err != nil {
		return err
	}
	for more := !empty; more; {
		if left == '{' {
			_, raw, err := r.keyToken()
			if err != nil {
				return err
			}
			put(raw...)
			put(':')
		}
		if err := r.skip(out); err != nil {
			return err
		}
		if more, err = r.next(right); err != nil {
			return err
		}
		if more {
			put(',')
		}
	}
	put(right)
	return nil
}

// Skip reads any value.
func (r *Reader) Skip() error { return r.skip(nil) }
