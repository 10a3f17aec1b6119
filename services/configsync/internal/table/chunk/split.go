package chunk

import (
	"encoding/binary"
	"hash/crc32"
	"iter"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/packed"
)

const (
	// MaxEntries bounds the entries and deletions of a chunk.
	MaxEntries = 1024
	// MaxBytes bounds a chunk: softBytes, the last entry, and what is beside the entries.
	MaxBytes = 3*table.MaxEntry + 64<<10

	softBytes  = 1 << 20
	usualEntry = 48 // bytes of a topic; only a guess
	version    = 2
	flagsAt    = 2 // in a chunk
)

const (
	flagFull byte = 1 << iota
	flagLast
	flagSameUnknown
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Split returns the chunks of a delta, at least one. They are the caller's.
func Split(d *table.Delta) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		entries := d.All()
		s := &Splitter{delta: d, entries: entries, left: len(entries), total: len(entries), deleted: d.Deleted}
		for b := s.Next(); b != nil && yield(b); b = s.Next() {
		}
	}
}

// Splitter makes the chunks of a delta one after the other. Its entries are in a slice or, of a whole table, in that: so they need not
// be copied.
type Splitter struct {
	delta   *table.Delta // its head
	total   int          // entries
	left    int          // entries that come yet
	entries []table.Entry
	table   *table.Table
	last    string            // key of the table's last entry that came
	deleted []table.Tombstone // that come yet
	seq     int
	size    int // of the chunk before
	done    bool
}

// SplitTable begins the chunks of a whole table.
func SplitTable(t *table.Table) *Splitter {
	d := t.FullHead()
	return &Splitter{delta: d, table: t, left: t.Len(), total: t.Len(), deleted: d.Deleted}
}

// Next returns the next chunk, which is the caller's; nil behind the last one.
func (s *Splitter) Next() []byte {
	if s.done {
		return nil
	}
	if s.size == 0 {
		s.size = 128 + usualEntry*min(s.left, MaxEntries)
	}
	b := s.appendHead(make([]byte, 0, s.size+s.size/32))
	n := min(len(s.deleted), MaxEntries)
	b = appendDeleted(b, s.deleted[:n])
	s.deleted = s.deleted[n:]
	b = s.appendEntries(b, MaxEntries-n)
	if s.done = s.left+len(s.deleted) == 0; s.done {
		b[flagsAt] |= flagLast
	}
	s.seq++
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	s.size = len(b)
	return b
}

// Last reports whether a chunk that Split made is the last one of its row.
func Last(chunk []byte) bool { return chunk[flagsAt]&flagLast != 0 }

func (s *Splitter) appendHead(b []byte) []byte {
	d := s.delta
	var flags byte
	if d.Full {
		flags |= flagFull
	}
	if d.SameUnknown {
		flags |= flagSameUnknown
	}
	b = append(b, version, byte(d.Kind), flags)
	b = binary.AppendUvarint(b, uint64(s.seq))
	b = appendVersion(b, d.From)
	b = appendVersion(b, d.To)
	b = binary.BigEndian.AppendUint64(b, d.Sum)
	b = binary.AppendUvarint(b, uint64(s.total))
	b = binary.AppendUvarint(b, uint64(len(d.Deleted)))
	if s.seq == 0 && !d.SameUnknown {
		b = entry.AppendFields(b, d.Unknown)
	}
	return b
}

func appendVersion(b []byte, v entry.Version) []byte {
	b = binary.AppendVarint(b, v.State)
	b = binary.AppendVarint(b, v.Counter)
	return binary.AppendVarint(b, v.Timestamp)
}

func appendDeleted(b []byte, deleted []table.Tombstone) []byte {
	b = binary.AppendUvarint(b, uint64(len(deleted)))
	for _, t := range deleted {
		b = packed.AppendText(b, t.Key)
		b = binary.AppendVarint(b, t.Change)
	}
	return b
}

// appendEntries appends as many entries as fit, and a byte 0.
func (s *Splitter) appendEntries(b []byte, most int) []byte {
	if s.table == nil {
		for ; len(s.entries) > 0 && most > 0 && len(b) < softBytes; most-- {
			b = appendEntry(b, s.entries[0])
			s.entries = s.entries[1:]
			s.left--
		}
		return append(b, 0)
	}
	for e := range s.table.Ascend(s.last) {
		if e.Key == s.last { // no entry has the empty key
			continue
		}
		if most == 0 || len(b) >= softBytes {
			break
		}
		b = appendEntry(b, e)
		s.last = e.Key
		s.left--
		most--
	}
	return append(b, 0)
}

func appendEntry(b []byte, e table.Entry) []byte {
	b = append(b, 1)
	b = binary.AppendVarint(b, e.Change)
	b = binary.AppendUvarint(b, uint64(entry.Absent(e.Value)))
	return entry.AppendPacked(b, e.Key, e.Value)
}
