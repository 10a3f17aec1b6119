package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Tables are the node's own.
type Tables interface {
	Snapshot(k entry.Kind) *table.Table
	// Whole returns nil unless both copies of the table are broken.
	Whole(k entry.Kind) error
}

// Role says whether the node leads: Reign returns an error where it does not.
type Role interface {
	Reign() (epoch int64, over <-chan struct{}, err error)
}

// Options of a Server. Zero values get the defaults that are named.
type Options struct {
	BrokerAddr, HAServerAddr string // as slaves reach this service and the storage's raw port
	// Flushed returns the end of the storage's log that is on its disk; nil: 0, unknown.
	Flushed func(ctx context.Context) (int64, error)

	Idle     time.Duration // longest silence between two frames (120 s)
	Stall    time.Duration // longest time that a frame may take to come, or an answer to go (30 s)
	MaxConns int           // (256)
	MaxFrame int           // largest frame either way, bytes (16 MiB)
	Log      *slog.Logger
	Meter    metric.Meter
}

// Server answers on any number of listeners.
type Server struct {
	o      Options
	tables Tables
	role   Role
	bodies bodies
	m      *metrics

	mu    sync.Mutex // guards the following
	conns map[net.Conn]bool
}

// New makes a server.
func New(o Options, t Tables, r Role) (*Server, error) {
	if o.Idle == 0 {
		o.Idle = 120 * time.Second
	}
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.MaxConns == 0 {
		o.MaxConns = 256
	}
	if o.MaxFrame == 0 {
		o.MaxFrame = frame.DefaultMaxFrame
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, tables: t, role: r, conns: map[net.Conn]bool{}}
	var err error
	s.m, err = newMetrics(o.Meter, s)
	return s, err
}

var errListener = errdefs.New(errdefs.Unavailable, "REMOTING_LISTENER", "the listener was closed")

// Serve answers on the listeners until ctx ends; it closes them, and all connections.
func (s *Server) Serve(ctx context.Context, lns ...net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		for _, ln := range lns {
			_ = ln.Close()
		}
		s.closeAll()
	})
	defer stop()
	var all sync.WaitGroup
	errs := make(chan error, len(lns))
	for _, ln := range lns {
		all.Go(func() {
			defer cancel()
			errs <- s.accept(ctx, ln, &all)
		})
	}
	all.Wait()
	close(errs)
	var out []error
	for err := range errs {
		out = append(out, err)
	}
	return errors.Join(out...)
}

// accept outlives errors that pass, such as too many open files.
func (s *Server) accept(ctx context.Context, ln net.Listener, all *sync.WaitGroup) error {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = shortest
			if s.admit(ctx, conn) {
				all.Go(func() { s.serve(ctx, conn) })
			}
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end was asked for
		case errors.Is(err, net.ErrClosed):
			return errListener.Wrap(err)
		}
		s.o.Log.WarnContext(ctx, "accept failed", slog.Any("error", err), slog.Duration("retry_in", pause))
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)): //nolint:gosec // spread, not secret
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, longest)
	}
}

// admit takes a connection if there is room.
func (s *Server) admit(ctx context.Context, conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.o.MaxConns || ctx.Err() != nil {
		if ctx.Err() == nil {
			s.m.closed(reasonTooMany)
		}
		_ = conn.Close() // nothing was said
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// Connections is the number of connections now.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// serve answers on one connection until it ends.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
	}()
	in := bufio.NewReaderSize(conn, 1024)
	for {
		err := s.one(ctx, conn, in)
		if err == nil {
			continue
		}
		why := errdefs.ReasonOf(err)
		if ctx.Err() != nil || why == "" { // its peer has closed it, between two frames
			return
		}
		s.m.closed(why)
		s.o.Log.DebugContext(ctx, "remoting connection closed", slog.String("peer", conn.RemoteAddr().String()), slog.Any("error", err))
		return
	}
}

var (
	errIdle  = errdefs.New(errdefs.DeadlineExceeded, "IDLE", "nothing came for a while")
	errStall = errdefs.New(errdefs.DeadlineExceeded, "STALLED", "a frame did not come to its end, or an answer was not taken")
	errCut   = errdefs.New(errdefs.Unavailable, "CUT", "the connection ended in the middle of a frame")
)

// one reads a frame and answers it.
func (s *Server) one(ctx context.Context, conn net.Conn, in *bufio.Reader) error {
	if err := conn.SetDeadline(time.Now().Add(s.o.Idle)); err != nil {
		return err
	}
	if _, err := in.Peek(1); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errIdle
		}
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(s.o.Stall)); err != nil {
		return err
	}
	req, size, err := remoting.ReadHeader(in, s.o.MaxFrame)
	if err == nil {
		_, err = io.CopyN(io.Discard, in, int64(size))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errStall
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	case err != nil:
		return err
	}
	s.m.asked(req)
	if req.Response() || req.OneWay() {
		return nil
	}
	resp, body := s.answer(ctx, req)
	s.m.answered(req, resp)
	if err := conn.SetDeadline(time.Now().Add(s.o.Stall)); err != nil {
		return err
	}
	head := frame.Append(nil, resp, len(body))
	_, err = (&net.Buffers{head, body}).WriteTo(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errStall
	}
	return err
}
