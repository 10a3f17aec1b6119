package chunk

import (
	"bytes"
	"strconv"
)

// Topic is what a storage obeys of a topic's config.
type Topic struct {
	Name                    string
	ReadQueues, WriteQueues int32
	Perm                    int32 // PermRead and PermWrite; other bits mean nothing here
}

// Permissions (RocketMQ: PermName).
const (
	PermWrite int32 = 2
	PermRead  int32 = 4
)

// defaultQueues is the queue count of a config that has none.
const defaultQueues = 16

// read takes the fields from a config; false where that is no compact JSON object or one of them is no number. Configs may have
// fields that nobody knows here, with integer keys without quotes among their values, as RocketMQ's JSON has them.
func (t *Topic) read(config []byte) bool {
	s := scanner{b: config}
	if !s.eat('{') {
		return false
	}
	for first := true; !s.eat('}'); first = false {
		if !first && !s.eat(',') {
			return false
		}
		key, ok := s.value()
		if !ok || !s.eat(':') {
			return false
		}
		value, ok := s.value()
		if !ok {
			return false
		}
		p := t.field(string(bytes.Trim(key, `"`)))
		if p == nil {
			continue
		}
		n, err := strconv.ParseInt(string(value), 10, 32)
		if err != nil {
			return false
		}
		*p = int32(n)
	}
	return len(s.b) == 0
}

func (t *Topic) field(name string) *int32 {
	switch name {
	case "readQueueNums":
		return &t.ReadQueues
	case "writeQueueNums":
		return &t.WriteQueues
	case "perm":
		return &t.Perm
	}
	return nil
}

// scanner cuts compact JSON into values without looking into them.
type scanner struct{ b []byte }

func (s *scanner) eat(c byte) bool {
	if len(s.b) == 0 || s.b[0] != c {
		return false
	}
	s.b = s.b[1:]
	return true
}

// value cuts off a string, a scalar, or an object or array with all that is in it.
func (s *scanner) value() ([]byte, bool) {
	depth := 0
	for i := 0; i < len(s.b); i++ {
		switch s.b[i] {
		case '"':
			if i = stringEnd(s.b, i); i < 0 {
				return nil, false
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 {
				return s.cut(i)
			}
			depth--
		case ',', ':':
			if depth == 0 {
				return s.cut(i)
			}
			continue
		default: // of a scalar, which ends where something else comes
			continue
		}
		if depth == 0 {
			return s.cut(i + 1)
		}
	}
	return nil, false
}

func (s *scanner) cut(n int) ([]byte, bool) {
	v := s.b[:n]
	s.b = s.b[n:]
	return v, n > 0
}

// stringEnd is the index of the quote that ends the string beginning at i; -1 where there is none.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
