package node

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Promises is where a node keeps what it must not forget. Each is durable on return. An error of class ResourceExhausted
// means a full disk and that nothing was done; any other ends the node.
type Promises interface {
	SaveHard(h raft.HardState) error
	Cut(c consensus.Cut) error
	Purge(base raft.Mark) error
}

// Entries is where a node keeps its entries. What was appended is seen by readers on return and durable after Sync, which
// may run beside everything. Errors as with Promises. Append completes the payloads in place.
type Entries interface {
	Append(entries []raft.Entry) error
	Sync() error
	// Reserve says whether entries of bytes together would find space now.
	Reserve(entries int, bytes int64) error
	// Checkpoint notes, beside all else, how far the log is whole and committed. A full disk does no harm.
	Checkpoint(committed raft.Index) error
}

// Log is both, and what the core asks. Package entrylog has it.
type Log interface {
	Promises
	Entries
	push.Log
}

// Transport takes messages to the other members. It never blocks: what it cannot keep it drops. The slice is the
// node's again on return. An Append names its entries, Index+1 to Index+Count, which the transport reads from the log; it
// drops the message when the log was cut since.
type Transport interface {
	Send(messages []raft.Message)
}

// Options of a Node; zero values get the defaults that are named.
type Options struct {
	// Core configures consensus; its times are in milliseconds.
	Core consensus.Config
	// Now is a clock that never goes back and goes on while the machine sleeps, in milliseconds (CLOCK_BOOTTIME). nil: the
	// process's, which on Linux stands still while the machine sleeps.
	Now func() raft.Ticks
	// Async acknowledges what is in the page cache, and syncs every FlushInterval (10 ms).
	Async         bool
	FlushInterval time.Duration
	// CheckpointInterval is how often the log notes how far it is (3 s).
	CheckpointInterval time.Duration
	// TickInterval is how often time passes for the core (a quarter of Core.Heartbeat).
	TickInterval time.Duration
	// RetryFull is how long the node waits for space on a full disk before it tries again, and the first pause between two
	// tries to hand leadership over for want of it (1 s).
	RetryFull time.Duration
	// ReadTimeout ends reads whose confirmation, or what they must see, does not come (5 s).
	ReadTimeout time.Duration
	// MaxMessages bounds each lane of messages (4096), MaxPushBytes what the pushes carry together (16 MiB), MaxCalls the
	// calls (16 Ki) that wait for the next round.
	MaxMessages  int
	MaxPushBytes int64
	MaxCalls     int
	Log          *slog.Logger
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.FlushInterval, 10*time.Millisecond)
	set(&o.CheckpointInterval, 3*time.Second)
	set(&o.TickInterval, max(1, time.Duration(o.Core.Heartbeat)/4)*time.Millisecond)
	set(&o.RetryFull, time.Second)
	set(&o.ReadTimeout, 5*time.Second)
	if o.MaxMessages == 0 {
		o.MaxMessages = 4096
	}
	if o.MaxPushBytes == 0 {
		o.MaxPushBytes = 16 << 20
	}
	if o.MaxCalls == 0 {
		o.MaxCalls = 16 << 10
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() raft.Ticks { return raft.Ticks(time.Since(start).Milliseconds()) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "node")
	return o
}

// Node is one member. Deliver, the calls and the accessors may be used by anybody at any time; Run once.
type Node struct {
	o    Options
	core *consensus.Core
	log  Log
	net  Transport
	in   inbox

	calls     sync.Pool // of *call
	committed *watermark.Mark
	soft      atomic.Pointer[consensus.SoftState]
	full      atomic.Pointer[error] // why the node waits for space; nil while it does not
	noRoom    atomic.Uint64
	gaveAway  atomic.Uint64 // leaderships, for want of room
	broken    chan error    // capacity 1: what ended the flusher

	// Run's own.
	round    batch
	ready    consensus.Ready
	epoch    epoch
	reads    pendingReads
	transfer *call
	unsaved  int   // entries that the core has taken since the last Ready
	bytes    int64 // what they take
	room     room
}

// epoch is one leadership of this node.
type epoch struct {
	term raft.Term
	mark *watermark.Mark // commit index while it lasts; nil: none
}

// New makes the node that found start in its log. The caller has made durable what it found.
func New(o Options, start consensus.Start, log Log, net Transport) (*Node, error) {
	o = o.withDefaults()
	core, err := consensus.New(o.Core, start, log, o.Now())
	if err != nil {
		return nil, err
	}
	n := &Node{
		o: o, core: core, log: log, net: net, committed: watermark.New(int64(core.Status().Committed)), broken: make(chan error, 1),
		reads: pendingReads{waiting: map[uint64]*readGroup{}},
		in:    inbox{wake: make(chan struct{}, 1), maxMessages: o.MaxMessages, maxPushBytes: o.MaxPushBytes, maxCalls: o.MaxCalls},
	}
	soft := core.Status().SoftState
	n.soft.Store(&soft)
	return n, nil
}

// Committed is the index up to which entries are committed, as far as this node knows. It is closed when the node stops.
func (n *Node) Committed() *watermark.Mark { return n.committed }

// Soft is the node's role, its term and the leader it knows, as of the last round.
func (n *Node) Soft() consensus.SoftState { return *n.soft.Load() }

// HandedOver counts the leaderships that this node gave away because its disk was full.
func (n *Node) HandedOver() uint64 { return n.gaveAway.Load() }

// Deliver takes a message from a peer; false: it was dropped. Its entries, which must be whole payloads that Append may
// complete in place, belong to the node from then on.
func (n *Node) Deliver(m raft.Message) bool { return n.in.deliver(&m) }
