package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
	"github.com/tandemlog/tandem/pkg/client/internal/group"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Outcome is what became of one entry of a Sender: an Index, or an Err with the meaning that the package comment gives.
type Outcome struct {
	Sequence uint64
	Index    int64
	Err      error
}

// Sender appends many entries, in order, over one stream. Its Run does the work; Appender.Stream runs one for the length of a
// function. It has an id of its own. All methods may be called concurrently; the order is that of the calls to Send.
type Sender struct {
	a  *Appender
	id []byte // nil with NoKey

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something below has changed
	queue   []*pending    // without an outcome yet, oldest first; the first `sent` of them are on the stream
	sent    int
	bytes   int       // of the bodies in queue
	next    uint64    // sequence of the next entry
	done    uint64    // all up to here have their outcome, and their callbacks have returned
	heard   time.Time // when a node told the commit index last
	closed  bool      // no more Send
	running bool
	err     error // why Run ended; nil while it may be called
}

// pending is one entry on its way.
type pending struct {
	seq   uint64
	body  []byte
	done  func(Outcome)
	after int64 // known to be committed when it was sent first
	maybe bool  // it was sent, and nothing says that it was not taken
}

// Sender returns a sender; nothing moves until its Run is called.
func (a *Appender) Sender() *Sender {
	s := &Sender{a: a, changed: make(chan struct{}), next: 1}
	if a.id != nil {
		s.id = newID()
	}
	return s
}

// Stream runs a Sender while f uses it and returns when every entry has its outcome. The error is f's, or that of the stream;
// those of single entries go to their callbacks only.
func (a *Appender) Stream(ctx context.Context, f func(*Sender) error) error {
	s := a.Sender()
	ran := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ran <- s.Run(ctx) }()
	err := f(s)
	s.Close()
	if ranErr := <-ran; err == nil || errors.Is(err, ErrClosed) {
		return ranErr
	}
	return err
}

// Send takes over a body and returns its sequence, counted from 1. It blocks while MaxInFlight or MaxInFlightBytes are full.
// done gets the outcome, in the order of the sequences, from the goroutine of Run: it must not call Send, Await or Flush. It may
// be nil. The body must not be changed until then. After an error done is never called.
func (s *Sender) Send(ctx context.Context, body []byte, done func(Outcome)) (uint64, error) {
	ask, cancel := s.a.c.bounded(ctx)
	bounds, err := s.a.c.limits(ask)
	cancel()
	if err != nil {
		return 0, err
	}
	if err := checkBody(body, bounds); err != nil {
		return 0, err
	}
	e := &pending{body: body, done: done}
	for {
		changed, err := s.enqueue(e)
		if changed == nil {
			return e.seq, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// enqueue adds e; while there is no room for it, it returns what to wait for.
func (s *Sender) enqueue(e *pending) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.closed:
		return nil, ErrClosed
	}
	full := len(s.queue) >= s.a.o.MaxInFlight || s.bytes+len(e.body) > s.a.o.MaxInFlightBytes
	if full && len(s.queue) > 0 { // the only one always fits
		return s.changed, nil
	}
	e.seq = s.next
	s.next++
	s.queue = append(s.queue, e)
	s.bytes += len(e.body)
	if len(s.queue) == s.sent+1 { // the writer may be waiting; later ones it finds by itself
		s.signal()
	}
	return nil, nil //nolint:nilnil // no channel, no error: enqueued
}

// signal wakes all who wait for a change. s.mu is held.
func (s *Sender) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Await returns when every entry up to sequence has its outcome and its callback has returned, or with the error of ctx.
func (s *Sender) Await(ctx context.Context, sequence uint64) error {
	for {
		s.mu.Lock()
		reached, changed, unsent := s.done >= sequence, s.changed, sequence >= s.next
		s.mu.Unlock()
		switch {
		case reached:
			return nil
		case unsent:
			return errdefs.Invalid("sequence", "%d was not given out by Send", sequence)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Flush awaits everything sent so far.
func (s *Sender) Flush(ctx context.Context) error {
	s.mu.Lock()
	last := s.next - 1
	s.mu.Unlock()
	return s.Await(ctx, last)
}

// Close ends the input: Run returns when what was sent has its outcomes. It does not wait.
func (s *Sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.signal()
	}
}

// Run sends until ctx ends, or until Close and all outcomes are there (nil), or until a failure that trying again does not
// mend: then every entry left gets that error, as does every later Send. It may be called once.
func (s *Sender) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return errdefs.New(errdefs.FailedPrecondition, "ALREADY_RUN", "this sender has been run before")
	}
	s.running = true
	s.mu.Unlock()
	err := s.run(ctx)
	end := err
	if end == nil {
		end = ErrClosed
	}
	s.mu.Lock()
	s.err = end
	rest := s.takeFront(len(s.queue))
	s.mu.Unlock()
	s.fail(rest, end)
	return err
}

func (s *Sender) run(ctx context.Context) error {
	r := s.newRetry()
	n, err := s.first(ctx)
	for err == nil {
		idled, more := s.waitForWork(ctx)
		if !more {
			return ctx.Err()
		}
		if idled {
			r = s.newRetry()
		}
		progress, ended := s.session(ctx, n)
		if progress {
			r = s.newRetry()
			s.a.c.nodes.Moved(n.Addr)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ended == nil || s.idle():
			continue
		case judge(ended, true) == attempt.NotStored && !s.outdated(ended):
			return ended
		}
		n, err = r.Next(ctx, n, ended)
	}
	return err
}

// first returns the node to begin with. Without keys a stream to another node than the leader may cost entries their outcome.
func (s *Sender) first(ctx context.Context) (*group.Node, error) {
	if s.id == nil {
		if n, err := s.a.c.nodes.FindLeader(ctx); err == nil {
			return n, nil
		}
	}
	return s.a.c.nodes.Guess()
}

func (s *Sender) newRetry() *group.Retry {
	limit := s.a.c.o.Timeout
	if s.a.o.RetryFor != 0 {
		limit = s.a.o.RetryFor
	}
	return group.NewRetry(s.a.c.nodes, limit, s.a.o.OnRetry)
}

// idle reports whether nothing waits for an outcome.
func (s *Sender) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0
}

// outdated reports whether err says that an index is too old under which nothing was sent yet: a later one is as true.
func (s *Sender) outdated(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Is(err, ErrWindowPassed) && len(s.queue) > 0 && !s.queue[0].maybe
}

// waitForWork blocks until there is something to send; more is false when nothing will come. idled says that the queue had
// been empty.
func (s *Sender) waitForWork(ctx context.Context) (idled, more bool) {
	for ; ; idled = true {
		s.mu.Lock()
		some, closed, changed := len(s.queue) > 0, s.closed, s.changed
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return idled, false
		case some:
			return idled, true
		case closed:
			return idled, false
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// takeFront unlinks the first n entries. s.mu is held.
func (s *Sender) takeFront(n int) []*pending {
	front := make([]*pending, n)
	copy(front, s.queue)
	rest := copy(s.queue, s.queue[n:])
	clear(s.queue[rest:])
	s.queue = s.queue[:rest]
	s.sent = max(0, s.sent-n)
	for _, e := range front {
		s.bytes -= len(e.body)
	}
	return front
}

// fail gives entries the same error; those that may stand are told so.
func (s *Sender) fail(es []*pending, err error) {
	s.report(es, func(i int) Outcome {
		if es[i].maybe && !errors.Is(err, ErrAppendUnknown) {
			return Outcome{Index: -1, Err: ErrAppendUnknown.Wrap(err)}
		}
		return Outcome{Index: -1, Err: err}
	})
}

// report hands entries their outcomes, in order, and then lets who awaits them go on.
func (s *Sender) report(es []*pending, outcome func(i int) Outcome) {
	if len(es) == 0 {
		return
	}
	for i, e := range es {
		if e.done != nil {
			o := outcome(i)
			o.Sequence = e.seq
			e.done(o)
		}
	}
	s.mu.Lock()
	s.done = es[len(es)-1].seq
	s.signal()
	s.mu.Unlock()
}
