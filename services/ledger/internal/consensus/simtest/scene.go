package simtest

import "github.com/tandemlog/tandem/services/ledger/internal/consensus"

// Scenes are schedules that chance alone would hardly find; what they act on is still up to the seed.

// when looks every few ticks until cond holds, for at most limit ticks, and then does do.
func (w *world) when(limit int64, cond func() bool, do func()) {
	switch {
	case w.calm || limit <= 0:
	case cond():
		do()
	default:
		w.after(2, func() { w.when(limit-2, cond, do) })
	}
}

// hunt crashes whoever leads, shortly after it began, until the given moment.
func (w *world) hunt(until int64) {
	if w.calm || w.now > until {
		return
	}
	if l := w.leader(); l != nil && w.rng.IntN(2) == 0 {
		l.crash(w.rng.IntN(4))
		w.after(1+w.rng.Int64N(2*electMax), l.start)
	}
	w.after(1+w.rng.Int64N(24), func() { w.hunt(until) })
}

// ambush takes the leader from one follower; then it either takes it from all as soon as that one asks for votes, or restarts
// the others at some moment. Meanwhile it writes to whoever leads and reads from the old one.
func (w *world) ambush(n *node, a action) {
	l := w.leader()
	if l == nil || l == n {
		return
	}
	w.net.heal()
	w.net.usual()
	w.quiet = w.now + 3*electMax // who has missed entries would not be elected
	w.after(24, func() { w.ambushFrom(l, n, a) })
}

func (w *world) ambushFrom(l, n *node, a action) {
	if w.calm {
		return
	}
	w.cutLink(l, n)
	isolate := func() {
		w.net.cutNode(l.index, true, true)
		w.probe(l, w.now+electMin)
	}
	if a.mode%2 == 0 {
		w.when(2*electMax, func() bool { return n.soft.Role == consensus.PreCandidate }, isolate)
		return
	}
	w.after(electMin+a.time%electMin, func() {
		if w.calm {
			return
		}
		isolate()
		for _, o := range w.nodes {
			if o != l && o != n {
				o.crash(a.mode)
				w.after(1+a.time%16, o.start)
			}
		}
	})
}

func (w *world) probe(old *node, until int64) {
	if w.calm || w.now > until {
		return
	}
	if l := w.leader(); l != nil && l != old && l.up {
		l.propose(1)
	}
	if old.up {
		old.read()
	}
	w.after(3, func() { w.probe(old, until) })
}

// amnesia isolates the leader until another is elected, then wipes one of those who elected it and leaves it alone with the old
// leader.
func (w *world) amnesia(a action) {
	old := w.leader()
	if old == nil {
		return
	}
	w.net.cutNode(old.index, true, true)
	w.when(2*electMax, func() bool { l := w.leader(); return l != nil && l != old }, func() {
		fresh := w.leader()
		for _, o := range w.nodes {
			if o != old && o != fresh && w.mayWipe(o) {
				o.wipe()
				w.after(1+a.time%8, o.start)
				w.net.cutNode(fresh.index, true, true)
				w.net.cut[old.index][o.index], w.net.cut[o.index][old.index] = false, false
				return
			}
		}
	})
}

// rivals crashes the leader and lets two others, who do not hear each other, court the rest while ballots are mislaid.
func (w *world) rivals(a action) {
	l := w.leader()
	if l == nil {
		return
	}
	w.net.heal()
	w.net.usual()
	w.quiet = w.now + 4*electMax
	w.after(24, func() {
		if w.calm {
			return
		}
		w.cutLink(w.nodes[(l.index+1)%len(w.nodes)], w.nodes[(l.index+2)%len(w.nodes)])
		l.crash(a.mode)
		w.after(1+a.time%16, l.start)
		w.net.ballots = true
		w.after(3*electMax+a.time, w.weatherEnds)
	})
}

// figure8 plays that figure of the Raft paper: one leader's entries reach nobody, a second one's neither; the first comes back,
// and as soon as it has committed anything the second does.
func (w *world) figure8() {
	one := w.leader()
	if one == nil {
		return
	}
	mute := func(n *node) {
		w.net.cutNode(n.index, false, true)
		for range 5 {
			if n.up {
				n.propose(4)
			}
		}
		w.after(8, func() {
			n.crash(1)
			w.net.heal()
			w.net.usual()
		})
	}
	mute(one)
	other := func() bool { l := w.leader(); return l != nil && l != one }
	w.when(4*electMax, other, func() {
		two := w.leader()
		mute(two)
		w.after(9, one.start)
		before := w.check.top().Index
		w.when(4*electMax, func() bool { return one.up && w.check.published(one) > before }, func() {
			one.crash(1)
			w.after(1, two.start)
			w.after(4*electMax, one.start)
		})
		w.after(8*electMax, one.start)
		w.after(8*electMax, two.start)
	})
	w.after(8*electMax, one.start)
}
