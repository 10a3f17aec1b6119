package syncer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/sleep"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// Tables are the node's own, as a slave changes them.
type Tables interface {
	Snapshot(k entry.Kind) *table.Table
	// Whole returns nil unless both copies of the table are broken.
	Whole(k entry.Kind) error
	// Follow merges, saves and publishes; an error of package table has changed nothing.
	Follow(ctx context.Context, d *table.Delta, o table.FollowOptions) (table.Report, error)
	// Fault returns why nothing can be saved any more, or nil. Errors of calls do not say it: a peer's disk may have failed.
	Fault() error
}

// Dial returns a client of the node at addr; it need not be closed.
type Dial func(addr string) (configsyncv1.ConfigSyncServiceClient, error)

// Options of a Syncer. Zero times get the defaults that are named.
type Options struct {
	Cluster, BrokerName string
	NodeID              int64
	Address             string        // of this node, for peers
	Peers               []string      // the other nodes
	Interval            time.Duration // of rounds (60 s)
	Timeout             time.Duration // longest silence of a node that is asked (10 s)
	// MinBackoff and MaxBackoff bound the pause after a failure (100 ms, 10 s).
	MinBackoff, MaxBackoff time.Duration
	// Epoch is the lowest reign that may be followed.
	Epoch func() int64
	Log   *slog.Logger
	Meter metric.Meter
}

// Syncer keeps the tables of a slave. Follow is for one goroutine at a time; the rest may be called concurrently.
type Syncer struct {
	o      Options
	tables Tables
	dial   Dial
	kinds  map[entry.Kind]*kindState

	followed atomic.Int64 // highest reign of a master that was followed

	mu      sync.Mutex // guards the following
	master  string
	session *session // nil: none
}

// New makes a syncer.
func New(o Options, t Tables, dial Dial) *Syncer {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Interval, time.Minute)
	set(&o.Timeout, 10*time.Second)
	set(&o.MinBackoff, 100*time.Millisecond)
	set(&o.MaxBackoff, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Epoch == nil {
		o.Epoch = func() int64 { return 0 }
	}
	s := &Syncer{o: o, tables: t, dial: dial, kinds: map[entry.Kind]*kindState{}}
	for _, k := range entry.Kinds() {
		s.kinds[k] = &kindState{kind: k}
	}
	s.instrument(o.Meter)
	return s
}

// Errors of finding a master.
var (
	ErrNoMaster = errdefs.New(errdefs.Unavailable, "NO_MASTER", "no peer says that it leads").
			WithRemedy("start the master, or promote a node: `tandemctl promote`")
	ErrStaleEpoch = errdefs.New(errdefs.FailedPrecondition, "STALE_EPOCH", "the reign of the node that answered is over")
	errMasterGone = errdefs.New(errdefs.Aborted, "MASTER_GONE", "the master leads no more")
)

// Follow keeps the tables as the master's are until ctx ends or the registry fails for good.
func (s *Syncer) Follow(ctx context.Context) error {
	pause := newBackoff(s.o.MinBackoff, min(s.o.MaxBackoff, 2*time.Second))
	for {
		addr, epoch, err := s.find(ctx)
		if err == nil {
			pause.reset()
			err = s.follow(ctx, addr, epoch)
		}
		if fault := s.tables.Fault(); fault != nil && ctx.Err() == nil {
			return fault
		}
		if ctx.Err() == nil && err != nil {
			for _, k := range s.kinds {
				k.failed(err)
			}
		}
		if !pause.wait(ctx) {
			return nil
		}
	}
}

// follow holds a session with one master.
func (s *Syncer) follow(ctx context.Context, addr string, epoch int64) error {
	client, err := s.dial(addr)
	if err != nil {
		return err
	}
	s.o.Log.Info("follows", slog.String("master", addr), slog.Int64("epoch", epoch))
	s.followed.Store(max(s.followed.Load(), epoch))
	se := newSession(s, client, addr)
	s.set(addr, se)
	defer s.set("", nil)
	return se.run(ctx)
}

func (s *Syncer) set(master string, se *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master, s.session = master, se
}

// Master returns the address of the master that is followed, or "".
func (s *Syncer) Master() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.master
}

// Round runs a round now and returns when it is over; ErrNoMaster without a master.
func (s *Syncer) Round(ctx context.Context) error {
	s.mu.Lock()
	se := s.session
	s.mu.Unlock()
	if se == nil {
		return ErrNoMaster
	}
	return se.round(ctx)
}

// Answer is what a peer says of itself.
type Answer struct {
	NodeID  int64
	Leading bool
	Epoch   int64
	// Differ are the kinds whose content is not the own one, with the peer's versions; Broken those that the peer has lost itself.
	Differ map[entry.Kind]entry.Version
	Broken []entry.Kind
}

// Ask asks a peer, whatever its role. opening: this node is about to lead; a peer of a lower reign takes no change any more.
func (s *Syncer) Ask(ctx context.Context, addr string, opening bool) (Answer, error) {
	client, err := s.dial(addr)
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	caller := s.caller(true)
	caller.Opening = opening
	resp, err := client.Check(ctx, &configsyncv1.CheckRequest{Caller: caller, Versions: s.versions(entry.Kinds())})
	if err != nil {
		return Answer{}, err
	}
	a := Answer{NodeID: resp.GetNodeId(), Leading: resp.GetLeading(), Epoch: resp.GetEpoch(), Differ: map[entry.Kind]entry.Version{}}
	for _, c := range resp.GetKinds() {
		switch k := entry.Kind(c.GetKind()); c.GetResult() { //nolint:gosec // an unknown number is no kind
		case configsyncv1.CheckResult_CHECK_RESULT_BROKEN:
			a.Broken = append(a.Broken, k)
		case configsyncv1.CheckResult_CHECK_RESULT_UNCHANGED, configsyncv1.CheckResult_CHECK_RESULT_UNSPECIFIED:
		default:
			a.Differ[k] = wire.VersionOf(c.GetVersion().GetDataVersion())
		}
	}
	return a, nil
}

// find asks all peers at once who leads, and returns the one of the highest reign.
func (s *Syncer) find(ctx context.Context) (string, int64, error) {
	type heard struct {
		addr string
		a    Answer
		err  error
	}
	answers := make(chan heard, len(s.o.Peers))
	for _, addr := range s.o.Peers {
		go func() {
			a, err := s.Ask(ctx, addr, false)
			answers <- heard{addr, a, err}
		}()
	}
	var best heard
	var errs []error
	for range s.o.Peers {
		h := <-answers
		switch {
		case h.err != nil:
			errs = append(errs, h.err)
		case h.a.Leading && s.checkEpoch(h.a.Epoch) != nil:
			errs = append(errs, s.checkEpoch(h.a.Epoch))
		case h.a.Leading && (best.addr == "" || h.a.Epoch > best.a.Epoch):
			best = h
		}
	}
	if best.addr == "" {
		return "", 0, ErrNoMaster.Wrap(errors.Join(errs...))
	}
	return best.addr, best.a.Epoch, nil
}

// Epoch is the highest reign that this node knows of.
func (s *Syncer) Epoch() int64 { return max(s.o.Epoch(), s.followed.Load()) }

// checkEpoch refuses the answers of a reign that is over.
func (s *Syncer) checkEpoch(epoch int64) error {
	if known := s.Epoch(); epoch < known {
		return ErrStaleEpoch.With("epoch", epoch).With("known", known)
	}
	return nil
}

// caller is this node as it asks others.
func (s *Syncer) caller(anyRole bool) *configsyncv1.Caller {
	return &configsyncv1.Caller{
		Cluster: s.o.Cluster, BrokerName: s.o.BrokerName, NodeId: s.o.NodeID, Epoch: s.Epoch(), AnyRole: anyRole, Address: s.o.Address,
	}
}

// backoff is a pause that grows, with jitter.
type backoff struct{ next, low, high time.Duration }

func newBackoff(low, high time.Duration) *backoff { return &backoff{low, low, high} }

func (b *backoff) reset() { b.next = b.low }

// wait waits; false when ctx has ended.
func (b *backoff) wait(ctx context.Context) bool {
	d := b.next/2 + rand.N(b.next) //nolint:gosec // spread, not secret
	b.next = min(2*b.next, b.high)
	return sleep.For(ctx, d)
}
