package ledger

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/group"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/client/internal/watchdog"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// metaSequence is the key of an error of AppendStream: this entry and all behind it were not taken.
const metaSequence = "sequence"

const (
	// requestRoom is what a request takes beside its bodies, and bodyRoom what each body takes beside its bytes.
	requestRoom = 1 << 10
	bodyRoom    = 8
	// staleAfter is the age at which the last known commit index is asked for anew, so that the group remembers the keys behind it.
	staleAfter = time.Second
)

// session is one AppendStream of a Sender.
type session struct {
	s      *Sender
	n      *group.Node
	stream ledgerv1.LedgerService_AppendStreamClient
	dog    *watchdog.Dog
	limits *Bounds
	fresh  uint64 // sequence of the first entry that was not sent before this stream; guarded by s.mu
}

// session carries one stream from its opening to its end and settles what was on it. progress says whether anything was
// acknowledged. The error is nil when the work was done.
func (s *Sender) session(ctx context.Context, n *group.Node) (progress bool, err error) {
	// A keyed entry can be sent again: a leader that was stopped is given up soon.
	limit := s.a.c.o.Timeout
	if s.id != nil {
		limit = min(limit, s.a.c.o.TryTimeout)
	}
	bounds, err := s.a.ask(ctx, n)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
	ctx, dog := watchdog.New(ctx, limit, ErrStalled)
	defer dog.End()
	stream, err := n.Ledger.AppendStream(ctx)
	if err != nil {
		return false, nodes.Explain(dog.Cause(err), n.Addr)
	}
	ss := &session{s: s, n: n, stream: stream, dog: dog, limits: bounds}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		ss.write(ctx)
	}()
	progress, err = ss.read()
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

// gather waits for entries, counts them as sent and returns them as a request; nil when no more will come on this stream.
func (ss *session) gather(ctx context.Context) *ledgerv1.AppendStreamRequest {
	s := ss.s
	for {
		s.mu.Lock()
		waiting, changed := s.queue[s.sent:], s.changed
		if len(waiting) > 0 && s.sent == 0 && s.id != nil && time.Since(s.heard) > staleAfter && ctx.Err() == nil {
			s.heard = time.Now()
			s.mu.Unlock()
			_, _ = s.a.ask(ctx, ss.n) // where it fails the stream does too, or an old index is good enough
			continue
		}
		if len(waiting) > 0 && ctx.Err() == nil {
			req := ss.request(waiting)
			s.mu.Unlock()
			return req
		}
		end := s.closed || ctx.Err() != nil
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

// request makes a request of the first waiting entries. s.mu is held.
func (ss *session) request(waiting []*pending) *ledgerv1.AppendStreamRequest {
	s := ss.s
	most, bound := s.a.o.MaxBatch, min(s.a.o.MaxBatchBytes, s.a.c.o.MaxMessage-requestRoom)
	if n := int(ss.limits.GetMaxBatchEntries()); n > 0 {
		most = min(most, n)
	}
	if n := ss.limits.GetMaxBatchSize(); n > 0 {
		bound = int(min(int64(bound), n))
	}
	req := &ledgerv1.AppendStreamRequest{Sequence: waiting[0].seq, Channel: s.a.o.Channel, ClientId: s.id}
	now := s.a.committed.Load()
	for size := 0; len(req.Bodies) < len(waiting) && len(req.Bodies) < most; {
		e := waiting[len(req.Bodies)]
		size += len(e.body) + bodyRoom
		if len(req.Bodies) > 0 && size > bound {
			break
		}
		if !e.maybe {
			e.after, e.maybe = now, true
			if ss.fresh == 0 {
				ss.fresh = e.seq
			}
		}
		req.Bodies = append(req.Bodies, e.body)
	}
	req.AfterIndex = waiting[0].after // the oldest of them: it only grows
	if s.sent == 0 {
		ss.dog.Start()
	}
	s.sent += len(req.GetBodies())
	return req
}

// read takes answers until the stream ends.
func (ss *session) read() (progress bool, err error) {
	for {
		resp, err := ss.stream.Recv()
		if errors.Is(err, io.EOF) {
			return progress, nil
		}
		if err != nil {
			return progress, err
		}
		if err := ss.answer(resp); err != nil {
			return progress, err
		}
		progress = progress || len(resp.GetIndexes()) > 0
	}
}

// answer gives the oldest entries their indexes.
func (ss *session) answer(resp *ledgerv1.AppendStreamResponse) error {
	s, indexes := ss.s, resp.GetIndexes()
	s.a.learn(resp.GetCommittedIndex())
	s.mu.Lock()
	s.heard = time.Now()
	answered := s.next - 1 - uint64(len(s.queue)) // the last sequence that has its outcome
	if len(indexes) > s.sent || resp.GetSequence() != answered+uint64(len(indexes)) {
		err := errdefs.Newf(errdefs.Internal, "STREAM_OUT_OF_STEP", "answer up to entry %d with %d indexes; %d were answered before, %d are open",
			resp.GetSequence(), len(indexes), answered, s.sent)
		s.mu.Unlock()
		return err
	}
	front := s.takeFront(len(indexes))
	if s.sent > 0 {
		ss.dog.Start()
	} else {
		ss.dog.Rest()
	}
	s.mu.Unlock()
	s.report(front, func(i int) Outcome { return Outcome{Index: indexes[i]} })
	return nil
}

// settle decides on what the ended stream left behind and returns the error that the next stream has to mend:
//
//	queue: [ may stand ][ certainly not taken ][ not sent ]
//	        └─ with keys, or when it is empty: all stay in the queue; else it gets its outcome now
func (ss *session) settle(err error) error {
	s := ss.s
	s.mu.Lock()
	if err == nil && s.sent > 0 {
		err = errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the node ended the stream before it had answered everything")
	}
	lost := s.sent
	if from := notTaken(err); from > 0 {
		for i, e := range s.queue[:s.sent] {
			if e.seq >= from && ss.fresh > 0 && e.seq >= ss.fresh {
				e.maybe = false
				lost = min(lost, i)
			}
		}
	}
	var front []*pending
	if s.id == nil {
		front = s.takeFront(lost)
	}
	s.sent = 0
	s.mu.Unlock()
	s.fail(front, err)
	return err
}

// notTaken returns the sequence from which on nothing was appended, as the node says; 0: it does not say so.
func notTaken(err error) uint64 {
	e := errdefs.As(err)
	if e == nil {
		return 0
	}
	from, parseErr := strconv.ParseUint(e.Meta[metaSequence], 10, 64)
	if parseErr != nil {
		return 0
	}
	return from
}
