package simtest

import (
	"encoding/binary"
	"sort"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// fact is what one (index, term) stands for, wherever it is found.
type fact struct {
	before  raft.Term
	payload uint64
}

type ballot struct {
	voter raft.NodeID
	term  raft.Term
}

// check holds what the outside world has seen, and compares.
type check struct {
	w         *world
	leaders   map[raft.Term]raft.NodeID
	votes     map[ballot]raft.NodeID
	facts     map[raft.Mark]fact
	committed []raft.Mark // by index: as first published by anyone
	reads     map[uint64]raft.Index
	nodes     []view
	wipes     bool
}

// view is what one node has shown.
type view struct {
	term      raft.Term // highest it has promised anything in
	published raft.Index
	seenTerm  raft.Term // in this life
	voter     bool
}

func (c *check) init(w *world) {
	c.w = w
	c.leaders = map[raft.Term]raft.NodeID{}
	c.votes = map[ballot]raft.NodeID{}
	c.facts = map[raft.Mark]fact{}
	c.reads = map[uint64]raft.Index{}
	c.nodes = make([]view, w.opts.Nodes)
	for i := range c.nodes {
		c.nodes[i].published = raft.NoIndex
	}
}

// top is the last entry anyone has published.
func (c *check) top() raft.Mark {
	if len(c.committed) == 0 {
		return raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}
	}
	return c.committed[len(c.committed)-1]
}

func (c *check) published(n *node) raft.Index { return c.nodes[n.index].published }

func (c *check) started(n *node) {
	v := &c.nodes[n.index]
	if n.saved.hard.Term < v.term {
		c.w.fail("%s starts in term %d, but promised something in %d", n.id, n.saved.hard.Term, v.term)
	}
	v.published = n.core.Status().Committed
	v.seenTerm, v.voter = n.saved.hard.Term, n.saved.hard.Voter
}

func (c *check) crashed(n *node) {
	v := &c.nodes[n.index]
	if !c.wipes && v.published > n.saved.last() {
		c.w.fail("%s published %d, but its disk ends at %d", n.id, v.published, n.saved.last())
	}
}

func (c *check) wiped(n *node) {
	c.wipes = true
	c.nodes[n.index] = view{published: raft.NoIndex}
}

// cut: committed entries are never removed.
func (c *check) cut(n *node, cut *consensus.Cut) {
	v := &c.nodes[n.index]
	switch {
	case cut.Last < v.published:
		c.w.fail("%s cuts to %d, below its published %d", n.id, cut.Last, v.published)
	case cut.Reset && (int(cut.Last) >= len(c.committed) || c.committed[cut.Last].Term != cut.Term):
		c.w.fail("%s begins anew behind %d/%d, which is not committed", n.id, cut.Last, cut.Term)
	}
}

// entry: log matching. What has one index and term is one entry with one predecessor, so by induction one log.
func (c *check) entry(n *node, before raft.Mark, e raft.Entry) {
	if e.Index != before.Index+1 || e.Term < before.Term {
		c.w.fail("%s appends %d/%d behind %v", n.id, e.Index, e.Term, before)
	}
	f := fact{before: before.Term}
	if len(e.Payload) == 8 {
		f.payload = binary.BigEndian.Uint64(e.Payload)
	}
	at := raft.Mark{Index: e.Index, Term: e.Term}
	if known, ok := c.facts[at]; ok && known != f {
		c.w.fail("%s: entry %v is %+v here and %+v elsewhere", n.id, at, f, known)
	}
	c.facts[at] = f
}

// promise notes what leaves a node for good.
func (c *check) promise(n *node, m raft.Message) {
	v := &c.nodes[n.index]
	candidate := raft.NodeID("")
	switch {
	case m.Type == raft.PreVote || m.Type == raft.PreVoteAnswer:
		return
	case m.Type == raft.Vote:
		candidate = n.id
	case m.Type == raft.VoteAnswer && m.Refused == raft.OK:
		candidate = m.To
	}
	if candidate != "" {
		b := ballot{voter: n.id, term: m.Term}
		if other, ok := c.votes[b]; ok && other != candidate {
			c.w.fail("%s votes for %s in term %d, and has voted for %s", n.id, candidate, m.Term, other)
		}
		c.votes[b] = candidate
	}
	v.term = max(v.term, m.Term)
}

// soft: one leader a term, who holds all that was committed; terms only grow.
func (c *check) soft(n *node, s consensus.SoftState) {
	v := &c.nodes[n.index]
	if s.Term < v.seenTerm {
		c.w.fail("%s falls from term %d to %d", n.id, v.seenTerm, s.Term)
	}
	v.seenTerm = s.Term
	if s.Voter && !v.voter {
		c.w.stats.Rejoins++
		v.voter = true
	}
	if s.Role != consensus.Leader || c.leaders[s.Term] == n.id {
		return
	}
	c.w.stats.Leaders++
	c.w.net.release()
	if other, ok := c.leaders[s.Term]; ok {
		c.w.fail("%s and %s both lead term %d", n.id, other, s.Term)
	}
	c.leaders[s.Term] = n.id
	// Later leaders may have committed already, when this node took long to save what made it leader.
	older := sort.Search(len(c.committed), func(i int) bool { return c.committed[i].Term >= s.Term })
	if older > 0 && !n.disk.holds(c.committed[older-1]) {
		c.w.fail("%s leads term %d without the committed entry %v; it ends at %v", n.id, s.Term, c.committed[older-1], n.disk.end())
	}
}

// publish: commit indexes only grow, name the same entries everywhere, and are durable on a quorum.
func (c *check) publish(n *node, r consensus.Ready) {
	v := &c.nodes[n.index]
	if r.Committed < v.published {
		c.w.fail("%s falls from commit index %d to %d", n.id, v.published, r.Committed)
		return
	}
	if r.Committed > n.disk.last() {
		c.w.fail("%s publishes %d, its log ends at %d", n.id, r.Committed, n.disk.last())
		return
	}
	for i := v.published + 1; i <= r.Committed; i++ {
		at := raft.Mark{Index: i, Term: n.disk.base.Term}
		if e := n.disk.entry(i); e != nil {
			at.Term = e.Term
		} else if i < n.disk.base.Index { // left out by a reset
			continue
		}
		if int(i) == len(c.committed) {
			c.durable(n, at)
			c.committed = append(c.committed, at)
			c.w.stats.Commits++
		}
		if int(i) > len(c.committed) {
			c.w.fail("%s publishes %d before anyone published %d", n.id, i, len(c.committed))
			return
		}
		if c.committed[i] != at {
			c.w.fail("%s publishes %v, but %v was published before", n.id, at, c.committed[i])
			return
		}
	}
	v.published = r.Committed
	for _, a := range r.Alarms {
		c.w.fail("%s: alarm: %v from %s at %d, committed %d", n.id, a.Reason, a.From, a.Index, a.Committed)
	}
	for _, s := range r.Reads {
		c.readEnds(n, s)
	}
}

func (c *check) durable(n *node, at raft.Mark) {
	if c.wipes {
		return
	}
	have := 0
	for _, o := range c.w.nodes {
		if o.saved.holds(at) {
			have++
		}
	}
	if have <= len(c.w.nodes)/2 {
		c.w.fail("%s publishes %v, which is durable on %d nodes only", n.id, at, have)
	}
}

func (c *check) readBegins(_ *node, id uint64) { c.reads[id] = c.top().Index }

// readEnds: linearizable reads. The index covers what anyone had published when the read began.
func (c *check) readEnds(n *node, s consensus.ReadState) {
	begun, ok := c.reads[s.ID]
	delete(c.reads, s.ID)
	if !ok || s.Refused != raft.OK {
		return
	}
	c.w.stats.Reads++
	if s.Index < begun {
		c.w.fail("%s reads at %d, but %d had been published before the read began", n.id, s.Index, begun)
	}
}
