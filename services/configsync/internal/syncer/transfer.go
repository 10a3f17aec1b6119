package syncer

import (
	"context"
	"errors"
	"io"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// Errors of a transfer.
var (
	errBadAnswer = errdefs.New(errdefs.DataLoss, "BAD_ANSWER", "the answer makes no sense").
			WithRemedy("both nodes should run the same version")
	errBrokenThere = errdefs.New(errdefs.FailedPrecondition, "BROKEN_THERE", "the other node's own table is broken")
	errStalled     = errdefs.New(errdefs.DeadlineExceeded, "STALLED", "the other node was silent in the middle of an answer")
	errStopped     = table.ErrNotWhole.WithMsg("the answer stopped in the middle")
)

// part is a message of Fetch or Watch.
type part interface {
	GetHeader() *configsyncv1.TransferHeader
	GetChunk() []byte
}

// take receives one transfer and merges it. nil: the table is at least what was sent, and saved.
func (s *Syncer) take(ctx context.Context, k entry.Kind, recv func() (part, error), dog *watchdog) error {
	st := s.kinds[k]
	h, d, err := receive(k, recv, dog)
	if err == nil {
		err = s.checkEpoch(h.GetEpoch())
	}
	if err != nil {
		return err
	}
	st.apply.Lock() // a round and the watch stream may bring the same
	defer st.apply.Unlock()
	own := s.tables.Snapshot(k)
	if d == nil || s.tables.Whole(k) == nil && own.Version().Equal(d.To) && own.Sum() == d.Sum {
		st.succeeded(roundUnchanged)
		return nil
	}
	report, err := s.tables.Follow(ctx, d, table.FollowOptions{})
	if err != nil {
		return err
	}
	if d.Full {
		st.succeeded(roundFull)
	} else {
		st.succeeded(roundDelta)
	}
	if report.Ahead > 0 || report.OtherContent {
		s.compare()
	}
	return nil
}

// compare has a round run soon: offsets here are not the master's, which fetches what is ahead.
func (s *Syncer) compare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		s.session.want()
	}
}

// receive reads one transfer; the delta is nil where the sender says that nothing has changed.
func receive(k entry.Kind, recv func() (part, error), dog *watchdog) (*configsyncv1.TransferHeader, *table.Delta, error) {
	p, err := recv()
	if err != nil {
		return nil, nil, ended(err)
	}
	dog.start()
	h := p.GetHeader()
	switch {
	case h == nil:
		return nil, nil, errBadAnswer.WithMsg("the answer does not begin with a header")
	case h.GetVersion().GetKind() != wire.Kind(k):
		return nil, nil, table.ErrKind.With("kind", k).With("got", h.GetVersion().GetKind())
	case h.GetUnchanged():
		return h, nil, nil
	}
	a := chunk.NewAssembly(k)
	for {
		if b := p.GetChunk(); len(b) > 0 {
			if err := a.Add(b); err != nil {
				return nil, nil, err
			}
		}
		if a.Done() {
			break
		}
		if p, err = recv(); err != nil {
			return nil, nil, ended(err)
		}
		dog.start()
		if p.GetHeader() != nil {
			return nil, nil, errBadAnswer.WithMsg("a second header in the middle of an answer")
		}
	}
	d, err := a.Delta()
	if err != nil {
		return nil, nil, err
	}
	if v := h.GetVersion(); d.Full != h.GetFull() || !d.To.Equal(wire.VersionOf(v.GetDataVersion())) || d.Sum != v.GetSum() {
		return nil, nil, errBadAnswer.WithMsg("header and content contradict each other")
	}
	return h, d, nil
}

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errStopped
	}
	return err
}

// fetch asks for one table and merges it.
func (s *Syncer) fetch(ctx context.Context, c configsyncv1.ConfigSyncServiceClient, k entry.Kind, have *configsyncv1.TableVersion) error {
	ctx, dog := newWatchdog(ctx, s.o.Timeout)
	defer dog.end()
	dog.start()
	stream, err := c.Fetch(ctx, &configsyncv1.FetchRequest{Caller: s.caller(false), Kind: wire.Kind(k), Have: have})
	if err != nil {
		return dog.cause(err)
	}
	return dog.cause(s.take(ctx, k, func() (part, error) { return stream.Recv() }, dog))
}

// takeDelta merges the delta that came with the answer of Check. ErrGap: there is none, or it does not begin at what is here now.
func (s *Syncer) takeDelta(ctx context.Context, k entry.Kind, c *configsyncv1.KindCheck, epoch int64) error {
	if len(c.GetDelta()) == 0 {
		return table.ErrGap
	}
	ctx, dog := newWatchdog(ctx, s.o.Timeout)
	defer dog.end()
	p := &configsyncv1.FetchResponse{Header: &configsyncv1.TransferHeader{Version: c.GetVersion(), Epoch: epoch}, Chunk: c.GetDelta()}
	return dog.cause(s.take(ctx, k, func() (part, error) { return p, nil }, dog))
}

// Pull returns a peer's table, whatever the peer's role.
func (s *Syncer) Pull(ctx context.Context, addr string, k entry.Kind) (*table.Table, error) {
	client, err := s.dial(addr)
	if err != nil {
		return nil, err
	}
	ctx, dog := newWatchdog(ctx, s.o.Timeout)
	defer dog.end()
	dog.start()
	stream, err := client.Fetch(ctx, &configsyncv1.FetchRequest{Caller: s.caller(true), Kind: wire.Kind(k)})
	if err != nil {
		return nil, dog.cause(err)
	}
	_, d, err := receive(k, func() (part, error) { return stream.Recv() }, dog)
	switch {
	case err != nil:
		return nil, dog.cause(err)
	case d == nil || !d.Full:
		return nil, errBadAnswer.WithMsg("the whole table was asked for")
	}
	return d.Table()
}

// have is what this node has of a kind; nil where that is broken: then everything is asked for.
func (s *Syncer) have(k entry.Kind) *configsyncv1.TableVersion {
	if s.tables.Whole(k) != nil {
		return nil
	}
	return wire.TableVersion(s.tables.Snapshot(k))
}

// versions are those of all kinds; that of a broken table is zero.
func (s *Syncer) versions(ks []entry.Kind) []*configsyncv1.TableVersion {
	var out []*configsyncv1.TableVersion
	for _, k := range ks {
		v := s.have(k)
		if v == nil {
			v = &configsyncv1.TableVersion{Kind: wire.Kind(k)}
		}
		out = append(out, v)
	}
	return out
}

// watchdog ends a context when the other side is silent for too long while something is due.
type watchdog struct {
	timer  *time.Timer
	d      time.Duration
	ctx    context.Context //nolint:containedctx // its cause is the answer
	cancel context.CancelCauseFunc
}

func newWatchdog(ctx context.Context, d time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{d: d, ctx: ctx, cancel: cancel}
	w.timer = time.AfterFunc(d, func() { cancel(errStalled.With("after", d)) })
	w.timer.Stop()
	return ctx, w
}

func (w *watchdog) start() { w.timer.Reset(w.d) }
func (w *watchdog) rest()  { w.timer.Stop() }

func (w *watchdog) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// cause is errStalled where that ended the call, else err.
func (w *watchdog) cause(err error) error {
	if cause := context.Cause(w.ctx); err != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}
