package topics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/topics"
	"github.com/tandemlog/tandem/services/storage/internal/topics/topicstest"
)

// puts looks up the topic n times at once and returns the errors.
func (r *rig) puts(name string, n int) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if queues, err := r.WriteQueues(r.t.Context(), name); err == nil && queues != 5 {
				errs[i] = fmt.Errorf("%d queues", queues)
			} else {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errs
}

// TestCreatesOnce: however many puts are the first ones, a topic is created once, with the default number of queues.
func TestCreatesOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		if err := errors.Join(r.puts("new", 100)...); err != nil {
			t.Error(err)
		}
		if n := r.fake.Creates("new"); n != 1 {
			t.Errorf("%d creations", n)
		}
		if c, _ := r.fake.Topic("new"); c.ReadQueues != 5 || c.WriteQueues != 5 || c.Perm != 6 {
			t.Errorf("%+v", c)
		}
		r.fake.Delete("new")
		synctest.Wait()
		r.wantQueues("new", 5)
		if n := r.fake.Creates("new"); n != 2 {
			t.Errorf("%d creations", n)
		}
	})
}

// TestCreateIsForTheMaster: neither a slave nor a storage that is not to create topics asks for one.
func TestCreateIsForTheMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		r.mayNot = errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "no")
		if _, err := r.WriteQueues(t.Context(), "new"); !errors.Is(err, r.mayNot) {
			t.Error(err)
		}
		off := newRig(t, true, func(o *topics.Options) { o.AutoCreate = false })
		_, err := off.WriteQueues(t.Context(), "new")
		wantRefused(t, "a new topic", err, topics.ErrNotFound)
		if e := errdefs.As(err); e.Class != errdefs.NotFound || !strings.Contains(e.Remedy, "tandemctl topic create new") {
			t.Errorf("%v", err)
		}
		if n := r.fake.Creates("new") + off.fake.Creates("new"); n != 0 {
			t.Errorf("%d creations", n)
		}
	})
}

// TestCreatesAreBounded: more topics at once than there is room for are refused, and cost the configsync nothing.
func TestCreatesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		hold := make(chan struct{})
		r.fake.OnCreate(func(context.Context, string) error {
			<-hold
			return nil
		})
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() { r.wantQueues(fmt.Sprint("new", i), 5) })
		}
		synctest.Wait()
		_, err := r.WriteQueues(t.Context(), "more")
		wantRefused(t, "one too many", err, topics.ErrCreations)
		if r.fake.Creates("more") != 0 || errdefs.As(err).RetryAfter == 0 {
			t.Errorf("%v", err)
		}
		close(hold)
		all.Wait()
		r.wantQueues("more", 5)
	})
}

// TestCreateFindsTheMaster: the one that the own configsync names is asked, and one that is about to lead is asked again.
func TestCreateFindsTheMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		master := topicstest.New()
		r.serve(other, master)
		r.fake.OnCreate(func(context.Context, string) error {
			return errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "no").With("master", other)
		})
		opening := 2
		master.OnCreate(func(_ context.Context, name string) error {
			if opening--; opening >= 0 {
				return errdefs.New(errdefs.Unavailable, "OPENING", "soon")
			}
			r.fake.Set(topic(name, 5, 5, 6)) // it follows
			return nil
		})
		r.wantQueues("new", 5)
		if n := master.Creates("new"); n != 3 {
			t.Errorf("the master was asked %d times", n)
		}
	})
}

// TestCreateIsAnsweredTwice: a topic that is in the table before the view shows it is waited for.
func TestCreateIsAnsweredTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		r.fake.OnCreate(func(context.Context, string) error {
			time.AfterFunc(time.Second, func() { r.fake.Set(topic("new", 7, 7, 6)) })
			return errdefs.New(errdefs.AlreadyExists, "ENTRY_EXISTS", "it is there")
		})
		began := time.Now()
		r.wantQueues("new", 7)
		if d := time.Since(began); d != time.Second || r.fake.Creates("new") != 1 {
			t.Errorf("after %v and %d requests", d, r.fake.Creates("new"))
		}
	})
}

// TestCreateRefused: what the configsync says for good is not asked again, and what the view does not show in time is not used.
func TestCreateRefused(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		want   *errdefs.Error
		after  time.Duration
	}{
		"a queue count that it does not take": {errdefs.Invalid("topic.write_queues", "5 queues"), topics.ErrRefused, 0},
		"a broken table":                      {errdefs.New(errdefs.DataLoss, "TABLE_BROKEN", "no"), topics.ErrNotCreated, 0},
		"a full disk for ever":                {errdefs.New(errdefs.ResourceExhausted, "DISK_FULL", "no"), topics.ErrNotCreated, 5 * time.Second},
		"no view of it":                       {errdefs.New(errdefs.AlreadyExists, "ENTRY_EXISTS", "it is there"), topics.ErrNotCreated, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, true, nil)
				r.fake.OnCreate(func(context.Context, string) error { return c.answer })
				began := time.Now()
				for _, err := range r.puts("new", 3) {
					wantRefused(t, name, err, c.want)
					if e := errdefs.As(err); e == nil || e.Cause == nil {
						t.Errorf("no cause: %v", err)
					}
				}
				if d := time.Since(began); d != c.after {
					t.Errorf("after %v, want %v", d, c.after)
				}
			})
		})
	}
}

// TestCreatorGoes: a caller that goes away takes the others' topic not with it.
func TestCreatorGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		first := true
		r.fake.OnCreate(func(ctx context.Context, _ string) error {
			if first {
				first = false
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := r.WriteQueues(ctx, "new")
			gone <- err
		}()
		synctest.Wait()
		rest := make(chan []error, 1)
		go func() { rest <- r.puts("new", 10) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := errors.Join(<-rest...); err != nil {
			t.Error(err)
		}
		if n := r.fake.Creates("new"); n != 2 {
			t.Errorf("%d creations", n)
		}
	})
}
