package entry

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Sizes, bytes.
const (
	HeaderSize = 48
	BlankSize  = 8       // what an entry leaves free behind it in its file
	MaxSize    = 4 << 20 // of an entry, header included: DLedger's localEntryBuffer
)

// NoOpChannel marks the entry without a body that opens a term. A magic of its own, as DLedger 0.4 has, would end the scan
// of DLedger 0.3.
const NoOpChannel int32 = 0x54444D01

const (
	magicEntry  = 1
	magicNoOp04 = 2 // DLedger 0.4
	magicConf04 = 3
	magicBlank  = -1
)

// sealBit of the chain field: all entries before this one were durable when it was written.
const sealBit = 1

// Errors of this package.
var (
	// ErrCorrupt: the bytes are no entry, or not the one that was written; `field` says what gave it away.
	ErrCorrupt = errdefs.New(errdefs.DataLoss, "ENTRY_CORRUPT", "the entry is not what was written")
	// ErrUnsupported: the entry is of a kind that only DLedger 0.4 writes.
	ErrUnsupported = errdefs.New(errdefs.FailedPrecondition, "ENTRY_KIND", "the entry is of a kind that this version does not know").
			WithRemedy("open the store with the DLedger that wrote it")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is what stands before a body.
type Header struct {
	Size    int // bytes, header included
	Index   raft.Index
	Term    raft.Term
	Pos     int64 // offset in the log of the node that wrote it
	Channel int32
	BodyCRC uint32 // 0: not recorded, or really 0
	// Sealed: the entry has Tandem's checksums. Synced, only with it: all before it was durable when it was written.
	Sealed, Synced bool
}

// Kind says who made the entry.
func (h *Header) Kind() raft.Kind {
	if h.Size == HeaderSize && h.Channel == NoOpChannel {
		return raft.NoOp
	}
	return raft.Normal
}

// New returns the payload of a client's entry: a header, which Stamp completes, and a copy of body. channel is the
// caller's, but not NoOpChannel.
func New(channel int32, body []byte) []byte {
	b := make([]byte, HeaderSize+len(body))
	copy(b[HeaderSize:], body)
	Prepare(b, channel)
	return b
}

// Prepare makes a payload of b, whose body stands behind HeaderSize bytes for the header.
func Prepare(b []byte, channel int32) {
	binary.BigEndian.PutUint32(b[0:], magicEntry)
	binary.BigEndian.PutUint32(b[4:], uint32(len(b))) //nolint:gosec // bounded by MaxSize
	binary.BigEndian.PutUint32(b[32:], uint32(channel))
	binary.BigEndian.PutUint32(b[40:], crc32.ChecksumIEEE(b[HeaderSize:]))
	binary.BigEndian.PutUint32(b[44:], uint32(len(b)-HeaderSize)) //nolint:gosec // bounded by MaxSize
}

// PutNoOp makes the payload of the entry that opens a term of the first 48 bytes of b.
func PutNoOp(b []byte) { Prepare(b[:HeaderSize], NoOpChannel) }

// Stamp gives a payload its place and seals it. synced says that all before it is durable. A body without a checksum, from
// a log that DLedger wrote, gets one.
func Stamp(b []byte, index raft.Index, term raft.Term, pos int64, synced bool) {
	binary.BigEndian.PutUint64(b[8:], uint64(index))
	binary.BigEndian.PutUint64(b[16:], uint64(term))
	binary.BigEndian.PutUint64(b[24:], uint64(pos))
	if binary.BigEndian.Uint32(b[40:]) == 0 {
		binary.BigEndian.PutUint32(b[40:], crc32.ChecksumIEEE(b[HeaderSize:]))
	}
	bit := uint32(0)
	if synced {
		bit = sealBit
	}
	binary.BigEndian.PutUint32(b[36:], seal(b, bit))
}

// seal is the checksum of the header without the chain field, begun with bit, which is also its lowest bit.
func seal(b []byte, bit uint32) uint32 {
	sum := crc32.Update(bit, castagnoli, b[:36])
	sum = crc32.Update(sum, castagnoli, b[40:HeaderSize])
	return sum&^sealBit | bit
}

// Read reads the entry that b begins with and checks all that it says about itself: magic, lengths, numbers and, where it
// is sealed, both checksums. It allocates nothing unless it fails.
func Read(b []byte) (Header, error) {
	h, err := ReadHeader(b)
	if err != nil {
		return h, err
	}
	if h.Size > len(b) {
		return h, ErrCorrupt.With("field", "size").With("size", h.Size).With("have", len(b))
	}
	if h.Sealed || h.BodyCRC != 0 {
		if sum := crc32.ChecksumIEEE(b[HeaderSize:h.Size]); sum != h.BodyCRC {
			return h, ErrCorrupt.With("field", "bodyCrc").With("want", h.BodyCRC).With("got", sum).With("index", h.Index)
		}
	}
	return h, nil
}

// ReadHeader is Read without the body, which need not be in b.
func ReadHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, ErrCorrupt.With("field", "header").With("have", len(b))
	}
	magic := int32(binary.BigEndian.Uint32(b)) //nolint:gosec // the format's own type
	chain := binary.BigEndian.Uint32(b[36:])
	length := int64(int32(binary.BigEndian.Uint32(b[44:]))) //nolint:gosec // the format's own type
	h := Header{
		Size:    int(int32(binary.BigEndian.Uint32(b[4:]))), //nolint:gosec // the format's own type
		Index:   raft.Index(binary.BigEndian.Uint64(b[8:])),
		Term:    raft.Term(binary.BigEndian.Uint64(b[16:])),
		Pos:     int64(binary.BigEndian.Uint64(b[24:])), //nolint:gosec // the format's own type
		Channel: int32(binary.BigEndian.Uint32(b[32:])), //nolint:gosec // the format's own type
		BodyCRC: binary.BigEndian.Uint32(b[40:]),
		Sealed:  chain != 0, Synced: chain&sealBit != 0,
	}
	field := ""
	switch {
	case magic == magicNoOp04 || magic == magicConf04:
		return h, ErrUnsupported.With("magic", magic).With("index", h.Index)
	case magic != magicEntry:
		field = "magic"
	case length < 0 || int64(h.Size) != HeaderSize+length || h.Size > MaxSize:
		field = "size"
	case h.Index < 0:
		field = "index"
	case h.Term < 0:
		field = "term"
	case h.Pos < 0:
		field = "pos"
	case h.Sealed && chain != seal(b, chain&sealBit):
		field = "chainCrc"
	default:
		return h, nil
	}
	return h, ErrCorrupt.With("field", field)
}

// Split reads the entries that stand side by side in b, as a leader's log has them, and appends them to dst: their
// payloads are parts of b. They must follow each other and their terms must not fall. b belongs to the entries from then
// on.
func Split(dst []raft.Entry, b []byte) ([]raft.Entry, error) {
	start := len(dst)
	for at := 0; at < len(b); {
		h, err := Read(b[at:])
		if err != nil {
			return dst[:start], err
		}
		if n := len(dst); n > start && (h.Index != dst[n-1].Index+1 || h.Term < dst[n-1].Term) {
			return dst[:start], ErrCorrupt.With("field", "index").With("index", h.Index).With("after", dst[n-1].Index)
		}
		dst = append(dst, h.Entry(b[at:]))
		at += h.Size
	}
	return dst, nil
}

// Entry returns the entry as the core takes it; b begins with it.
func (h *Header) Entry(b []byte) raft.Entry {
	return raft.Entry{Index: h.Index, Term: h.Term, Kind: h.Kind(), Size: h.Size, Payload: b[:h.Size:h.Size]}
}

// Body returns the body of the entry that b begins with and h was read from.
func (h *Header) Body(b []byte) []byte { return b[HeaderSize:h.Size:h.Size] }

// PutBlank writes the record that closes a file with rest bytes left; what is behind its 8 bytes must be zeros.
func PutBlank(b []byte, rest int64) {
	binary.BigEndian.PutUint32(b[0:], 0xFFFFFFFF)
	binary.BigEndian.PutUint32(b[4:], uint32(rest)) //nolint:gosec // at most a file's size, which DLedger keeps in an int
}

// IsBlank reports whether rest, all that is left of a file, is a record that closes it.
func IsBlank(rest []byte) bool {
	return len(rest) >= BlankSize && binary.BigEndian.Uint32(rest) == 0xFFFFFFFF && int64(binary.BigEndian.Uint32(rest[4:])) == int64(len(rest)) &&
		Used(rest[BlankSize:]) == 0
}

// Used returns the length of b without the zeros at its end.
func Used(b []byte) int {
	n := len(b)
	for n >= 8 && binary.NativeEndian.Uint64(b[n-8:]) == 0 {
		n -= 8
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return n
}
