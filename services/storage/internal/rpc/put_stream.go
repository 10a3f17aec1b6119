package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/store"
)

const (
	// streamWindow bounds the messages of one stream that are appended and not answered yet; the stream is read on only
	// below it.
	streamWindow = 8192
	// streamAnswer bounds the results of one answer.
	streamAnswer = 1024
)

// PutStream implements MessageService: one goroutine reads and appends, this one waits for each message in order and
// answers with all that have their result.
func (s *Message) PutStream(stream grpc.BidiStreamingServer[storagev1.PutStreamRequest, storagev1.PutStreamResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	in := &putReader{store: s.store, stream: stream, pending: make(chan store.Pending, streamWindow)}
	go in.run(ctx)
	answer := &storagev1.PutStreamResponse{}
	sent := uint64(0)
	for p := range in.pending {
		r, err := s.store.Finish(ctx, &p)
		if err != nil {
			return err
		}
		answer.Results = append(answer.Results, resultOf(&r))
		if len(in.pending) > 0 && len(answer.Results) < streamAnswer {
			continue
		}
		sent += uint64(len(answer.Results))
		answer.Sequence = sent
		if err := stream.Send(answer); err != nil {
			return err
		}
		answer = &storagev1.PutStreamResponse{}
	}
	return in.err
}

// putReader is the reading half of a PutStream; it owns the stream's receiving side.
type putReader struct {
	store   Store
	stream  grpc.BidiStreamingServer[storagev1.PutStreamRequest, storagev1.PutStreamResponse]
	pending chan store.Pending
	err     error // why it ended, nil when the client closed; read after pending is closed
}

func (r *putReader) run(ctx context.Context) {
	defer close(r.pending)
	next := uint64(1)
	for {
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
		for _, m := range req.GetMessages() {
			p, err := r.begin(ctx, m, w)
			if err != nil {
				r.err = from(next, err)
				return
			}
			next++
			select {
			case r.pending <- p:
			case <-ctx.Done():
				r.err = ctx.Err()
				return
			}
		}
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
	sm, err := messageOf(ctx, "messages", m)
	if err == nil {
		var p store.Pending
		if p, err = r.store.Begin(ctx, &sm, w); err == nil {
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
