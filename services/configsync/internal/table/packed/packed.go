package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

var errEnds = errors.New("it ends in the middle")

// Reader reads from a buffer, which must not change meanwhile. The first error stays; after it nothing more is there.
type Reader struct {
	b   []byte
	at  int
	err error

	shared bool
	texts  strings.Builder
}

// textBlock is the size of the strings that short texts share.
const textBlock = 1 << 10

// NewReader reads b. With shared, short texts that come one after the other are cut from one string: cheaper to make, but one of
// them that stays keeps all of them. That is for who keeps all, or none.
func NewReader(b []byte, shared bool) *Reader { return &Reader{b: b, shared: shared} }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Failf notes an error.
func (r *Reader) Failf(format string, args ...any) { r.Fail(fmt.Errorf(format, args...)) }

// Fail notes an error.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b, r.at = nil, 0
}

// Left returns how many bytes are left.
func (r *Reader) Left() int { return len(r.b) - r.at }

// Mark is where the reader is, for Since.
func (r *Reader) Mark() int { return r.at }

// Since returns the bytes that were read behind mark; none after an error.
func (r *Reader) Since(mark int) []byte {
	if r.err != nil {
		return nil
	}
	return r.b[mark:r.at]
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if r.at >= len(r.b) {
		r.Fail(errEnds)
		return 0
	}
	c := r.b[r.at]
	r.at++
	return c
}

// Take reads n bytes; they lie in the buffer.
func (r *Reader) Take(n int) []byte {
	if n > r.Left() {
		r.Fail(errEnds)
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

// Uvarint reads a number without a sign.
func (r *Reader) Uvarint(limit uint64) uint64 {
	if r.at < len(r.b) && r.b[r.at] < 0x80 && uint64(r.b[r.at]) <= limit {
		r.at++
		return uint64(r.b[r.at-1])
	}
	n, size := binary.Uvarint(r.b[r.at:])
	if size <= 0 || n > limit || size > 1 && r.b[r.at+size-1] == 0 {
		r.Failf("a number that is not one, or above %d", limit)
		return 0
	}
	r.at += size
	return n
}

// Varint reads a number.
func (r *Reader) Varint() int64 {
	n := r.Uvarint(math.MaxUint64)
	return int64(n>>1) ^ -int64(n&1)
}

// Int32 reads a number of 32 bits.
func (r *Reader) Int32() int32 {
	n := r.Uvarint(math.MaxUint32)
	return int32(n>>1) ^ -int32(n&1)
}

// Count reads how many things follow; there are not more than bytes.
func (r *Reader) Count() int { return int(r.Uvarint(uint64(r.Left()))) }

// Text reads a text.
func (r *Reader) Text() string {
	b := r.Take(r.Count())
	if !utf8.Valid(b) {
		r.Failf("a text that is not UTF-8: %.80q", b)
		return ""
	}
	if !r.shared || len(b) > textBlock/8 {
		return string(b)
	}
	if r.texts.Cap()-r.texts.Len() < len(b) {
		r.texts = strings.Builder{}
		r.texts.Grow(textBlock)
	}
	at := r.texts.Len()
	r.texts.Write(b)
	return r.texts.String()[at:]
}

// AppendText appends a text.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
