package once

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

// Group is the node, or the one that took its place: see node.Node for the first three.
type Group interface {
	ProposeIn(ctx context.Context, term raft.Term, entries []raft.Entry) (node.Proposal, error)
	Read(ctx context.Context) (raft.Index, error)
	Soft() consensus.SoftState
	// Committed is the commit index; replaced is closed when another node, with a mark of its own, has taken over.
	Committed() (mark *watermark.Mark, replaced <-chan struct{})
}

// Log is where committed entries are read: see entrylog.Log.
type Log interface {
	First() raft.Index
	View(first raft.Index, count int, limit int64) (b []byte, n int, release func(), err error)
}

// Options of an Appender; zero values get the defaults that are named.
type Options struct {
	FS   vfs.FS
	Root string // folder of the node; tandem/keys is below it
	// Window is how many last entries' keys are remembered (256 Ki).
	Window int
	// SaveInterval is how often the window is saved (1 min).
	SaveInterval time.Duration
	// MaxQueue bounds the bytes (32 MiB) and MaxWaiting the requests (16 Ki) that wait.
	MaxQueue   int64
	MaxWaiting int
	Log        *slog.Logger
}

// What one proposal takes at most; a single request may be larger.
const (
	batchEntries = 8192
	batchBytes   = 8 << 20
)

func (o Options) withDefaults() Options {
	if o.Window == 0 {
		o.Window = 256 << 10
	}
	if o.SaveInterval == 0 {
		o.SaveInterval = time.Minute
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = 32 << 20
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 16 << 10
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "once")
	return o
}

// Appender takes appends. Append may be used by anybody; Run once.
type Appender struct {
	o     Options
	group Group
	log   Log

	queue   queue
	applied *watermark.Mark // the window knows the entries up to here

	mu       sync.Mutex
	window   *window
	broken   error          // why the window cannot follow the log any more
	inflight map[Key]flying // appends of this term that are not in the window yet
	term     raft.Term      // the leadership of which the window and inflight know all keys
	saved    raft.Index     // as in tandem/keys
}

// flying is an entry that was proposed.
type flying struct {
	index    raft.Index
	proposal node.Proposal
}

// Open makes the appender of a node whose log has what start says, with the window as it was saved last.
func Open(o Options, start consensus.Start, group Group, log Log) (*Appender, error) {
	o = o.withDefaults()
	a := &Appender{
		o: o, group: group, log: log, window: newWindow(o.Window), inflight: map[Key]flying{}, term: raft.NoTerm,
		queue: queue{wake: make(chan struct{}, 1), maxBytes: o.MaxQueue, maxRequests: o.MaxWaiting},
	}
	if err := a.load(start); err != nil {
		return nil, err
	}
	a.applied = watermark.New(int64(a.window.applied.Index))
	return a, nil
}

// WindowStart is the index behind which all keys are known.
func (a *Appender) WindowStart() raft.Index {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.window.start
}

// Window is how many last entries' keys are remembered.
func (a *Appender) Window() int { return a.o.Window }

// Append queues a request.
func (a *Appender) Append(r Request) (*Pending, error) {
	p := newPending(&r)
	return p, a.queue.put(p)
}

// Run serves appends and follows the log until ctx ends, then ends all waits. Its error is one of the disk.
func (a *Appender) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	var children sync.WaitGroup
	children.Go(func() { a.follow(ctx) })
	children.Go(func() { failed <- a.keep(ctx) })
	err := a.loop(ctx, failed)
	stop()
	for _, p := range a.queue.close() {
		p.refuse(ErrStopped)
	}
	children.Wait()
	return errors.Join(err, a.save())
}

func (a *Appender) loop(ctx context.Context, failed <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-a.queue.wake:
		}
		for {
			batch := a.queue.take()
			if len(batch) == 0 {
				break
			}
			a.serve(ctx, batch)
		}
	}
}

// refuse answers a request that was not served yet.
func (p *Pending) refuse(err error) {
	if p.state.CompareAndSwap(queued, taken) {
		p.finish(err)
	}
}

// serve proposes what is new of a batch and tells each request where its entries are.
func (a *Appender) serve(ctx context.Context, batch []*Pending) {
	term, keysErr := raft.NoTerm, error(nil)
	for _, p := range batch {
		if p.keys != nil {
			term, keysErr = a.ready(ctx)
			break
		}
	}
	b := proposal{slots: map[Key]int{}}
	for _, p := range batch {
		switch {
		case !p.state.CompareAndSwap(queued, taken): // its caller has gone
		case p.keys != nil && keysErr != nil:
			p.finish(keysErr)
		case p.keys == nil:
			b.add(p)
		default:
			if err := a.lookup(p, &b); err != nil {
				p.finish(err)
			}
		}
	}
	if len(b.parts) == 0 {
		return
	}
	got, err := node.Proposal{First: raft.Mark{Term: term}}, error(nil)
	if len(b.entries) > 0 {
		got, err = a.propose(ctx, term, b.entries)
	}
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		err = ErrUnknown.Wrap(err)
	case err == nil && len(b.slots) > 0:
		a.note(got, &b)
	}
	for i := range b.parts {
		b.parts[i].finish(got, err)
	}
}

const (
	// pendingWait is how long a batch waits until enough is committed for the node to take it.
	pendingWait = time.Second
	pendingStep = 50 * time.Millisecond
)

// propose gives entries to the node. Where too much is not committed yet it waits a while, so that who streams is slowed down
// and not refused.
func (a *Appender) propose(ctx context.Context, term raft.Term, entries []raft.Entry) (node.Proposal, error) {
	deadline := time.Now().Add(pendingWait)
	for {
		got, err := a.group.ProposeIn(ctx, term, entries)
		if !errors.Is(err, node.ErrPendingFull) || time.Now().After(deadline) {
			return got, err
		}
		mark, _ := a.group.Committed()
		_ = mark.WaitUntil(ctx, mark.Load()+1, time.Now().Add(pendingStep)) // the node says what came of it
	}
}

// proposal is a batch on its way to the node.
type proposal struct {
	entries []raft.Entry
	parts   []part
	slots   map[Key]int // of the keys among the entries
}

// part is one request of it.
type part struct {
	p     *Pending
	slots []int // per entry: its place among the entries; -1: it stands, or is under way, at p.result.Indexes
	first int   // of the slots, where slots is nil
}

func (b *proposal) add(p *Pending) {
	b.parts = append(b.parts, part{p: p, first: len(b.entries)})
	b.entries = append(b.entries, p.entries...)
}

// lookup finds out which entries of a request are new and adds those to the batch: all or, with an error, none.
func (a *Appender) lookup(p *Pending, b *proposal) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	mark, _ := a.group.Committed()
	if p.after > raft.Index(mark.Load()) {
		return errdefs.Invalid("after_index", "%d is not committed; the commit index is %d", p.after, mark.Load())
	}
	at := part{p: p, slots: make([]int, len(p.keys))}
	p.result.Indexes = make([]raft.Index, len(p.keys))
	fresh := b.entries
	for i, key := range p.keys {
		at.slots[i] = -1
		if index, ok := a.window.at[key]; ok {
			p.result.Indexes[i] = index
		} else if f, ok := a.inflight[key]; ok {
			p.result.Indexes[i] = f.index
			p.await(f.proposal, f.index)
		} else if slot, ok := b.slots[key]; ok {
			at.slots[i] = slot
		} else if p.after < a.window.start {
			return ErrWindowPassed.With("after_index", p.after).With("window_start", a.window.start)
		} else {
			at.slots[i] = len(fresh)
			fresh = append(fresh, p.entries[i])
		}
	}
	for i, slot := range at.slots {
		if slot >= len(b.entries) {
			b.slots[p.keys[i]] = slot
			continue
		}
		p.result.Repeated++
	}
	b.entries = fresh
	b.parts = append(b.parts, at)
	return nil
}

// await has the request wait for an entry of a proposal.
func (p *Pending) await(got node.Proposal, index raft.Index) {
	if !p.wait || index > p.proposal.Last {
		p.proposal, p.wait = got, true
		p.proposal.Last = index
	}
}

// note remembers the keys of a proposal that the node took.
func (a *Appender) note(got node.Proposal, b *proposal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, slot := range b.slots {
		if index := got.First.Index + raft.Index(slot); index > a.window.applied.Index {
			a.inflight[key] = flying{index, got}
		}
	}
}

// finish tells a request where its entries are.
func (at *part) finish(got node.Proposal, err error) {
	p := at.p
	fresh := at.slots == nil
	if fresh {
		p.result.Indexes = make([]raft.Index, len(p.entries))
	}
	for i := range p.result.Indexes {
		slot := at.first + i
		if !fresh {
			slot = at.slots[i]
		}
		if slot < 0 {
			continue
		}
		if err != nil {
			p.finish(err)
			return
		}
		index := got.First.Index + raft.Index(slot)
		p.result.Indexes[i] = index
		p.await(got, index)
	}
	p.result.Term = got.First.Term
	p.entries = nil
	p.finish(nil)
}

// ready returns the term in which this node leads and knows all keys of its log.
func (a *Appender) ready(ctx context.Context) (raft.Term, error) {
	s := a.group.Soft()
	if s.Role != consensus.Leader {
		return raft.NoTerm, notLeader(s.Leader)
	}
	a.mu.Lock()
	term, broken := a.term, a.broken
	a.mu.Unlock()
	if term == s.Term || broken != nil {
		return term, broken
	}
	index, err := a.group.Read(ctx) // confirmed: what a leader commits first is of its own term
	if err == nil {
		err = a.applied.Wait(ctx, int64(index))
	}
	if err != nil {
		return raft.NoTerm, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.inflight)
	a.term = s.Term
	return a.term, nil
}

func notLeader(leader raft.NodeID) error {
	if leader == "" {
		return node.ErrNotLeader.WithRetry(50 * time.Millisecond)
	}
	return node.ErrNotLeader.With("leader", leader)
}
