package group

import (
	"context"
	"errors"
	"time"

	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/sleep"
)

const (
	// LongestPause bounds the pause between two tries: an election takes a second or two.
	LongestPause = 500 * time.Millisecond
	// MaxHops bounds the changes of the node that are made without a pause.
	MaxHops = 4
	// shortestTry is the time before the end in which another try is not worth it.
	shortestTry = 50 * time.Millisecond
)

// Retry decides when and where an append is tried again. It is not for concurrent use.
type Retry struct {
	set     *Set
	onRetry func(error, time.Duration)
	hops    int
	tries   int
	until   time.Time
}

// NewRetry returns a retry that ends after limit; onRetry is told of each pause and may be nil.
func NewRetry(s *Set, limit time.Duration, onRetry func(error, time.Duration)) *Retry {
	return &Retry{set: s, onRetry: onRetry, until: time.Now().Add(limit)}
}

// Next returns the node for the next try, or the last error. Another node than from is tried at once, the same one, and
// whatever comes after a few hops, only after a pause.
func (r *Retry) Next(ctx context.Context, from *Node, last error) (*Node, error) {
	if addr := Named(last); addr != "" && (from == nil || addr != from.Addr) && r.hops < MaxHops {
		r.hops++
		r.set.Moved(addr)
		return r.set.Get(addr)
	}
	n, err := r.set.FindLeader(ctx)
	if err == nil && (from == nil || n.Addr != from.Addr) && r.hops < MaxHops {
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
		if r.onRetry != nil {
			r.onRetry(last, pause)
		}
		r.set.Reconnect()
		if !sleep.For(ctx, pause) {
			return nil, last
		}
		r.hops = 0
		if n, err = r.set.FindLeader(ctx); err == nil {
			return n, nil
		}
	}
}

// pause returns how long to wait before the next try: shorter as the end comes near, so that the last one is close to it.
func (r *Retry) pause(last error) (time.Duration, bool) {
	left := time.Until(r.until)
	pause := min(nodes.Backoff(r.tries), LongestPause, left/2)
	if e := errdefs.As(last); e != nil {
		pause = max(pause, e.RetryAfter)
	}
	return pause, pause < left && left > shortestTry
}

// saysMore prefers what the search for a leader found over the failure of one node; it speaks of all of them.
func saysMore(call, search error) error {
	switch errdefs.ReasonOf(call) {
	case ErrNotLeader.Reason, ErrNoLeader.Reason, grpcx.ReasonUnreachable:
		return search
	}
	if call == nil || errors.Is(search, nodes.ErrClosed) {
		return search
	}
	return call
}
