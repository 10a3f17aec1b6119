package topicstest

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
)

// Chunks encodes d as configsync's FORMAT.md of chunks says, with at most size entries and deletions in each.
func Chunks(d *chunk.Delta, size int) [][]byte {
	var out [][]byte
	topics, deleted := d.Topics, d.Deleted
	for seq := 0; ; seq++ {
		n := min(len(deleted), size)
		m := min(len(topics), size-n)
		last := n == len(deleted) && m == len(topics)
		out = append(out, encode(d, seq, last, deleted[:n], topics[:m]))
		if deleted, topics = deleted[n:], topics[m:]; last {
			return out
		}
	}
}

func encode(d *chunk.Delta, seq int, last bool, deleted []string, topics []chunk.Topic) []byte {
	flags := byte(4) // the unknown fields are as before
	if d.Full {
		flags |= 1
	}
	if last {
		flags |= 2
	}
	b := []byte{2, 1, flags}
	b = binary.AppendUvarint(b, uint64(seq)) //nolint:gosec // from 0
	for _, v := range []chunk.Version{d.From, d.To} {
		b = binary.AppendVarint(b, v.State)
		b = binary.AppendVarint(b, v.Counter)
		b = binary.AppendVarint(b, v.Timestamp)
	}
	b = binary.BigEndian.AppendUint64(b, d.Sum)
	b = binary.AppendUvarint(b, uint64(len(d.Topics)))
	b = binary.AppendUvarint(b, uint64(len(d.Deleted)))
	b = binary.AppendUvarint(b, uint64(len(deleted)))
	for _, name := range deleted {
		b = binary.AppendVarint(text(b, name), d.To.Counter)
	}
	for _, t := range topics {
		b = binary.AppendVarint(append(b, 1), d.To.Counter)
		b = text(append(b, 0), t.Name) // no field is absent
		b = append(b, 3)               // ordered, several tags
		for _, n := range []int32{t.ReadQueues, t.WriteQueues, t.Perm, 1} {
			b = binary.AppendVarint(b, int64(n))
		}
		b = text(text(append(b, 1), "queue.type"), `a,"b}`)
		b = text(text(append(b, 1), "x"), `{0:[1,2],1:"}"}`)
	}
	b = append(b, 0)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func text(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
