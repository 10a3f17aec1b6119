package consensus

import (
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// member is another node of the group: its dispatcher, and what it said about votes.
type member struct {
	push.Dispatcher
	vote vote
	told bool // this node's Rejoin was answered
}

type vote uint8

const (
	voteOpen vote = iota
	voteGranted
	voteRefused
)

func (d *member) heardAt() int64 { return int64(d.Heard) }
func (d *member) ackedAt() int64 { return int64(d.Acked) }
func (d *member) roundAt() int64 { return int64(d.Round) }
func (d *member) leaseAt() int64 { return int64(d.Lease) }

// leaderView shows the dispatchers where this node stands.
func (c *Core) leaderView() *push.View {
	v := &c.view
	v.Self, v.Term, v.Now, v.Log, v.Committed = c.cfg.ID, c.hard.Term, c.now, &c.log, c.committed
	v.Limits, v.Silence, v.Store, v.Stable, v.Pending = &c.cfg.Limits, c.cfg.ElectionMin, c.store, c.out.stable, c.out.pending
	v.HintUnverified, v.CommitUnverified, v.SilenceUntold = c.faults.hintUnverified, c.faults.commitUnverified, c.faults.silenceUntold
	return v
}

// dispatch sends all followers what is due to them.
func (c *Core) dispatch() {
	v := c.leaderView()
	for _, d := range c.peers {
		v.Out = c.out.messages
		d.Due(v)
		c.out.messages = v.Out
		c.askTransferee(d)
	}
}

// onAnswer takes the answers to pushes and heartbeats.
func (c *Core) onAnswer(m *raft.Message) raft.Reason {
	d := c.peer(m.From)
	switch {
	case c.role != Leader:
		return raft.StaleAnswer
	case m.Type != raft.HeartbeatAnswer:
		r := d.Answered(c.leaderView(), m)
		c.advanceCommit()
		return r
	case m.Round > c.round || m.Sent > c.now:
		return raft.BadMessage
	}
	d.HeartbeatAnswered(c.leaderView(), m)
	return raft.OK
}
