package replication

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// Source is the log that a master streams. All methods may be called concurrently. One that is a link.FileSource too is sent
// from by sendfile where large frames were granted.
type Source interface {
	link.Source
	// Written returns the mark of the log's end. It is closed when the log is cut.
	Written() *watermark.Mark
	// FirstOffset returns the start of the first file.
	FirstOffset() int64
	// FileSize returns the length of the log's files.
	FileSize() int64
}

// MasterOptions configure a Master. Zero values mean the defaults.
type MasterOptions struct {
	// Heartbeat is the longest pause between frames (haSendHeartbeatInterval, 5 s).
	Heartbeat time.Duration
	// Housekeeping is the longest silence of a slave (haHousekeepingInterval, 20 s), also before its first bytes: a 4.9
	// slave says nothing for 5 to 6 s.
	Housekeeping time.Duration
	// BatchSize is the largest body for plain slaves and without a larger grant (haTransferBatchSize, 32 KiB).
	BatchSize int
	// MaxFrame is the largest body that is granted (256 KiB).
	MaxFrame int
	// MaxSlaves bounds sessions and open grants together (16, at most 64).
	MaxSlaves int
	// MaxPending bounds connections that have not said anything valid yet (256); beyond it the oldest one goes.
	MaxPending int
	// LegacySlaves serves plain RocketMQ slaves while the master is open.
	LegacySlaves bool
	// LegacyPeers, when not empty, names the addresses whose plain slaves count; others are served but confirm nothing.
	// When empty all count, unless LegacyOutside is set: then none does. Either way one address counts once.
	LegacyPeers   []netip.Addr
	LegacyOutside bool
	// StartFromLast starts a plain slave that reports 0 at the newest file, as RocketMQ does, and not at the first.
	StartFromLast bool
	// FallBehindMax is the lag from which a slave is not in sync (haSlaveFallbehindMax, 256 MiB).
	FallBehindMax int64
	// Congestion names the kernel's congestion control for the links; empty: the system's.
	Congestion string
	Log        *slog.Logger
	Meter      metric.Meter
	// Now is the clock of statuses and tokens (time.Now); connections keep their own time.
	Now func() time.Time
}

func (o MasterOptions) withDefaults() MasterOptions {
	o.Heartbeat = cmp.Or(o.Heartbeat, 5*time.Second)
	o.Housekeeping = cmp.Or(o.Housekeeping, 20*time.Second)
	o.BatchSize = min(cmp.Or(o.BatchSize, wire.BatchSize), wire.MaxBody)
	o.MaxFrame = min(cmp.Or(o.MaxFrame, 256<<10), wire.MaxBody)
	o.MaxSlaves = min(cmp.Or(o.MaxSlaves, 16), acks.MaxSlaves)
	o.MaxPending = cmp.Or(o.MaxPending, 256)
	o.FallBehindMax = cmp.Or(o.FallBehindMax, 256<<20)
	peers := make([]netip.Addr, len(o.LegacyPeers))
	for i, p := range o.LegacyPeers {
		peers[i] = p.Unmap()
	}
	o.LegacyPeers = peers
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Master serves slaves: RocketMQ's HAService without its client. See Run. All methods may be called concurrently.
type Master struct {
	o     MasterOptions
	src   Source
	log   *slog.Logger
	acks  *acks.Tracker
	lobby *link.Lobby
	count masterCounters

	mu       sync.Mutex // not held while anything waits or is written
	open     bool
	stopped  bool
	sessions map[*session]struct{}
	grants   map[wire.Token]*grant
	offline  map[acks.Key]SlaveStatus
}

// NewMaster makes a master that is not open. src is used only while sessions exist and to compute lags.
func NewMaster(o MasterOptions, src Source) *Master {
	o = o.withDefaults()
	m := &Master{
		o: o, src: src, log: o.Log.With("component", "replication"),
		lobby:    link.NewLobby(o.MaxPending),
		sessions: make(map[*session]struct{}),
		grants:   make(map[wire.Token]*grant),
		offline:  make(map[acks.Key]SlaveStatus),
	}
	m.acks = acks.New(o.MaxSlaves, o.FallBehindMax, func() int64 { return src.Written().Load() })
	m.registerMetrics(o.Meter)
	return m
}

// Run accepts connections on ln until ctx ends (nil) or the listener fails (its error). It closes ln and all sessions and
// returns when their goroutines have.
func (m *Master) Run(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })() // a listener that will not close is of no use to anybody
	m.mu.Lock()
	m.stopped = false
	m.mu.Unlock()
	m.lobby.Open()
	wg.Go(func() { m.housekeep(ctx) })

	err := m.accept(ctx, ln, &wg)
	stopping := ctx.Err() != nil
	cancel()
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.lobby.Close()
	m.Shut(ErrStopped)
	if stopping {
		return nil
	}
	_ = ln.Close() // the error that ended the loop is the one that matters
	return err
}

// accept is RocketMQ's AcceptSocketService. It outlives errors that pass, such as too many open files.
func (m *Master) accept(ctx context.Context, ln net.Listener, wg *sync.WaitGroup) error {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = shortest
			wg.Go(func() { m.greet(conn) })
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end was asked for
		case errors.Is(err, net.ErrClosed):
			return link.ErrBroken.WithMsg("the replication listener was closed").Wrap(err)
		}
		m.log.Warn("accept failed", "error", err, "retry_in", pause)
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, longest)
	}
}

// housekeep does what only time brings about.
func (m *Master) housekeep(ctx context.Context) {
	ticker := time.NewTicker(max(m.o.Housekeeping/20, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := m.o.Now()
		m.acks.Tick(now)
		m.expireGrants(now)
		m.reportStalls(now)
	}
}

// Open begins a reign as master: Acked returns new marks, reports below ownStart (the start of the master's own epoch)
// confirm nothing, plain slaves are served if allowed. The old marks are closed.
func (m *Master) Open(ownStart int64) {
	m.acks.Open(ownStart)
	m.mu.Lock()
	m.open = true
	m.mu.Unlock()
}

// Shut ends the reign and all links: tokens are void, waiters on the marks of Acked get reason, and when it returns no
// session uses the Source any more. Grants made later are served, but confirm nothing until the next Open.
func (m *Master) Shut(reason error) {
	if reason == nil {
		reason = acks.ErrNotOpen
	}
	m.acks.Shut(reason)
	m.mu.Lock()
	m.open = false
	ended := m.drop(func(*session) bool { return true }, func(*grant) bool { return true })
	m.mu.Unlock()
	finish(ended, reason)
}

// Revoke ends the links and grants of one node and returns when they have ended.
func (m *Master) Revoke(nodeID int64, reason error) {
	if reason == nil {
		reason = ErrRevoked
	}
	m.mu.Lock()
	ended := m.drop(func(s *session) bool { return !s.legacy && s.Key.Node == nodeID },
		func(g *grant) bool { return g.NodeID == nodeID })
	m.mu.Unlock()
	finish(ended, reason)
}

// drop takes the chosen grants and the acks of the chosen sessions away and returns these sessions. m.mu is held.
func (m *Master) drop(which func(*session) bool, grants func(*grant) bool) []*session {
	for token, g := range m.grants {
		if grants(g) {
			delete(m.grants, token)
			close(g.gone)
		}
	}
	var ended []*session
	for s := range m.sessions {
		if which(s) {
			m.acks.Leave(&s.Member)
			ended = append(ended, s)
		}
	}
	return ended
}

func finish(sessions []*session, reason error) {
	for _, s := range sessions {
		s.end(reason)
	}
	for _, s := range sessions {
		<-s.gone
	}
}

// Acked returns the mark of the offset that k distinct slaves have confirmed, k from 1. It is closed by Shut and by the next
// Open, which begins a new one, and outside of a reign. For more slaves than there can be it never moves.
func (m *Master) Acked(k int) *watermark.Mark { return m.acks.Acked(k) }

// InSync counts the slaves that report and are less than FallBehindMax behind.
func (m *Master) InSync() int { return m.acks.InSync() }

// InSyncChanged returns a mark that counts the changes of InSync; one that comes from the lag alone is noticed within a
// twentieth of the housekeeping interval.
func (m *Master) InSyncChanged() *watermark.Mark { return m.acks.Changes() }

// CountAt counts the slaves that have confirmed the log up to offset, and those that did so after a flush.
func (m *Master) CountAt(offset int64) (acked, flushed int) { return m.acks.CountAt(offset) }

// BadFirsts and BadReports return how many connections and reports were not accepted.
func (m *Master) BadFirsts() int64 { return sum(&m.count.badFirst) }

// BadReports counts the reports of sessions that were not accepted.
func (m *Master) BadReports() int64 { return sum(&m.count.badReport) }

// invalid is the error of a bad grant.
func invalid(field string, value any, rule string) error {
	return errdefs.Invalid(field, "%s", rule).With(field, value)
}
