package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// record is a message as a node shows it.
type record struct {
	number int
	offset int64
}

// reader follows all queues, each by itself, and keeps what it saw.
type reader struct {
	name   string
	follow func(ctx context.Context, r *reader, queue int32)

	mu   sync.Mutex
	from []int64    // first queue offset, by queue
	seen [][]record // by queue, without a gap from there
	bad  []string
}

func newReader(name string, from []int64, follow func(context.Context, *reader, int32)) *reader {
	return &reader{name: name, follow: follow, from: from, seen: make([][]record, queues)}
}

func (r *reader) next(queue int32) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from[queue] + int64(len(r.seen[queue]))
}

// take adds a message; whatever is not the next one of its queue is a violation.
func (r *reader) take(queue int32, m *storagev1.StoredMessage) {
	number, err := parse(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	want := r.from[queue] + int64(len(r.seen[queue]))
	switch {
	case err != nil:
		r.bad = append(r.bad, err.Error())
	case m.GetQueueOffset() != want:
		r.bad = append(r.bad, fmt.Sprintf("queue %d: message %d came at queue offset %d, %d was due", queue, number, m.GetQueueOffset(), want))
		return
	}
	r.seen[queue] = append(r.seen[queue], record{number, m.GetOffset()})
}

// parse returns the number of a message whose body is whole.
func parse(m *storagev1.StoredMessage) (int, error) {
	var n int
	if _, err := fmt.Sscanf(string(m.GetMessage().GetBody()), "message %d ", &n); err != nil || n < 0 || !bytes.Equal(m.GetMessage().GetBody(), body(n)) {
		return -1, fmt.Errorf("the body at offset %d is not what was sent", m.GetOffset())
	}
	return n, nil
}

// reading is the readers of one round.
type reading struct {
	all    []*reader
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// startReaders starts a reader per node, one that asks whichever node answers, and one that has a stream open.
func startReaders(ctx context.Context, c *cluster, from []int64) *reading {
	ctx, cancel := context.WithCancel(ctx)
	rd := &reading{cancel: cancel}
	for id := range c.nodes {
		m := c.message(id)
		rd.all = append(rd.all, newReader("reader of "+c.nodes[id].Name, from, poll(func(ctx context.Context, req *client.GetRequest) (*client.GetResponse, error) {
			return m.Get(ctx, req)
		})))
	}
	rd.all = append(rd.all,
		newReader("roaming reader", from, poll(c.client.Reader().Get)),
		newReader("streaming reader", from, func(ctx context.Context, r *reader, queue int32) { tail(ctx, c, r, queue) }))
	for _, r := range rd.all {
		for q := range int32(queues) {
			rd.wg.Go(func() { r.follow(ctx, r, q) })
		}
	}
	return rd
}

func poll(get func(context.Context, *client.GetRequest) (*client.GetResponse, error)) func(context.Context, *reader, int32) {
	return func(ctx context.Context, r *reader, queue int32) {
		for ctx.Err() == nil {
			call, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
			resp, err := get(call, &client.GetRequest{Topic: topic, QueueId: queue, QueueOffset: r.next(queue), MaxMessages: 256})
			cancel()
			for _, m := range resp.GetMessages() {
				r.take(queue, m)
			}
			if err != nil || len(resp.GetMessages()) == 0 {
				sleep.For(ctx, 5*time.Millisecond)
			}
		}
	}
}

var errStranger = errors.New("not the next message")

func tail(ctx context.Context, c *cluster, r *reader, queue int32) {
	rd := c.client.Reader()
	for ctx.Err() == nil {
		// A stream that no node takes up is begun anew here.
		_ = rd.Tail(ctx, client.TailOptions{Topic: topic, QueueID: queue, From: r.next(queue)}, func(m *client.StoredMessage) error {
			due := r.next(queue)
			r.take(queue, m)
			if r.next(queue) != due+1 {
				return errStranger
			}
			return nil
		})
		sleep.For(ctx, 20*time.Millisecond)
	}
}

// end waits until every reader has come to the ends of the queues, then stops them.
func (rd *reading) end(ctx context.Context, ends []int64) error {
	defer rd.wg.Wait()
	defer rd.cancel()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, r := range rd.all {
		for q := range int32(queues) {
			for r.next(q) < ends[q] {
				if !sleep.For(ctx, 2*time.Millisecond) {
					return errors.New(r.name + " stays at " + strconv.FormatInt(r.next(q), 10) + " of " + strconv.FormatInt(ends[q], 10) +
						" in queue " + strconv.Itoa(int(q)) + ", after all nodes are in sync")
				}
			}
		}
	}
	return nil
}
