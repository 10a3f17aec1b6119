package consensus

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// reads are the linearizable reads that wait on a leader. DLedger has none: its get answers from whatever the leader
// holds, committed or not.
type reads struct {
	round   uint64 // of heartbeats, in this leadership
	waiting []read
}

type read struct {
	id    uint64
	from  raft.NodeID // empty: this node
	nonce uint64
	index raft.Index
	round uint64 // 0: not begun
}

// Read asks for an index that, once committed here, shows everything that was acknowledged before the call. The answer is
// a ReadState with the same id, from the leader's lease or after one round of heartbeats; a follower asks its leader, whose
// answer may be lost, so that the caller's deadline ends it, or come twice. now must have been read after the request arrived.
func (c *Core) Read(now raft.Ticks, id uint64) raft.Reason {
	c.clock(now)
	switch {
	case c.role != Leader && c.leader == "":
		return c.count(raft.NoLeader)
	case c.role != Leader:
		c.send(c.leader, raft.Message{Type: raft.ReadIndex, ReadID: id, Nonce: c.incarnation})
	case len(c.waiting) >= c.cfg.MaxPendingReads:
		return c.count(raft.ReadsFull)
	default:
		c.waiting = append(c.waiting, read{id: id})
	}
	return raft.OK
}

func (c *Core) onReadIndex(m *raft.Message) raft.Reason {
	var r raft.Reason
	switch {
	case c.role != Leader:
		r = raft.NotLeader
	case len(c.waiting) >= c.cfg.MaxPendingReads:
		r = raft.ReadsFull
	default:
		c.waiting = append(c.waiting, read{id: m.ReadID, from: m.From, nonce: m.Nonce})
		return raft.OK
	}
	c.answer(m, raft.Message{Refused: r})
	return r
}

// onReadIndexAnswer takes the answer of any term: what it says was true after the question, and the nonce tells that the
// question was of this life.
func (c *Core) onReadIndexAnswer(m *raft.Message) raft.Reason {
	if m.Term > c.hard.Term {
		c.becomeFollower(m.Term, "")
	}
	if m.Nonce != c.incarnation {
		return raft.StaleAnswer
	}
	c.out.reads = append(c.out.reads, ReadState{ID: m.ReadID, Index: m.Index, Refused: m.Refused})
	return raft.OK
}

// serveReads answers what a lease or a finished round allows, and begins a round for the others. No read is answered
// before the leader has committed in its own term: only then does its commit index cover what its predecessors
// acknowledged.
func (c *Core) serveReads() {
	if len(c.waiting) == 0 || c.committed < c.termStart && !c.faults.readUnconfirmed {
		return
	}
	if c.leaseHolds() || c.faults.readUnconfirmed {
		for _, r := range c.waiting {
			r.index = c.committed
			c.finish(r, raft.OK)
		}
		c.waiting = c.waiting[:0]
		return
	}
	if c.confirm(); len(c.waiting) > 0 && c.waiting[0].round == 0 {
		c.heartbeat()
		c.confirm() // alone in the group
	}
}

// confirm answers the reads whose round a quorum has answered.
func (c *Core) confirm() {
	done := uint64(c.quorumOf(int64(c.round), (*member).roundAt))
	n := 0
	for n < len(c.waiting) && c.waiting[n].round != 0 && c.waiting[n].round <= done {
		c.finish(c.waiting[n], raft.OK)
		n++
	}
	c.waiting = c.waiting[:copy(c.waiting, c.waiting[n:])]
}

// joinRound lets the reads that wait for a round take part in the one that begins.
func (c *Core) joinRound() {
	if c.committed < c.termStart {
		return
	}
	for i := len(c.waiting) - 1; i >= 0 && c.waiting[i].round == 0; i-- {
		c.waiting[i].round, c.waiting[i].index = c.round, c.committed
	}
}

// leaseHolds says that no other leader can exist yet: a quorum answered a heartbeat sent less than ElectionMin ago, by this
// node's clock and with a margin, and owes silence until then. After TakeLeadership nobody owes it.
func (c *Core) leaseHolds() bool {
	if c.faults.leaseForever {
		return true
	}
	since := raft.Ticks(c.quorumOf(int64(c.now), (*member).leaseAt))
	return !c.leaseForfeit && c.now < since+c.cfg.ElectionMin-c.cfg.LeaseMargin
}

func (c *Core) finish(r read, why raft.Reason) {
	switch {
	case r.from == "":
		c.out.reads = append(c.out.reads, ReadState{ID: r.id, Index: r.index, Refused: why})
	case why == raft.OK:
		c.send(r.from, raft.Message{Type: raft.ReadIndexAnswer, ReadID: r.id, Nonce: r.nonce, Index: r.index})
	default:
		c.promise(r.from, raft.Message{Type: raft.ReadIndexAnswer, ReadID: r.id, Nonce: r.nonce, Refused: why})
	}
}

// failReads ends all waiting reads when leadership does.
func (c *Core) failReads() {
	for _, r := range c.waiting {
		c.finish(r, raft.NotLeader)
	}
	c.waiting = c.waiting[:0]
}
