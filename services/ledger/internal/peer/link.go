package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// outgoing is a push that waits; cuts is how often the log had been cut when it was made.
type outgoing struct {
	raft.Message
	cuts uint64
}

// link is what this node has to do with one peer.
type link struct {
	t    *Transport
	id   raft.NodeID
	addr string

	bulk, quick *grpc.ClientConn
	pushes      chan outgoing
	control     chan raft.Message
	reads       chan raft.Message

	dropped atomic.Int64
	failure atomic.Pointer[failure]
	down    atomic.Bool // the last thing tried has failed
}

// failure is the last thing that went wrong with a peer.
type failure struct {
	err error
	at  time.Time
}

func (t *Transport) newLink(id raft.NodeID, addr string) (*link, error) {
	l := &link{
		t: t, id: id, addr: addr, pushes: make(chan outgoing, t.o.PushQueue), control: make(chan raft.Message, t.o.ControlQueue),
		reads: make(chan raft.Message, t.o.ControlQueue),
	}
	var err error
	if l.bulk, err = t.o.Dial(addr); err != nil {
		return nil, err
	}
	if l.quick, err = t.o.Dial(addr); err != nil {
		return nil, l.close(err)
	}
	return l, nil
}

func (l *link) close(err error) error {
	for _, c := range []*grpc.ClientConn{l.bulk, l.quick} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// failed notes why the peer cannot be talked to; the first time after it could, it is news.
func (l *link) failed(ctx context.Context, err error) {
	if ctx.Err() != nil && errdefs.ClassOf(err) == errdefs.Canceled {
		return
	}
	l.failure.Store(&failure{err, time.Now()})
	if !l.down.Swap(true) {
		l.t.o.Log.Warn("peer does not answer", slog.String("peer", string(l.id)), slog.String("address", l.addr), slog.Any("error", err))
	}
}

func (l *link) worked() {
	if l.down.Load() && l.down.Swap(false) {
		l.t.o.Log.Info("peer answers again", slog.String("peer", string(l.id)), slog.String("address", l.addr))
	}
}

// unreadable notes that entries for the peer could not be read. That they were cut is no news.
func (l *link) unreadable(err error) {
	old := l.failure.Swap(&failure{err, time.Now()})
	if errdefs.ClassOf(err) == errdefs.DataLoss && (old == nil || errdefs.ReasonOf(old.err) != errdefs.ReasonOf(err)) {
		l.t.o.Log.Error("entries for a peer cannot be read", slog.String("peer", string(l.id)), slog.Any("error", err))
	}
}

// push keeps a stream to the peer as long as there is something to send.
func (l *link) push(ctx context.Context) {
	for {
		select {
		case first := <-l.pushes:
			if err := l.stream(ctx, first); err != nil {
				l.failed(ctx, err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// stream sends first and what comes after it over one stream, until that breaks.
func (l *link) stream(ctx context.Context, first outgoing) error {
	ctx, cancel := context.WithCancel(ctx)
	s, err := ledgerv1.NewPushServiceClient(l.bulk).Push(ctx)
	if err != nil {
		cancel()
		l.dropped.Add(1)
		return err
	}
	ended := make(chan error, 1)
	var reader sync.WaitGroup
	reader.Go(func() { ended <- l.receive(s) })
	defer reader.Wait()
	defer cancel()
	for o := first; ; {
		if err := l.write(s, &o); errors.Is(err, errStreamEnded) {
			return <-ended
		} else if err != nil {
			return err
		}
		select {
		case o = <-l.pushes:
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// write sends one push. The frame is made under the lease and sent after it.
func (l *link) write(s ledgerv1.PushService_PushClient, o *outgoing) error {
	if o.Type != raft.Append {
		return sendError(s.Send(pushOf(l.t.o.Group, &o.Message, nil)))
	}
	b, n, release, err := l.t.log.View(o.Index+1, o.Count, o.Bytes)
	if err != nil {
		l.unreadable(err)
	}
	if n != o.Count || l.t.log.Cuts() != o.cuts {
		release()
		l.dropped.Add(1) // the leader will look again
		return nil
	}
	var frame grpc.PreparedMsg
	err = frame.Encode(s, pushOf(l.t.o.Group, &o.Message, b))
	release()
	if err != nil {
		return err
	}
	l.t.meters.pushed(int64(n), int64(len(b)))
	return sendError(s.SendMsg(&frame))
}

// sendError is nil for io.EOF: why the stream ended is what receiving it says.
func sendError(err error) error {
	if errors.Is(err, io.EOF) {
		return errStreamEnded
	}
	return err
}

var errStreamEnded = errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the peer has ended the stream")

// receive hands the node the peer's answers until the stream ends.
func (l *link) receive(s ledgerv1.PushService_PushClient) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return errStreamEnded
		}
		if err != nil {
			return err
		}
		m, err := l.check(l.t.decoder.pushResponse(r))
		if err != nil {
			return err
		}
		l.worked()
		l.t.deliver(m)
	}
}

// check refuses an answer that another than the peer gave.
func (l *link) check(m raft.Message, err error) (raft.Message, error) {
	if err == nil && m.From != l.id {
		err = ErrUnknownPeer.With("from", m.From).With("want", l.id)
	}
	return m, l.t.o.Refused.Count(err)
}

// work makes the calls of one lane, one after the other.
func (l *link) work(ctx context.Context, lane chan raft.Message) {
	for {
		select {
		case m := <-lane:
			if err := l.call(ctx, &m); err != nil {
				l.failed(ctx, err)
				l.lost(&m)
			}
		case <-ctx.Done():
			return
		}
	}
}

// lost ends a read whose question has failed, so that its caller can try again at once: the node knows no other way to hear of it.
func (l *link) lost(m *raft.Message) {
	if m.Type == raft.ReadIndex {
		l.t.deliver(raft.Message{
			Type: raft.ReadIndexAnswer, From: l.id, To: m.From, Term: m.Term, ReadID: m.ReadID, Nonce: m.Nonce, Refused: raft.NoLeader,
		})
	}
}

// call asks the peer and hands the node its answer.
func (l *link) call(ctx context.Context, m *raft.Message) error {
	ctx, cancel := context.WithTimeout(ctx, l.t.o.CallTimeout)
	defer cancel()
	answer, err := l.ask(ctx, m)
	if err != nil {
		return err
	}
	l.worked()
	if answer.Type == 0 {
		return nil
	}
	if answer, err = l.check(answer, nil); err == nil {
		l.t.deliver(answer)
	}
	return err
}

// ask makes the call that m is; TakeLeadership has no answer.
func (l *link) ask(ctx context.Context, m *raft.Message) (answer raft.Message, err error) {
	client, group, d := ledgerv1.NewElectionServiceClient(l.quick), l.t.o.Group, &l.t.decoder
	switch m.Type {
	case raft.Vote:
		r, err := client.Vote(ctx, voteOf(group, m))
		if err != nil {
			return answer, err
		}
		return d.voteAnswer(raft.VoteAnswer, r.GetEnvelope(), r.GetRefused())
	case raft.PreVote:
		r, err := client.PreVote(ctx, preVoteOf(group, m))
		if err != nil {
			return answer, err
		}
		return d.voteAnswer(raft.PreVoteAnswer, r.GetEnvelope(), r.GetRefused())
	case raft.Heartbeat:
		r, err := client.Heartbeat(ctx, heartbeatOf(group, m))
		if err != nil {
			return answer, err
		}
		return d.heartbeatAnswer(r)
	case raft.ReadIndex:
		r, err := client.ReadIndex(ctx, readIndexOf(group, m))
		if err != nil {
			return answer, err
		}
		return d.readIndexAnswer(r)
	case raft.Rejoin:
		r, err := client.Rejoin(ctx, &ledgerv1.RejoinRequest{Envelope: envelopeOf(group, m), Nonce: m.Nonce})
		if err != nil {
			return answer, err
		}
		return d.rejoinAnswer(r)
	default:
		_, err := client.TakeLeadership(ctx, &ledgerv1.TakeLeadershipRequest{Envelope: envelopeOf(group, m)})
		return answer, err
	}
}

// Status is a peer as this node's connections to it show it.
type Status struct {
	ID        raft.NodeID
	Address   string
	Connected bool  // both connections are up
	Dropped   int64 // messages that did not leave
	Err       error // the last thing that failed, nil if nothing did; and when
	ErrTime   time.Time
}

// Status returns what is known of a peer.
func (t *Transport) Status(id raft.NodeID) Status {
	l := t.links[id]
	if l == nil {
		return Status{ID: id}
	}
	s := Status{
		ID: id, Address: l.addr, Dropped: l.dropped.Load(),
		Connected: l.bulk.GetState() == connectivity.Ready && l.quick.GetState() == connectivity.Ready,
	}
	if f := l.failure.Load(); f != nil {
		s.Err, s.ErrTime = f.err, f.at
	}
	return s
}
