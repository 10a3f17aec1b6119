package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// fate is what the client said of a message.
type fate uint8

const (
	maybe  fate = iota // stored or not: no answer, or fewer copies than asked for
	stored             // PUT_OK
	absent             // certainly not stored
)

// put is one numbered message.
type put struct {
	fate      fate
	offset    int64
	queue     int32
	queueOffs int64
	what      string // status or error
}

// ledger remembers every message that was sent to a cluster. The number of a message is its index.
type ledger struct {
	mu       sync.Mutex
	puts     []put
	statuses map[string]int
}

func newLedger() *ledger { return &ledger{statuses: map[string]int{}} }

// next returns a new message.
func (l *ledger) next() (int, *client.Message) {
	l.mu.Lock()
	n := len(l.puts)
	l.puts = append(l.puts, put{what: "no outcome"})
	l.mu.Unlock()
	q := int32(n % queues)
	return n, &client.Message{Topic: topic, QueueId: &q, Body: body(n), Keys: []string{"n" + strconv.Itoa(n)}}
}

// body has a length of its own for each number, so that records end everywhere in a file.
func body(n int) []byte {
	return fmt.Appendf(nil, "message %d %s", n, strings.Repeat(string(rune('a'+n%26)), 1+n*7919%700))
}

func (l *ledger) note(n int, r *client.Result, err error) {
	p := put{}
	switch {
	case err == nil && r.GetStatus() == client.StatusOK:
		p = put{fate: stored, offset: r.GetOffset(), queue: r.GetQueueId(), queueOffs: r.GetQueueOffset()}
	case errors.Is(err, client.ErrOutcomeUnknown), err == nil && client.Stored(r.GetStatus()):
	default:
		p.fate = absent
	}
	p.what = "not stored"
	if err == nil {
		p.what = client.StatusName(r.GetStatus())
	} else if p.fate == maybe {
		p.what = "unknown"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.statuses[p.what]++
	if err != nil {
		p.what += ": " + err.Error()
	}
	l.puts[n] = p
}

// load puts messages until it is stopped.
type load struct {
	stop chan struct{}
	wg   sync.WaitGroup
}

const (
	unaryWriters  = 4
	streamWriters = 2
)

func startLoad(ctx context.Context, c *cluster, l *ledger) *load {
	ld := &load{stop: make(chan struct{})}
	p := c.client.Producer(client.ProducerOptions{RetryFor: 200 * time.Millisecond, MaxInFlight: 128, MaxBatch: 16})
	for range unaryWriters {
		ld.wg.Go(func() { ld.unary(ctx, p, l) })
	}
	for range streamWriters {
		ld.wg.Go(func() { ld.stream(ctx, p, l) })
	}
	return ld
}

func (ld *load) ended(ctx context.Context) bool {
	select {
	case <-ld.stop:
		return true
	default:
		return ctx.Err() != nil
	}
}

func (ld *load) unary(ctx context.Context, p *client.Producer, l *ledger) {
	for !ld.ended(ctx) {
		n, m := l.next()
		r, err := p.Put(ctx, m)
		l.note(n, r, err)
		if l.refused(n) {
			sleep.For(ctx, 10*time.Millisecond)
		}
	}
}

// refused keeps writers from hammering a cluster that takes nothing.
func (l *ledger) refused(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.puts[n].fate != stored
}

func (ld *load) stream(ctx context.Context, p *client.Producer, l *ledger) {
	for !ld.ended(ctx) {
		// The error is that of the last message, which its callback has noted.
		_ = p.Stream(ctx, func(s *client.Sender) error {
			for sent := 1; !ld.ended(ctx); sent++ {
				n, m := l.next()
				if _, err := s.Send(ctx, m, func(o client.Outcome) { l.note(n, o.Result, o.Err) }); err != nil {
					l.note(n, nil, err)
					return err
				}
				if sent%8 == 0 {
					sleep.For(ctx, 5*time.Millisecond)
				}
			}
			return nil
		})
		sleep.For(ctx, 10*time.Millisecond)
	}
}

// end stops the writers and waits for the outcomes.
func (ld *load) end() {
	close(ld.stop)
	ld.wg.Wait()
}
