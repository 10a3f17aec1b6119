package main

import (
	"context"
	"errors"
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
	began    time.Time

	mu     sync.Mutex
	faults map[string]int
	errors map[string]int // of appends, by reason

	windows, bad        int
	checked             int // operations in linearizations
	appends, reads      int // acknowledged
	open, openStood     int // appends of unknown fate, and those of them that stand
	entries, elections  int // in the logs at the end of each cluster's life; terms that passed
	fullDiskUnavailable bool
}

// windowsOfLife is how many windows a cluster lives.
const windowsOfLife = 5

func (t *torture) countFault(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[what]++
}

func (t *torture) countError(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors[reason]++
}

// life runs windows with one cluster, from first to the last of its life, until the time is up or something is wrong.
func (t *torture) life(ctx context.Context, first int, until time.Time) (next int, err error) {
	dir := filepath.Join(t.dir, fmt.Sprintf("from-window-%d", first))
	c, err := newCluster(ctx, t.bin, dir, t.ports, hasty, true)
	if err != nil {
		return 0, fmt.Errorf("a fresh cluster: %w", err)
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, c.close())
		}
	}()
	b, window := newBook(), first
	var carried []op
	for ; window < first+windowsOfLife && (window == first || time.Now().Before(until)); window++ {
		began := time.Now()
		v, err := t.window(ctx, c, b, window, carried)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err != nil {
			v.violation("%v", err)
		}
		t.report(window, first, v, began)
		if len(v.bad) > 0 {
			return 0, nil
		}
		carried = v.lateOrLost
	}
	if err := t.endOfLife(ctx, c, b); err != nil {
		t.bad++
		fmt.Printf("   VIOLATION at the end of this cluster's life, again: -seed %d -first %d: %v\n", t.seed, first, err)
		return 0, nil
	}
	t.open += len(carried)
	closed = true
	return window, errors.Join(c.close(), os.RemoveAll(dir))
}

// window runs one plan and checks the history.
func (t *torture) window(ctx context.Context, c *cluster, b *book, window int, carried []op) (*verdict, error) {
	p := newPlan(t.seed, window)
	if t.verbose {
		fmt.Println("   plan of", p)
	}
	h := newHistory(carried)
	l, err := startLoad(ctx, c, h, t.countError, t.began, window, p.lasts)
	if err != nil {
		return &verdict{}, err
	}
	p.carryOut(ctx, c, t.countFault)
	err = c.heal()
	l.end()
	if err != nil {
		return &verdict{}, err
	}
	last, err := c.atRest(ctx)
	if err != nil {
		return &verdict{}, err
	}
	from := b.next()
	if err := c.readAll(ctx, b, from, last); err != nil {
		return &verdict{}, err
	}
	v := h.check(b, from)
	for _, o := range h.ops {
		if _, stands := b.at[o.id]; o.id != "" && o.fate == unknown && stands {
			t.openStood++
			t.open++
		}
	}
	return v, nil
}

// readAll adds to the book what all nodes have from an index on, which must be the same.
func (c *cluster) readAll(ctx context.Context, b *book, from, last int64) error {
	for id, n := range c.nodes {
		log, err := c.readLog(ctx, id, from, last)
		if err != nil {
			return err
		}
		if id == 0 {
			if err := b.add(log); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		if differ := sameLog(b.entries[from:], log); differ != "" {
			return fmt.Errorf("%s shows another log than n0: %s", n.Name, differ)
		}
	}
	return nil
}

// endOfLife holds all logs against what was read before, stops the nodes and has their folders checked.
func (t *torture) endOfLife(ctx context.Context, c *cluster, b *book) error {
	for id, n := range c.nodes {
		log, err := c.readLog(ctx, id, 0, b.next()-1)
		if err != nil {
			return err
		}
		if differ := sameLog(b.entries, log); differ != "" {
			return fmt.Errorf("%s: what was committed has changed: %s", n.Name, differ)
		}
	}
	t.entries += len(b.entries)
	if len(b.entries) > 0 {
		t.elections += int(b.entries[len(b.entries)-1].term)
	}
	t.fullDiskUnavailable = t.fullDiskUnavailable || c.disk == nil
	return c.inspect(ctx)
}

// most violations that one window reports; the rest is counted.
const mostBad = 20

func (t *torture) report(window, first int, v *verdict, began time.Time) {
	t.windows++
	t.checked += v.checked
	t.appends += v.appends
	t.reads += v.reads
	t.bad += len(v.bad)
	result := "ok"
	if len(v.bad) > 0 {
		result = fmt.Sprintf("%d VIOLATIONS", len(v.bad))
	}
	fmt.Printf("window %3d  %4d appends, %4d reads, %2d open  %4.1f s  %s\n", window, v.appends, v.reads, len(v.lateOrLost), time.Since(began).Seconds(), result)
	if len(v.bad) == 0 {
		return
	}
	fmt.Println("   plan of", newPlan(t.seed, window))
	fmt.Printf("   this cluster's life again: -seed %d -first %d\n", t.seed, first)
	for i, b := range v.bad {
		if i == mostBad {
			fmt.Println("   ... and", len(v.bad)-mostBad, "more")
			break
		}
		fmt.Println("   VIOLATION:", b)
	}
}

// summary is one line.
func (t *torture) summary(verdict string) string {
	disk := ""
	if t.fullDiskUnavailable {
		disk = "; NO DISK WAS FULL, as no tmpfs may be mounted here"
	}
	return fmt.Sprintf("TORTURE-LEDGER %s: seed %d, %d windows, %d violations; %d operations linearizable (%d appends and %d reads acknowledged), "+
		"%d appends of unknown fate, of which %d stand (errors of appends: %s); %d entries, %d terms; faults: %s%s (%.0f s)",
		verdict, t.seed, t.windows, t.bad, t.checked, t.appends, t.reads, t.open, t.openStood, list(t.errors), t.entries, t.elections, list(t.faults), disk,
		time.Since(t.began).Seconds())
}

func list(m map[string]int) string {
	var out []string
	for k, n := range m {
		out = append(out, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
