package dispatch_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
)

// records is a log handler that keeps warnings and errors.
type records struct {
	mu  sync.Mutex
	all []string
}

func (r *records) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (r *records) WithAttrs([]slog.Attr) slog.Handler           { return r }
func (r *records) WithGroup(string) slog.Handler                { return r }

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, rec.Message)
	return nil
}

func (r *records) count(msg string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, m := range r.all {
		if m == msg {
			n++
		}
	}
	return n
}

func (r *records) quiet(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) > 0 {
		t.Errorf("logged: %q", r.all)
	}
}

func newDispatcherWithLog(t testing.TB, l dispatch.Log, q dispatch.Queues, h slog.Handler) *dispatch.Dispatcher {
	t.Helper()
	d, err := dispatch.New(dispatch.Options{DelayLevels: levels(t), Log: slog.New(h)}, l, q)
	check(t, err)
	return d
}
