package replication

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// Sink is the log that a slave appends to. While Stream runs nobody else appends to it.
type Sink interface {
	// AppendRaw appends bodies at offset, which must be End; they are not kept. What it returns nil for may be lost only
	// with the machine, until it is flushed.
	AppendRaw(offset int64, bodies [][]byte) (n int, err error)
	// End returns the log's end.
	End() int64
	// Report returns the mark of what the slave may confirm: Written, or Flushed where it flushes synchronously.
	Report() *watermark.Mark
}

// SlaveOptions configure a Slave. Zero values mean the defaults.
type SlaveOptions struct {
	// Heartbeat is the longest pause between reports (haSendHeartbeatInterval, 5 s).
	Heartbeat time.Duration
	// Housekeeping is the longest silence of the upstream (haHousekeepingInterval, 20 s).
	Housekeeping time.Duration
	// DialTimeout bounds the connecting (5 s).
	DialTimeout time.Duration
	// ReadBuffer is the size of the one buffer, bytes (1 MiB).
	ReadBuffer int
	// MaxFrame is the largest body that is taken where nothing else was agreed (4 MiB - 12).
	MaxFrame int
	// Congestion names the kernel's congestion control for the link; empty: the system's.
	Congestion string
	// Dial replaces the dialer, for tests.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Log   *slog.Logger
	Meter metric.Meter
}

func (o SlaveOptions) withDefaults() SlaveOptions {
	o.Heartbeat = cmp.Or(o.Heartbeat, 5*time.Second)
	o.Housekeeping = cmp.Or(o.Housekeeping, 20*time.Second)
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.ReadBuffer = max(cmp.Or(o.ReadBuffer, 1<<20), 2*wire.HeaderSize)
	o.MaxFrame = min(cmp.Or(o.MaxFrame, wire.MaxBody), wire.MaxBody)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// StreamArgs say what one stream is.
type StreamArgs struct {
	// Addr is the upstream's raw port, host:port.
	Addr string
	// Token opens the preamble; nil: the master is RocketMQ's.
	Token *[wire.TokenSize]byte
	// Frame is the largest body that was granted; 0: SlaveOptions.MaxFrame.
	Frame int
	// EmptyReport is what a slave with an empty log reports to a RocketMQ master: 0 or 1. RocketMQ answers 0 with its newest
	// file only and 1 with everything from byte 1; byte 0 of a log is always 00 and is put there by the slave.
	EmptyReport int64
}

// LinkStatus is the link as the slave sees it.
type LinkStatus struct {
	Address       string
	Connected     bool
	ConnectedAt   time.Time
	LastReceive   time.Time // last bytes
	LastHeartbeat time.Time // last heartbeat: then the slave had all that the upstream had
	Received      int64     // bytes of the log since the start of the process
	Connects      int64     // links that came about
	Err           error     // why the last link ended, nil while one is there
	Reason        string    // of Err
	Remedy        string
}

// Slave receives the log: RocketMQ's HAClient without its loop of reconnects.
type Slave struct {
	o     SlaveOptions
	sink  Sink
	log   *slog.Logger
	count link.Counters

	connects      atomic.Int64
	lastReceive   atomic.Int64 // ns since 1970, 0: never
	lastHeartbeat atomic.Int64

	mu     sync.Mutex
	status LinkStatus
	ends   map[string]int64
}

// NewSlave makes a slave that is not connected.
func NewSlave(o SlaveOptions, sink Sink) *Slave {
	o = o.withDefaults()
	s := &Slave{o: o, sink: sink, log: o.Log.With("component", "replication"), ends: make(map[string]int64)}
	s.registerMetrics(o.Meter)
	return s
}

// Status returns the state of the link.
func (s *Slave) Status() LinkStatus {
	s.mu.Lock()
	st := s.status
	s.mu.Unlock()
	st.LastReceive, st.LastHeartbeat = unixNano(s.lastReceive.Load()), unixNano(s.lastHeartbeat.Load())
	st.Received, st.Connects = s.count.Bytes.Load(), s.connects.Load()
	st.Reason, st.Remedy = explain(st.Err)
	return st
}

func unixNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// Stream connects and receives until the link ends, and returns why: ErrConnect, link.ErrPeerClosed, link.ErrBroken, link.ErrSilent,
// link.ErrStuck, ErrFrameSize, ErrFrameOffset, ErrAppend (with its cause), link.ErrLogClosed, or ctx's error; never nil. What was received is
// appended. One Stream at a time.
func (s *Slave) Stream(ctx context.Context, a StreamArgs) error {
	if a.EmptyReport != 0 && a.EmptyReport != 1 {
		return invalid("emptyReport", a.EmptyReport, "only 0 and 1 mean something to a RocketMQ master")
	}
	s.set(func(st *LinkStatus) { st.Address = a.Addr })
	err := s.stream(ctx, a)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	reason, _ := explain(err)
	s.set(func(st *LinkStatus) {
		st.Connected, st.Err = false, err
		s.ends[reason]++
	})
	return err
}

func (s *Slave) set(f func(*LinkStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.status)
}

func (s *Slave) stream(ctx context.Context, a StreamArgs) error {
	// The first report is an acknowledgement too: with sync flush it waits for the flush.
	mark, end := s.sink.Report(), s.sink.End()
	if err := mark.Wait(ctx, end); err != nil {
		return link.ErrLogClosed.Wrap(err)
	}
	conn, err := s.dial(ctx, a.Addr)
	if err != nil {
		return err
	}
	up := newUpstream(s, conn, mark, end, a)
	defer context.AfterFunc(ctx, func() { up.end(ctx.Err()) })()
	if err := up.out.Open(a.Token); err != nil {
		up.end(err)
		return err
	}
	s.connects.Add(1)
	s.set(func(st *LinkStatus) { st.Connected, st.ConnectedAt, st.Err = true, time.Now(), nil })

	var wg sync.WaitGroup
	wg.Go(up.confirm)
	up.end(up.receive())
	wg.Wait()
	return up.err
}

func (s *Slave) dial(ctx context.Context, addr string) (net.Conn, error) {
	dctx, cancel := context.WithTimeout(ctx, s.o.DialTimeout)
	defer cancel()
	conn, err := s.o.Dial(dctx, "tcp", addr)
	if err != nil {
		return nil, connectError(addr, err)
	}
	if err := link.Tune(conn, s.o.Congestion); err != nil {
		s.log.Warn("congestion control not set", "name", s.o.Congestion, "error", err)
	}
	return link.Take(conn), nil
}
