package store_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/store"
)

// TestSearchOffset compares the search with a walk through the whole queue.
func TestSearchOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{}, newSlaves(0))
		rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
		var stored []int64
		for range 300 {
			time.Sleep(time.Duration(rnd.IntN(4)) * time.Millisecond) //nolint:forbidigo // the bubble's clock
			res, err := r.Put(t.Context(), msg("body"), byStore)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, res.StoreTimestamp)
		}
		r.show(t)
		for at := stored[0] - 2; at <= stored[len(stored)-1]+2; at++ {
			want := int64(0)
			for want < int64(len(stored)) && stored[want] < at {
				want++
			}
			got, q, err := r.SearchOffset("T", 0, at)
			if err != nil || got != want || q.Min != 0 || q.Max != 300 {
				t.Fatalf("stored at or after %d: %d of %+v, %v; want %d", at, got, q, err, want)
			}
		}
	})
}

func TestSearchOffsetWithoutQueue(t *testing.T) {
	r := newRig(t, store.Options{}, newSlaves(0))
	if _, _, err := r.SearchOffset("T", 0, 1); !errors.Is(err, store.ErrNoQueue) {
		t.Error(err)
	}
}

// TestSearchOffsetPassesOverWhatIsGone: retention takes messages whose units are still there.
func TestSearchOffsetPassesOverWhatIsGone(t *testing.T) {
	r := newRig(t, store.Options{}, newSlaves(0))
	var third store.Result
	for i := range 5 {
		res, err := r.Put(t.Context(), msg("body"), byStore)
		if err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			third = res
		}
	}
	r.show(t)
	s, err := store.New(store.Options{}, &retained{Log: r.log, first: third.Offset}, r.slaves, r.queues, nil, r.guard)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.SearchOffset("T", 0, 0); err != nil || got != 3 {
		t.Errorf("found %d, %v; want the first message that is still there, 3", got, err)
	}
}

// retained is a log without what lies before first.
type retained struct {
	*commitlog.Log
	first int64
}

func (l *retained) View(offset int64, limit int) ([]byte, func(), error) {
	if offset < l.first {
		return nil, func() {}, commitlog.ErrOutOfRange
	}
	return l.Log.View(offset, limit)
}
