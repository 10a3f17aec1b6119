package grpcx

import (
	"context"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"
)

// calls knows which handlers run.
type calls struct {
	mu      sync.Mutex
	running map[string]int // by method
	total   int
	ending  bool
	idle    chan struct{} // closed when ending and nothing runs
}

func newCalls() *calls { return &calls{running: make(map[string]int), idle: make(chan struct{})} }

func (c *calls) begin(method string) {
	c.mu.Lock()
	c.running[method]++
	c.total++
	c.mu.Unlock()
}

func (c *calls) end(method string) {
	c.mu.Lock()
	c.running[method]--
	c.total--
	c.closeWhenIdle()
	c.mu.Unlock()
}

func (c *calls) closeWhenIdle() {
	if c.ending && c.total == 0 {
		select {
		case <-c.idle:
		default:
			close(c.idle)
		}
	}
}

// drained returns a channel that is closed once no handler runs.
func (c *calls) drained() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	c.closeWhenIdle()
	return c.idle
}

func (c *calls) open() (int, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := maps.Clone(c.running)
	maps.DeleteFunc(open, func(_ string, n int) bool { return n == 0 })
	return c.total, slices.Sorted(maps.Keys(open))
}

func (s *Server) trackUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	s.calls.begin(info.FullMethod)
	defer s.calls.end(info.FullMethod)
	return next(ctx, req)
}

// trackStream gives the handler a context that ends with the server. The handler runs beside, as one that waits in Recv
// does not see its context: when the grace is over the stream is ended here, and Recv and Send fail there.
func (s *Server) trackStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(ErrDraining) })()

	s.calls.begin(info.FullMethod)
	done := make(chan error, 1)
	go func() {
		defer s.calls.end(info.FullMethod)
		done <- next(srv, &contextStream{ServerStream: ss, ctx: ctx})
	}()
	select {
	case err := <-done:
		return err
	case <-s.cut:
		return ToStatus(ErrDraining)
	}
}

// contextStream is a stream with another context.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // that is what a ServerStream is
}

func (s *contextStream) Context() context.Context { return s.ctx }
