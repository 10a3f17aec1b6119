package entry

import (
	"encoding/binary"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// UnitSize is the length of a unit of the index, bytes.
const UnitSize = 32

// Unit says where an entry is: DLedgerIndexEntry, at index * UnitSize of the index files.
type Unit struct {
	Pos   int64 // offset in the log
	Size  int   // bytes, header included
	Index raft.Index
	Term  raft.Term
}

// End returns the offset behind the entry.
func (u Unit) End() int64 { return u.Pos + int64(u.Size) }

// UnitOf returns the unit of the entry with header h.
func UnitOf(h *Header) Unit { return Unit{Pos: h.Pos, Size: h.Size, Index: h.Index, Term: h.Term} }

// AppendUnit appends the bytes of u to dst.
func AppendUnit(dst []byte, u Unit) []byte {
	dst = binary.BigEndian.AppendUint32(dst, magicEntry)
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.Pos))  //nolint:gosec // the format's own type
	dst = binary.BigEndian.AppendUint32(dst, uint32(u.Size)) //nolint:gosec // bounded by MaxSize
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.Index))
	return binary.BigEndian.AppendUint64(dst, uint64(u.Term))
}

// ReadUnit reads a unit; ok is false for one that no entry can have, such as one that was never written. A leader of
// DLedger 0.4 writes magic 1 for entries of other magics: it says nothing and is not returned.
func ReadUnit(b []byte) (u Unit, ok bool) {
	if len(b) < UnitSize {
		return u, false
	}
	magic := binary.BigEndian.Uint32(b)
	u = Unit{
		Pos:   int64(binary.BigEndian.Uint64(b[4:])),       //nolint:gosec // the format's own type
		Size:  int(int32(binary.BigEndian.Uint32(b[12:]))), //nolint:gosec // the format's own type
		Index: raft.Index(binary.BigEndian.Uint64(b[16:])),
		Term:  raft.Term(binary.BigEndian.Uint64(b[24:])),
	}
	ok = magic >= magicEntry && magic <= magicConf04 && u.Pos >= 0 && u.Size >= HeaderSize && u.Size <= MaxSize && u.Index >= 0 && u.Term >= 0
	return u, ok
}
