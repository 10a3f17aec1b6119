package attempt

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
	// longestPause bounds the pause between two tries: a put has seconds, and a node that is back is to be found in one.
	longestPause = 500 * time.Millisecond
	// shortestTry is the time before the end in which another try is not worth it.
	shortestTry = 50 * time.Millisecond
)

// maxHops bounds the NOT_MASTER answers that one put follows without a pause.
const maxHops = 4

// Retry decides when and where a put is tried again. It is not for concurrent use.
type Retry struct {
	set     *nodes.Set
	onRetry func(error, time.Duration)
	hops    int
	tries   int
	until   time.Time
}

// NewRetry returns a retry that ends after limit; onRetry is told of each pause and may be nil.
func NewRetry(set *nodes.Set, limit time.Duration, onRetry func(err error, pause time.Duration)) *Retry {
	return &Retry{set: set, onRetry: onRetry, until: time.Now().Add(limit)}
}

// Next returns the node for the next try, or the last error. Another node than from is tried at once, the same one, and
// whatever comes after a few hops, only after a pause.
func (r *Retry) Next(ctx context.Context, from *nodes.Node, last error) (*nodes.Node, error) {
	if addr := masterOf(last); addr != "" && (from == nil || addr != from.Addr) && r.hops < maxHops {
		r.hops++
		r.set.Moved(addr)
		return r.set.Get(addr)
	}
	n, err := r.set.FindMaster(ctx)
	if err == nil && (from == nil || n.Addr != from.Addr) && r.hops < maxHops {
		r.hops++
		return n, nil
	}
	for ; ; r.tries++ {
		if err != nil && ctx.Err() == nil {
			last = lastOf(last, err)
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
		if n, err = r.set.FindMaster(ctx); err == nil {
			return n, nil
		}
	}
}

// pause returns how long to wait before the next try: shorter as the end comes near, so that the last one is close to it.
func (r *Retry) pause(last error) (time.Duration, bool) {
	left := time.Until(r.until)
	pause := min(nodes.Backoff(r.tries), longestPause, left/2)
	if e := errdefs.As(last); e != nil {
		pause = max(pause, e.RetryAfter)
	}
	return pause, pause < left && left > shortestTry
}

// lastOf prefers what the search for a master found over a bare failure to connect; it says it of every node.
func lastOf(call, search error) error {
	if errdefs.ReasonOf(call) == ReasonNotMaster || errors.Is(call, nodes.ErrNoMaster) || errdefs.ReasonOf(call) == grpcx.ReasonUnreachable || errors.Is(search, nodes.ErrClosed) {
		return search
	}
	return call
}
