package packed

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func TestThereAndBack(t *testing.T) {
	texts := []string{"", "a", "ä€", strings.Repeat("x", 90), strings.Repeat("y", textBlock), "z"}
	numbers := []int64{0, 1, -1, 63, 64, -64, -65, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
	var b []byte
	for range 20 {
		for _, s := range texts {
			b = AppendText(b, s)
		}
		for _, n := range numbers {
			b = binary.AppendVarint(b, n)
		}
	}
	for _, shared := range []bool{false, true} {
		r := NewReader(b, shared)
		for range 20 {
			for _, s := range texts {
				if got := r.Text(); got != s {
					t.Fatalf("%q became %q: %v", s, got, r.Err())
				}
			}
			for _, n := range numbers {
				at := r.Mark()
				if got := r.Varint(); got != n || len(r.Since(at)) != len(binary.AppendVarint(nil, n)) {
					t.Fatalf("%d became %d: %v", n, got, r.Err())
				}
			}
		}
		if r.Left() != 0 || r.Err() != nil {
			t.Errorf("%d bytes are left, %v", r.Left(), r.Err())
		}
	}
}

func TestInt32(t *testing.T) {
	for _, n := range []int64{0, -1, math.MaxInt32, math.MinInt32} {
		if r := NewReader(binary.AppendVarint(nil, n), false); int64(r.Int32()) != n || r.Err() != nil {
			t.Errorf("%d: %v", n, r.Err())
		}
	}
	for _, n := range []int64{math.MaxInt32 + 1, math.MinInt32 - 1} {
		if r := NewReader(binary.AppendVarint(nil, n), false); r.Int32() != 0 || r.Err() == nil {
			t.Errorf("%d is taken", n)
		}
	}
}

// TestRefused: what is cut, too large, not UTF-8 or longer than it need be is an error, and nothing comes behind it.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		read func(*Reader)
	}{
		"nothing":             {nil, func(r *Reader) { r.Byte() }},
		"no number":           {nil, func(r *Reader) { r.Varint() }},
		"half a number":       {[]byte{0x80}, func(r *Reader) { r.Varint() }},
		"a needless byte":     {[]byte{0x81, 0}, func(r *Reader) { r.Uvarint(1000) }},
		"zero in two bytes":   {[]byte{0x80, 0}, func(r *Reader) { r.Uvarint(1000) }},
		"eleven bytes":        {bytes.Repeat([]byte{0xff}, 11), func(r *Reader) { r.Uvarint(math.MaxUint64) }},
		"above the limit":     {[]byte{6}, func(r *Reader) { r.Uvarint(5) }},
		"more than is left":   {[]byte{4, 1, 2}, func(r *Reader) { r.Count() }},
		"a text that is cut":  {[]byte{3, 'a', 'b'}, func(r *Reader) { r.Text() }},
		"a text of no UTF-8":  {[]byte{1, 0xff, 'b'}, func(r *Reader) { r.Text() }},
		"more bytes than are": {[]byte{1}, func(r *Reader) { r.Take(2) }},
	} {
		r := NewReader(c.b, true)
		c.read(r)
		first := r.Err()
		if first == nil || r.Left() != 0 || r.Since(0) != nil {
			t.Errorf("%s: %v, %d left", name, first, r.Left())
		}
		r.Failf("another")
		if r.Byte() != 0 || r.Text() != "" || r.Err() != first { //nolint:errorlint // this very one
			t.Errorf("%s: then %v", name, r.Err())
		}
	}
}
