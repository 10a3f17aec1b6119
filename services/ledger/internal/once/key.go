package once

import (
	"encoding/binary"

	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// Channel marks an entry whose body ends with a key; see FORMAT.md.
const Channel int32 = 0x54444D02

// TrailerSize is what a key takes behind a body, bytes.
const TrailerSize = 28

// Client is the id of a client.
type Client [16]byte

// Key names one append.
type Key struct {
	Client   Client
	Sequence uint64
}

// Reserved reports whether a client may not use the channel.
func Reserved(channel int32) bool { return channel&^0xff == entry.NoOpChannel&^0xff }

// Payload makes the entry of a client's body, which is copied; key may be nil.
func Payload(channel int32, body []byte, key *Key) []byte {
	if key == nil {
		return entry.New(channel, body)
	}
	b := make([]byte, entry.HeaderSize, entry.HeaderSize+len(body)+TrailerSize)
	b = append(b, body...)
	b = binary.BigEndian.AppendUint32(b, uint32(channel)) //nolint:gosec // the format's own type
	b = append(b, key.Client[:]...)
	b = binary.BigEndian.AppendUint64(b, key.Sequence)
	entry.Prepare(b, Channel)
	return b
}

// Content is an entry as its client wrote it.
type Content struct {
	Body    []byte
	Channel int32
	Key     Key
	Keyed   bool
}

// Read takes the entry apart that b begins with and h was read from; the body is a part of b.
func Read(h *entry.Header, b []byte) Content {
	body := h.Body(b)
	n := len(body) - TrailerSize
	if h.Channel != Channel || n <= 0 {
		return Content{Body: body, Channel: h.Channel}
	}
	t := body[n:]
	return Content{
		Body: body[:n:n], Channel: int32(binary.BigEndian.Uint32(t)), Keyed: true, //nolint:gosec // the format's own type
		Key: Key{Client: Client(t[4:20]), Sequence: binary.BigEndian.Uint64(t[20:])},
	}
}
