package simtest

import (
	"fmt"
	"math/rand/v2"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

type kind int

const (
	cutNode kind = iota
	cutInbound
	cutOutbound
	splitGroup
	healLinks
	pause
	crash
	crashTwo
	wipe
	slowDisk
	failDisk
	storm
	lateness
	skew
	transfer
	purge
	cutPair
	ballots
	assassin
	ambush
	amnesia
	rivals
	figure8
	numKinds
)

var kindNames = [...]string{
	"cut", "cut inbound of", "cut outbound of", "split behind", "heal links", "pause", "crash", "crash with a neighbour", "wipe", "slow disk of", "fail disk of",
	"lose messages", "delay messages", "bend clock of", "transfer to", "purge", "cut the leader from", "mislay ballots", "crash every leader", "ambush the lease with",
	"wipe behind an election", "let rivals run without", "play figure 8 with",
}

// onLeader as an action's node means whoever leads then.
const onLeader = -1

type action struct {
	at   int64
	kind kind
	node int
	mode int
	time int64
}

func (a action) String() string {
	who := fmt.Sprintf("n%d", a.node)
	if a.node == onLeader {
		who = "the leader"
	}
	return fmt.Sprintf("at %d %s %s (mode %d, for %d)", a.at, kindNames[a.kind], who, a.mode, a.time)
}

// profiles weigh the kinds, so that seeds differ in character.
var profiles = [][numKinds]int{
	{3, 2, 2, 2, 4, 2, 4, 1, 1, 1, 1, 2, 2, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1}, // a bit of everything
	{4, 3, 3, 4, 3, 0, 1, 0, 0, 0, 0, 1, 2, 1, 1, 0, 4, 1, 0, 0, 0, 1, 0}, // links
	{1, 0, 0, 1, 2, 1, 8, 4, 0, 2, 2, 1, 1, 0, 1, 0, 1, 0, 3, 0, 0, 1, 3}, // crashes
	{1, 1, 1, 1, 5, 4, 1, 0, 0, 3, 0, 0, 3, 3, 4, 0, 2, 0, 0, 1, 0, 0, 0}, // time
	{0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 6, 0, 0, 0}, // leases
	{1, 1, 0, 1, 3, 1, 2, 0, 5, 0, 0, 1, 2, 0, 1, 3, 1, 0, 0, 0, 4, 0, 0}, // wipes and purges
	{0, 0, 0, 0, 2, 0, 1, 1, 0, 1, 1, 0, 1, 0, 2, 0, 0, 2, 2, 0, 0, 6, 2}, // elections
}

func newPlan(rng *rand.Rand, nodes int) []action {
	weights := profiles[rng.IntN(len(profiles))]
	total := 0
	for _, w := range weights {
		total += w
	}
	pace := 40 + rng.Int64N(260)
	var plan []action
	for at := int64(150); at < faultyTime; at += 1 + rng.Int64N(2*pace) {
		a := action{at: at, node: rng.IntN(nodes+nodes/2) - nodes/2, mode: rng.IntN(4), time: 5 + rng.Int64N(3*electMax)}
		a.node = max(a.node, onLeader)
		for pick := rng.IntN(total); pick >= weights[a.kind]; a.kind++ {
			pick -= weights[a.kind]
		}
		plan = append(plan, a)
	}
	return plan
}

// perform does one action of the plan. What it began by time ends by itself.
func (w *world) perform(i int, a action) {
	if w.calm {
		return
	}
	w.note("# %d: %v", i, a)
	n := w.target(a.node)
	switch a.kind {
	case cutNode, cutInbound, cutOutbound:
		w.net.cutNode(n.index, a.kind != cutOutbound, a.kind != cutInbound)
	case splitGroup:
		w.split(n.index)
	case healLinks:
		weather := w.net
		w.net.heal()
		w.net.loss, w.net.twice, w.net.late, w.net.ballots = weather.loss, weather.twice, weather.late, weather.ballots
	case storm:
		w.net.loss, w.net.twice = 20*a.mode, 10
		w.after(a.time, w.weatherEnds)
	case lateness:
		w.net.late, w.net.twice = 10+20*a.mode, 20
		w.after(a.time, w.weatherEnds)
	case transfer:
		w.transferTo(n, a)
	case cutPair:
		if l := w.leader(); l != nil {
			w.cutLink(l, n)
		}
	case ballots:
		w.net.ballots = true
		w.after(a.time, w.weatherEnds)
	case assassin:
		w.net.ballots = a.mode == 0
		w.hunt(w.now + 2*a.time)
	case ambush:
		w.ambush(n, a)
	case amnesia:
		w.amnesia(a)
	case rivals:
		w.rivals(a)
	case figure8:
		w.figure8()
	default:
		w.harm(n, a)
	}
}

// transferTo moves leadership, in half of the cases with the old leader deaf for its successor.
func (w *world) transferTo(n *node, a action) {
	l := w.leader()
	if l == nil || !l.idle() || l.core.Transfer(l.ticks(), n.id) != raft.OK {
		return
	}
	w.stats.Transfers++
	l.pump()
	if a.mode >= 2 {
		w.after(2+a.time%8, func() {
			if !w.calm {
				w.net.cutNode(l.index, true, false)
			}
		})
	}
}

func (w *world) cutLink(a, b *node) {
	if a != b {
		w.net.cut[a.index][b.index], w.net.cut[b.index][a.index] = true, true
	}
}

func (w *world) weatherEnds() {
	if !w.calm {
		w.net.usual()
	}
}

// harm does what concerns one node alone.
func (w *world) harm(n *node, a action) {
	switch a.kind {
	case pause:
		n.paused = true
		life := n.life
		w.after(a.time, func() {
			if n.life == life {
				n.resume()
			}
		})
	case crash:
		n.crash(a.mode)
		w.after(a.time, n.start)
	case crashTwo:
		other := w.nodes[(n.index+1)%len(w.nodes)]
		n.crash(a.mode)
		other.crash(a.mode)
		w.after(a.time, n.start)
		w.after(a.time/2, other.start)
	case wipe:
		if w.mayWipe(n) {
			n.wipe()
			w.after(a.time, n.start)
		}
	case slowDisk:
		n.slowUntil = w.now + a.time
	case failDisk:
		n.diskFails = true
		w.after(a.time+electMax, n.start)
	case skew:
		n.skew()
	case purge:
		n.purge()
	default:
	}
}

// mayWipe spares a group that could not elect a leader without the node: it would stand still for ever, as it must.
func (w *world) mayWipe(n *node) bool {
	voters := 0
	for _, o := range w.nodes {
		if o != n && o.saved.hard.Voter {
			voters++
		}
	}
	return voters > len(w.nodes)/2
}

func (w *world) target(i int) *node {
	if i != onLeader {
		return w.nodes[i]
	}
	if l := w.leader(); l != nil {
		return l
	}
	return w.nodes[0]
}

// split cuts a minority, beginning with first, off from the others.
func (w *world) split(first int) {
	size := len(w.nodes) / 2
	in := func(i int) bool { return (i-first+len(w.nodes))%len(w.nodes) < size }
	for i := range w.nodes {
		for j := range w.nodes {
			if in(i) != in(j) {
				w.net.cut[i][j] = true
			}
		}
	}
}
