package feed

import (
	"context"
	"errors"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Pace of the answers: not closer than gapLeast, and at least every gapMost when something is new. An answer wakes half a dozen
// goroutines on both sides and a burst of dispatch on the slave: every 5 ms that was seen in the puts' 99th percentile and took a
// quarter of the rate with four slaves; every 20 ms the bursts are so long that they are seen.
const (
	gapLeast = 10 * time.Millisecond
	gapMost  = time.Second
)

// Log is the log that the slave follows. A cut closes Readable and makes a new one.
type Log interface {
	Readable() *watermark.Mark
	End() int64
	FirstOffset() int64
}

// Tell sends Readable and the end as they grow, and at last, where ctx ends with a reason of this node, that reason. last is the
// first answer. send is called from this goroutine only.
func Tell(ctx context.Context, log Log, last epoch.FollowAnswer, send func(epoch.FollowAnswer) error) error {
	gap := time.NewTimer(0)
	defer gap.Stop()
	for {
		select {
		case <-gap.C:
		case <-ctx.Done():
			return farewell(ctx, log, send)
		}
		err := log.Readable().WaitUntil(ctx, last.Readable+1, time.Now().Add(gapMost))
		if ctx.Err() != nil {
			return farewell(ctx, log, send)
		}
		gap.Reset(gapLeast)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			gap.Reset(gapMost) // the mark was closed: a cut, which ends this link, or a fault of the log
			continue
		}
		now := epoch.FollowAnswer{
			Action: epoch.ActionProgress, Readable: log.Readable().Load(), End: log.End(), First: log.FirstOffset(),
			OpenMaster: last.OpenMaster,
		}
		if now.Readable == last.Readable && now.End == last.End {
			continue
		}
		if err := send(now); err != nil {
			return err
		}
		last = now
	}
}

// farewell sends the revocation where the reason is this node's.
func farewell(ctx context.Context, log Log, send func(epoch.FollowAnswer) error) error {
	cause := context.Cause(ctx)
	if errdefs.As(cause) == nil {
		return cause // the slave has gone
	}
	return send(epoch.FollowAnswer{
		Action: epoch.ActionRevoke, Reason: errdefs.ReasonOf(cause), Remedy: "none is needed: the slave asks again",
		Readable: log.Readable().Load(), End: log.End(),
	})
}

// Follower is a slave's log: what it has, and what its readers may see.
type Follower interface {
	Written() *watermark.Mark
	SetReadable(offset int64)
}

// Apply raises what a slave's readers may see to what the upstream has told, as far as the log reaches, until ctx ends or learned is
// at its end, which is "all".
func Apply(ctx context.Context, log Follower, learned *watermark.Mark) {
	written := log.Written()
	for {
		l, w := learned.Load(), written.Load()
		log.SetReadable(min(l, w))
		mark, at := learned, l
		if w < l {
			mark, at = written, w
		}
		if at == watermark.Max || mark.Wait(ctx, at+1) != nil {
			return
		}
	}
}
