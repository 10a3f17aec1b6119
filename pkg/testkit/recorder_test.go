package testkit_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// recorder is a testing.TB that only notes that it failed.
type recorder struct {
	testing.TB // for the methods that nothing here calls

	mu       sync.Mutex
	failed   bool
	cleanups []func()
	done     chan struct{}
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return context.Background() }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "testkit")
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (r *recorder) Errorf(string, ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) cleanup() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}
