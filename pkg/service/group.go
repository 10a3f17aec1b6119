package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// ErrShutdownTimeout says that actors or closes did not end within the budget; the metadata names them.
var ErrShutdownTimeout = errdefs.New(errdefs.DeadlineExceeded, "SHUTDOWN_TIMEOUT", "parts of the service did not stop in time").
	WithRemedy("a restart recovers; raise shutdownTimeout if this comes again")

// Actor is one part of a service that runs as long as the service does. Run returns soon after its context has ended,
// and only when everything that it started has ended.
type Actor struct {
	Name string
	Run  func(ctx context.Context) error
}

// closer is one deferred close.
type closer struct {
	name string
	f    func(cause error) error
}

type runningActor struct {
	Actor
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

// group runs actors and, after them, closes.
type group struct {
	actors []Actor
	budget time.Duration
	log    *slog.Logger
	onStop func() // called once, before the first actor is stopped
}

// run starts the actors in order and waits for the first to return or for ctx to end. Then it stops them in reverse,
// each waited for. It returns the errors of actors, the first that ended first, and ErrShutdownTimeout when the budget
// ran out; left is what remained of the budget.
func (g *group) run(ctx context.Context) (left time.Duration, err error) {
	ended := make(chan *runningActor, len(g.actors))
	all := make([]*runningActor, 0, len(g.actors))
	for _, a := range g.actors {
		actx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &runningActor{Actor: a, cancel: cancel, done: make(chan struct{})}
		all = append(all, r)
		go func() {
			r.err = r.Run(actx)
			close(r.done)
			ended <- r
		}()
	}
	var first *runningActor
	select {
	case first = <-ended:
		if first.err == nil {
			g.log.Info("actor ended, the service stops", slog.String("actor", first.Name))
		}
	case <-ctx.Done():
	}
	g.onStop()
	var errs []error
	if first != nil && first.err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", first.Name, first.err))
	}
	left, stopErrs := g.stop(all, first)
	return left, errors.Join(append(errs, stopErrs...)...)
}

func (g *group) stop(all []*runningActor, first *runningActor) (time.Duration, []error) {
	deadline := time.Now().Add(g.budget)
	timer := time.NewTimer(g.budget)
	defer timer.Stop()
	var errs []error
	var stuck []string
	expired := false
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		r.cancel()
		if !expired {
			select {
			case <-r.done:
			case <-timer.C:
				expired = true
				for _, other := range all[:i] {
					other.cancel()
				}
			}
		}
		select {
		case <-r.done:
			if r != first && r.err != nil && !errors.Is(r.err, context.Canceled) && (first == nil || !sameCause(first.err, r.err)) {
				errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.err))
			}
		default:
			stuck = append(stuck, r.Name)
		}
	}
	if stuck != nil {
		errs = append(errs, ErrShutdownTimeout.With("actors", stuck).With("budget", g.budget))
	}
	return time.Until(deadline), errs
}

// sameCause reports whether err says what first has told already.
func sameCause(first, err error) bool {
	a, b := errdefs.As(first), errdefs.As(err)
	return a != nil && b != nil && a.Error() == b.Error()
}

// closeAll runs closes in reverse within the budget.
func closeAll(closers []closer, budget time.Duration, cause error) error {
	var errs []error
	timer := time.NewTimer(max(budget, 0))
	defer timer.Stop()
	for i := len(closers) - 1; i >= 0; i-- {
		done := make(chan error, 1)
		go func() { done <- closers[i].f(cause) }()
		select {
		case err := <-done:
			if err != nil && !sameCause(cause, err) {
				errs = append(errs, fmt.Errorf("close %s: %w", closers[i].name, err))
			}
		case <-timer.C:
			return errors.Join(append(errs, ErrShutdownTimeout.With("closing", closers[i].name))...)
		}
	}
	return errors.Join(errs...)
}
