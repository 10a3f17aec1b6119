package store

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"
)

// idSource makes UNIQ_KEYs of RocketMQ's shape: 16 bytes in upper-case hex, of which host, process and start make
// 10, milliseconds since the start 4 and a counter 2 (common MessageClientIDSetter).
type idSource struct {
	prefix [10]byte
	start  time.Time
	count  *atomic.Uint32
}

func newIDSource(host netip.AddrPort, start time.Time) idSource {
	s := idSource{start: start, count: new(atomic.Uint32)}
	if host.Addr().Is4() {
		a := host.Addr().As4()
		copy(s.prefix[:4], a[:])
	}
	_, _ = rand.Read(s.prefix[4:]) // crypto/rand.Read never fails
	return s
}

// idSize is the length of an id, characters.
const idSize = 32

const digits = "0123456789ABCDEF"

// appendID appends a new id.
func (s *idSource) appendID(dst []byte, now time.Time) []byte {
	var id [16]byte
	copy(id[:], s.prefix[:])
	n := s.count.Add(1)
	// The counter's upper half goes into the time, so that ids do not repeat above 65,536 a millisecond.
	binary.BigEndian.PutUint32(id[10:], uint32(now.Sub(s.start).Milliseconds())+n>>16)
	binary.BigEndian.PutUint16(id[14:], uint16(n))
	for _, b := range id {
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return dst
}
