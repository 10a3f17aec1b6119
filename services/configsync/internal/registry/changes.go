package registry

import (
	"context"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Condition is what a change of an entry expects; the zero value expects nothing.
type Condition struct {
	Create  bool           // the entry is not there: else ErrExists
	Update  bool           // the entry is there: else ErrNotFound
	Etag    *uint64        // the entry is there with this Etag: else ErrPrecondition
	Version *entry.Version // the table has this version: else ErrPrecondition
}

func (c Condition) check(t *table.Table, key string) error {
	if c.Version != nil && *c.Version != t.Version() {
		return ErrPrecondition.WithField("version").With("have", t.Version()).With("want", *c.Version)
	}
	e, exists := t.Get(key)
	switch {
	case c.Create && exists:
		return ErrExists.With("key", key)
	case (c.Update || c.Etag != nil) && !exists:
		return ErrNotFound.With("key", key)
	case c.Etag != nil && *c.Etag != e.Etag():
		return ErrPrecondition.WithField("etag").With("key", key)
	}
	return nil
}

// PutTopic creates or replaces a topic. The config must not be changed any more.
func (r *Registry) PutTopic(ctx context.Context, t *entry.TopicConfig, c Condition) (table.Entry, error) {
	if err := t.Validate(r.o.MaxQueues); err != nil {
		return table.Entry{}, err
	}
	return r.put(ctx, t.Name, t, c)
}

// DeleteTopic removes a topic. Offsets in it stay, see ResetOffsets.
func (r *Registry) DeleteTopic(ctx context.Context, name string, c Condition) error {
	return r.remove(ctx, entry.Topics, name, c)
}

// PutGroup creates or replaces a group. The config must not be changed any more.
func (r *Registry) PutGroup(ctx context.Context, g *entry.GroupConfig, c Condition) (table.Entry, error) {
	if err := g.Validate(); err != nil {
		return table.Entry{}, err
	}
	return r.put(ctx, g.Name, g, c)
}

// DeleteGroup removes a group. Its offsets stay, see ResetOffsets.
func (r *Registry) DeleteGroup(ctx context.Context, name string, c Condition) error {
	return r.remove(ctx, entry.Groups, name, c)
}

// put returns the entry as this change has left it.
func (r *Registry) put(ctx context.Context, key string, v entry.Value, c Condition) (table.Entry, error) {
	var made table.Entry
	err := r.stores[v.Kind()].do(ctx, change{apply: func(t *table.Table) (*table.Table, error) {
		if err := c.check(t, key); err != nil {
			return nil, err
		}
		e := t.Edit(r.epoch.Load(), r.nowMS())
		if err := e.Put(v); err != nil {
			return nil, err
		}
		next, _ := e.Done()
		made, _ = next.Get(key)
		return next, nil
	}})
	return made, err
}

func (r *Registry) remove(ctx context.Context, kind entry.Kind, key string, c Condition) error {
	c.Update = true
	return r.stores[kind].do(ctx, change{apply: func(t *table.Table) (*table.Table, error) {
		if err := c.check(t, key); err != nil {
			return nil, err
		}
		e := t.Edit(r.epoch.Load(), r.nowMS())
		e.Delete(key)
		next, _ := e.Done()
		return next, nil
	}})
}

// CommitDelays takes the progress of delay levels; lower offsets than those that are there are not taken, and counted.
func (r *Registry) CommitDelays(ctx context.Context, offsets map[int32]int64) (lower int, err error) {
	err = r.edit(ctx, entry.DelayOffsets, func(e *table.Edit) error {
		lower = 0
		for level, offset := range offsets {
			outcome, err := e.CommitDelay(level, offset)
			if err != nil {
				return err
			}
			if outcome == table.Lower {
				lower++
			}
		}
		return nil
	})
	return lower, err
}

// ResetOffsets sets offsets whatever they were, all with one new epoch, which it returns. Commits of before are not taken
// any more if they are guarded or not saved yet.
func (r *Registry) ResetOffsets(ctx context.Context, resets []table.Reset) (uint32, error) {
	for _, reset := range resets {
		if reset.Queue >= entry.MaxQueues {
			if _, there := r.Snapshot(entry.ConsumerOffsets).Offset(reset.Topic, reset.Group, reset.Queue); there {
				reset.Queue = 0 // a RocketMQ master may have told of it
			}
		}
		if err := reset.Validate(); err != nil {
			return 0, err
		}
	}
	var epoch uint32
	err := r.edit(ctx, entry.ConsumerOffsets, func(e *table.Edit) (err error) {
		if epoch, err = e.NewEpoch(); err != nil {
			return err
		}
		e.ResetAll(resets, epoch)
		return nil
	})
	return epoch, err
}

// ResetDelays sets the offsets of delay levels whatever they were.
func (r *Registry) ResetDelays(ctx context.Context, offsets map[int32]int64) (uint32, error) {
	var epoch uint32
	err := r.edit(ctx, entry.DelayOffsets, func(e *table.Edit) (err error) {
		if epoch, err = e.NewEpoch(); err != nil {
			return err
		}
		for level, offset := range offsets {
			if err := e.ResetDelay(level, offset, epoch); err != nil {
				return err
			}
		}
		return nil
	})
	return epoch, err
}

// ClampOffsets is for after a cut of the log: it lowers consumer and delay offsets that lie beyond the end of their queue,
// with a new epoch. limit returns the end, or false for a queue that stays as it is; delay level n is queue n-1 of
// table.ScheduleTopic. The result is the number of offsets that were lowered; gathered commits are saved before.
func (r *Registry) ClampOffsets(ctx context.Context, limit func(topic string, queue int32) (int64, bool)) (int, error) {
	if err := r.saveCommits(ctx); err != nil {
		return 0, err
	}
	lowered := 0
	for _, kind := range []entry.Kind{entry.ConsumerOffsets, entry.DelayOffsets} {
		n := 0
		err := r.edit(ctx, kind, func(e *table.Edit) (err error) {
			n, err = e.Clamp(limit)
			return err
		})
		if err != nil {
			return lowered, err
		}
		lowered += n
	}
	return lowered, nil
}
