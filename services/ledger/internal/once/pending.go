package once

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

// Errors of this package. Those of package node come through: with them, ErrNotLeader among them, nothing was done.
var (
	// ErrUnknown: the entries were given to the leader's log, and it is not known whether they will stay: `cause` says why the
	// wait ended. With a key the append may be repeated.
	ErrUnknown = errdefs.New(errdefs.Unknown, "APPEND_UNKNOWN", "it is not known whether the entries are committed").
			WithRemedy("append them again with the same idempotence key, or look for them in the log")
	// ErrNotTaken: the append's time was over before anything was done.
	ErrNotTaken = errdefs.New(errdefs.DeadlineExceeded, "APPEND_TIMEOUT", "the append was not begun in time; nothing was done")
	// ErrWindowPassed: the keys that are remembered do not reach back to after_index. The entries may stand already.
	ErrWindowPassed = errdefs.New(errdefs.FailedPrecondition, "IDEMPOTENCE_WINDOW_PASSED", "the keys remembered do not reach back to the first attempt").
			WithRemedy("look for the entries in the log behind after_index; if they are not there, append them with a new key and after_index")
	// ErrBusy: too many appends wait. Nothing was done.
	ErrBusy = errdefs.New(errdefs.ResourceExhausted, "APPENDS_FULL", "too many appends wait for this node").WithRetry(50 * time.Millisecond)
	// ErrStopped: the appender has ended. Nothing was done.
	ErrStopped = errdefs.New(errdefs.Unavailable, "NODE_STOPPED", "the node has stopped")
)

// Request is a client's append.
type Request struct {
	Bodies  [][]byte
	Channel int32
	// Client is nil where a repeated append may stand twice. Else the bodies have the sequences First, First+1, ...
	Client *Client
	First  uint64
	After  raft.Index // committed before the first attempt
}

// Result says where the entries of a request stand.
type Result struct {
	Indexes  []raft.Index
	Repeated int // that stood already
	Term     raft.Term
}

// States of a Pending.
const (
	queued int32 = iota
	taken
	abandoned
)

// Pending is an append that was queued.
type Pending struct {
	keys    []Key // nil: none
	after   raft.Index
	entries []raft.Entry
	bytes   int64

	state    atomic.Int32
	done     chan struct{} // closed when what follows is set
	err      error
	result   Result
	proposal node.Proposal // Last: the entry to wait for
	wait     bool
}

// newPending makes the entries of a request; the bodies are copied.
func newPending(r *Request) *Pending {
	p := &Pending{entries: make([]raft.Entry, len(r.Bodies)), after: r.After, done: make(chan struct{})}
	if r.Client != nil {
		p.keys = make([]Key, len(r.Bodies))
	}
	for i, body := range r.Bodies {
		var key *Key
		if p.keys != nil {
			p.keys[i] = Key{*r.Client, r.First + uint64(i)}
			key = &p.keys[i]
		}
		b := Payload(r.Channel, body, key)
		p.entries[i] = raft.Entry{Size: len(b), Payload: b}
		p.bytes += int64(len(b))
	}
	return p
}

// finish ends the first half of the wait.
func (p *Pending) finish(err error) {
	p.err = err
	close(p.done)
}

// Wait blocks until the entries are committed. With ErrUnknown they may be; with every other error nothing was done, the entries
// of a batch with keys aside of which some stood already.
func (p *Pending) Wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		if p.state.CompareAndSwap(queued, abandoned) {
			return Result{}, ErrNotTaken.Wrap(ctx.Err())
		}
		select {
		case <-p.done:
		default:
			return Result{}, ErrUnknown.Wrap(ctx.Err())
		}
	}
	if p.err != nil {
		return Result{}, p.err
	}
	if p.wait {
		if err := p.proposal.Wait(ctx); err != nil {
			return Result{}, unknown(err).With("index", p.result.Indexes[0])
		}
	}
	return p.result, nil
}

// unknown wraps what ended a wait and keeps the leader that it names.
func unknown(err error) *errdefs.Error {
	u := ErrUnknown.Wrap(err)
	if e := errdefs.As(err); e != nil && e.Meta["leader"] != "" {
		u = u.With("leader", e.Meta["leader"])
	}
	return u
}
