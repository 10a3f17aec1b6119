package consensus

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// election is DLedger's DLedgerLeaderElector, with pre-vote, check-quorum and a lease.
type election struct {
	heard    raft.Ticks // when a leader was last heard, or the node started
	deadline raft.Ticks // when to ask for votes

	nextHeartbeat raft.Ticks // leader
	nextPriority  raft.Ticks // leader
}

// resetElection starts a full timeout anew. Where priorities are set, the nodes of the highest take the shorter half.
func (c *Core) resetElection() {
	span := uint64(c.cfg.ElectionMax - c.cfg.ElectionMin)
	wait := c.cfg.Random.Uint64() % span
	best := c.cfg.Priority[c.cfg.ID]
	for _, p := range c.cfg.Priority {
		best = max(best, p)
	}
	if len(c.cfg.Priority) > 0 {
		wait /= 2
		if c.cfg.Priority[c.cfg.ID] < best {
			wait += span / 2
		}
	}
	c.deadline = c.now + c.cfg.ElectionMin + raft.Ticks(wait) + 1
}

// leaderAlive says that this node owes somebody its silence: a lease may rest on it.
func (c *Core) leaderAlive() bool {
	if c.faults.deafToLease {
		return false
	}
	since := c.heard
	if c.faults.voteAfterStart && c.leader == "" {
		return false
	}
	return c.role == Leader || c.now < since+c.cfg.ElectionMin
}

// preCampaign asks whether an election could be won, with no term raised.
func (c *Core) preCampaign() {
	c.role, c.leader = PreCandidate, ""
	c.resetElection()
	c.startCount()
	if c.granted() {
		c.campaign(false)
		return
	}
	end := c.log.End()
	for _, d := range c.peers {
		c.promise(d.ID, raft.Message{Type: raft.PreVote, Term: c.hard.Term + 1, Index: end.Index, LogTerm: end.Term})
	}
}

// campaign raises the term, votes for this node and asks for votes. The requests are promises: this node's own vote is on
// disk before any answer can come.
func (c *Core) campaign(force bool) {
	c.hard.Term++
	c.hard.Vote, c.out.hardDirty = c.cfg.ID, true
	c.role, c.leader, c.matched = Candidate, "", raft.NoIndex
	c.counters.Elections++
	c.resetElection()
	c.startCount()
	if c.granted() {
		c.becomeLeader()
		return
	}
	end := c.log.End()
	for _, d := range c.peers {
		c.promise(d.ID, raft.Message{Type: raft.Vote, Index: end.Index, LogTerm: end.Term, Force: force})
	}
}

func (c *Core) onPreVote(m *raft.Message) raft.Reason {
	r := raft.OK
	switch {
	case m.Term <= c.hard.Term:
		r = raft.OldTerm
	case !c.mayVote():
		r = raft.NotVoter
	case c.leaderAlive():
		r = raft.LeaderAlive
	case !c.upToDate(m):
		r = raft.ShortLog
	}
	a := raft.Message{Refused: r, Term: m.Term}
	if r != raft.OK {
		a.Term = c.hard.Term
	}
	c.answer(m, a)
	return r
}

func (c *Core) onPreVoteAnswer(m *raft.Message) raft.Reason {
	switch {
	case m.Refused != raft.OK && m.Term > c.hard.Term:
		c.becomeFollower(m.Term, "")
		return raft.OK
	case c.role != PreCandidate || m.Learner || m.Refused == raft.OK && m.Term != c.hard.Term+1:
		return raft.StaleAnswer
	}
	c.countVote(m)
	switch {
	case c.granted():
		c.campaign(false)
	case c.lost():
		c.becomeFollower(c.hard.Term, "")
	}
	return raft.OK
}

func (c *Core) onVote(m *raft.Message) raft.Reason {
	r := raft.OK
	switch {
	case m.Term < c.hard.Term:
		r = raft.OldTerm
	case !c.mayVote():
		r = raft.NotVoter
	case !m.Force && c.leaderAlive():
		r = raft.LeaderAlive // the term is not taken over either: the leader stays
	}
	if r == raft.OK {
		if m.Term > c.hard.Term {
			c.becomeFollower(m.Term, "")
		}
		r = c.grant(m)
	}
	c.answer(m, raft.Message{Refused: r})
	return r
}

// grant gives this term's vote to m.From if it is free and the candidate's log is as new as ours.
func (c *Core) grant(m *raft.Message) raft.Reason {
	switch {
	case c.hard.Vote != "" && c.hard.Vote != m.From, c.hard.Vote == "" && c.leader != "" && !c.faults.forgetVote:
		return raft.AlreadyVoted
	case !c.upToDate(m):
		return raft.ShortLog
	case c.hard.Vote == "":
		c.hard.Vote, c.out.hardDirty = m.From, true
	}
	c.resetElection()
	return raft.OK
}

func (c *Core) onVoteAnswer(m *raft.Message) raft.Reason {
	if c.role != Candidate || m.Learner {
		return raft.StaleAnswer
	}
	c.countVote(m)
	switch {
	case c.granted():
		c.becomeLeader()
	case c.lost():
		c.becomeFollower(c.hard.Term, "")
	}
	return raft.OK
}

func (c *Core) mayVote() bool { return c.hard.Voter || c.faults.wipedVotes }

// upToDate compares the logs' ends: the term of the last entry first, never the node's current term.
func (c *Core) upToDate(m *raft.Message) bool {
	end := c.log.End()
	return m.LogTerm > end.Term || m.LogTerm == end.Term && m.Index >= end.Index || c.faults.voteShortLog
}

// tickLeader sends heartbeats, checks that a quorum still answers and ends or begins transfers.
func (c *Core) tickLeader() {
	if c.quorumOf(int64(c.now), (*member).heardAt) < int64(c.now-c.cfg.ElectionMax) {
		c.becomeFollower(c.hard.Term, "")
		return
	}
	if c.now >= c.nextHeartbeat {
		c.heartbeat()
	}
	if c.transferee != "" && c.now >= c.transferEnds {
		c.transferee = ""
	}
	if c.transferee == "" && c.now >= c.nextPriority {
		c.nextPriority = c.now + c.cfg.PriorityInterval
		c.preferBetter()
	}
}

// heartbeat begins a new round: who answers it has, since then, followed no other leader.
func (c *Core) heartbeat() {
	c.round++
	c.nextHeartbeat = c.now + c.cfg.Heartbeat
	c.joinRound()
	for _, d := range c.peers {
		c.send(d.ID, raft.Message{Type: raft.Heartbeat, Round: c.round, Sent: c.now})
	}
}
