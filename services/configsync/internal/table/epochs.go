package table

import "github.com/tandemlog/tandem/services/configsync/internal/table/entry"

// WithEpochs returns a table of offsets that came from RocketMQ's file, which has none, with the epochs that entries know:
// a queue of both keeps its offset and gets the epoch, one that a reset removed comes back as removed. The version stays.
func (t *Table) WithEpochs(entries []Entry) *Table {
	e := t.Edit(0, 0)
	e.counter = t.version.Counter
	for _, in := range entries {
		old, _ := e.edit.Get(in.Key)
		switch v := in.Value.(type) {
		case *entry.Offsets:
			have, _ := old.Value.(*entry.Offsets)
			var queues []entry.QueueOffset
			for q := range v.All() {
				if o, ok := have.Get(q.Queue); ok {
					q.Offset = o.Offset
				} else if q.Offset != entry.NoOffset {
					continue
				}
				queues = append(queues, q)
			}
			if len(queues) > 0 {
				e.join(in.Key, queues...)
			}
		case *entry.Delay:
			d := *v
			if have, ok := old.Value.(*entry.Delay); ok {
				d.Offset = have.Offset
			} else if d.Offset != entry.NoOffset {
				continue
			}
			e.set(in.Key, &d)
		}
	}
	if !e.changed {
		return t
	}
	next := e.next
	next.tree = e.edit.Tree()
	next.derived = t.derived
	return &next
}
