package attempt

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/sleep"
)

func TestRetryLastsUntilTheDeadline(t *testing.T) {
	for _, tc := range []struct {
		limit, least, most time.Duration
	}{
		{10 * time.Second, 9900 * time.Millisecond, 10 * time.Second},
		{time.Second, 900 * time.Millisecond, time.Second},
		{-1, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := NewRetry(nil, tc.limit, nil)
			for ; ; r.tries++ {
				pause, ok := r.pause(nil)
				if !ok || !sleep.For(t.Context(), pause) {
					break
				}
			}
			if took := time.Since(began); took < tc.least || took > tc.most {
				t.Errorf("limit %v: given up after %v and %d tries", tc.limit, took, r.tries)
			}
		})
	}
}
