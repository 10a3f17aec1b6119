package peer

import (
	"context"
	"errors"
	"io"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Members is the door for the other members: PushService, and ElectionService as far as members use it.
type Members struct {
	ledgerv1.UnimplementedPushServiceServer
	ledgerv1.UnimplementedElectionServiceServer

	t        *Transport
	transfer TransferFunc
}

// TransferFunc is what an operator asks of ElectionService.
type TransferFunc func(context.Context, *ledgerv1.TransferLeadershipRequest) (*ledgerv1.TransferLeadershipResponse, error)

// NewMembers makes the services; transfer answers TransferLeadership.
func NewMembers(t *Transport, transfer TransferFunc) *Members {
	return &Members{t: t, transfer: transfer}
}

// ask hands the node a request and waits for its answer.
func (s *Members) ask(ctx context.Context, m raft.Message, err error) (*raft.Message, error) {
	if err != nil {
		return nil, s.t.o.Refused.Count(err)
	}
	id, w := s.t.answers.expect(&m)
	defer s.t.answers.forget(id)
	readID := m.ReadID
	m.ReadID = id
	if !s.t.deliver(m) {
		return nil, s.t.o.Refused.Count(ErrBusy)
	}
	select {
	case a := <-w.got:
		a.ReadID = readID
		return &a, nil
	case <-ctx.Done():
		return nil, ErrNoAnswer.Wrap(context.Cause(ctx))
	}
}

// Vote implements ElectionService.
func (s *Members) Vote(ctx context.Context, r *ledgerv1.VoteRequest) (*ledgerv1.VoteResponse, error) {
	m, err := s.t.decoder.vote(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return &ledgerv1.VoteResponse{Envelope: envelopeOf(s.t.o.Group, a), Refused: ledgerv1.Reason(a.Refused)}, nil
}

// PreVote implements ElectionService.
func (s *Members) PreVote(ctx context.Context, r *ledgerv1.PreVoteRequest) (*ledgerv1.PreVoteResponse, error) {
	m, err := s.t.decoder.preVote(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return &ledgerv1.PreVoteResponse{Envelope: envelopeOf(s.t.o.Group, a), Refused: ledgerv1.Reason(a.Refused)}, nil
}

// Heartbeat implements ElectionService.
func (s *Members) Heartbeat(ctx context.Context, r *ledgerv1.HeartbeatRequest) (*ledgerv1.HeartbeatResponse, error) {
	m, err := s.t.decoder.heartbeat(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return heartbeatAnswerOf(s.t.o.Group, a), nil
}

// ReadIndex implements ElectionService.
func (s *Members) ReadIndex(ctx context.Context, r *ledgerv1.ReadIndexRequest) (*ledgerv1.ReadIndexResponse, error) {
	m, err := s.t.decoder.readIndex(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return readIndexAnswerOf(s.t.o.Group, a), nil
}

// Rejoin implements ElectionService.
func (s *Members) Rejoin(ctx context.Context, r *ledgerv1.RejoinRequest) (*ledgerv1.RejoinResponse, error) {
	m, err := s.t.decoder.rejoin(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return rejoinAnswerOf(s.t.o.Group, a), nil
}

// TakeLeadership implements ElectionService. Whether the node stands for election shows by its asking for votes.
func (s *Members) TakeLeadership(_ context.Context, r *ledgerv1.TakeLeadershipRequest) (*ledgerv1.TakeLeadershipResponse, error) {
	m, err := s.t.decoder.takeLeadership(r)
	if err == nil && !s.t.deliver(m) {
		err = ErrBusy
	}
	if err != nil {
		return nil, s.t.o.Refused.Count(err)
	}
	return &ledgerv1.TakeLeadershipResponse{}, nil
}

// TransferLeadership implements ElectionService.
func (s *Members) TransferLeadership(ctx context.Context, r *ledgerv1.TransferLeadershipRequest) (*ledgerv1.TransferLeadershipResponse, error) {
	return s.transfer(ctx, r)
}

// Compare implements PushService.
func (s *Members) Compare(ctx context.Context, r *ledgerv1.CompareRequest) (*ledgerv1.CompareResponse, error) {
	m, err := s.t.decoder.compare(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return &ledgerv1.CompareResponse{Answer: pushAnswerOf(s.t.o.Group, a)}, nil
}

// Truncate implements PushService.
func (s *Members) Truncate(ctx context.Context, r *ledgerv1.TruncateRequest) (*ledgerv1.TruncateResponse, error) {
	m, err := s.t.decoder.truncate(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return &ledgerv1.TruncateResponse{Answer: pushAnswerOf(s.t.o.Group, a)}, nil
}

// Append implements PushService.
func (s *Members) Append(ctx context.Context, r *ledgerv1.PushServiceAppendRequest) (*ledgerv1.PushServiceAppendResponse, error) {
	m, err := s.t.decoder.append(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return &ledgerv1.PushServiceAppendResponse{Answer: pushAnswerOf(s.t.o.Group, a)}, nil
}

// Commit implements PushService.
func (s *Members) Commit(ctx context.Context, r *ledgerv1.CommitRequest) (*ledgerv1.CommitResponse, error) {
	m, err := s.t.decoder.commit(r)
	a, err := s.ask(ctx, m, err)
	if err != nil {
		return nil, err
	}
	return &ledgerv1.CommitResponse{Answer: pushAnswerOf(s.t.o.Group, a)}, nil
}

// Push implements PushService: one goroutine reads and delivers, this one answers.
func (s *Members) Push(stream ledgerv1.PushService_PushServer) error {
	in := pushReader{s: s, stream: stream, opened: make(chan *pushStream, 1), ended: make(chan error, 1)}
	go func() { in.ended <- in.run() }() // it ends with the stream, which ends with this call
	var out *pushStream
	select {
	case out = <-in.opened:
	case err := <-in.ended:
		return clean(err)
	case <-stream.Context().Done():
		return context.Cause(stream.Context())
	}
	for {
		select {
		case m := <-out.out:
			if err := stream.Send(pushResponseOf(s.t.o.Group, &m)); err != nil {
				return err
			}
		case err := <-in.ended:
			return clean(err)
		case <-out.replaced:
			return ErrReplaced
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
	}
}

// clean is nil for the end that the caller wanted.
func clean(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// pushReader is the receiving half of a Push.
type pushReader struct {
	s      *Members
	stream ledgerv1.PushService_PushServer
	opened chan *pushStream // gets the answering half when the first message has told the sender
	ended  chan error
}

// run takes pushes and delivers them. One that finds the node's inbox full is dropped: the leader repeats it.
func (r *pushReader) run() error {
	var from raft.NodeID
	var out *pushStream
	t := r.s.t
	defer func() { t.answers.shut(from, out) }()
	for {
		req, err := r.stream.Recv()
		if err != nil {
			return err
		}
		m, err := t.decoder.push(req)
		if err == nil && from != "" && m.From != from {
			err = ErrUnknownPeer.With("from", m.From).With("want", from)
		}
		if err != nil {
			return t.o.Refused.Count(err)
		}
		if out == nil {
			from, out = m.From, t.answers.open(m.From)
			r.opened <- out
		}
		t.deliver(m)
	}
}
