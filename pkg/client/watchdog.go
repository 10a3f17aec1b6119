package client

import (
	"context"
	"time"
)

// watchdog ends a stream that is silent while an answer is due. It has no goroutine; a timer cancels the context.
type watchdog struct {
	ctx    context.Context //nolint:containedctx // asked for its cause only
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// newWatchdog returns the context of the stream and its watchdog, at rest.
func newWatchdog(ctx context.Context, limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &watchdog{ctx: ctx, cancel: cancel, limit: limit}
	d.timer = time.AfterFunc(limit, func() { cancel(ErrStalled.With("silent_for", limit)) })
	d.timer.Stop()
	return ctx, d
}

// start gives the other side the limit from now on to speak.
func (d *watchdog) start() { d.timer.Reset(d.limit) }

// rest says that nothing is due.
func (d *watchdog) rest() { d.timer.Stop() }

// end cancels the stream's context, so that whoever still uses it stops.
func (d *watchdog) end() {
	d.timer.Stop()
	d.cancel(nil)
}

// cause returns ErrStalled where the watchdog is why a call failed, else err.
func (d *watchdog) cause(err error) error {
	if c := context.Cause(d.ctx); err != nil && c != nil && d.ctx.Err() != nil && c != d.ctx.Err() { //nolint:errorlint // told apart by identity
		return c
	}
	return err
}
