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
		entries, deleted := d.Entries, d.Deleted
		size := 128 + usualEntry*min(len(entries), MaxEntries)
		for seq := 0; ; seq++ {
			b := appendHead(make([]byte, 0, size), d, seq)
			n := min(len(deleted), MaxEntries)
			b = appendDeleted(b, deleted[:n])
			deleted = deleted[n:]
			b, n = appendEntries(b, entries, MaxEntries-n)
			entries = entries[n:]
			last := len(entries)+len(deleted) == 0
			if last {
				b[flagsAt] |= flagLast
			}
			b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
			if !yield(b) || last {
				return
			}
			size = len(b) + len(b)/32 // as the one before, and a little more
		}
	}
}

// Last reports whether a chunk that Split made is the last one of its row.
func Last(chunk []byte) bool { return chunk[flagsAt]&flagLast != 0 }

func appendHead(b []byte, d *table.Delta, seq int) []byte {
	var flags byte
	if d.Full {
		flags |= flagFull
	}
	if d.SameUnknown {
		flags |= flagSameUnknown
	}
	b = append(b, version, byte(d.Kind), flags)
	b = binary.AppendUvarint(b, uint64(seq))
	b = appendVersion(b, d.From)
	b = appendVersion(b, d.To)
	b = binary.BigEndian.AppendUint64(b, d.Sum)
	b = binary.AppendUvarint(b, uint64(len(d.Entries)))
	b = binary.AppendUvarint(b, uint64(len(d.Deleted)))
	if seq == 0 && !d.SameUnknown {
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

// appendEntries appends as many entries as fit, each behind a byte 1, and a byte 0.
func appendEntries(b []byte, entries []table.Entry, most int) ([]byte, int) {
	n := 0
	for n < len(entries) && n < most && len(b) < softBytes {
		e := &entries[n]
		b = append(b, 1)
		b = binary.AppendVarint(b, e.Change)
		b = binary.AppendUvarint(b, uint64(entry.Absent(e.Value)))
		b = entry.AppendPacked(b, e.Key, e.Value)
		n++
	}
	return append(b, 0), n
}
