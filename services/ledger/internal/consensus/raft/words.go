package raft

// Index is the ordinal of an entry, from 0, as DLedger counts.
type Index int64

// Term is the number of an election.
type Term int64

// NodeID names a member, as DLedger's selfId does ("n0").
type NodeID string

// Ticks is a moment, or a length of time, on the node's own monotonic clock. The unit is the driver's; all lengths of a
// Config are in it.
type Ticks int64

// What an empty log ends with.
const (
	NoIndex Index = -1
	NoTerm  Term  = -1
)

// Mark names one entry: by Raft's log matching two logs that share it are equal up to it.
type Mark struct {
	Index Index
	Term  Term
}

// Kind says who made an entry.
type Kind uint8

// Kinds of entries.
const (
	Normal Kind = iota // a client's
	NoOp               // opens a term; its body is empty
)

// Entry is one entry as the core sees it. The payload is handed through, never read and never copied; it belongs to the
// driver and must not change until the Advance after the Ready that carries it.
type Entry struct {
	Index   Index
	Term    Term
	Kind    Kind
	Size    int // bytes in the log, header included
	Payload []byte
}

// HardState is what must be durable before a promise leaves (DLedger's currterm file, and whether the node may vote).
type HardState struct {
	Term  Term
	Vote  NodeID // empty: none in this term
	Voter bool   // false on a node that was wiped or added empty, until it has caught up; see doc.go
}

// Bootstrap is the hard state of a node of a brand-new group. Only an operator's explicit order may write it: a node whose
// disk is merely empty starts with the zero HardState.
func Bootstrap() HardState { return HardState{Voter: true} }

// Run is the first entry of a stretch of entries with one term.
type Run struct {
	First Index
	Term  Term
}
