package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/once"
)

const (
	// streamWindow bounds the requests of one stream that are under way; the stream is read on only below it.
	streamWindow = 256
	// streamAnswer bounds the indexes of one answer, roughly.
	streamAnswer = 8192
	// busyPause is how long a stream waits for room in the queue of appends.
	busyPause = 5 * time.Millisecond
	// settleTime is how long a stream that has failed waits for what the node has taken behind the failure.
	settleTime = time.Second
)

// errHalted: the stream has failed already, nothing more is queued.
var errHalted = errors.New("rpc: the stream has failed")

// underWay is a request of a stream.
type underWay struct {
	*once.Pending
	first    uint64 // its first sequence
	last     uint64
	deadline time.Time
}

type appendStream = grpc.BidiStreamingServer[ledgerv1.AppendStreamRequest, ledgerv1.AppendStreamResponse]

// AppendStream implements LedgerService: one goroutine reads and queues, this one waits for each request in order and answers with
// all that are committed.
func (s *Ledger) AppendStream(stream appendStream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	in := &streamReader{s: s, stream: stream, pending: make(chan underWay, streamWindow), room: make(chan struct{}, streamWindow)}
	go in.run(ctx)
	answer := &ledgerv1.AppendStreamResponse{}
	for p := range in.pending {
		<-in.room
		done, err := finish(ctx, &p)
		if err != nil {
			return s.fail(from(in.notTaken(ctx, &p, err), err))
		}
		s.appended(ctx, &done)
		answer.Sequence = p.last
		answer.Indexes = indexesOf(answer.Indexes, done.Indexes)
		if len(in.pending) > 0 && len(answer.Indexes) < streamAnswer {
			continue
		}
		answer.CommittedIndex = s.committed()
		if err := stream.Send(answer); err != nil {
			return err
		}
		answer = &ledgerv1.AppendStreamResponse{}
	}
	return in.err
}

func finish(ctx context.Context, p *underWay) (once.Result, error) {
	ctx, cancel := context.WithDeadline(ctx, p.deadline)
	defer cancel()
	return p.Wait(ctx)
}

// streamReader is the reading half of an AppendStream; it owns the stream's receiving side.
type streamReader struct {
	s       *Ledger
	stream  appendStream
	pending chan underWay
	room    chan struct{} // one a request in pending, so that putting it there never blocks
	err     error         // why it ended, nil when the client closed; read after pending is closed

	mu     sync.Mutex
	halted bool // nothing is queued any more: what was is in pending

	client []byte
	next   uint64 // 0: before the first request
}

func (r *streamReader) run(ctx context.Context) {
	defer close(r.pending)
	for {
		req, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.err = err
			return
		}
		select {
		case r.room <- struct{}{}:
		case <-ctx.Done():
			r.err = context.Cause(ctx)
			return
		}
		err = r.begin(ctx, req)
		if errors.Is(err, errHalted) {
			return
		}
		if err != nil {
			r.err = r.s.fail(from(req.GetSequence(), err))
			return
		}
	}
}

// notTaken ends the queueing and returns the number from which on nothing was appended, after p has failed with err: what came
// behind p, queued already, may have been taken all the same.
func (r *streamReader) notTaken(ctx context.Context, p *underWay, err error) uint64 {
	r.mu.Lock()
	r.halted = true
	r.mu.Unlock()
	next := p.first
	if errors.Is(err, once.ErrUnknown) {
		next = p.last + 1
	}
	var behind []underWay
	for more := true; more; {
		select {
		case q, ok := <-r.pending:
			if more = ok; ok {
				behind = append(behind, q)
			}
		default:
			more = false
		}
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	ctx, cancel = context.WithTimeout(ctx, settleTime)
	defer cancel()
	errs := make([]error, len(behind))
	for i := range behind {
		_, errs[i] = behind[i].Wait(now) // who waits in the queue leaves it
	}
	for i, q := range behind {
		if errors.Is(errs[i], once.ErrUnknown) {
			_, errs[i] = q.Wait(ctx)
		}
		if errs[i] == nil || errors.Is(errs[i], once.ErrUnknown) {
			next = q.last + 1
		}
	}
	return next
}

// from adds the number of the first body that was not appended.
func from(sequence uint64, err error) error {
	if e := errdefs.As(err); e != nil {
		return e.With("sequence", sequence)
	}
	return err
}

// begin checks a request and queues it, when there is room.
func (r *streamReader) begin(ctx context.Context, req *ledgerv1.AppendStreamRequest) error {
	request, err := r.check(req)
	if err != nil {
		return err
	}
	p := underWay{first: req.GetSequence(), deadline: time.Now().Add(r.s.limits.AppendTimeout)}
	p.last = p.first + uint64(len(req.GetBodies())) - 1
	for {
		err = r.queue(request, &p)
		if !isBusy(err) || time.Now().After(p.deadline) {
			break
		}
		timer := time.NewTimer(busyPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	r.next = p.last + 1
	return err
}

// queue hands a request to the appender and to the half that answers, or to neither.
func (r *streamReader) queue(request once.Request, p *underWay) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.halted {
		return errHalted
	}
	var err error
	if p.Pending, err = r.s.appends.Append(request); err == nil {
		r.pending <- *p
	}
	return err
}

func (r *streamReader) check(req *ledgerv1.AppendStreamRequest) (once.Request, error) {
	out := once.Request{Bodies: req.GetBodies(), Channel: req.GetChannel()}
	switch {
	case req.GetSequence() == 0:
		return out, errdefs.Invalid("sequence", "is 0; sequences begin at 1")
	case r.next != 0 && req.GetSequence() != r.next:
		return out, errdefs.Invalid("sequence", "%d does not follow, expected %d", req.GetSequence(), r.next)
	case r.next != 0 && !bytes.Equal(req.GetClientId(), r.client):
		return out, errdefs.Invalid("client_id", "is not that of the stream's first request")
	case req.GetSequence()+uint64(len(req.GetBodies())) < req.GetSequence():
		return out, errdefs.Invalid("sequence", "%d leaves no room for %d entries", req.GetSequence(), len(req.GetBodies()))
	case req.GetAfterIndex() < int64(raft.NoIndex):
		return out, errdefs.Invalid("after_index", "%d is below -1", req.GetAfterIndex())
	}
	if err := r.s.checkBodies(req.GetBodies(), req.GetChannel(), "bodies"); err != nil {
		return out, err
	}
	r.client = req.GetClientId()
	if len(r.client) == 0 {
		return out, nil
	}
	client, err := clientOf(r.client, "client_id")
	out.Client, out.First, out.After = &client, req.GetSequence(), raft.Index(req.GetAfterIndex())
	return out, err
}
