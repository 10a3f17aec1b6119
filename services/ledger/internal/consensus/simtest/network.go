package simtest

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// network carries messages, badly.
type network struct {
	w     *world
	cut   [][]bool // from, to
	loss  int      // of 100
	twice int      // of 100
	late  int      // of 100

	ballots bool // many votes are held back until somebody has won, some voters crash
	held    []raft.Message
}

func (t *network) init(w *world) {
	t.w = w
	t.cut = make([][]bool, w.opts.Nodes)
	for i := range t.cut {
		t.cut[i] = make([]bool, w.opts.Nodes)
	}
	t.usual()
}

// usual is the weather between storms.
func (t *network) usual() { t.loss, t.twice, t.late, t.ballots = 1, 2, 3, false }

func (t *network) heal() {
	t.loss, t.twice, t.late, t.ballots = 0, 0, 0, false
	for i := range t.cut {
		clear(t.cut[i])
	}
}

func (t *network) cutNode(n int, in, out bool) {
	for i := range t.cut {
		if i != n {
			t.cut[i][n] = t.cut[i][n] || in
			t.cut[n][i] = t.cut[n][i] || out
		}
	}
}

func (t *network) send(from *node, m raft.Message) {
	to := from.w.node(m.To)
	if to == nil {
		t.w.fail("%s sends to %q", from.id, m.To)
		return
	}
	if t.ballots && m.Type == raft.VoteAnswer && m.Refused == raft.OK && t.w.rng.IntN(3) == 0 {
		t.w.after(1, func() { from.crash(0) })
		t.w.after(2+t.w.rng.Int64N(8), from.start)
	}
	copies := 1
	if t.w.rng.IntN(100) < t.twice {
		copies++
	}
	for range copies {
		if t.w.rng.IntN(100) < t.loss {
			continue
		}
		if t.ballots && m.Type == raft.VoteAnswer && len(t.held) < maxInbox && t.w.rng.IntN(3) > 0 {
			t.held = append(t.held, m)
			continue
		}
		delay := 1 + t.w.rng.Int64N(4)
		if t.ballots && m.Type == raft.Vote && t.w.rng.IntN(2) == 0 {
			delay += t.w.rng.Int64N(3 * electMin)
		}
		if t.w.rng.IntN(100) < t.late {
			delay += t.w.rng.Int64N(3 * electMax)
		}
		t.w.after(delay, func() {
			if !t.cut[from.index][to.index] {
				to.receive(m)
			}
		})
	}
}

// release delivers the votes that were held back.
func (t *network) release() {
	for _, m := range t.held {
		from, to := t.w.node(m.From), t.w.node(m.To)
		t.w.after(1, func() {
			if !t.cut[from.index][to.index] {
				to.receive(m)
			}
		})
	}
	t.held = t.held[:0]
}

func (w *world) node(id raft.NodeID) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}
