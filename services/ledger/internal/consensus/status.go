package consensus

import (
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Status is the group as this node sees it.
type Status struct {
	SoftState
	ID           raft.NodeID
	Vote         raft.NodeID
	First, Last  raft.Index // entries held; First is Last+1 when there are none
	Committed    raft.Index
	UnderLease   bool // a leader that may answer reads alone
	WaitingReads int
	Peers        []PeerStatus // leader: its followers
	Counters     Counters
}

// PeerStatus is one follower as its leader sees it.
type PeerStatus struct {
	ID              raft.NodeID
	State           push.State
	Match, Next     raft.Index
	Lag             raft.Index // entries it lacks
	Commit          raft.Index // as it said last
	InflightEntries raft.Index
	InflightBytes   int64
	InflightBatches int
	Silent          raft.Ticks // since it answered as a voter
	Learner         bool       // has not caught up after it lost its disk
	Refused         raft.Reason
}

// Status copies what there is to see.
func (c *Core) Status() Status {
	s := Status{
		SoftState: c.soft(), ID: c.cfg.ID, Vote: c.hard.Vote, First: c.log.Base.Index + 1, Last: c.log.Last, Committed: c.committed,
		WaitingReads: len(c.waiting), Counters: c.counters,
	}
	s.Counters.Retries = c.view.Retries
	if c.role != Leader {
		return s
	}
	s.UnderLease = c.committed >= c.termStart && c.leaseHolds()
	for _, d := range c.peers {
		s.Peers = append(s.Peers, PeerStatus{
			ID: d.ID, State: d.State, Match: d.Match, Next: d.Next, Lag: c.log.Last - d.Match, Commit: d.Commit,
			InflightEntries: d.InflightEntries, InflightBytes: d.InflightBytes, InflightBatches: d.InflightBatches(), Silent: c.now - d.Heard, Learner: d.Learner, Refused: d.Refused,
		})
	}
	return s
}
