package consensus

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// Counters counts since New.
type Counters struct {
	Refused   [raft.NumReasons]uint64 // by Reason
	Repeated  uint64                  // batches of which nothing was new
	Overlaps  uint64                  // batches of which a part was new
	Elections uint64                  // begun with a vote for itself
	Retries   uint64                  // pushes that were not answered in time
}

const maxAlarms = 16 // of one round; more are only counted

// refuse counts and, where an operator must know, raises the alarm.
func (c *Core) refuse(r raft.Reason, m *raft.Message) {
	c.counters.Refused[r]++
	switch r {
	case raft.OtherLeader, raft.CommittedConflict, raft.TruncateCommitted:
		if len(c.alarms) < maxAlarms {
			c.alarms = append(c.alarms, Alarm{Reason: r, From: m.From, Index: m.Index, Committed: c.committed})
		}
	default:
	}
}
