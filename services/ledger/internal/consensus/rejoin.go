package consensus

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// rejoin is how a node that lost its disk, and with it its promises, becomes a voter again. See doc.go for why it is safe.
type rejoin struct {
	nextAsk    raft.Ticks
	highest    raft.Term  // of the members' terms, each read after this node began
	leaderTerm raft.Term  // highest term whose leader answered
	target     raft.Index // that leader's last entry when it answered first
}

func (c *Core) tickRejoin() {
	if c.now < c.nextAsk {
		return
	}
	c.nextAsk = c.now + c.cfg.Heartbeat
	for _, d := range c.peers {
		c.promise(d.ID, raft.Message{Type: raft.Rejoin, Nonce: c.incarnation})
	}
}

func (c *Core) onRejoin(m *raft.Message) raft.Reason {
	c.answer(m, raft.Message{Leads: c.role == Leader, End: c.log.Last})
	return raft.OK
}

func (c *Core) onRejoinAnswer(m *raft.Message) raft.Reason {
	if c.hard.Voter || m.Nonce != c.incarnation {
		return raft.StaleAnswer
	}
	c.peer(m.From).told = true
	c.highest = max(c.highest, m.Term)
	if m.Leads && m.Term > c.leaderTerm {
		c.leaderTerm, c.target = m.Term, m.End
	}
	c.tryRejoin()
	return raft.OK
}

// tryRejoin makes this node a voter once all members have told their terms and the log holds what a leader of a term no
// lower than any of them held after this node began. Its vote in that term is the leader's.
func (c *Core) tryRejoin() {
	if c.hard.Voter || c.leader == "" || c.leaderTerm < c.highest || c.leaderTerm != c.hard.Term || c.matched < c.target {
		return
	}
	for _, d := range c.peers {
		if !d.told {
			return
		}
	}
	c.hard.Voter, c.hard.Vote, c.out.hardDirty = true, c.leader, true
}
