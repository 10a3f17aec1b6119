package main

import (
	"context"
	"fmt"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// consumer is a consumer group of one: it reads the demo's topic from a storage and commits to the config sync node beside it.
type consumer struct {
	cluster *cluster
	at      offsets
	read    map[int]int // how often it got each message, by number
}

// offsets are the next ones, by queue.
type offsets map[int32]int64

func (o offsets) String() string { return fmt.Sprint(map[int32]int64(o)) }

const readers = "DemoReaders"

func newConsumer(c *cluster) *consumer {
	return &consumer{cluster: c, at: offsets{}, read: map[int]int{}}
}

// committed asks the config sync node beside a storage where the group stands.
func (c *consumer) committed(ctx context.Context, side string) (offsets, error) {
	r, err := c.cluster.offsets(configOf(side)).Query(ctx, &configsyncv1.QueryRequest{Group: readers, Topic: topic})
	at := offsets{}
	for _, o := range r.GetOffsets() {
		at[o.GetQueueId()] = o.GetOffset()
	}
	return at, err
}

// consume goes on in each queue up to the offset that until returns, and commits.
func (c *consumer) consume(ctx context.Context, side string, until func(*storagev1.Queue) int64) (int, error) {
	qs, err := c.cluster.message(side).ListQueues(ctx, &storagev1.ListQueuesRequest{Topic: topic})
	if err != nil {
		return 0, err
	}
	all := 0
	for _, q := range qs.GetQueues() {
		n, err := c.queue(ctx, side, q.GetQueueId(), until(q))
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

func (c *consumer) queue(ctx context.Context, side string, queue int32, until int64) (int, error) {
	if c.at[queue] >= until {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const most = 1024
	stream, err := c.cluster.message(side).GetStream(ctx, &storagev1.GetStreamRequest{
		Topic: topic, QueueId: queue, QueueOffset: c.at[queue], MaxMessages: most, MaxBytes: 1 << 20,
	})
	if err != nil {
		return 0, err
	}
	n := 0
	for c.at[queue] < until {
		r, err := stream.Recv()
		if err != nil {
			return n, err
		}
		for _, m := range r.GetMessages() {
			if m.GetQueueOffset() != c.at[queue] {
				return n, fmt.Errorf("queue %d brought offset %d where %d was due", queue, m.GetQueueOffset(), c.at[queue])
			}
			if c.at[queue] == until {
				break
			}
			number, err := messageNumber(m.GetMessage().GetBody())
			if err != nil {
				return n, err
			}
			c.read[number]++
			c.at[queue]++
			n++
		}
	}
	_, err = c.cluster.offsets(configOf(side)).Commit(ctx, &configsyncv1.CommitRequest{Offset: &configsyncv1.ConsumerOffset{
		Group: readers, Topic: topic, QueueId: queue, Offset: c.at[queue],
	}})
	return n, err
}

// all reads to the end.
func all(q *storagev1.Queue) int64 { return q.GetMaxQueueOffset() }

// half reads half of what there is.
func half(q *storagev1.Queue) int64 { return (q.GetMinQueueOffset() + q.GetMaxQueueOffset()) / 2 }
