package main

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

var errNet = errdefs.New(errdefs.Unavailable, "UNREACHABLE", "the network of the test")

// simNet carries calls between the nodes of a world; it loses, delays, breaks off and repeats.
type simNet struct {
	w *world

	mu      sync.Mutex
	calm    bool
	cut     [3][3]bool
	streams map[*simStream]bool
	old     map[simKey][]*simAnswer // earlier answers
}

type simKey struct {
	to   int
	kind configsyncv1.Kind
}

// simAnswer is one as far as it came.
type simAnswer struct{ parts []*configsyncv1.FetchResponse }

// simStream is one that is open.
type simStream struct {
	from, to int
	cancel   context.CancelCauseFunc
}

// sever ends the streams that dead says so of.
func (n *simNet) sever(dead func(from, to int) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.streams {
		if dead(s.from, s.to) {
			s.cancel(errNet)
		}
	}
}

func (n *simNet) setCalm(calm bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calm = calm
}

// chance is true once in so many, and never in calm.
func (n *simNet) chance(in int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.calm && n.w.dice(in) == 0
}

// pass waits as long as a message takes; an error: it is lost.
func (n *simNet) pass(ctx context.Context, from, to int) error {
	t := time.NewTimer(time.Duration(n.w.dice(20)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	n.mu.Lock()
	cut := n.cut[from][to]
	n.mu.Unlock()
	if cut || !n.w.nodes[from].alive() || !n.w.nodes[to].alive() || n.chance(25) {
		return errNet
	}
	return nil
}

// simClient is how node from sees node to.
type simClient struct {
	net      *simNet
	from, to int
}

func (c *simClient) Check(ctx context.Context, req *configsyncv1.CheckRequest, _ ...grpc.CallOption) (*configsyncv1.CheckResponse, error) {
	if err := c.net.pass(ctx, c.from, c.to); err != nil {
		return nil, err
	}
	service := c.net.w.nodes[c.to].parts()
	if service == nil {
		return nil, errNet
	}
	resp, err := service.sync.Check(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.GetCaller().GetOpening() {
		c.net.w.told(c.net.w.nodes[c.to], service, req.GetCaller().GetEpoch(), answeredTopics(req, resp))
	}
	return resp, c.net.pass(ctx, c.to, c.from)
}

// answeredTopics is the version of the topics in an answer.
func answeredTopics(req *configsyncv1.CheckRequest, resp *configsyncv1.CheckResponse) entry.Version {
	for i, k := range resp.GetKinds() {
		switch {
		case k.GetKind() != configsyncv1.Kind_KIND_TOPICS:
		case k.GetResult() == configsyncv1.CheckResult_CHECK_RESULT_UNCHANGED:
			return wire.VersionOf(req.GetVersions()[i].GetDataVersion())
		default:
			return wire.VersionOf(k.GetVersion().GetDataVersion())
		}
	}
	return entry.Version{}
}

func (c *simClient) Fetch(ctx context.Context, req *configsyncv1.FetchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[configsyncv1.FetchResponse], error) {
	key := simKey{c.to, req.GetKind()}
	if c.net.chance(10) { // an answer of before comes again
		var parts []*configsyncv1.FetchResponse
		c.net.mu.Lock()
		if old := c.net.old[key]; len(old) > 0 {
			parts = old[c.net.w.dice(len(old))].parts
		}
		c.net.mu.Unlock()
		return &simReceiver[configsyncv1.FetchResponse]{next: func() (*configsyncv1.FetchResponse, error) {
			if len(parts) == 0 {
				return nil, io.EOF
			}
			p := parts[0]
			parts = parts[1:]
			return p, nil
		}}, nil
	}
	answer := &simAnswer{}
	r, err := open(ctx, c, func(n *simParts, s grpc.ServerStreamingServer[configsyncv1.FetchResponse]) error {
		return n.sync.Fetch(req, s)
	})
	if err != nil {
		return nil, err
	}
	next := r.next
	r.next = func() (*configsyncv1.FetchResponse, error) {
		p, err := next()
		if err == nil {
			c.net.mu.Lock()
			answer.parts = append(answer.parts, p)
			if len(answer.parts) == 1 {
				c.net.old[key] = append(c.net.old[key], answer)
			}
			c.net.mu.Unlock()
		}
		return p, err
	}
	return r, nil
}

func (c *simClient) Watch(ctx context.Context, req *configsyncv1.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[configsyncv1.WatchResponse], error) {
	return open(ctx, c, func(n *simParts, s grpc.ServerStreamingServer[configsyncv1.WatchResponse]) error {
		return n.sync.Watch(req, s)
	})
}

// open runs a handler of the other node behind a stream.
func open[T any](ctx context.Context, c *simClient, handler func(*simParts, grpc.ServerStreamingServer[T]) error) (*simReceiver[T], error) {
	if err := c.net.pass(ctx, c.from, c.to); err != nil {
		return nil, err
	}
	service := c.net.w.nodes[c.to].parts()
	if service == nil {
		return nil, errNet
	}
	ctx, cancel := context.WithCancelCause(ctx)
	st := &simStream{c.from, c.to, cancel}
	c.net.mu.Lock()
	c.net.streams[st] = true
	c.net.mu.Unlock()
	out := make(chan *T)
	var err error
	go func() {
		defer close(out)
		err = handler(service, &simSender[T]{ctx: ctx, out: out})
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		delete(c.net.streams, st)
	}()
	return &simReceiver[T]{next: func() (*T, error) {
		if c.net.chance(30) {
			cancel(errNet) // it breaks off here
		}
		select {
		case m, ok := <-out:
			switch {
			case context.Cause(ctx) != nil:
				return nil, context.Cause(ctx)
			case ok:
				return m, nil
			case err != nil:
				return nil, err
			}
			return nil, io.EOF
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}, nil
}

// simSender is the server's side of a stream.
type simSender[T any] struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // the stream's own
	out chan<- *T
}

func (s *simSender[T]) Context() context.Context { return s.ctx }

func (s *simSender[T]) Send(m *T) error {
	select {
	case s.out <- m:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// simReceiver is the client's side.
type simReceiver[T any] struct {
	grpc.ClientStream
	next func() (*T, error)
}

func (r *simReceiver[T]) Recv() (*T, error) { return r.next() }
