package peer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/refusal"
)

// Inbox is the node. Deliver says whether it took the message, whose entries belong to it from then on.
type Inbox interface {
	Deliver(m raft.Message) bool
}

// Log is where the entries of an Append are read: see entrylog.Log. The bytes of View are the log's until release.
type Log interface {
	Cuts() uint64
	View(first raft.Index, count int, limit int64) (b []byte, n int, release func(), err error)
}

// Options of a Transport; zero values get the defaults that are named.
type Options struct {
	Group string
	Self  raft.NodeID
	// Members are the addresses of all, host:port; that of Self is not used.
	Members map[raft.NodeID]string
	// Dial makes a connection; each peer gets two.
	Dial func(addr string) (*grpc.ClientConn, error)
	// CallTimeout ends a vote, a heartbeat or a question for a read index that is not answered (1 s).
	CallTimeout time.Duration
	// PushQueue bounds the pushes that wait for a peer (1024), ControlQueue what waits on each lane of unary calls (64).
	PushQueue, ControlQueue int
	// MaxEntry bounds an entry that is taken, header included, bytes (4 MiB).
	MaxEntry int
	Refused  *refusal.Tally
	Log      *slog.Logger
	Meter    metric.Meter
}

func (o Options) withDefaults() Options {
	if o.CallTimeout == 0 {
		o.CallTimeout = time.Second
	}
	if o.PushQueue == 0 {
		o.PushQueue = 1024
	}
	if o.ControlQueue == 0 {
		o.ControlQueue = 64
	}
	if o.MaxEntry == 0 {
		o.MaxEntry = entry.MaxSize
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "peer")
	return o
}

// Transport sends a node's messages. It is a node.Transport.
type Transport struct {
	o       Options
	log     Log
	inbox   Inbox
	decoder decoder
	links   map[raft.NodeID]*link
	answers answers
	meters  instruments
}

// New makes the transport between inbox and the other members. It must be closed.
func New(o Options, log Log, inbox Inbox) (*Transport, error) {
	o = o.withDefaults()
	t := &Transport{o: o, log: log, inbox: inbox, links: map[raft.NodeID]*link{}}
	t.answers.calls, t.answers.streams = map[uint64]*waiting{}, map[raft.NodeID]*pushStream{}
	t.decoder = decoder{group: o.Group, self: o.Self, maxEntry: o.MaxEntry, known: func(id raft.NodeID) bool { return t.links[id] != nil }}
	for id, addr := range o.Members {
		if id == o.Self {
			continue
		}
		l, err := t.newLink(id, addr)
		if err != nil {
			_ = t.Close() // the error that counts is err
			return nil, err
		}
		t.links[id] = l
	}
	var err error
	t.meters, err = newInstruments(o.Meter, t)
	return t, err
}

// Close ends the connections.
func (t *Transport) Close() error {
	var err error
	for _, l := range t.links {
		err = l.close(err)
	}
	return err
}

// Run sends until ctx ends.
func (t *Transport) Run(ctx context.Context) error {
	var children sync.WaitGroup
	for _, l := range t.links {
		children.Go(func() { l.push(ctx) })
		for _, c := range []*grpc.ClientConn{l.bulk, l.quick} {
			children.Go(func() { keepUp(ctx, c) })
		}
		for range workers {
			children.Go(func() { l.work(ctx, l.control) })
			children.Go(func() { l.work(ctx, l.reads) })
		}
	}
	<-ctx.Done() // also where there is no other member
	children.Wait()
	return nil
}

// keepUp connects before there is anything to send, so that no vote has to wait for it.
func keepUp(ctx context.Context, c *grpc.ClientConn) {
	for {
		state := c.GetState()
		if state == connectivity.Idle {
			c.Connect()
		}
		if !c.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// workers is how many calls of a lane may wait for their answers at a time.
const workers = 8

// Send implements node.Transport.
func (t *Transport) Send(messages []raft.Message) {
	cuts := t.log.Cuts()
	for i := range messages {
		m := &messages[i]
		switch m.Type {
		case raft.Compare, raft.Truncate, raft.Append, raft.Commit:
			t.to(m, func(l *link) bool { return offer(l.pushes, outgoing{*m, cuts}) })
		case raft.ReadIndex:
			t.to(m, func(l *link) bool { return offer(l.reads, *m) })
		case raft.Vote, raft.PreVote, raft.Heartbeat, raft.Rejoin, raft.TakeLeadership:
			t.to(m, func(l *link) bool { return offer(l.control, *m) })
		default:
			t.to(m, func(*link) bool { return t.answers.give(m) })
		}
	}
}

// to hands a message to the link that takes it there, and counts it.
func (t *Transport) to(m *raft.Message, put func(*link) bool) {
	l := t.links[m.To]
	if l == nil {
		return
	}
	ok := put(l)
	if !ok {
		l.dropped.Add(1)
	}
	t.meters.sent(m.Type, ok)
}

// offer puts v into a queue unless it is full.
func offer[T any](queue chan T, v T) bool {
	select {
	case queue <- v:
		return true
	default:
		return false
	}
}

// deliver hands the node what a peer said.
func (t *Transport) deliver(m raft.Message) bool {
	ok := t.inbox.Deliver(m)
	t.meters.received(m.Type, ok)
	return ok
}
