package faults

import (
	"context"
	"time"
)

// Pause waits; false when ctx ended meanwhile.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
