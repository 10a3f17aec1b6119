package registry

import (
	"cmp"
	"context"
	"slices"

	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Flush saves what was gathered until now.
func (r *Registry) Flush(ctx context.Context) error { return r.saveCommits(ctx) }

// Unsaved is the number of queues with commits that are gathered and not saved yet.
func (r *Registry) Unsaved() int {
	r.commits.mu.Lock()
	defer r.commits.mu.Unlock()
	return len(r.commits.pending) + len(r.commits.saving)
}

// Offsets returns a group's offsets in a topic by queue, gathered commits included; removed ones are there as NoOffset.
func (r *Registry) Offsets(topic, group string) []entry.QueueOffset {
	c := &r.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	queues := map[int32]entry.QueueOffset{}
	if saved := r.Snapshot(entry.ConsumerOffsets).Offsets(topic, group); saved != nil {
		for q := range saved.All() {
			queues[q.Queue] = q
		}
	}
	for _, m := range []map[queueKey]entry.QueueOffset{c.saving, c.pending} {
		for key := range m {
			if key.topic == topic && key.group == group {
				queues[key.queue], _ = r.offset(key)
			}
		}
	}
	out := make([]entry.QueueOffset, 0, len(queues))
	for _, q := range queues {
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b entry.QueueOffset) int { return cmp.Compare(a.Queue, b.Queue) })
	return out
}
