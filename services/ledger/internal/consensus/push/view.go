package push

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// Limits bound the pushes to one follower.
type Limits struct {
	Retry              raft.Ticks // a push that is not answered by then is repeated
	MaxBatchEntries    int        // in one Append
	MaxBatchBytes      int64      //
	MaxInflightEntries int        // not answered yet
	MaxInflightBytes   int64      //
	MaxInflightBatches int        //
}

// Log is what is asked of the entry log, which holds all entries up to the last Advance.
type Log interface {
	// Extent returns how many entries from first to last, at most maxEntries, take together at most maxBytes, and the bytes
	// they take. The first is counted whatever its size.
	Extent(first, last raft.Index, maxEntries int, maxBytes int64) (count int, bytes int64)
}

// View is the leader as its dispatchers see it, and where they put what they send.
type View struct {
	Self      raft.NodeID
	Term      raft.Term
	Now       raft.Ticks
	Log       *raft.Lineage
	Committed raft.Index
	Limits    *Limits
	Silence   raft.Ticks   // that the lease is reckoned with
	Store     Log          // entries up to Stable
	Stable    raft.Index   //
	Pending   []raft.Entry // entries behind it, which are being saved
	Out       []raft.Message
	Retries   uint64 // pushes that were not answered in time

	// Faults that the tests of package consensus plant; nothing else can reach them there.
	HintUnverified, CommitUnverified, SilenceUntold bool
}

func (v *View) send(to raft.NodeID, m raft.Message) {
	m.From, m.To, m.Term = v.Self, to, v.Term
	v.Out = append(v.Out, m)
}
