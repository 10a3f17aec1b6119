package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type trail struct {
	mu    sync.Mutex
	steps []string
}

func (l *trail) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, s)
}

func (l *trail) actor(name string, stop time.Duration, result error) Actor {
	return Actor{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		<-time.After(stop) // the bubble's clock
		l.add(name)
		return result
	}}
}

func newGroup(actors ...Actor) *group {
	return &group{actors: actors, budget: 10 * time.Second, log: slog.New(slog.DiscardHandler), onStop: func() {}}
}

func TestActorsStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l trail
		g := newGroup(l.actor("disk", 0, nil), l.actor("wire", 3*time.Second, context.Canceled), l.actor("rpc", 2*time.Second, nil))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		left, err := g.run(ctx)
		if err != nil || !slices.Equal(l.steps, []string{"rpc", "wire", "disk"}) {
			t.Errorf("got %v, %v", l.steps, err)
		}
		if took := time.Since(began); took != 6*time.Second || left != 5*time.Second {
			t.Errorf("took %v, left %v", took, left)
		}
	})
}

func TestFirstErrorStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l trail
		broken := errors.New("fsync failed")
		g := newGroup(l.actor("disk", 0, errors.New("close failed")),
			Actor{Name: "flusher", Run: func(context.Context) error { return broken }}, l.actor("rpc", 0, nil))
		_, err := g.run(t.Context())
		if !errors.Is(err, broken) || err.Error() != "flusher: fsync failed\ndisk: close failed" {
			t.Errorf("got %v", err)
		}
		if !slices.Equal(l.steps, []string{"rpc", "disk"}) {
			t.Errorf("got %v", l.steps)
		}
	})
}

func TestActorThatReturnsNilStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l trail
		g := newGroup(l.actor("disk", 0, nil), Actor{Name: "job", Run: func(context.Context) error { return nil }})
		if _, err := g.run(t.Context()); err != nil || !slices.Equal(l.steps, []string{"disk"}) {
			t.Errorf("got %v, %v", l.steps, err)
		}
	})
}

func TestBudgetNamesWhoDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l trail
		g := newGroup(l.actor("disk", 0, nil), l.actor("stuck", time.Hour, nil), l.actor("rpc", time.Second, nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		_, err := g.run(ctx)
		if !errors.Is(err, ErrShutdownTimeout) || !strings.Contains(err.Error(), "stuck") || strings.Contains(err.Error(), "rpc") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		<-time.After(2 * time.Hour) // lets the stuck one out of the bubble
	})
}

func TestClosesRunInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l trail
		cause := errors.New("cause")
		c := func(name string, d time.Duration, err error) closer {
			return closer{name, func(got error) error {
				<-time.After(d)
				if !errors.Is(got, cause) {
					t.Errorf("%s: cause %v", name, got)
				}
				l.add(name)
				return err
			}}
		}
		err := closeAll([]closer{c("lock", 0, nil), c("log", time.Second, errors.New("bad"))}, 5*time.Second, cause)
		if err == nil || err.Error() != "close log: bad" || !slices.Equal(l.steps, []string{"log", "lock"}) {
			t.Errorf("got %v, %v", l.steps, err)
		}
		err = closeAll([]closer{c("lock", 0, nil), c("slow", time.Minute, nil)}, 5*time.Second, cause)
		if !errors.Is(err, ErrShutdownTimeout) || !strings.Contains(err.Error(), "slow") {
			t.Errorf("got %v", err)
		}
		<-time.After(time.Hour)
		l.mu.Lock()
		defer l.mu.Unlock()
		if !slices.Equal(l.steps, []string{"log", "lock", "slow"}) {
			t.Errorf("what is below a close that hangs was closed: %v", l.steps)
		}
	})
}
