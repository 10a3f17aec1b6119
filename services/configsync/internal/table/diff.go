package table

import (
	"fmt"
	"iter"

	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Difference is one thing that two tables say differently.
type Difference struct {
	Kind  entry.Kind
	Key   string
	Field string // the JSON field, "queue 3", or empty: the whole entry
	// Left and Right are what the tables say; empty where one says nothing.
	Left, Right string
}

// Diff returns what differs between two tables of one kind, in the order of the keys. Versions are not compared.
func Diff(left, right *Table) iter.Seq[Difference] {
	return func(yield func(Difference) bool) {
		next, stop := iter.Pull(right.Ascend(""))
		defer stop()
		r, more := next()
		for l := range left.Ascend("") {
			for ; more && r.Key < l.Key; r, more = next() {
				if !yield(Difference{Kind: left.kind, Key: r.Key, Right: text(r.Value)}) {
					return
				}
			}
			if !more || r.Key != l.Key {
				if !yield(Difference{Kind: left.kind, Key: l.Key, Left: text(l.Value)}) {
					return
				}
				continue
			}
			if !l.Value.Equal(r.Value) && !diffValues(left.kind, l, r, yield) {
				return
			}
			r, more = next()
		}
		for ; more; r, more = next() {
			if !yield(Difference{Kind: left.kind, Key: r.Key, Right: text(r.Value)}) {
				return
			}
		}
	}
}

func text(v entry.Value) string { return string(v.AppendJSON(nil)) }

func diffValues(kind entry.Kind, l, r Entry, yield func(Difference) bool) bool {
	if lo, ok := l.Value.(*entry.Offsets); ok {
		if ro, ok := r.Value.(*entry.Offsets); ok {
			return diffOffsets(kind, l.Key, lo, ro, yield)
		}
	}
	if ld, ok := l.Value.(*entry.Delay); ok {
		if rd, ok := r.Value.(*entry.Delay); ok {
			return yield(Difference{Kind: kind, Key: l.Key, Left: offsetText(ld.Offset, ld.Epoch), Right: offsetText(rd.Offset, rd.Epoch)})
		}
	}
	for _, f := range entry.Differences(l.Value, r.Value) {
		if !yield(Difference{Kind: kind, Key: l.Key, Field: f.Name, Left: f.Left, Right: f.Right}) {
			return false
		}
	}
	return true
}

func diffOffsets(kind entry.Kind, key string, l, r *entry.Offsets, yield func(Difference) bool) bool {
	for q := range l.All() {
		if o, ok := r.Get(q.Queue); o != q {
			d := offsetDifference(kind, key, q, o)
			if !ok {
				d.Right = ""
			}
			if !yield(d) {
				return false
			}
		}
	}
	for o := range r.All() {
		if _, ok := l.Get(o.Queue); !ok {
			d := offsetDifference(kind, key, o, o)
			d.Left = ""
			if !yield(d) {
				return false
			}
		}
	}
	return true
}

func offsetDifference(kind entry.Kind, key string, l, r entry.QueueOffset) Difference {
	d := Difference{Kind: kind, Key: key, Left: offsetText(l.Offset, l.Epoch), Right: offsetText(r.Offset, r.Epoch)}
	if kind == entry.ConsumerOffsets {
		d.Field = fmt.Sprintf("queue %d", l.Queue)
	}
	return d
}

// offsetText is an offset as an operator reads it: with its epoch if it has one.
func offsetText(offset int64, epoch uint32) string {
	if epoch == 0 {
		return fmt.Sprint(offset)
	}
	return fmt.Sprintf("%d (epoch %d)", offset, epoch)
}
