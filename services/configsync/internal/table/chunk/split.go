package chunk

import (
	"encoding/binary"
	"hash/crc32"
	"iter"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

const (
	// MaxEntries bounds the entries and deletions of a chunk.
	MaxEntries = 1024
	// MaxBytes bounds a chunk: softBytes, the last entry, and what is beside the entries.
	MaxBytes = 3*table.MaxEntry + 64<<10

	softBytes  = 1 << 20
	usualEntry = 192 // bytes of a topic; only a guess
	version    = 1
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
		for seq := 0; ; seq++ {
			var body []byte
			var n int
			body, n = appendDeleted(make([]byte, 0, usualEntry*min(len(entries), MaxEntries)+64), deleted[:min(len(deleted), MaxEntries)])
			deleted = deleted[n:]
			body, n = appendEntries(body, entries, MaxEntries-n)
			entries = entries[n:]
			last := len(entries)+len(deleted) == 0
			if !yield(seal(d, seq, last, body)) || last {
				return
			}
		}
	}
}

// seal puts head and checksum around a body.
func seal(d *table.Delta, seq int, last bool, body []byte) []byte {
	var flags byte
	if d.Full {
		flags |= flagFull
	}
	if last {
		flags |= flagLast
	}
	if d.SameUnknown {
		flags |= flagSameUnknown
	}
	b := make([]byte, 0, len(body)+128)
	b = append(b, version, byte(d.Kind), flags)
	b = binary.AppendUvarint(b, uint64(seq))
	b = appendVersion(b, d.From)
	b = appendVersion(b, d.To)
	b = binary.BigEndian.AppendUint64(b, d.Sum)
	b = binary.AppendUvarint(b, uint64(len(d.Entries)))
	b = binary.AppendUvarint(b, uint64(len(d.Deleted)))
	if seq == 0 && !d.SameUnknown {
		b = binary.AppendUvarint(b, uint64(len(d.Unknown)))
		for _, f := range d.Unknown {
			b = appendText(b, f.Name)
			b = appendText(b, f.Raw)
		}
	}
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func appendVersion(b []byte, v entry.Version) []byte {
	b = binary.AppendVarint(b, v.State)
	b = binary.AppendVarint(b, v.Counter)
	return binary.AppendVarint(b, v.Timestamp)
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendDeleted(b []byte, deleted []table.Tombstone) ([]byte, int) {
	b = binary.AppendUvarint(b, uint64(len(deleted)))
	for _, t := range deleted {
		b = appendText(b, t.Key)
		b = binary.AppendVarint(b, t.Change)
	}
	return b, len(deleted)
}

// appendEntries appends as many entries as fit, each behind a byte 1, and a byte 0.
func appendEntries(b []byte, entries []table.Entry, most int) ([]byte, int) {
	n := 0
	var text []byte
	for n < len(entries) && n < most && len(b) < softBytes {
		e := entries[n]
		b = append(b, 1)
		b = appendText(b, e.Key)
		b = binary.AppendVarint(b, e.Change)
		b, text = appendValue(b, e.Value, text)
		n++
	}
	return append(b, 0), n
}

// appendValue uses scratch, and returns it for the next one.
func appendValue(b []byte, v entry.Value, scratch []byte) (out, grown []byte) {
	switch v := v.(type) {
	case *entry.Offsets:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		for q := range v.All() {
			b = binary.AppendUvarint(b, uint64(q.Queue))
			b = binary.AppendUvarint(b, uint64(q.Epoch))
			b = binary.AppendVarint(b, q.Offset)
		}
		return b, scratch
	case *entry.Delay:
		b = binary.AppendUvarint(b, uint64(v.Epoch))
		return binary.AppendVarint(b, v.Offset), scratch
	}
	scratch = v.AppendJSON(scratch[:0])
	b = binary.AppendUvarint(b, uint64(len(scratch)))
	return append(b, scratch...), scratch
}
