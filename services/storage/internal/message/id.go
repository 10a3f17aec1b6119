package message

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// OffsetMessageID returns the id that leads to a record: upper-case hex of the store's address (4 or 16 bytes), its port
// and the record's log offset; 32 or 56 characters (RocketMQ: MessageDecoder#createMessageId).
func OffsetMessageID(host netip.AddrPort, offset int64) string {
	var b [28]byte
	v6 := isV6(host)
	n := putHost(b[:], 0, host.Addr(), int32(host.Port()), v6)
	binary.BigEndian.PutUint64(b[n:], uint64(offset))
	n += 8
	const digits = "0123456789ABCDEF"
	var out [2 * len(b)]byte
	for i, c := range b[:n] {
		out[2*i], out[2*i+1] = digits[c>>4], digits[c&15]
	}
	return string(out[:2*n])
}

// ParseOffsetMessageID takes an id apart. The error is an errdefs.Invalid of field offsetMessageId.
func ParseOffsetMessageID(id string) (host netip.AddrPort, offset int64, err error) {
	bad := func(why string) (netip.AddrPort, int64, error) {
		return netip.AddrPort{}, 0, errdefs.Invalid("offsetMessageId", "%s", why).
			WithRemedy("give the 32 or 56 hex characters that the store returned")
	}
	if len(id) != 32 && len(id) != 56 {
		return bad("must have 32 or 56 characters")
	}
	b, decodeErr := hex.DecodeString(strings.ToLower(id))
	if decodeErr != nil {
		return bad("contains a character that is no hex digit")
	}
	n := len(b) - 12
	addr, _ := netip.AddrFromSlice(b[:n])
	port := binary.BigEndian.Uint32(b[n:])
	offset = int64(binary.BigEndian.Uint64(b[n+4:]))
	if port > 0xFFFF || offset < 0 {
		return bad("contains a port or an offset that cannot be")
	}
	return netip.AddrPortFrom(addr, uint16(port)), offset, nil
}
