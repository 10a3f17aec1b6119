package role

import (
	"context"

	"github.com/tandemlog/tandem/services/configsync/internal/storage"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// surviving is a peer's table of offsets as it may be joined when this reign has begun. All that a peer has of this reign it has
// from this node, which saved it first. So what is ahead of the own offsets was committed in an earlier reign; and what of that
// lies behind where this reign began was consumed from a log that was cut there. It counts up to there, or to what its group has
// reached here since, as a reset: the peer has to come back too.
func (m *Manager) surviving(ctx context.Context, t *table.Table, r storage.Role) (*table.Table, error) {
	var ends storage.Ends
	if m.queues != nil {
		var err error
		if ends, err = m.queues.List(ctx, "", r.Start); err != nil {
			return nil, err
		}
	}
	own, limit := m.tables.Snapshot(t.Kind()), limit(ends)
	b := table.NewBuilder(t.Kind())
	for e := range t.Ascend("") {
		switch v := e.Value.(type) {
		case *entry.Offsets:
			topic, group, _ := entry.SplitOffsetKey(e.Key)
			queues := make([]entry.QueueOffset, 0, v.Len())
			for q := range v.All() {
				have, exists := own.Offset(topic, group, q.Queue)
				queues = append(queues, survivor(q, have, exists, limit, topic, q.Queue))
			}
			e.Value = entry.NewOffsets(queues...)
		case *entry.Delay:
			level, _ := entry.ParseDelayKey(e.Key)
			have, exists := own.Delay(level)
			q := survivor(entry.QueueOffset{Epoch: v.Epoch, Offset: v.Offset}, entry.QueueOffset{Epoch: have.Epoch, Offset: have.Offset},
				exists, limit, table.ScheduleTopic, level-1)
			e.Value = &entry.Delay{Epoch: q.Epoch, Offset: q.Offset}
		}
		if err := b.Add(e); err != nil {
			return nil, err
		}
	}
	// Without a version: what is joined gets one of this reign, and so goes to all slaves, also where the peer has this node's.
	return b.Table(entry.Version{}, t.Form(), t.Unknown()), nil
}

// survivor is what of a peer's offset q counts here.
func survivor(q, have entry.QueueOffset, exists bool, limit func(string, int32) (int64, bool), topic string, queue int32) entry.QueueOffset {
	end, known := limit(topic, queue)
	ahead := !exists || have.Join(q) != have
	if !known || !ahead || q.Offset <= end || q.Epoch == entry.MaxEpoch {
		return q
	}
	if exists {
		end = max(end, have.Offset)
	}
	return entry.QueueOffset{Queue: q.Queue, Epoch: q.Epoch + 1, Offset: end}
}
