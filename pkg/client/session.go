package client

import (
	"context"
	"errors"
	"io"
	"strconv"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/client/internal/watchdog"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// session is one PutStream of a Sender.
type session struct {
	s       *Sender
	stream  storagev1.MessageService_PutStreamClient
	dog     *watchdog.Dog
	started uint64 // sequence on the stream of the next request
	last    uint64 // the one of the last request
	settled uint64 // messages of this stream that have been answered
	closing bool   // a NOT_MASTER came: nothing more is sent
}

// session carries one stream from its opening to its end and settles what was on it. progress says whether anything was
// stored. The error is nil when the work was done.
func (s *Sender) session(ctx context.Context, n *nodes.Node) (progress bool, err error) {
	ctx, dog := watchdog.New(ctx, s.p.c.o.Timeout+s.p.o.SlaveTimeout, ErrStalled)
	defer dog.End()
	stream, err := n.Msg.PutStream(ctx)
	if err != nil {
		return false, nodes.Explain(dog.Cause(err), n.Addr)
	}
	ss := &session{s: s, stream: stream, dog: dog, started: 1}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		ss.write(ctx)
	}()
	progress, err = ss.read(n)
	dog.End()
	<-wrote
	return progress, ss.settle(nodes.Explain(dog.Cause(err), n.Addr))
}

// write sends requests until there is nothing more to send or the stream fails; why it fails is found by read.
func (ss *session) write(ctx context.Context) {
	for {
		req := ss.gather(ctx)
		if req == nil {
			_ = ss.stream.CloseSend() // fails only with the stream
			return
		}
		if ss.stream.Send(req) != nil {
			return
		}
	}
}

// gather waits for messages, counts them as sent and returns them as a request; nil when no more will come on this stream.
func (ss *session) gather(ctx context.Context) *storagev1.PutStreamRequest {
	s := ss.s
	for {
		s.mu.Lock()
		waiting, changed := s.queue[s.sent:], s.changed
		if len(waiting) > 0 && !ss.closing && ctx.Err() == nil {
			req := ss.request(waiting)
			s.mu.Unlock()
			return req
		}
		end := s.closed || ss.closing || ctx.Err() != nil
		s.mu.Unlock()
		if end {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// request makes a request of the first waiting messages. s.mu is held.
func (ss *session) request(waiting []*pending) *storagev1.PutStreamRequest {
	s := ss.s
	bound := min(s.p.o.MaxBatchBytes, s.p.c.o.MaxMessage-requestRoom)
	n, size := 0, 0
	for n < len(waiting) && n < s.p.o.MaxBatch {
		size += waiting[n].size
		if n > 0 && size > bound {
			break
		}
		n++
	}
	req := &storagev1.PutStreamRequest{
		Sequence: ss.started, Messages: make([]*Message, n), Acks: s.p.o.Acks, Timeout: s.p.timeout(),
	}
	for i := range n {
		req.Messages[i] = waiting[i].message
	}
	ss.last = ss.started
	ss.started += uint64(n)
	if s.sent == 0 {
		ss.dog.Start()
	}
	s.sent += n
	return req
}

// read takes answers until the stream ends.
func (ss *session) read(n *nodes.Node) (progress bool, err error) {
	for {
		resp, err := ss.stream.Recv()
		if errors.Is(err, io.EOF) {
			return progress, nil
		}
		if err != nil {
			return progress, err
		}
		stored, err := ss.answer(resp)
		if err != nil {
			return progress, err
		}
		if stored {
			progress = true
			ss.s.p.c.nodes.Moved(n.Addr)
		}
	}
}

// answer gives the oldest unanswered messages their results. Those that the node refused as it is no master, and those not
// stored behind them, are held back for the next stream, unless something behind them was stored: then sending them again
// would break the order.
func (ss *session) answer(resp *storagev1.PutStreamResponse) (progress bool, err error) {
	s, results := ss.s, resp.GetResults()
	s.mu.Lock()
	first := ss.heldBack()
	if len(results) > s.sent-first || resp.GetSequence() != ss.settled+uint64(len(results)) {
		err := errdefs.Newf(errdefs.Internal, "STREAM_OUT_OF_STEP", "answer up to message %d with %d results; %d were answered before, %d are open",
			resp.GetSequence(), len(results), ss.settled, s.sent-first)
		s.mu.Unlock()
		return false, err
	}
	ss.settled += uint64(len(results))
	final := 0
	for i, r := range results {
		s.queue[first+i].result = r
		if Stored(r.GetStatus()) || final == first+i && r.GetStatus() != StatusNotMaster {
			final = first + i + 1
		}
	}
	if final < first+len(results) && !ss.closing {
		ss.closing = true
		s.signal()
	}
	front := s.takeFront(final)
	if s.sent > ss.heldBack() {
		ss.dog.Start()
	} else {
		ss.dog.Rest()
	}
	s.mu.Unlock()
	s.report(front, func(e *pending) Outcome { return Outcome{Result: e.result} })
	return final > 0, nil
}

// heldBack counts the messages at the front that have their answer and wait for another stream. s.mu is held.
func (ss *session) heldBack() int {
	n := 0
	for n < ss.s.sent && ss.s.queue[n].result != nil {
		n++
	}
	return n
}

// settle decides on what the ended stream left behind and returns the error that the next stream has to mend:
//
//	queue: [ held back ][ may be stored ][ certainly not stored ][ not sent ]
//	        └─ with Resend, or when the second part is empty: all stay in the queue; else the first two get their outcomes
func (ss *session) settle(err error) error {
	s := ss.s
	s.mu.Lock()
	held, sent := ss.heldBack(), s.sent
	untaken, culprit := ss.notTaken(err)
	lost := max(0, sent-held-untaken)
	if err == nil && sent > 0 {
		err = errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the storage ended the stream before it had answered everything")
		if held > 0 {
			err = errNotMaster
		}
	}
	var front []*pending
	switch {
	case s.p.o.Resend:
		for _, e := range s.queue[held : held+lost] {
			e.maybe = true
		}
	case lost > 0:
		front = s.takeFront(held + lost)
	}
	if culprit && held == 0 && lost == 0 {
		front = s.takeFront(1)
	}
	s.sent = 0
	for _, e := range s.queue[:min(held, len(s.queue))] {
		e.result = nil
	}
	s.mu.Unlock()
	s.report(front, func(e *pending) Outcome {
		switch {
		case e.result != nil:
			return Outcome{Result: e.result}
		case culprit:
			return Outcome{Err: err}
		default:
			return Outcome{Err: ErrOutcomeUnknown.Wrap(err)}
		}
	})
	if culprit {
		return nil // it has its outcome, the others go on
	}
	return err
}

// notTaken reads from the storage's error how many of the last messages sent were certainly not stored, and whether the
// first of these is itself the reason.
func (ss *session) notTaken(err error) (n int, culprit bool) {
	e := errdefs.As(err)
	if e == nil {
		return 0, false
	}
	if e.Reason == grpcx.ReasonMessageTooLarge && ss.settled+1 == ss.last { // nothing but the last request is left to be it
		return int(ss.started - ss.last), false //nolint:gosec // bounded by what is in flight
	}
	from, parseErr := strconv.ParseUint(e.Meta[metaSequence], 10, 64)
	if parseErr != nil || from <= ss.settled || from > ss.started {
		return 0, false
	}
	culprit = e.Class == errdefs.InvalidArgument && from == ss.settled+1 && from < ss.started
	return int(ss.started - from), culprit //nolint:gosec // bounded by what is in flight
}
