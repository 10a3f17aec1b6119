package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"

	"github.com/tandemlog/tandem/pkg/sleep"
)

// writers append to whichever node takes it, each as fast as it is answered, and note what is acknowledged.
type writers struct {
	c      *cluster
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	term    int64         // of the last acknowledgement
	last    time.Time     // when that was
	gap     time.Duration // longest time without one since the last reset, and when it ended
	gapEnd  time.Time
	acked   int
	failed  int           // appends that the leader did not acknowledge
	why     error         // of the last of them
	changed chan struct{} // closed and replaced when the term has changed
}

const (
	// writerCount is how many appends are under way.
	writerCount = 8
	// enough is more than an append may take before its node gives it up (appendTimeout).
	enough = 10 * time.Second
)

func startWriters(ctx context.Context, c *cluster) *writers {
	ctx, cancel := context.WithCancel(ctx)
	w := &writers{c: c, cancel: cancel, last: time.Now(), changed: make(chan struct{})}
	for i := range writerCount {
		w.wg.Go(func() { w.write(ctx, i%copies) })
	}
	return w
}

func (w *writers) end() {
	w.cancel()
	w.wg.Wait()
}

// write goes from node to node until one takes appends, and stays there.
func (w *writers) write(ctx context.Context, at int) {
	body := make([]byte, 256)
	led := false // the node has acknowledged the last append
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, enough)
		r, err := w.c.ledger(at).Append(call, &ledgerv1.AppendRequest{Body: body})
		cancel()
		if err == nil {
			w.note(r.GetTerm())
			led = true
			continue
		}
		if led && ctx.Err() == nil {
			w.mu.Lock()
			w.failed++
			w.why = fmt.Errorf("n%d: %w", at, err)
			w.mu.Unlock()
		}
		led = false
		at = (at + 1) % copies
		sleep.For(ctx, 5*time.Millisecond)
	}
}

func (w *writers) note(term int64) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked++
	if d := now.Sub(w.last); d > w.gap {
		w.gap, w.gapEnd = d, now
	}
	w.last = now
	if term > w.term {
		w.term = term
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// since is what happened from a reset on.
type since struct {
	acked, failed int
	gap           time.Duration
	gapEnd        time.Time
	why           error
}

// reset returns what happened since the last reset and begins anew.
func (w *writers) reset() since {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := since{w.acked, w.failed, w.gap, w.gapEnd, w.why}
	if d := time.Since(w.last); d > s.gap {
		s.gap, s.gapEnd = d, time.Now()
	}
	w.acked, w.failed, w.gap, w.why, w.last = 0, 0, 0, nil, time.Now()
	return s
}

// newTerm waits until an append of a later term is acknowledged and returns when that was.
func (w *writers) newTerm(ctx context.Context, after int64) (time.Time, error) {
	for {
		w.mu.Lock()
		term, last, changed := w.term, w.last, w.changed
		w.mu.Unlock()
		if term > after {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// following waits until all nodes follow closely; appends go on.
func (c *cluster) following(ctx context.Context) error {
	_, err := c.settled(ctx, func([]*ledgerv1.StatusResponse) (int64, string) { return 0, "" })
	return err
}

// Goals of a leader's death, in upper bounds of the election timeout.
const goalP50, goalP99 = 2, 4

// killLeaders kills the leader again and again under load.
func (t *torture) killLeaders(ctx context.Context, kills int) (bool, error) {
	c, err := newCluster(ctx, t.bin, filepath.Join(t.dir, "kills"), t.ports, shipped, false)
	if err != nil {
		return false, err
	}
	defer c.close() //nolint:errcheck // the process ends
	w := startWriters(ctx, c)
	defer w.end()
	var took []time.Duration
	for i := range kills {
		d, err := c.killOne(ctx, w)
		if err != nil {
			return false, fmt.Errorf("kill %d: %w", i+1, err)
		}
		took = append(took, d)
		if t.verbose || (i+1)%10 == 0 {
			fmt.Printf("kill %3d: %.2f s\n", i+1, d.Seconds())
		}
	}
	slices.Sort(took)
	p50, p99 := took[(len(took)-1)/2], took[(len(took)-1)*99/100]
	ratio := func(d time.Duration) float64 { return float64(d) / float64(c.most) }
	ok := ratio(p50) <= goalP50 && ratio(p99) <= goalP99
	verdict := "OK"
	if !ok {
		verdict = "MISSED"
	}
	fmt.Printf("KILLS %s: %d leaders killed with -9; first append acknowledged by the next one after p50 %.2f s = %.2f x, p99 %.2f s = %.2f x, longest %.2f s = %.2f x "+
		"the upper bound of the election timeout, %v (goals: p50 %d x, p99 %d x)\n", verdict, kills, p50.Seconds(), ratio(p50), p99.Seconds(), ratio(p99),
		took[len(took)-1].Seconds(), ratio(took[len(took)-1]), c.most, goalP50, goalP99)
	return ok, nil
}

// killOne kills the leader and returns how long it took until the next one acknowledged an append. Then the node comes back.
func (c *cluster) killOne(ctx context.Context, w *writers) (time.Duration, error) {
	wait, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	leader, term, ok := c.awaitLeader(wait, 0)
	if !ok {
		return 0, fmt.Errorf("no leader within %v", restTime)
	}
	if _, err := w.newTerm(wait, term-1); err != nil { // it has acknowledged something
		return 0, err
	}
	began := time.Now()
	c.nodes[leader].Kill()
	at, err := w.newTerm(wait, term)
	if err != nil {
		return 0, fmt.Errorf("no append was acknowledged %v after %s was killed: %w", restTime, c.nodes[leader].Name, err)
	}
	if err := c.nodes[leader].Start(); err != nil {
		return 0, err
	}
	return at.Sub(began), c.following(ctx)
}

// cutFollowers cuts a follower off under load, three ways one after the other.
func (t *torture) cutFollowers(ctx context.Context, away time.Duration) (bool, error) {
	c, err := newCluster(ctx, t.bin, filepath.Join(t.dir, "isolate"), t.ports, shipped, false)
	if err != nil {
		return false, err
	}
	defer c.close() //nolint:errcheck // the process ends
	w := startWriters(ctx, c)
	defer w.end()
	all := true
	for _, k := range []kind{isolate, deafen, mute} {
		ok, err := t.cutOne(ctx, c, w, k, away)
		if err != nil {
			return false, err
		}
		all = all && ok
	}
	verdict := "OK"
	if !all {
		verdict = "FAILED"
	}
	fmt.Printf("ISOLATE %s: a follower that was cut off for %v, three ways, came back (%.0f s)\n", verdict, away, time.Since(t.began).Seconds())
	return all, nil
}

// after is how long the group is watched before the follower is cut off, and when it is back.
const after = 10 * time.Second

// watched returns the longest gap of a while in which nothing is done to the group.
func (t *torture) watched(ctx context.Context, w *writers) time.Duration {
	w.reset()
	sleep.For(ctx, after)
	return w.reset().gap
}

func (t *torture) cutOne(ctx context.Context, c *cluster, w *writers, k kind, away time.Duration) (bool, error) {
	if err := c.following(ctx); err != nil {
		return false, err
	}
	leader, before, ok := c.leader(ctx)
	if !ok {
		return false, fmt.Errorf("the leader does not answer")
	}
	cut := (leader + 1) % copies
	usual, began := t.watched(ctx, w), time.Now()
	links := fault{kind: k}.disturb(c, cut)
	sleep.For(ctx, away)
	for _, p := range links {
		p.Heal()
	}
	healed := time.Now()
	if err := c.following(ctx); err != nil {
		return false, err
	}
	back := time.Since(healed)
	sleep.For(ctx, after)
	s := w.reset()
	now, term, ok := c.leader(ctx)
	good := ok && now == leader && term == before && s.failed == 0
	fmt.Printf("%s n%d for %v: term %d before, %d after; leader n%d, then n%d; in sync again %.2f s after; %d appends acknowledged, %d failed, "+
		"longest gap between acknowledgements %v, %.1f s after the cut (in %v before it: %v)\n",
		k, cut, away, before, term, leader, now, back.Seconds(), s.acked, s.failed, s.gap.Round(time.Millisecond), s.gapEnd.Sub(began).Seconds(),
		after, usual.Round(time.Millisecond))
	if s.why != nil {
		fmt.Println("   the last failure:", s.why)
	}
	return good, nil
}
