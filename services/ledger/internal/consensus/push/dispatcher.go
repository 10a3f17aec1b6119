package push

import (
	"math"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// State is what a leader does about one follower.
type State uint8

// DLedger's push states. Its fourth, COMMIT, is here the push that Appending makes when only the commit index moved.
const (
	Comparing  State = iota // looks for the last common entry
	Truncating              // has the follower's own tail cut
	Appending               // streams entries
)

func (s State) String() string { return [...]string{"COMPARE", "TRUNCATE", "APPEND"}[s] }

// Dispatcher is DLedger's EntryDispatcher: one follower as its leader sees it.
type Dispatcher struct {
	ID    raft.NodeID
	State State
	Seq   uint64 // fences refusals: every change of state begins a new one

	probe   raft.Mark // Comparing: the entry asked for; Truncating: the last to keep
	reset   bool      // Truncating: begin anew behind probe
	nonce   uint64    // the life of the follower that said where the logs part
	asked   bool
	askedAt raft.Ticks

	Next            raft.Index // to send
	Match           raft.Index // the follower has all up to here; falls when it comes back without
	Acked           raft.Index // the same as a promise of a voter, for the quorum: never falls
	inflight        []batch
	InflightEntries raft.Index // not answered yet
	InflightBytes   int64

	Commit     raft.Index // as the follower said
	commitSent raft.Index
	commitAt   raft.Ticks

	Heard      raft.Ticks // last answer of a voter
	answeredAt raft.Ticks // last answer to a push
	Learner    bool
	Round      uint64      // last heartbeat round answered
	Lease      raft.Ticks  // when the last heartbeat that was answered had been sent; earlier by what its silence is shorter
	Refused    raft.Reason // last one
}

// batch is an Append that was not answered yet.
type batch struct {
	last    raft.Index
	entries raft.Index
	bytes   int64
	sent    raft.Ticks
}

// InflightBatches returns how many Appends were not answered yet.
func (d *Dispatcher) InflightBatches() int { return len(d.inflight) }

// Begin forgets what an earlier leadership knew.
func (d *Dispatcher) Begin(now raft.Ticks, end raft.Mark) {
	*d = Dispatcher{
		ID: d.ID, Seq: d.Seq, inflight: d.inflight,
		Match: raft.NoIndex, Acked: raft.NoIndex, Commit: raft.NoIndex, commitSent: raft.NoIndex, Heard: now, Lease: math.MinInt64,
	}
	d.compare(end)
}

func (d *Dispatcher) enter(s State) {
	d.State, d.asked, d.reset = s, false, false
	d.Seq++
	d.inflight, d.InflightEntries, d.InflightBytes = d.inflight[:0], 0, 0
}

func (d *Dispatcher) compare(at raft.Mark) {
	d.enter(Comparing)
	d.probe = at
}

// ack takes "all up to i is durable here".
func (d *Dispatcher) ack(i raft.Index) {
	d.Match = max(d.Match, i)
	if !d.Learner {
		d.Acked = max(d.Acked, i)
	}
	d.Next = max(d.Next, d.Match+1)
	n := 0
	for n < len(d.inflight) && d.inflight[n].last <= i {
		d.InflightEntries -= d.inflight[n].entries
		d.InflightBytes -= d.inflight[n].bytes
		n++
	}
	d.inflight = d.inflight[:copy(d.inflight, d.inflight[n:])]
}
