package offset

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
)

// streamWindow bounds the requests of one stream that are done and not answered yet.
const streamWindow = 1024

// done is a request of a stream that was dealt with.
type done struct {
	sequence uint64
	failures []*configsyncv1.CommitFailure
}

// CommitStream implements OffsetService: one goroutine reads and commits, this one answers with all that is done.
func (s *Service) CommitStream(stream grpc.BidiStreamingServer[configsyncv1.CommitStreamRequest, configsyncv1.CommitStreamResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	finished := make(chan done, streamWindow)
	var readErr error
	go func() {
		defer close(finished)
		readErr = s.readCommits(ctx, stream, finished)
	}()
	answer := &configsyncv1.CommitStreamResponse{}
	for d := range finished {
		answer.Sequence = d.sequence
		answer.Failures = append(answer.Failures, d.failures...)
		if len(finished) > 0 && len(answer.GetFailures()) < maxBatch {
			continue
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
		answer = &configsyncv1.CommitStreamResponse{}
	}
	return readErr
}

// readCommits returns nil when the client has closed its side.
func (s *Service) readCommits(ctx context.Context, stream grpc.BidiStreamingServer[configsyncv1.CommitStreamRequest, configsyncv1.CommitStreamResponse], finished chan<- done) error {
	for next := uint64(1); ; next++ {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if req.GetSequence() != next {
			return errdefs.Invalid("sequence", "%d does not follow, expected %d", req.GetSequence(), next)
		}
		if n := len(req.GetOffsets()); n > maxBatch {
			return errdefs.Invalid("offsets", "%d offsets, not up to %d", n, maxBatch).With("sequence", next)
		}
		d := done{sequence: next}
		if d.failures, err = s.commitSome(ctx, req); err != nil {
			return err
		}
		select {
		case finished <- d:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maxEcho bounds the names in an answer, so that one with all failures fits into a reply: a legal name is shorter.
const maxEcho = 512

// echo is a refused offset as the answer repeats it.
func echo(o *configsyncv1.ConsumerOffset) *configsyncv1.ConsumerOffset {
	if len(o.GetTopic()) <= maxEcho && len(o.GetGroup()) <= maxEcho {
		return o
	}
	short := proto.CloneOf(o)
	short.Topic = strings.ToValidUTF8(o.GetTopic()[:min(len(o.GetTopic()), maxEcho)], "")
	short.Group = strings.ToValidUTF8(o.GetGroup()[:min(len(o.GetGroup()), maxEcho)], "")
	return short
}

// commitSome commits what is right of a request and returns the rest. The error is the node's.
func (s *Service) commitSome(ctx context.Context, req *configsyncv1.CommitStreamRequest) ([]*configsyncv1.CommitFailure, error) {
	var failures []*configsyncv1.CommitFailure
	failed := func(o *configsyncv1.ConsumerOffset, err error) bool {
		e := errdefs.As(err)
		if e == nil || e.Field == "" {
			return false
		}
		failures = append(failures, &configsyncv1.CommitFailure{Sequence: req.GetSequence(), Offset: echo(o), Reason: e.Reason, Message: e.Error()})
		return true
	}
	if _, _, err := s.role.Reign(); err != nil {
		return nil, err
	}
	cs := make([]table.Commit, 0, len(req.GetOffsets()))
	for _, o := range req.GetOffsets() {
		c, err := s.check(ctx, o)
		if err == nil {
			err = s.stale(c)
		}
		switch {
		case err == nil:
			cs = append(cs, c)
		case !failed(o, err):
			return nil, err
		}
	}
	if len(cs) == 0 {
		return failures, nil
	}
	if err := s.role.Enter(); err != nil {
		return nil, err
	}
	defer s.role.Leave()
	result, err := s.tables.CommitOffsets(ctx, cs, false)
	for err == nil && result.Staled > 0 { // a reset came in between: without those
		cs = slices.DeleteFunc(cs, func(c table.Commit) bool {
			err := s.stale(c)
			o := &configsyncv1.ConsumerOffset{Topic: c.Topic, Group: c.Group, QueueId: c.Queue, Offset: c.Offset, ResetEpoch: &c.Epoch}
			return err != nil && failed(o, err)
		})
		result, err = s.tables.CommitOffsets(ctx, cs, false)
	}
	return failures, err
}
