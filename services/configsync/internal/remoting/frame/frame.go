package frame

import (
	"encoding/binary"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Sizes, bytes.
const (
	// PrefixSize is that of the two lengths before the header.
	PrefixSize = 8
	// MaxHeader bounds headers that are read.
	MaxHeader = 64 << 10
	// DefaultMaxFrame is RocketMQ's own bound of what follows the first length.
	DefaultMaxFrame = 16 << 20
)

// Encoding is the form of a header.
type Encoding uint8

// Encodings.
const (
	JSON   Encoding = 0
	Binary Encoding = 1 // RocketMQ's own: "ROCKETMQ"
)

// Bits of Command.Flag.
const (
	FlagResponse = 1 << 0
	FlagOneWay   = 1 << 1
)

// Errors. None of them is answered: the stream has no frame any more behind a wrong length, and a header that cannot be read has
// no number to answer to.
var (
	// ErrLength: a length that no frame has; metadata looks_like where the bytes are another protocol's.
	ErrLength = errdefs.New(errdefs.InvalidArgument, "FRAME_LENGTH", "no remoting frame has this length")
	// ErrType: neither JSON nor binary.
	ErrType = errdefs.New(errdefs.InvalidArgument, "HEADER_TYPE", "neither a JSON nor a binary header")
	// ErrHeader: the header is not whole.
	ErrHeader = errdefs.New(errdefs.InvalidArgument, "BROKEN_HEADER", "not a whole header")
)

// Prefix is what the first eight bytes say.
type Prefix struct {
	Encoding     Encoding
	Header, Body int // bytes
}

// ParsePrefix reads the first PrefixSize bytes of a frame. maxFrame bounds what may follow the first length.
func ParsePrefix(b []byte, maxFrame int) (Prefix, error) {
	length, second := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	header := int(second & 0xffffff)
	if length < 4 || uint64(length) > uint64(maxFrame) { //nolint:gosec // a bound is positive
		err := ErrLength.With("length", int32(length)).With("max", maxFrame) //nolint:gosec // as Java shows it
		if name := otherProtocol(b); name != "" {
			err = err.With("looks_like", name)
		}
		return Prefix{}, err
	}
	if header > MaxHeader || header > int(length)-4 {
		return Prefix{}, ErrLength.With("length", length).With("header_length", header).With("max_header", MaxHeader)
	}
	e := Encoding(second >> 24)
	if e != JSON && e != Binary {
		return Prefix{}, ErrType.With("type", e)
	}
	return Prefix{Encoding: e, Header: header, Body: int(length) - 4 - header}, nil
}

// otherProtocol names the protocol whose beginning the bytes are, or "".
func otherProtocol(b []byte) string {
	if b[0] == 0x16 && b[1] == 3 {
		return "TLS"
	}
	for _, c := range b[:4] {
		if c < ' ' || c > '~' {
			return ""
		}
	}
	return "text"
}

// Command is a header.
type Command struct {
	Encoding Encoding
	Code     int32
	Language Language
	Version  int32 // ordinal of a RocketMQ version
	Opaque   int32 // number of the request, repeated in its response
	Flag     int32
	Remark   string
	Fields   map[string]string // extFields; nil: none
}

// Response reports whether the command answers one.
func (c *Command) Response() bool { return c.Flag&FlagResponse != 0 }

// OneWay reports whether no answer is wanted.
func (c *Command) OneWay() bool { return c.Flag&FlagOneWay != 0 }

// Parse reads a header.
func Parse(e Encoding, header []byte) (*Command, error) {
	if e == Binary {
		return parseBinary(header)
	}
	return parseJSON(header)
}

// Append appends the frame of c up to its body of bodySize bytes, which the caller sends behind it. In a binary header Code
// and Version have 16 bits, keys of fields 32,767 bytes.
func Append(b []byte, c *Command, bodySize int) []byte {
	at := len(b)
	b = append(b, make([]byte, PrefixSize)...)
	if c.Encoding == Binary {
		b = appendBinary(b, c)
	} else {
		b = appendJSON(b, c)
	}
	header := len(b) - at - PrefixSize
	binary.BigEndian.PutUint32(b[at:], uint32(4+header+bodySize))               //nolint:gosec // bounded by who reads
	binary.BigEndian.PutUint32(b[at+4:], uint32(c.Encoding)<<24|uint32(header)) //nolint:gosec // as above
	return b
}
