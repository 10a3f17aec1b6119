package client

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/tandemlog/tandem/pkg/client/internal/putspan"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Outcome is what became of one message of a Sender: a Result, or an Err with the meaning that the package comment gives.
type Outcome struct {
	Sequence uint64
	Message  *Message // as it was given to Send
	Result   *Result
	Err      error
}

// Sender puts many messages, in order, over one stream. Its Run does the work; Producer.Stream runs one for the length of a
// function. All methods may be called concurrently; the order is that of the calls to Send.
type Sender struct {
	p *Producer

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something below has changed
	queue   []*pending    // without an outcome yet, oldest first; the first `sent` of them are on the stream
	sent    int
	bytes   int    // of the bodies in queue
	next    uint64 // sequence of the next message
	done    uint64 // all up to here have their outcome, and their callbacks have returned
	closed  bool   // no more Send
	running bool
	err     error // why Run ended; nil while it may be called
}

// pending is one message on its way.
type pending struct {
	seq     uint64
	given   *Message // the caller's
	message *Message // as it goes out
	done    func(Outcome)
	span    trace.Span
	size    int     // of message in a request, bytes, rounded up
	result  *Result // the answer, while one before it is held back
	maybe   bool    // was sent on an earlier stream and may have been stored (Resend)
}

// Sender returns a sender; nothing moves until its Run is called.
func (p *Producer) Sender() *Sender {
	return &Sender{p: p, changed: make(chan struct{}), next: 1}
}

// Stream runs a Sender while f uses it and returns when every message has its outcome. The error is f's, or that of the
// stream; those of single messages go to their callbacks only.
func (p *Producer) Stream(ctx context.Context, f func(*Sender) error) error {
	s := p.Sender()
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

// Send takes over a message and returns its sequence, counted from 1. It blocks while MaxInFlight or MaxInFlightBytes are
// full. done gets the outcome, in the order of the sequences, from the goroutine of Run: it must not call Send, Await or
// Flush. It may be nil. Message and its fields must not be changed until then. After an error done is never called.
func (s *Sender) Send(ctx context.Context, m *Message, done func(Outcome)) (uint64, error) {
	if m.GetTopic() == "" {
		return 0, errdefs.Invalid("topic", "is empty")
	}
	if len(m.GetBody()) == 0 {
		return 0, errdefs.Invalid("body", "is empty")
	}
	spanCtx, span := s.p.c.spans.Start(ctx, m.GetTopic(), 1)
	e := &pending{given: m, message: s.p.prepare(spanCtx, m), done: done, span: span}
	e.size = sizeOf(e.message)
	if limit := s.p.c.o.MaxMessage - requestRoom; e.size > limit {
		err := errTooLarge.WithMsg("trying to send message larger than max (%d vs. %d)", e.size+requestRoom, s.p.c.o.MaxMessage)
		putspan.End(span, nil, err)
		return 0, err
	}
	for {
		changed, err := s.enqueue(e)
		if changed == nil {
			if err != nil {
				putspan.End(span, nil, err)
				return 0, err
			}
			return e.seq, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			putspan.End(span, nil, ctx.Err())
			return 0, ctx.Err()
		}
	}
}

// enqueue appends e, or returns the channel to wait on for space.
func (s *Sender) enqueue(e *pending) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.closed:
		return nil, ErrClosed
	case len(s.queue) > 0 && (len(s.queue) >= s.p.o.MaxInFlight || s.bytes+len(e.given.GetBody()) > s.p.o.MaxInFlightBytes):
		return s.changed, nil
	}
	e.seq = s.next
	s.next++
	s.queue = append(s.queue, e)
	s.bytes += len(e.given.GetBody())
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

// Await returns when every message up to sequence has its outcome and its callback has returned, or with the error of ctx.
func (s *Sender) Await(ctx context.Context, sequence uint64) error {
	for {
		s.mu.Lock()
		reached, changed := s.done >= sequence, s.changed
		unsent := sequence >= s.next
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
// mend: then every message left gets that error, as does every later Send. It may be called once.
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
	// Whatever was on a stream has been settled by its session: these have not left, or were to be sent again.
	s.report(rest, func(*pending) Outcome { return Outcome{Err: end} })
	return err
}

func (s *Sender) run(ctx context.Context) error {
	r := s.p.newRetry(s.p.c.o.Timeout)
	for {
		idled, err := s.waitForWork(ctx)
		if err != nil || idled == nothingLeft {
			return err
		}
		n, err := s.p.c.nodes.OpenMaster(ctx)
		progress := false
		if err == nil {
			progress, err = s.session(ctx, n)
		}
		if progress || idled == waited {
			r = s.p.newRetry(s.p.c.o.Timeout)
		}
		switch {
		case err == nil || s.idle():
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case hopeless(err):
			return err
		}
		if _, err := r.Next(ctx, n, err); err != nil {
			return err
		}
	}
}

// idle reports whether nothing waits for an outcome.
func (s *Sender) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0
}

// hopeless reports whether another stream would end the same way. Single messages have their outcomes already.
func hopeless(err error) bool {
	switch errdefs.ClassOf(err) {
	case errdefs.Unauthenticated, errdefs.PermissionDenied, errdefs.Unimplemented:
		return true
	default:
		return errors.Is(err, ErrClosed) || errdefs.ReasonOf(err) == grpcx.ReasonMessageTooLarge
	}
}

const (
	// requestRoom is what a request of a Sender takes beside its messages, and more, bytes.
	requestRoom = 1 << 10
	// messageRoom is what the small fields of a message take at most, and fieldRoom what a text or a property takes beside its
	// own bytes.
	messageRoom, fieldRoom = 80, 16
)

// sizeOf returns what a message takes in a request, bytes, rounded up.
func sizeOf(m *Message) int {
	n := messageRoom + len(m.GetTopic()) + len(m.GetBody()) + len(m.GetTag())
	for _, k := range m.GetKeys() {
		n += fieldRoom + len(k)
	}
	for k, v := range m.GetProperties() {
		n += fieldRoom + len(k) + len(v)
	}
	return n
}

// work says how waitForWork came by something to send.
type work uint8

const (
	nothingLeft work = iota // closed, all outcomes are there
	atHand                  // it was there already
	waited                  // the queue had been empty
)

// waitForWork blocks until there is something to send or nothing more will come.
func (s *Sender) waitForWork(ctx context.Context) (work, error) {
	for w := atHand; ; w = waited {
		s.mu.Lock()
		some, closed, changed := len(s.queue) > 0, s.closed, s.changed
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nothingLeft, ctx.Err()
		case some:
			return w, nil
		case closed:
			return nothingLeft, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// takeFront unlinks the first n messages. s.mu is held.
func (s *Sender) takeFront(n int) []*pending {
	front := make([]*pending, n)
	copy(front, s.queue)
	rest := copy(s.queue, s.queue[n:])
	clear(s.queue[rest:])
	s.queue = s.queue[:rest]
	s.sent = max(0, s.sent-n)
	for _, e := range front {
		s.bytes -= len(e.given.GetBody())
	}
	return front
}

// report hands the messages their outcomes, in order, and then lets who awaits them go on.
func (s *Sender) report(es []*pending, outcome func(*pending) Outcome) {
	if len(es) == 0 {
		return
	}
	for _, e := range es {
		o := outcome(e)
		o.Sequence, o.Message = e.seq, e.given
		switch {
		case e.maybe && o.Err != nil && !errors.Is(o.Err, ErrOutcomeUnknown):
			o.Err = ErrOutcomeUnknown.Wrap(o.Err)
		case e.maybe && o.Err == nil && !Stored(o.Result.GetStatus()):
			o.Err = ErrOutcomeUnknown.Wrap(errdefs.New(errdefs.FailedPrecondition, StatusName(o.Result.GetStatus()), "a later try was refused"))
			o.Result = nil
		}
		putspan.End(e.span, o.Result, o.Err)
		if e.done != nil {
			e.done(o)
		}
	}
	s.mu.Lock()
	s.done = es[len(es)-1].seq
	s.signal()
	s.mu.Unlock()
}
