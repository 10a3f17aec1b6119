package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// kind of a fault.
type kind string

const (
	kill      kind = "kill -9"
	freeze    kind = "SIGSTOP"
	cutLinks  kind = "cut links of"    // gRPC, to and from the node
	cutRaw    kind = "cut raw port of" // the stream to its slaves
	tear      kind = "tear stream of"  // in the middle of a frame
	stallRaw  kind = "stall stream of" // black hole
	stallAll  kind = "stall all of"    // black hole, both ways, gRPC too
	slowAll   kind = "delay links of"
	promote   kind = "promote"
	demotion  kind = "demote master and promote"
	usurped   kind = "stall stream of master, kill -9 it and promote"
	overtaken kind = "stall stream of master, SIGSTOP it and promote"
	parted    kind = "stall stream of master, cut all its links and promote"
)

// roles that a fault can be meant for.
const roles = 3

// fault is one step of a plan. Its target is a role at the time: 0 the open master, 1 and 2 the others.
type fault struct {
	kind   kind
	role   int
	at     time.Duration // from the start of the round
	lasts  time.Duration
	amount int64 // bytes before a tear, milliseconds of a delay
}

func (f fault) String() string {
	who := []string{"master", "slave 1", "slave 2"}[f.role]
	return fmt.Sprintf("%v %s %s for %v (%d)", f.at, f.kind, who, f.lasts, f.amount)
}

// plan is the faults of a round, all of them decided before it starts.
type plan struct {
	lasts  time.Duration
	faults []fault
}

func newPlan(seed uint64, round int) plan {
	r := rand.New(rand.NewPCG(seed, uint64(round))) //nolint:gosec // replayable
	weighted := []kind{
		kill, kill, kill, kill, freeze, freeze, freeze, cutLinks, cutRaw, cutRaw, tear, tear, stallRaw, stallAll, slowAll, promote, promote, demotion,
		usurped, overtaken, overtaken, parted, parted,
	}
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	p := plan{lasts: ms(1000, 3000)}
	for range 2 + r.IntN(5) {
		f := fault{kind: weighted[r.IntN(len(weighted))], role: r.IntN(roles), lasts: ms(20, 1000), amount: r.Int64N(40)}
		f.at = time.Duration(r.Int64N(int64(p.lasts - 200*time.Millisecond))).Round(time.Millisecond)
		if f.kind == tear {
			f.amount = r.Int64N(20000)
		}
		switch f.kind {
		case promote, demotion, usurped, overtaken, parted:
			f.role = 1 + r.IntN(roles-1)
		default:
		}
		p.faults = append(p.faults, f)
	}
	slices.SortFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	return p
}

func (p plan) String() string {
	lines := []string{fmt.Sprintf("%v:", p.lasts)}
	for _, f := range p.faults {
		lines = append(lines, "     "+f.String())
	}
	return strings.Join(lines, "\n")
}

// carryOut does it all and returns when the last fault has ended.
func (p plan) carryOut(ctx context.Context, c *cluster, count func(string)) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, f := range p.faults {
		all.Go(func() {
			if sleep.For(ctx, f.at) {
				f.carryOut(ctx, c, count)
			}
		})
	}
	sleep.For(ctx, p.lasts)
}

func (f fault) carryOut(ctx context.Context, c *cluster, count func(string)) {
	master, _ := c.master(ctx)
	id := (master + f.role) % len(c.nodes)
	n := c.nodes[id]
	count(string(f.kind))
	switch f.kind {
	case kill:
		n.Kill()
		sleep.For(ctx, f.lasts)
		_ = n.Start() // heal starts it again and reports why not
	case freeze:
		n.Freeze(true)
		sleep.For(ctx, f.lasts)
		n.Freeze(false)
	case promote:
		if err := c.promote(ctx, id); err != nil {
			count("promote refused")
		}
	case demotion:
		if err := c.demote(ctx, master); err != nil {
			count("demote refused")
		}
		sleep.For(ctx, f.lasts/4)
		if err := c.promote(ctx, id); err != nil {
			count("promote refused")
		}
	case usurped, overtaken, parted:
		f.overthrow(ctx, c, master, id, count)
	default:
		ps := f.disturb(c, id)
		sleep.For(ctx, f.lasts)
		for _, p := range ps {
			p.Heal()
		}
	}
}

// overthrow promotes a slave while the master has what no slave has, and cannot be asked.
func (f fault) overthrow(ctx context.Context, c *cluster, master, id int, count func(string)) {
	old := c.nodes[master]
	c.raw[master].Hold(faults.Up, faults.Down)
	alone := time.Duration(20+f.amount) * time.Millisecond // puts pile up
	if f.amount%2 == 1 {
		alone = slaveGone + f.lasts/2 // the master gives its slaves up
	}
	sleep.For(ctx, alone)
	var cut []*faults.Link
	switch f.kind {
	case usurped:
		old.Kill()
	case overtaken:
		old.Freeze(true)
	default:
		cut = fault{kind: cutLinks}.disturb(c, master)
	}
	if err := c.promote(ctx, id); err != nil {
		count("promote refused")
	}
	sleep.For(ctx, f.lasts)
	for _, p := range append(cut, c.raw[master]) {
		p.Heal()
	}
	old.Freeze(false)
	_ = old.Start() // heal starts it again and reports why not
}

// disturb does to the network what the fault says and returns the proxies to heal.
func (f fault) disturb(c *cluster, id int) []*faults.Link {
	ps := []*faults.Link{c.raw[id]}
	if f.kind == cutLinks || f.kind == stallAll || f.kind == slowAll {
		for pair, p := range c.links {
			if pair[0] == id || pair[1] == id {
				ps = append(ps, p)
			}
		}
	}
	for _, p := range ps {
		switch f.kind {
		case cutLinks, cutRaw:
			p.Cut()
		case tear:
			p.CutAfter(f.amount)
		case stallRaw, stallAll:
			p.Hold(faults.Up, faults.Down)
		case slowAll:
			p.Slow(time.Duration(f.amount) * time.Millisecond)
		case kill, freeze, promote, demotion, usurped, overtaken, parted: // no faults of the network
		}
	}
	return ps
}
