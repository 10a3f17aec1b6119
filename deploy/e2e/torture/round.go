package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
)

// torture is a whole run.
type torture struct {
	bin, dir string
	seed     uint64
	ports    *faults.Ports
	verbose  bool

	mu       sync.Mutex
	faults   map[string]int
	statuses map[string]int
	rounds   int
	born     int // round in which the cluster's life began
	messages int // in the logs at the end of each cluster's life
	reads    int
	vanished int // as in history
	maybes   int // of these, without PUT_OK
	bad      int
}

// roundsOfLife is how many rounds a cluster lives.
const roundsOfLife = 5

func (t *torture) count(what string) {
	t.mu.Lock()
	t.faults[what]++
	t.mu.Unlock()
}

// life runs rounds first to last with one cluster. It ends early at a violation.
func (t *torture) life(ctx context.Context, first, last int) error {
	t.born = first
	age := (first - 1) / roundsOfLife
	s := settings{refuse: age%2 == 1, flush: "ASYNC_FLUSH"}
	if age%4 >= 2 {
		s.flush = "SYNC_FLUSH"
	}
	dir := filepath.Join(t.dir, fmt.Sprintf("from-round-%d", first))
	c, err := newCluster(ctx, t.bin, dir, t.ports, s)
	if err != nil {
		return err
	}
	defer c.close()
	if _, _, err := c.inSync(ctx); err != nil {
		return fmt.Errorf("a fresh cluster: %w", err)
	}
	l, ends, maybes := newLedger(), make([]int64, queues), 0
	defer func() { t.add(l, ends, maybes) }()
	for round := first; round <= last; round++ {
		began := time.Now()
		h, next, err := t.round(ctx, c, l, newPlan(t.seed, round), ends)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			h.violation("%v", err)
		}
		t.report(round, c, h, ends, next, began)
		if len(h.bad) > 0 {
			t.bad += len(h.bad)
			return nil
		}
		ends, maybes = next, h.maybes
	}
	c.close()
	return os.RemoveAll(dir)
}

// add takes the counts of a cluster whose life is over.
func (t *torture) add(l *ledger, ends []int64, maybes int) {
	t.maybes += maybes
	for _, e := range ends {
		t.messages += int(e)
	}
	for k, n := range l.statuses {
		t.statuses[k] += n
	}
}

// round runs one plan and checks the history. It returns the ends of the queues.
func (t *torture) round(ctx context.Context, c *cluster, l *ledger, p plan, from []int64) (*history, []int64, error) {
	h := &history{}
	if t.verbose {
		fmt.Println("   plan of", p)
	}
	rd := startReaders(ctx, c, from)
	stopped := false
	defer func() {
		if !stopped {
			rd.cancel()
			rd.wg.Wait()
		}
	}()
	ld := startLoad(ctx, c, l)
	p.carryOut(ctx, c, t.count)
	err := c.heal()
	ld.end()
	if err != nil {
		return h, nil, err
	}
	end, _, err := c.inSync(ctx)
	if err != nil {
		return h, nil, err
	}
	var ends []int64
	var img image
	for id, n := range c.nodes {
		got, err := c.readAll(ctx, id)
		if err != nil {
			return h, nil, err
		}
		h.checkPuts(n.Name, got, l.puts, id == 0)
		if id == 0 {
			img, ends = got, got.ends()
		} else if !slices.EqualFunc(img, got, slices.Equal[[]record]) {
			h.violation("%s: its queues show other messages than those of n0", n.Name)
		}
	}
	if err := h.checkBytes(ctx, c, end); err != nil {
		return h, nil, err
	}
	stopped = true
	if err := rd.end(ctx, ends); err != nil {
		h.violation("%v", err)
	}
	for _, r := range rd.all {
		h.checkReader(r, img, l.puts, c.refuse)
		for _, s := range r.seen {
			t.reads += len(s)
		}
	}
	return h, ends, nil
}

func (t *torture) report(round int, c *cluster, h *history, from, ends []int64, began time.Time) {
	t.rounds++
	t.vanished += h.vanished
	put := int64(0)
	for q := range ends {
		put += ends[q] - from[q]
	}
	verdict := "ok"
	if len(h.bad) > 0 {
		verdict = fmt.Sprintf("%d VIOLATIONS", len(h.bad))
	}
	fmt.Printf("round %3d  refuse=%-5t %-11s %6d messages  %4.1f s  %s\n", round, c.refuse, c.flush, put, time.Since(began).Seconds(), verdict)
	if len(h.bad) == 0 {
		return
	}
	fmt.Println("   plan of", newPlan(t.seed, round))
	fmt.Printf("   this cluster's life again: -seed %d -first %d -rounds %d\n", t.seed, t.born, round-t.born+1)
	for i, b := range h.bad {
		if i == mostBad {
			fmt.Println("   ... and", len(h.bad)-mostBad, "more")
			break
		}
		fmt.Println("   VIOLATION:", b)
	}
}

// summary is one line.
func (t *torture) summary(verdict string, took time.Duration) string {
	return fmt.Sprintf("TORTURE %s: seed %d, %d rounds, %d violations; %d messages stored, %d of them without PUT_OK (puts: %s), %d reads; faults: %s; "+
		"%d reads of messages without PUT_OK that vanished later, as may be without refuseWithoutReplicas (%.0f s)",
		verdict, t.seed, t.rounds, t.bad, t.messages, t.maybes, list(t.statuses), t.reads, list(t.faults), t.vanished, took.Seconds())
}

func list(m map[string]int) string {
	var out []string
	for k, n := range m {
		out = append(out, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
