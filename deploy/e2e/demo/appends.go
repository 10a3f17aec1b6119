package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// appends are clients of the ledger that do not wait for each other: one begins every few milliseconds, whatever became of the
// ones before, and each goes on until it is acknowledged.
type appends struct {
	appender *ledger.Appender
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	room     chan struct{} // bounds those under way

	mu       sync.Mutex
	next     int
	told     map[int]int64 // index of each acknowledged append, by number
	failed   map[int]error // not acknowledged
	repeated int           // acknowledged by a later try, while an earlier one had come through
	fresh    int           // acknowledged since the last line
	last     time.Time     // of the last acknowledgement
	pause    time.Duration // longest between two of them since the last line
}

const (
	appendEvery    = 4 * time.Millisecond
	appendsAtATime = 512
	// appendPatience is longer than the time in which containers are killed and started.
	appendPatience = 2 * patience
)

func startAppends(ctx context.Context, c *ledger.Client) *appends {
	ctx, cancel := context.WithCancel(ctx)
	a := &appends{
		appender: c.Appender(ledger.AppenderOptions{}), cancel: cancel, room: make(chan struct{}, appendsAtATime),
		told: map[int]int64{}, failed: map[int]error{}, last: time.Now(),
	}
	a.wg.Go(func() {
		tick := time.NewTicker(appendEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case a.room <- struct{}{}:
				a.next++
				n := a.next
				a.wg.Go(func() { a.one(context.WithoutCancel(ctx), n) })
			default: // all of them wait
			}
		}
	})
	return a
}

func (a *appends) one(ctx context.Context, n int) {
	defer func() { <-a.room }()
	ctx, cancel := context.WithTimeout(ctx, appendPatience)
	defer cancel()
	r, err := a.appender.Append(ctx, appendBody(n))
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed[n] = err
		return
	}
	a.told[n] = r.GetIndex()
	if r.GetRepeated() {
		a.repeated++
	}
	now := time.Now()
	a.pause = max(a.pause, now.Sub(a.last))
	a.last, a.fresh = now, a.fresh+1
}

func appendBody(n int) []byte { return fmt.Appendf(nil, "append %d %s", n, strings.Repeat("y", 100)) }

// numberOf is the number of an append's body.
func numberOf(body []byte) (int, error) {
	var n int
	if _, err := fmt.Sscanf(string(body), "append %d ", &n); err != nil {
		return 0, fmt.Errorf("a body that nobody appended: %q", body)
	}
	return n, nil
}

// during lets the load run for a moment and says what came of it.
func (a *appends) during(ctx context.Context, what string) error {
	if !sleep.For(ctx, phase) {
		return ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	say("%-20s %d appended, longest wait for an acknowledgement %v", what+":", a.fresh, a.pause.Round(time.Millisecond))
	a.fresh, a.pause = 0, 0
	return nil
}

// stop begins no more and waits for those under way.
func (a *appends) stop() error {
	a.cancel()
	a.wg.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for n, err := range a.failed {
		return errors.Join(fmt.Errorf("append %d and %d more were not acknowledged within %v", n, len(a.failed)-1, appendPatience), err)
	}
	return nil
}
