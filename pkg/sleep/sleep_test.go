package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/sleep"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !sleep.For(t.Context(), time.Hour) || time.Since(start) != time.Hour {
			t.Errorf("woke after %v", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if sleep.For(ctx, time.Hour) || time.Since(start) != time.Hour+time.Minute {
			t.Errorf("its context ended after a minute, it woke after %v", time.Since(start)-time.Hour)
		}
	})
}
