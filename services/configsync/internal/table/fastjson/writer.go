package fastjson

import (
	"strconv"
	"unicode/utf8"
)

// Writer appends one text to a buffer. Objects are begun and ended, each value in them has its Key or IntKey before it;
// values in arrays need nothing. Nothing is checked: the caller's order is the text's order.
type Writer struct {
	buf    []byte
	pretty bool
	levels []level // open objects and arrays
	first  [2]level
}

type level struct {
	count int
	array bool
}

// NewWriter appends to buf, in the pretty form of files or the compact form of the wire.
func NewWriter(buf []byte, pretty bool) *Writer {
	w := &Writer{buf: buf, pretty: pretty}
	w.levels = w.first[:0] // room for an entry of a table without another allocation
	return w
}

// Bytes returns the buffer with what was written.
func (w *Writer) Bytes() []byte { return w.buf }

func (w *Writer) line() {
	if !w.pretty {
		return
	}
	w.buf = append(w.buf, '\n')
	for range w.levels {
		w.buf = append(w.buf, '\t')
	}
}

// value is called before each value: it puts the comma of an array.
func (w *Writer) value() {
	if len(w.levels) == 0 {
		return
	}
	top := &w.levels[len(w.levels)-1]
	if top.array {
		if top.count > 0 {
			w.buf = append(w.buf, ',')
		}
		top.count++
	}
}

// Begin opens an object.
func (w *Writer) Begin() {
	w.value()
	w.buf = append(w.buf, '{')
	w.levels = append(w.levels, level{})
}

// End closes the object or array begun last.
func (w *Writer) End() {
	top := w.levels[len(w.levels)-1]
	w.levels = w.levels[:len(w.levels)-1]
	if top.array {
		w.buf = append(w.buf, ']')
		return
	}
	if top.count > 0 {
		w.line()
	}
	w.buf = append(w.buf, '}')
}

// BeginArray opens an array.
func (w *Writer) BeginArray() {
	w.value()
	w.buf = append(w.buf, '[')
	w.levels = append(w.levels, level{array: true})
}

// Key starts a member of an object.
func (w *Writer) Key(name string) {
	w.member()
	w.line()
	w.buf = appendString(w.buf, name)
	w.buf = append(w.buf, ':')
}

// IntKey starts a member of an object with an integer as key, unquoted and on the same line.
func (w *Writer) IntKey(n int64) {
	w.member()
	w.buf = strconv.AppendInt(w.buf, n, 10)
	w.buf = append(w.buf, ':')
}

func (w *Writer) member() {
	top := &w.levels[len(w.levels)-1]
	if top.count > 0 {
		w.buf = append(w.buf, ',')
	}
	top.count++
}

// Int writes an integer.
func (w *Writer) Int(n int64) {
	w.value()
	w.buf = strconv.AppendInt(w.buf, n, 10)
}

// Bool writes true or false.
func (w *Writer) Bool(b bool) {
	w.value()
	w.buf = strconv.AppendBool(w.buf, b)
}

// String writes a string.
func (w *Writer) String(s string) {
	w.value()
	w.buf = appendString(w.buf, s)
}

// Raw writes a value that Reader.Raw returned.
func (w *Writer) Raw(raw string) {
	if !w.pretty {
		w.value()
		w.buf = append(w.buf, raw...)
		return
	}
	// What Raw returned was checked then; an error would leave the text as far as it was good.
	_ = w.copy(NewReader([]byte(raw)))
}

func (w *Writer) copy(r *Reader) error {
	switch r.peek() {
	case '{':
		w.Begin()
		err := w.copyObject(r)
		w.End()
		return err
	case '[':
		w.BeginArray()
		err := r.Array(func() error { return w.copy(r) })
		w.End()
		return err
	}
	w.value()
	return r.skip(&w.buf)
}

func (w *Writer) copyObject(r *Reader) error {
	empty, err := r.open('{', '}')
	for more := !empty; more && err == nil; {
		var raw []byte
		if _, raw, err = r.keyToken(); err != nil {
			return err
		}
		w.member()
		if raw[0] == '"' {
			w.line()
		}
		w.buf = append(append(w.buf, raw...), ':')
		if err = w.copy(r); err != nil {
			return err
		}
		more, err = r.next('}')
	}
	return err
}

const hexDigits = "0123456789ABCDEF"

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	i := 0
	for i < len(s) && plain(s[i]) {
		i++
	}
	b = append(b, s[:i]...)
	for i < len(s) {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}

// plain reports whether a byte of a string stands for itself, whatever is around it.
func plain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }
