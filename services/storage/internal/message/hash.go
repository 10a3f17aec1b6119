package message

import "unicode/utf8"

// TagsCode returns the number by which queues filter: Java's String.hashCode of the TAGS property, sign extended; 0
// for absent or empty tags. It allocates nothing.
func TagsCode(tags []byte) int64 { return int64(HashCode(0, tags)) }

// HashCode continues Java's String.hashCode over the UTF-16 form of UTF-8 bytes: HashCode(HashCode(0, a), b) is the hash
// of the two strings joined.
func HashCode(h int32, s []byte) int32 {
	for len(s) > 0 {
		if c := s[0]; c < utf8.RuneSelf {
			h = 31*h + int32(c)
			s = s[1:]
			continue
		}
		r, n := utf8.DecodeRune(s)
		if r == utf8.RuneError && n == 1 {
			n = malformed(s)
		}
		if r > 0xFFFF {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
		s = s[n:]
	}
	return h
}

// malformed returns how many bytes Java's decoder replaces by one U+FFFD: the longest beginning of a sequence, and a
// surrogate as a whole.
func malformed(s []byte) int {
	need := 0
	lo, hi := byte(0x80), byte(0xBF)
	switch c := s[0]; {
	case c >= 0xE0 && c <= 0xEF:
		need = 3
		if c == 0xE0 {
			lo = 0xA0
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 4
		if c == 0xF0 {
			lo = 0x90
		}
		if c == 0xF4 {
			hi = 0x8F
		}
	default:
		return 1
	}
	n := 1
	for n < need && n < len(s) && s[n] >= lo && s[n] <= hi {
		n++
		lo, hi = 0x80, 0xBF
	}
	return n
}
