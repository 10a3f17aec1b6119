package registry

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// queueKey names a group's place in a queue.
type queueKey struct {
	topic, group string
	queue        int32
}

// commits are offsets that were gathered and are not saved yet.
type commits struct {
	mu      sync.Mutex
	pending map[queueKey]entry.QueueOffset
	saving  map[queueKey]entry.QueueOffset // those of the change under way; read only
	round   int64                          // grows when pending becomes saving
	saved   atomic.Int64                   // rounds that are saved

	saver chan struct{} // capacity 1: who has put a token in saves
}

func (c *commits) init() {
	c.pending = map[queueKey]entry.QueueOffset{}
	c.saver = make(chan struct{}, 1)
}

// CommitResult counts what became of commits.
type CommitResult struct {
	Taken  int
	Lower  int // below what is there, which stays
	Staled int // of before a reset that the consumer has not heard of: then none is taken
}

// CommitOffsets takes the progress of consumers. With wait they are saved on return, else gathered: Offset sees them, and
// Run saves them within CommitInterval. An illegal one is an error, and none is taken.
func (r *Registry) CommitOffsets(ctx context.Context, batch []table.Commit, wait bool) (CommitResult, error) {
	for i := range batch {
		if err := batch[i].Validate(); err != nil {
			return CommitResult{}, err
		}
	}
	if err := r.usable(); err != nil {
		return CommitResult{}, err
	}
	if err := r.Whole(entry.ConsumerOffsets); err != nil {
		return CommitResult{}, err
	}
	if r.pendingCommits() >= r.o.MaxPending {
		if err := r.saveCommits(ctx); err != nil {
			return CommitResult{}, err
		}
	}
	result, round := r.gather(batch)
	r.metrics.committed(result)
	if wait {
		return result, r.saveRound(ctx, round)
	}
	return result, nil
}

func (r *Registry) pendingCommits() int {
	r.commits.mu.Lock()
	defer r.commits.mu.Unlock()
	return len(r.commits.pending)
}

// gather judges commits against what is known and keeps those that are taken. round is that with which they are saved.
func (r *Registry) gather(batch []table.Commit) (result CommitResult, round int64) {
	c := &r.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	saved := r.Snapshot(entry.ConsumerOffsets)
	if len(batch) > 1 { // one alone is taken or not
		for _, commit := range batch {
			if !commit.Guard {
				continue
			}
			if _, outcome := commit.Judge(c.offset(saved, keyOf(commit))); outcome == table.Staled {
				result.Staled++
			}
		}
		if result.Staled > 0 {
			return result, 0
		}
	}
	for _, commit := range batch {
		have, exists := c.offset(saved, keyOf(commit))
		q, outcome := commit.Judge(have, exists)
		switch outcome {
		case table.Taken:
			result.Taken++
			if !exists || q != have {
				c.pending[keyOf(commit)] = q
			}
		case table.Lower:
			result.Lower++
		case table.Staled:
			result.Staled++
		}
	}
	return result, c.round + 1
}

func keyOf(c table.Commit) queueKey { return queueKey{c.Topic, c.Group, c.Queue} }

// offset returns the newest that is known of a queue. c.mu is held. What was gathered before a reset does not hide it.
func (c *commits) offset(saved *table.Table, key queueKey) (entry.QueueOffset, bool) {
	have, exists := saved.Offset(key.topic, key.group, key.queue)
	for _, m := range []map[queueKey]entry.QueueOffset{c.saving, c.pending} {
		if q, ok := m[key]; ok {
			if exists {
				q = have.Join(q)
			}
			have, exists = q, true
		}
	}
	return have, exists
}

// Offset returns a group's offset in a queue, gathered commits included. One that a reset removed is there as NoOffset.
func (r *Registry) Offset(topic, group string, queue int32) (entry.QueueOffset, bool) {
	r.commits.mu.Lock()
	defer r.commits.mu.Unlock()
	return r.commits.offset(r.Snapshot(entry.ConsumerOffsets), queueKey{topic, group, queue})
}

// saveCommits saves all that is gathered now.
func (r *Registry) saveCommits(ctx context.Context) error {
	r.commits.mu.Lock()
	round := r.commits.round
	if len(r.commits.pending) > 0 {
		round++
	}
	r.commits.mu.Unlock()
	return r.saveRound(ctx, round)
}

// saveRound returns when a round is saved: by whoever saves it, this caller or one before it.
func (r *Registry) saveRound(ctx context.Context, round int64) error {
	c := &r.commits
	if c.saved.Load() >= round {
		return nil
	}
	select {
	case c.saver <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.saver }()
	if c.saved.Load() >= round {
		return nil
	}
	c.mu.Lock()
	c.saving, c.pending = c.pending, make(map[queueKey]entry.QueueOffset, len(c.pending))
	c.round++
	begun := c.round
	c.mu.Unlock()
	var err error
	if len(c.saving) > 0 {
		err = r.stores[entry.ConsumerOffsets].do(ctx, change{apply: r.withSaving})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		r.takeBack()
		return err
	}
	c.saving = nil
	c.saved.Store(begun)
	return nil
}

// withSaving returns the next table, with what was gathered.
func (r *Registry) withSaving(own *table.Table) (*table.Table, error) {
	byGroup := map[queueKey][]entry.QueueOffset{}
	for key, q := range r.commits.saving {
		group := queueKey{topic: key.topic, group: key.group}
		byGroup[group] = append(byGroup[group], q)
	}
	if r.resigned.Load() {
		return withGathered(own, byGroup)
	}
	e := own.Edit(r.epoch.Load(), r.nowMS())
	for key, queues := range byGroup {
		cs := make([]table.Commit, 0, len(queues))
		for _, q := range queues { // guarded, as a reset may have come since it was gathered
			cs = append(cs, table.Commit{Topic: key.topic, Group: key.group, Queue: q.Queue, Offset: q.Offset, Guard: true, Epoch: q.Epoch})
		}
		e.CommitAll(key.topic, key.group, cs)
	}
	next, _ := e.Done()
	return next, nil
}

// withGathered joins offsets into the own ones as if they had come under the same version: they are ahead of the master's then, and it
// asks for them.
func withGathered(own *table.Table, byGroup map[queueKey][]entry.QueueOffset) (*table.Table, error) {
	b := table.NewBuilder(own.Kind())
	for key, queues := range byGroup {
		if err := b.Add(table.Entry{Key: entry.OffsetKey(key.topic, key.group), Value: entry.NewOffsets(queues...)}); err != nil {
			return nil, err
		}
	}
	next, _, err := table.Follow(own, b.Table(own.Version(), own.Form(), own.Unknown()).Full(), table.FollowOptions{})
	return next, err
}

// takeBack puts what could not be saved back to what is gathered. c.mu is held.
func (r *Registry) takeBack() {
	c := &r.commits
	for key, q := range c.saving {
		if newer, ok := c.pending[key]; ok {
			q = q.Join(newer)
		}
		c.pending[key] = q
	}
	c.saving = nil
}
