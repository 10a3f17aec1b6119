package wire

import "encoding/binary"

// Sizes in bytes.
const (
	HeaderSize   = 12
	ReportSize   = 8
	TokenSize    = 16
	PreambleSize = ReportSize + TokenSize
	// BatchSize is the largest body that RocketMQ's master sends by default (haTransferBatchSize).
	BatchSize = 32 << 10
	// MaxBody is the largest body that a RocketMQ slave can take: its buffer of 4 MiB must hold the header too.
	MaxBody = 4<<20 - HeaderSize
)

// Token lets one Tandem slave open one stream.
type Token [TokenSize]byte

// magic opens the preamble. Read as a report it is negative, so no RocketMQ peer can have meant it.
var magic = [ReportSize]byte{0xD4, 'A', 'N', 'D', 'E', 'M', '0', '1'}

// Header precedes the body of a frame.
type Header struct {
	Offset int64 // of the first byte of the body in the log; of the next byte to come where Size is 0
	Size   int32 // of the body, bytes; 0 is a heartbeat
}

// PutHeader writes h into the first HeaderSize bytes of b.
func PutHeader(b []byte, h Header) {
	binary.BigEndian.PutUint64(b, uint64(h.Offset))
	binary.BigEndian.PutUint32(b[ReportSize:], uint32(h.Size))
}

// ParseHeader reads the first HeaderSize bytes of b. The result is what the peer claims: see Check.
func ParseHeader(b []byte) Header {
	return Header{
		Offset: int64(binary.BigEndian.Uint64(b)),
		Size:   int32(binary.BigEndian.Uint32(b[ReportSize:])),
	}
}

// Fault says what is wrong with a header.
type Fault uint8

// Faults of a header.
const (
	OK           Fault = iota
	NegativeSize       // Size is below 0
	TooLarge           // Size is above the limit of the link
	WrongOffset        // Offset is not the receiver's own end
)

// Check holds h against the receiver's end and the largest body it takes. Nothing may be allocated before it.
func (h Header) Check(end int64, maxBody int) Fault {
	switch {
	case h.Size < 0:
		return NegativeSize
	case int64(h.Size) > int64(maxBody):
		return TooLarge
	case h.Offset != end:
		return WrongOffset
	}
	return OK
}

// PutReport writes a report into the first ReportSize bytes of b.
func PutReport(b []byte, offset int64) { binary.BigEndian.PutUint64(b, uint64(offset)) }

// ParseReport reads the first ReportSize bytes of b. The result is what the peer claims.
func ParseReport(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

// AppendPreamble appends magic and token to dst.
func AppendPreamble(dst []byte, t Token) []byte {
	return append(append(dst, magic[:]...), t[:]...)
}

// First is what a connection begins with.
type First uint8

// Kinds of first bytes.
const (
	Report   First = iota // an offset: a plain RocketMQ slave, if the offset makes sense
	Preamble              // a Tandem slave; TokenSize bytes follow
	Text                  // eight printable characters: HTTP, a shell, a scanner's banner
	TLS                   // a TLS record
	Negative              // a negative number that is not the magic
)

// Classify says what the first ReportSize bytes of a connection are.
func Classify(b []byte) First {
	first := [ReportSize]byte(b)
	switch {
	case first == magic:
		return Preamble
	case first[0] >= 0x80:
		return Negative
	case first[0] == 0x16 && first[1] == 0x03:
		return TLS
	case printable(first):
		return Text
	}
	return Report
}

// printable is true of no offset below 2^61: its first byte would be below ' '.
func printable(b [ReportSize]byte) bool {
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\r' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}
