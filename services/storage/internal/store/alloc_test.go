//go:build !race

package store_test

// With the race detector a sync.Pool forgets at random.

import (
	"context"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/storage/internal/store"
)

func TestPutAllocatesOnce(t *testing.T) {
	r := newRig(t, store.Options{SyncMaster: true, AppendPropCRC: true}, newSlaves(1))
	r.slaves.marks[1].Advance(1 << 50)
	m := msg(strings.Repeat("x", 200))
	ctx := t.Context()
	allocs := testing.AllocsPerRun(200, func() {
		if res, err := r.Put(ctx, m, byStore); err != nil || res.Status != store.PutOK {
			t.Error(res, err)
		}
	})
	if allocs > 1 {
		t.Errorf("%v allocations a put, the message id is one", allocs)
	}
}

// TestPutThatWaitsAllocatesOnce: without a trace that is recorded the wait for slaves costs no allocation either.
func TestPutThatWaitsAllocatesOnce(t *testing.T) {
	r := newRig(t, store.Options{SyncMaster: true, AppendPropCRC: true}, newSlaves(1))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // with one processor, as below, it comes when the put waits
		defer close(ended)
		written := r.log.Written()
		for at := int64(0); written.Wait(ctx, at+1) == nil; {
			at = written.Load()
			r.slaves.marks[1].Advance(at)
		}
	}()
	m := msg(strings.Repeat("x", 200))
	allocs := testing.AllocsPerRun(200, func() {
		if res, err := r.Put(ctx, m, byStore); err != nil || res.Status != store.PutOK {
			t.Error(res, err)
		}
	})
	cancel()
	<-ended
	if allocs > 1 {
		t.Errorf("%v allocations a put, the message id is one", allocs)
	}
}
