package consensus

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// Start is what the driver found on disk.
type Start struct {
	raft.HardState
	Base      raft.Mark  // the entry before the first one held: {NoIndex, NoTerm}, or where a purge ended
	Runs      []raft.Run // of the entries held, ascending
	Last      raft.Index // last entry held, Base.Index when there is none
	Committed raft.Index // as last published, never above Last; NoIndex when unknown
}

// Role of a member. DLedger's UNKNOWN has no use here.
type Role uint8

// Roles.
const (
	Follower     Role = iota
	PreCandidate      // asks whether it could win; its term has not moved
	Candidate
	Leader
)

func (r Role) String() string {
	return [...]string{"FOLLOWER", "PRE_CANDIDATE", "CANDIDATE", "LEADER"}[r]
}

// SoftState is what an observer may want to see at once and nobody has to save.
type SoftState struct {
	Role       Role
	Term       raft.Term
	Leader     raft.NodeID // empty: not known
	Transferee raft.NodeID // empty: no transfer under way
	Voter      bool
}

// Cut orders the entry log to drop what lies behind Last. With Reset everything goes, and the log begins anew behind
// {Last, Term}, which the group has committed and purged.
type Cut struct {
	Last  raft.Index
	Term  raft.Term
	Reset bool
}

// ReadState answers a Read: the data up to Index, once committed here, is at least as new as the moment of the call.
type ReadState struct {
	ID      uint64
	Index   raft.Index
	Refused raft.Reason // OK, or why the read must be repeated
}

// Alarm is bad news that an operator must hear: it should never happen.
type Alarm struct {
	Reason    raft.Reason
	From      raft.NodeID
	Index     raft.Index
	Committed raft.Index
}

// Ready is the work of one round; see doc.go for the order it must be done in. Slices are valid until Advance.
type Ready struct {
	HardState *raft.HardState // not nil: changed
	Cut       *Cut            // before Entries
	Entries   []raft.Entry    // to append
	Messages  []raft.Message  // may leave once Entries are written, before they are synced
	Promises  []raft.Message  // may leave only after HardState, Cut and Entries are synced
	Committed raft.Index
	Reads     []ReadState
	Soft      *SoftState // not nil: changed
	Alarms    []Alarm
}

// Source is where randomness comes from (math/rand/v2.Source).
type Source interface{ Uint64() uint64 }
