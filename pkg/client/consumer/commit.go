package consumer

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/tandemlog/tandem/pkg/client/config"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// commitLoop commits positions, and looks for resets, every CommitInterval and when it is told to.
func (c *Consumer) commitLoop(ctx context.Context) {
	tick := time.NewTicker(c.o.CommitInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.look:
		}
		err := c.commit(ctx)
		if err == nil {
			err = c.compare(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.retry(err, c.o.CommitInterval)
		}
	}
}

// ahead are the positions that the service does not have, by queue.
func (c *Consumer) ahead() []*config.Offset {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*config.Offset
	for id, q := range c.queues {
		if q.next > q.held {
			epoch := q.epoch
			all = append(all, &config.Offset{Group: c.o.Group, Topic: c.o.Topic, QueueId: id, Offset: q.next, ResetEpoch: &epoch})
		}
	}
	slices.SortFunc(all, func(a, b *config.Offset) int { return cmp.Compare(a.GetQueueId(), b.GetQueueId()) })
	return all
}

// commit tells the service all positions that it does not have. As one that is refused refuses all of its batch, these are then told
// one by one.
func (c *Consumer) commit(ctx context.Context) error {
	var failed error
	for batch := range slices.Chunk(c.ahead(), config.MaxCommits) {
		err := c.commitBatch(ctx, batch)
		if refused(err) && len(batch) > 1 {
			err = nil
			for one := range slices.Chunk(batch, 1) {
				err = nodes.Join(err, c.commitBatch(ctx, one))
			}
		}
		failed = nodes.Join(failed, err)
	}
	return failed
}

// refused reports whether the service has answered that an offset is not as it should be.
func refused(err error) bool {
	switch errdefs.ClassOf(err) {
	case errdefs.InvalidArgument, errdefs.OutOfRange, errdefs.FailedPrecondition, errdefs.NotFound:
		return err != nil && errdefs.ReasonOf(err) != config.ErrNotMaster.Reason
	default:
		return false
	}
}

func (c *Consumer) commitBatch(ctx context.Context, batch []*config.Offset) error {
	held, err := c.offsets.CommitBatch(ctx, batch, c.o.Durable)
	if err == nil {
		for i, o := range batch[:min(len(batch), len(held))] {
			c.has(o.GetQueueId(), o.GetResetEpoch(), held[i])
		}
		return nil
	}
	e := errdefs.As(err)
	if e == nil || e.Reason != config.ErrWasReset.Reason || len(batch) > 1 {
		return err
	}
	epoch, epochErr := strconv.ParseUint(e.Meta["reset_epoch"], 10, 32)
	offset, offsetErr := strconv.ParseInt(e.Meta["offset"], 10, 64)
	if epochErr != nil || offsetErr != nil {
		return err // compare finds it
	}
	c.reset(batch[0].GetQueueId(), uint32(epoch), offset)
	return nil
}

// has notes what the service has of a queue.
func (c *Consumer) has(id int32, epoch uint32, held int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[id]; q != nil && q.epoch == epoch {
		q.held = held
	}
}

// compare looks what the service has: resets that were not heard of yet, and commits that a new master has not.
func (c *Consumer) compare(ctx context.Context) error {
	all, err := c.offsets.Query(ctx, c.o.Group, c.o.Topic)
	if err != nil {
		return err
	}
	c.mu.Lock()
	for id, q := range c.queues {
		if !slices.ContainsFunc(all, func(h *config.HeldOffset) bool { return h.GetQueueId() == id }) {
			q.held = none
		}
	}
	c.mu.Unlock()
	for _, h := range all {
		c.mu.Lock()
		q := c.queues[h.GetQueueId()]
		newer := q != nil && h.GetResetEpoch() > q.epoch
		c.mu.Unlock()
		if newer {
			c.reset(h.GetQueueId(), h.GetResetEpoch(), h.GetOffset())
			continue
		}
		c.has(h.GetQueueId(), h.GetResetEpoch(), h.GetOffset())
	}
	return nil
}

// reset makes a queue begin anew at an offset. A queue that was reset to nothing goes on where it is.
func (c *Consumer) reset(id int32, epoch uint32, offset int64) {
	c.mu.Lock()
	q := c.queues[id]
	if q == nil || epoch <= q.epoch {
		c.mu.Unlock()
		return
	}
	from := q.next
	q.epoch, q.held = epoch, offset
	if offset == none {
		c.mu.Unlock()
		return
	}
	q.next = offset
	q.life++
	if q.cancel != nil {
		q.cancel()
	}
	c.mu.Unlock()
	c.moved(id, from, offset)
}
