package disk

import (
	"encoding/binary"
	"iter"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// appendDelta appends the payload of a record of changes: chunks, each behind its length.
func appendDelta(b []byte, d *table.Delta) []byte {
	for c := range chunk.Split(d) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(c)))
		b = append(b, c...)
	}
	return b
}

func parseDelta(kind entry.Kind, payload []byte) (*table.Delta, error) {
	a := chunk.NewAssembly(kind)
	for len(payload) > 0 {
		if len(payload) < 4 || int64(binary.BigEndian.Uint32(payload)) > int64(len(payload)-4) {
			return nil, chunk.ErrChunk.WithMsg("a record that ends in the middle of a chunk")
		}
		n := 4 + int(binary.BigEndian.Uint32(payload))
		if err := a.Add(payload[4:n]); err != nil {
			return nil, err
		}
		payload = payload[n:]
	}
	return a.Delta()
}

// base says what content a segment begins with: its version and sum, and what a JSON file does not say of it.
type base struct {
	version entry.Version
	sum     uint64
	epochs  *table.Delta // entries with an epoch
}

func appendBase(b []byte, t *table.Table) []byte {
	d := &table.Delta{Kind: t.Kind(), To: t.Version(), Sum: t.Sum(), SameUnknown: true}
	if t.ResetEpoch() > 0 {
		for e := range t.Ascend("") {
			if hasEpoch(e.Value) {
				d.Entries = append(d.Entries, e)
			}
		}
	}
	return appendDelta(b, d)
}

func parseBase(kind entry.Kind, payload []byte) (base, error) {
	d, err := parseDelta(kind, payload)
	if err != nil {
		return base{}, err
	}
	return base{version: d.To, sum: d.Sum, epochs: d}, nil
}

func hasEpoch(v entry.Value) bool {
	for q := range queuesOf(v) {
		if q.Epoch > 0 {
			return true
		}
	}
	return false
}

// queuesOf returns the offsets of a value; a delay level is one queue.
func queuesOf(v entry.Value) iter.Seq[entry.QueueOffset] {
	return func(yield func(entry.QueueOffset) bool) {
		switch v := v.(type) {
		case *entry.Offsets:
			for q := range v.All() {
				if !yield(q) {
					return
				}
			}
		case *entry.Delay:
			yield(entry.QueueOffset{Epoch: v.Epoch, Offset: v.Offset})
		}
	}
}
