package watchdog

import (
	"context"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Dog ends a stream that is silent while an answer is due. It has no goroutine; a timer cancels the context.
type Dog struct {
	ctx    context.Context //nolint:containedctx // asked for its cause only
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// New returns the context of the stream and its watchdog, at rest. stalled is the cause of the context when it bites.
func New(ctx context.Context, limit time.Duration, stalled *errdefs.Error) (context.Context, *Dog) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &Dog{ctx: ctx, cancel: cancel, limit: limit}
	d.timer = time.AfterFunc(limit, func() { cancel(stalled.With("silent_for", limit)) })
	d.timer.Stop()
	return ctx, d
}

// Start gives the other side the limit from now on to speak.
func (d *Dog) Start() { d.timer.Reset(d.limit) }

// Rest says that nothing is due.
func (d *Dog) Rest() { d.timer.Stop() }

// End cancels the stream's context, so that whoever still uses it stops.
func (d *Dog) End() {
	d.timer.Stop()
	d.cancel(nil)
}

// Cause returns the stall where the watchdog is why a call failed, else err.
func (d *Dog) Cause(err error) error {
	if c := context.Cause(d.ctx); err != nil && c != nil && d.ctx.Err() != nil && c != d.ctx.Err() { //nolint:errorlint // told apart by identity
		return c
	}
	return err
}
