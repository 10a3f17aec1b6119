package main

import (
	"context"
	"sync"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// carryOut does all of a plan and returns when the last fault has ended.
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
	leader, term, _ := c.leader(ctx)
	id := (leader + f.role) % copies
	if f.kind == fullDisk && c.disk == nil {
		count(string(f.kind) + " (not done: no tmpfs may be mounted)")
		return
	}
	count(string(f.kind))
	switch f.kind {
	case kill, killTwo, killAll:
		f.kills(ctx, c, id)
	case freeze:
		c.nodes[id].Freeze(true)
		sleep.For(ctx, f.lasts)
		c.nodes[id].Freeze(false)
	case usurp:
		c.nodes[leader].Freeze(true)
		wait, cancel := context.WithTimeout(ctx, 4*c.most)
		_, _, _ = c.awaitLeader(wait, term) // or nobody can be elected while other faults last
		cancel()
		sleep.For(ctx, f.lasts/4)
		c.nodes[leader].Freeze(false)
	case transfer:
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := ledgerv1.NewElectionServiceClient(c.conns[leader]).TransferLeadership(call, &ledgerv1.TransferLeadershipRequest{Target: c.nodes[id].Name})
		if err != nil {
			count("transfers refused")
		}
	case fullDisk:
		c.nodes[0].Excuse(true)
		_ = c.disk.fill() // heal reports what is wrong with the disk
		sleep.For(ctx, f.lasts)
		_ = c.disk.free()
	case cutOff, isolate, deafen, mute, slow:
		links := f.disturb(c, id)
		sleep.For(ctx, f.lasts)
		for _, p := range links {
			p.Heal()
		}
	}
}

func (f fault) kills(ctx context.Context, c *cluster, id int) {
	n := map[kind]int{kill: 1, killTwo: 2, killAll: 3}[f.kind]
	for i := range n {
		c.nodes[(id+i)%copies].Kill()
	}
	sleep.For(ctx, f.lasts)
	for i := range n {
		_ = c.nodes[(id+i)%copies].Start() // heal starts it again and reports why not
	}
}

// disturb does to the links of a node what the fault says, and returns those to heal.
func (f fault) disturb(c *cluster, id int) []*faults.Link {
	var all []*faults.Link
	for pair, p := range c.links {
		away := pair[0] == id // it dialled
		if !away && pair[1] != id {
			continue
		}
		all = append(all, p)
		to, back := faults.Up, faults.Down // the ways to and from the node
		if away {
			to, back = faults.Down, faults.Up
		}
		switch f.kind {
		case cutOff:
			p.Cut()
		case isolate:
			p.Hold(to, back)
		case deafen:
			p.Hold(to)
		case mute:
			p.Hold(back)
		case slow:
			p.Slow(time.Duration(f.amount) * time.Millisecond)
		case kill, killTwo, killAll, freeze, usurp, transfer, fullDisk: // no faults of links
		}
	}
	return all
}
