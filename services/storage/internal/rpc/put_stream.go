package rpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/store"
)

const (
	// streamWindow and streamRequests bound the messages of one stream that are appended and not answered yet, and their
	// requests; the stream is read on only below both.
	streamWindow   = 8192
	streamRequests = 1024
	// streamAnswer bounds the results of one answer.
	streamAnswer = 1024
)

// PutStream implements MessageService: one goroutine reads and appends, this one waits for the messages in order and
// answers, all of a request at once.
func (s *Message) PutStream(stream grpc.BidiStreamingServer[storagev1.PutStreamRequest, storagev1.PutStreamResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	in := &putReader{
		store: s.store, stream: stream, from: callerOf(ctx),
		appended: make(chan []store.Pending, streamRequests), room: semaphore.NewWeighted(streamWindow),
	}
	go in.run(ctx)
	sent := uint64(0)
	for ps := range in.appended {
		answer, err := s.answer(ctx, ps)
		if err != nil {
			return err
		}
		sent += uint64(len(ps))
		answer.Sequence = sent
		if err := stream.Send(answer); err != nil {
			return err
		}
		in.room.Release(int64(len(ps)))
		in.spare.Put(&ps)
	}
	return in.err
}

// answer waits for the results of what was appended.
func (s *Message) answer(ctx context.Context, ps []store.Pending) (*storagev1.PutStreamResponse, error) {
	answer := &storagev1.PutStreamResponse{Results: make([]*storagev1.PutResult, len(ps))}
	results := make([]storagev1.PutResult, len(ps)) // in one piece, as they come and go together
	for i := range ps {
		r, err := s.store.Finish(ctx, &ps[i])
		if err != nil {
			return nil, err
		}
		setResult(&results[i], &r)
		answer.Results[i] = &results[i]
	}
	return answer, nil
}

// putReader is the reading half of a PutStream; it owns the stream's receiving side.
type putReader struct {
	store    Store
	stream   grpc.BidiStreamingServer[storagev1.PutStreamRequest, storagev1.PutStreamResponse]
	from     caller
	message  store.Message        // the one that is being appended
	appended chan []store.Pending // the messages of a request, or of a part of a large one
	room     *semaphore.Weighted  // for messages in appended
	spare    sync.Pool            // of *[]store.Pending
	err      error                // why it ended, nil when the client closed; read after appended is closed
}

func (r *putReader) run(ctx context.Context) {
	defer close(r.appended)
	for next := uint64(1); ; {
		req, err := r.stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) { // the client has closed it
				r.err = err
			}
			return
		}
		if req.GetSequence() != next {
			r.err = errdefs.Invalid("sequence", "%d does not follow, expected %d", req.GetSequence(), next)
			return
		}
		w, err := waitOf(req.Acks, req.GetTimeout())
		if err != nil {
			r.err = from(next, err)
			return
		}
		for part := range slices.Chunk(req.GetMessages(), streamAnswer) {
			if r.err = r.append(ctx, part, w, next); r.err != nil {
				return
			}
			next += uint64(len(part))
		}
	}
}

// append appends messages, the first of which is number next, and hands over those that it could.
func (r *putReader) append(ctx context.Context, ms []*storagev1.Message, w store.Wait, next uint64) error {
	if err := r.room.Acquire(ctx, int64(len(ms))); err != nil {
		return err
	}
	var ps []store.Pending
	if spare, ok := r.spare.Get().(*[]store.Pending); ok {
		ps = (*spare)[:0]
	}
	var failed error
	for i, m := range ms {
		p, err := r.begin(ctx, m, w)
		if err != nil {
			failed = from(next+uint64(i), err) //nolint:gosec // i is not negative
			break
		}
		ps = append(ps, p)
	}
	if len(ps) == 0 {
		return failed
	}
	select {
	case r.appended <- ps:
		return failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// from adds the number of the first message that was not stored, so that the client can send it again.
func from(sequence uint64, err error) error {
	if e := errdefs.As(err); e != nil {
		return e.With("sequence", sequence)
	}
	return err
}

// reasonNotMaster is the reason of the guard's error (role.ErrNotMaster).
const reasonNotMaster = "NOT_MASTER"

// begin appends one message. What is wrong with the message or with this node's role is its status, so that the stream
// goes on; the rest ends the stream.
func (r *putReader) begin(ctx context.Context, m *storagev1.Message, w store.Wait) (store.Pending, error) {
	var err error
	if r.message, err = messageOf(r.from, "messages", m); err == nil {
		var p store.Pending
		if p, err = r.store.Begin(ctx, &r.message, w); err == nil {
			return p, nil
		}
	}
	refused := store.Pending{Result: store.Result{Offset: -1, Err: err}}
	switch class := errdefs.ClassOf(err); {
	case class == errdefs.InvalidArgument, class == errdefs.Unimplemented, class == errdefs.NotFound, class == errdefs.PermissionDenied:
		refused.Status = store.MessageIllegal
	case errdefs.ReasonOf(err) == reasonNotMaster:
		refused.Status = store.NotMaster
	default:
		return refused, err
	}
	return refused, nil
}
