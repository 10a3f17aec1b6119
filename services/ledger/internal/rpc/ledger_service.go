package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/durationpb"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/once"
	"github.com/tandemlog/tandem/services/ledger/internal/refusal"
)

// Appender takes appends: see once.Appender.
type Appender interface {
	Append(once.Request) (*once.Pending, error)
	Window() int
}

// Reader confirms reads: see node.Node. Committed's mark ends with the node.
type Reader interface {
	Read(ctx context.Context) (raft.Index, error)
	Committed() (mark *watermark.Mark, replaced <-chan struct{})
}

// Log is where entries are read: see entrylog.Log.
type Log interface {
	First() raft.Index
	View(first raft.Index, count int, limit int64) (b []byte, n int, release func(), err error)
}

// Limits of requests and replies.
type Limits struct {
	MaxBody         int   // of an entry, bytes
	MaxBatchEntries int   // of a request
	MaxBatchBytes   int64 // of a request's bodies
	MaxReply        int   // bytes
	AppendTimeout   time.Duration
}

// Ledger implements LedgerService.
type Ledger struct {
	ledgerv1.UnimplementedLedgerServiceServer

	appends   Appender
	reads     Reader
	log       Log
	addresses map[raft.NodeID]string
	limits    Limits
	refused   *refusal.Tally
	meters    instruments
}

// NewLedger makes the service; addresses are those of the members.
func NewLedger(a Appender, r Reader, log Log, addresses map[raft.NodeID]string, limits Limits, o Telemetry) (*Ledger, error) {
	meters, err := newInstruments(o.Meter)
	return &Ledger{appends: a, reads: r, log: log, addresses: addresses, limits: limits, refused: o.Refused, meters: meters}, err
}

// fail counts an error and adds the address of the leader that it names.
func (s *Ledger) fail(err error) error { return s.refused.Count(withLeader(err, s.addresses)) }

func withLeader(err error, addresses map[raft.NodeID]string) error {
	e := errdefs.As(err)
	if e == nil || e.Meta["leader"] == "" {
		return err
	}
	if addr := addresses[raft.NodeID(e.Meta["leader"])]; addr != "" {
		return e.With("leader_address", addr)
	}
	return err
}

// Append implements LedgerService.
func (s *Ledger) Append(ctx context.Context, req *ledgerv1.AppendRequest) (*ledgerv1.AppendResponse, error) {
	r, err := s.request([][]byte{req.GetBody()}, req.GetChannel(), req.GetKey(), "body")
	if err != nil {
		return nil, s.fail(err)
	}
	done, err := s.append(ctx, r)
	if err != nil {
		return nil, s.fail(err)
	}
	return &ledgerv1.AppendResponse{
		Index: int64(done.Indexes[0]), Term: int64(done.Term), Repeated: done.Repeated > 0, CommittedIndex: s.committed(),
	}, nil
}

// AppendBatch implements LedgerService.
func (s *Ledger) AppendBatch(ctx context.Context, req *ledgerv1.AppendBatchRequest) (*ledgerv1.AppendBatchResponse, error) {
	r, err := s.request(req.GetBodies(), req.GetChannel(), req.GetKey(), "bodies")
	if err != nil {
		return nil, s.fail(err)
	}
	done, err := s.append(ctx, r)
	if err != nil {
		return nil, s.fail(err)
	}
	return &ledgerv1.AppendBatchResponse{
		Indexes: indexesOf(nil, done.Indexes), Term: int64(done.Term), RepeatedEntries: int32(done.Repeated), //nolint:gosec // bounded by the batch
		CommittedIndex: s.committed(),
	}, nil
}

func indexesOf(dst []int64, from []raft.Index) []int64 {
	for _, i := range from {
		dst = append(dst, int64(i))
	}
	return dst
}

func (s *Ledger) committed() int64 {
	mark, _ := s.reads.Committed()
	return mark.Load()
}

// append queues a request and waits for it, a little less long than the caller does.
func (s *Ledger) append(ctx context.Context, r once.Request) (once.Result, error) {
	timeout := s.limits.AppendTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		timeout = min(timeout, left-min(left/10, deadlineMargin))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, err := s.appends.Append(r)
	if err != nil {
		return once.Result{}, err
	}
	done, err := p.Wait(ctx)
	if err != nil {
		return done, err
	}
	s.appended(ctx, &done)
	return done, nil
}

// deadlineMargin is what an answer needs to reach the caller before its deadline, at most.
const deadlineMargin = 50 * time.Millisecond

// appended counts what was committed.
func (s *Ledger) appended(ctx context.Context, done *once.Result) {
	s.meters.appended(len(done.Indexes), done.Repeated)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("committed", trace.WithAttributes(
			attribute.Int64("index", int64(done.Indexes[0])), attribute.Int("entries", len(done.Indexes)), attribute.Int("repeated", done.Repeated)))
	}
}

// request checks what is to be appended; field names the bodies.
func (s *Ledger) request(bodies [][]byte, channel int32, key *ledgerv1.IdempotenceKey, field string) (once.Request, error) {
	r := once.Request{Bodies: bodies, Channel: channel}
	if err := s.checkBodies(bodies, channel, field); err != nil || key == nil {
		return r, err
	}
	client, err := clientOf(key.GetClientId(), "key.client_id")
	switch {
	case err != nil:
		return r, err
	case key.GetSequence() == 0:
		return r, errdefs.Invalid("key.sequence", "is 0; sequences begin at 1")
	case key.GetSequence()+uint64(len(bodies)) < key.GetSequence():
		return r, errdefs.Invalid("key.sequence", "%d leaves no room for %d entries", key.GetSequence(), len(bodies))
	case key.GetAfterIndex() < int64(raft.NoIndex):
		return r, errdefs.Invalid("key.after_index", "%d is below -1", key.GetAfterIndex())
	}
	r.Client, r.First, r.After = &client, key.GetSequence(), raft.Index(key.GetAfterIndex())
	return r, nil
}

func clientOf(id []byte, field string) (once.Client, error) {
	if len(id) != len(once.Client{}) {
		return once.Client{}, errdefs.Invalid(field, "has %d bytes, not %d", len(id), len(once.Client{})).WithRemedy("use 16 random bytes")
	}
	return once.Client(id), nil
}

func (s *Ledger) checkBodies(bodies [][]byte, channel int32, field string) error {
	switch {
	case len(bodies) == 0:
		return errdefs.Invalid(field, "is empty")
	case len(bodies) > s.limits.MaxBatchEntries:
		return errdefs.Invalid(field, "has %d entries, more than %d", len(bodies), s.limits.MaxBatchEntries).WithRemedy("send them in parts")
	case once.Reserved(channel):
		return errdefs.Invalid("channel", "%#x is among those that the ledger uses itself (0x54444D00 to 0x54444DFF)", uint32(channel)) //nolint:gosec // printed
	}
	total := int64(0)
	for i, b := range bodies {
		name := field
		if len(bodies) > 1 {
			name = fmt.Sprintf("%s[%d]", field, i)
		}
		switch {
		case len(b) == 0:
			return errdefs.Invalid(name, "is empty; an entry has 1 byte at least")
		case len(b) > s.limits.MaxBody:
			return errdefs.Invalid(name, "has %d bytes, more than %d", len(b), s.limits.MaxBody)
		}
		total += int64(len(b))
	}
	if total > s.limits.MaxBatchBytes && len(bodies) > 1 {
		return errdefs.Invalid(field, "has %d bytes, more than %d", total, s.limits.MaxBatchBytes).WithRemedy("send them in parts")
	}
	return nil
}

// GetBounds implements LedgerService.
func (s *Ledger) GetBounds(ctx context.Context, req *ledgerv1.GetBoundsRequest) (*ledgerv1.GetBoundsResponse, error) {
	committed, err := s.readable(ctx, req.GetConsistency())
	if err != nil {
		return nil, s.fail(err)
	}
	return &ledgerv1.GetBoundsResponse{
		FirstIndex: int64(s.log.First()), CommittedIndex: int64(committed), Window: int64(s.appends.Window()),
		MaxBodySize: int64(s.limits.MaxBody), MaxBatchEntries: int32(s.limits.MaxBatchEntries), //nolint:gosec // bounded by the config
		MaxBatchSize: s.limits.MaxBatchBytes, AppendTimeout: durationpb.New(s.limits.AppendTimeout),
	}, nil
}

// readable returns up to where a read may look.
func (s *Ledger) readable(ctx context.Context, c ledgerv1.Consistency) (raft.Index, error) {
	switch c {
	case ledgerv1.Consistency_CONSISTENCY_LOCAL:
		return raft.Index(s.committed()), nil
	case ledgerv1.Consistency_CONSISTENCY_UNSPECIFIED, ledgerv1.Consistency_CONSISTENCY_LINEARIZABLE:
		index, err := s.reads.Read(ctx)
		return max(index, raft.Index(s.committed())), err
	default:
		return raft.NoIndex, errdefs.Invalid("consistency", "%d is unknown", int32(c))
	}
}

// isBusy reports whether another try soon may do.
func isBusy(err error) bool { return errors.Is(err, once.ErrBusy) }
