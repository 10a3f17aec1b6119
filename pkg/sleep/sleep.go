package sleep

import (
	"context"
	"time"
)

// For waits for d and reports whether ctx lasted.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
