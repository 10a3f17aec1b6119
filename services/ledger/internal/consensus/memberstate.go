package consensus

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// memberState is DLedger's MemberState: who this node is, what it has promised and what its log holds.
type memberState struct {
	hard      raft.HardState
	role      Role
	leader    raft.NodeID // of hard.Term; empty: not known
	log       raft.Lineage
	committed raft.Index
	matched   raft.Index // up to here pushes of hard.Term proved that the log equals its leader's; NoIndex: none did yet
	termStart raft.Index // leader: its no-op

	transferee    raft.NodeID // leader: who shall take over; empty: nobody
	transferEnds  raft.Ticks
	transferAsked bool // TakeLeadership was sent for this transfer
	spurned       int  // times that this leadership was offered to a better one
	leaseForfeit  bool // TakeLeadership was sent in this term: it may still arrive, so no lease holds any more
}

func (c *Core) soft() SoftState {
	return SoftState{Role: c.role, Term: c.hard.Term, Leader: c.leader, Transferee: c.transferee, Voter: c.hard.Voter}
}

// meetTerm applies the rule of terms: a higher one is taken over, a lower one is told ours. A leader's message makes its
// sender the leader.
func (c *Core) meetTerm(m *raft.Message) raft.Reason {
	if c.faults.lateGrant && m.Type == raft.VoteAnswer && m.Refused == raft.OK {
		return raft.OK
	}
	switch {
	case m.Term < c.hard.Term:
		if m.Type.Answer() != 0 {
			c.answer(m, raft.Message{Refused: raft.OldTerm})
		}
		return raft.OldTerm
	case m.Term > c.hard.Term && m.FromLeader():
		c.becomeFollower(m.Term, m.From)
	case m.Term > c.hard.Term:
		c.becomeFollower(m.Term, "")
	}
	if !m.FromLeader() {
		return raft.OK
	}
	switch {
	case c.role == Leader || c.leader != "" && c.leader != m.From:
		return raft.OtherLeader
	case c.role != Follower || c.leader == "":
		c.becomeFollower(m.Term, m.From)
	}
	if c.faults.forgetVote {
		c.hard.Vote = ""
	}
	c.heard = c.now
	c.resetElection()
	return raft.OK
}

// becomeFollower steps down, or on to a higher term. The vote of a term is never forgotten within it.
func (c *Core) becomeFollower(t raft.Term, leader raft.NodeID) {
	if t > c.hard.Term {
		c.hard.Term, c.hard.Vote, c.matched = t, "", raft.NoIndex
		c.out.hardDirty = true
	}
	if c.role == Leader {
		c.failReads()
		c.transferee = ""
	}
	c.role, c.leader = Follower, leader
	c.resetElection()
}

func (c *Core) becomeLeader() {
	c.role, c.leader = Leader, c.cfg.ID
	c.transferee, c.leaseForfeit, c.spurned = "", false, 0
	c.round, c.nextHeartbeat, c.nextPriority = 0, c.now, c.now+c.cfg.PriorityInterval
	for _, d := range c.peers {
		d.Begin(c.now, c.log.End())
	}
	c.termStart = c.log.Last + 1
	if !c.faults.noOpSkipped {
		c.push(raft.Entry{Index: c.termStart, Term: c.hard.Term, Kind: raft.NoOp, Size: c.cfg.NoOpBytes})
	}
	c.tickLeader()
}

// push adds one entry to the log's end and to what must be saved.
func (c *Core) push(e raft.Entry) {
	c.log.Append(e.Term)
	c.out.pending = append(c.out.pending, e)
	c.out.bytes += int64(e.Size)
}

// cutAfter drops what lies behind last, saved or not.
func (c *Core) cutAfter(last raft.Index) {
	c.log.Truncate(last)
	if keep := last - c.out.stable; keep >= 0 {
		c.out.pending = c.out.pending[:keep]
		return
	}
	c.out.pending = c.out.pending[:0]
	c.out.stable = last
	if c.out.cut == nil {
		c.out.cut = &Cut{}
	}
	c.out.cut.Last, c.out.cut.Term = last, c.log.End().Term
	if c.faults.termFalls {
		c.hard.Term, c.hard.Vote, c.out.hardDirty = max(0, c.log.End().Term), "", true
	}
}

// resetTo empties the log: it goes on behind base, which the group has committed and purged.
func (c *Core) resetTo(base raft.Mark) {
	c.log = raft.Lineage{Base: base, Last: base.Index}
	c.out.pending, c.out.stable = c.out.pending[:0], base.Index
	c.out.cut = &Cut{Last: base.Index, Term: base.Term, Reset: true}
	c.committed, c.matched = base.Index, base.Index
}

// commitTo moves the commit index, never back and never beyond what is known to be the leader's.
func (c *Core) commitTo(i raft.Index) {
	limit := c.matched
	if c.faults.commitUnverified {
		limit = c.log.Last
	}
	c.committed = max(c.committed, min(i, limit))
}
