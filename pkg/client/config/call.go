package config

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/sleep"
)

const (
	// longestPause bounds the pause between two tries.
	longestPause = 500 * time.Millisecond
	// shortestTry is the time before the end in which another try is not worth it.
	shortestTry = 50 * time.Millisecond
	// maxHops bounds the changes of the node that are made without a pause.
	maxHops = 4
)

// call is one try of a call on a node.
type call func(ctx context.Context, n *node, o ...grpc.CallOption) error

// change makes a change on the master. again says that it may be sent twice without harm.
func (c *Client) change(ctx context.Context, again bool, f call) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r := c.newRetry(ctx)
	n, err := c.set.known(ctx)
	if err != nil {
		n, err = r.next(ctx, nil, err)
	}
	maybe := false
	for err == nil {
		var to peer.Peer
		err = c.try(ctx, again, func(ctx context.Context) error { return f(ctx, n, grpc.Peer(&to)) })
		if err == nil {
			c.set.moved(n.addr)
			return nil
		}
		err = nodes.Explain(err, n.addr)
		verdict := attempt.Judge(err, attempt.HasLeft(&to))
		maybe = maybe || verdict == attempt.Unknown
		timedOut := again && ctx.Err() == nil && errdefs.ClassOf(err) == errdefs.DeadlineExceeded // of this try only
		if verdict == attempt.NotStored && !timedOut || verdict == attempt.Unknown && !again {
			break
		}
		n, err = r.next(ctx, n, err)
	}
	if maybe && !again {
		return ErrOutcomeUnknown.Wrap(err)
	}
	return err
}

// try bounds one try where there may be another.
func (c *Client) try(ctx context.Context, again bool, f func(context.Context) error) error {
	if !again {
		return f(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.TryTimeout)
	defer cancel()
	return f(ctx)
}

// read asks the master, where there is one, and then one address after the other until one answers, be it with an error of its own.
func (c *Client) read(ctx context.Context, f call) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var all error
	asked := ""
	if !c.o.Local {
		n, err := c.set.known(ctx)
		if err == nil {
			asked = n.addr
			if err = c.ask(ctx, n, f); !elsewhere(err) {
				return err
			}
			c.set.moved("")
		}
		all = err
	}
	for _, addr := range c.set.addresses {
		if addr == asked {
			continue
		}
		n, err := c.set.get(addr)
		if err == nil {
			if err = c.ask(ctx, n, f); !elsewhere(err) {
				return err
			}
		}
		if asked != "" || c.o.Local { // else the search for a master has said it of all
			all = nodes.Join(all, err)
		}
	}
	return all
}

func (c *Client) ask(ctx context.Context, n *node, f call) error {
	return nodes.Explain(c.try(ctx, true, func(ctx context.Context) error { return f(ctx, n) }), n.addr)
}

// elsewhere reports whether another node may do better.
func elsewhere(err error) bool {
	class := errdefs.ClassOf(err)
	return err != nil && (nodes.Stranger(err) || class == errdefs.Unavailable || class == errdefs.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded))
}

// retry decides when and where a change is tried again. It is not for concurrent use.
type retry struct {
	c     *Client
	hops  int
	tries int
	until time.Time
}

func (c *Client) newRetry(ctx context.Context) *retry {
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(c.o.Timeout)
	}
	return &retry{c: c, until: until}
}

// next returns the node for the next try, or the last error. Another node than from is tried at once, the same one, and whatever
// comes after a few hops, only after a pause.
func (r *retry) next(ctx context.Context, from *node, last error) (*node, error) {
	if addr := named(last); addr != "" && (from == nil || addr != from.addr) && r.hops < maxHops {
		r.hops++
		r.c.set.moved(addr)
		return r.c.set.get(addr)
	}
	n, err := r.c.set.find(ctx)
	if err == nil && (from == nil || n.addr != from.addr) && r.hops < maxHops {
		r.hops++
		return n, nil
	}
	for ; ; r.tries++ {
		if err != nil && ctx.Err() == nil {
			last = saysMore(last, err)
		}
		if nodes.Stranger(err) { // at every address: nothing that time mends
			return nil, last
		}
		pause, ok := r.pause(last)
		if !ok || errors.Is(err, nodes.ErrClosed) {
			return nil, last
		}
		if r.c.o.OnRetry != nil {
			r.c.o.OnRetry(last, pause)
		}
		r.c.set.reconnect()
		if !sleep.For(ctx, pause) {
			return nil, last
		}
		r.hops = 0
		if n, err = r.c.set.find(ctx); err == nil {
			return n, nil
		}
	}
}

// pause returns how long to wait before the next try: shorter as the end comes near, so that the last one is close to it.
func (r *retry) pause(last error) (time.Duration, bool) {
	left := time.Until(r.until)
	pause := min(nodes.Backoff(r.tries), longestPause, left/2)
	if e := errdefs.As(last); e != nil {
		pause = max(pause, e.RetryAfter)
	}
	return pause, pause < left && left > shortestTry
}

// saysMore prefers what the search for a master found over the failure of one node; it speaks of all of them.
func saysMore(failure, search error) error {
	switch errdefs.ReasonOf(failure) {
	case attempt.ReasonNotMaster, ErrNoMaster.Reason, grpcx.ReasonUnreachable:
		return search
	}
	if failure == nil || errors.Is(search, nodes.ErrClosed) {
		return search
	}
	return failure
}
