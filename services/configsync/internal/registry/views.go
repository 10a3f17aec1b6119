package registry

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
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
	saved := r.Snapshot(entry.ConsumerOffsets)
	if own := saved.Offsets(topic, group); own != nil {
		for q := range own.All() {
			queues[q.Queue] = q
		}
	}
	for _, m := range []map[queueKey]entry.QueueOffset{c.saving, c.pending} {
		for key := range m {
			if key.topic == topic && key.group == group {
				queues[key.queue], _ = c.offset(saved, key)
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

// Standing returns where groups stand by topic and group, in the order of the keys from a key on: gathered commits included, also of
// groups of which nothing is saved yet; removed offsets are there as NoOffset.
func (r *Registry) Standing(from string) iter.Seq2[string, *entry.Offsets] {
	return func(yield func(string, *entry.Offsets) bool) {
		saved, gathered := r.gathered(from)
		keys := slices.Sorted(maps.Keys(gathered))
		for e := range saved.Ascend(from) {
			for ; len(keys) > 0 && keys[0] < e.Key; keys = keys[1:] {
				if !yield(keys[0], entry.NewOffsets(gathered[keys[0]]...)) {
					return
				}
			}
			offsets, _ := e.Value.(*entry.Offsets)
			if len(keys) > 0 && keys[0] == e.Key {
				offsets, keys = offsets.JoinAll(gathered[e.Key]), keys[1:]
			}
			if !yield(e.Key, offsets) {
				return
			}
		}
		for _, key := range keys {
			if !yield(key, entry.NewOffsets(gathered[key]...)) {
				return
			}
		}
	}
}

// gathered returns the saved offsets and those that were gathered on top of them, from a key on.
func (r *Registry) gathered(from string) (*table.Table, map[string][]entry.QueueOffset) {
	c := &r.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string][]entry.QueueOffset{}
	for _, m := range []map[queueKey]entry.QueueOffset{c.saving, c.pending} {
		for at, q := range m {
			if key := entry.OffsetKey(at.topic, at.group); key >= from {
				found[key] = append(found[key], q)
			}
		}
	}
	return r.Snapshot(entry.ConsumerOffsets), found
}
