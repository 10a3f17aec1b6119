package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestBufferIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		most, bytes int
		size        int32
		want        int
	}{
		"by messages":             {3, 1000, 10, 3},
		"by bytes":                {100, 45, 10, 4},
		"one larger than all":     {100, 45, 50, 1},
		"never none at all":       {1, 1, 10, 1},
		"empty bodies count, too": {5, 1, 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, n := newBuffer(tc.most, tc.bytes), 0
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					for b.put(ctx, &Message{Size: tc.size, QueueOffset: int64(n)}) == nil {
						n++
					}
				}()
				synctest.Wait()
				if n != tc.want {
					t.Errorf("%d messages wait, want %d", n, tc.want)
				}
				for next := int64(0); next < 20; {
					ms, err := b.take(ctx, 2)
					if err != nil {
						t.Fatal(err)
					}
					for _, m := range ms {
						if m.GetQueueOffset() != next {
							t.Fatalf("offset %d, want %d", m.GetQueueOffset(), next)
						}
						next++
					}
				}
				cancel()
				synctest.Wait()
				if _, err := b.take(ctx, 2); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// TestBufferEndsBehindItsLastMessage: what was read before the failure is handled.
func TestBufferEndsBehindItsLastMessage(t *testing.T) {
	b, end := newBuffer(10, 100), errors.New("end")
	if err := b.put(t.Context(), &Message{}); err != nil {
		t.Fatal(err)
	}
	b.end(end)
	if ms, err := b.take(t.Context(), 5); err != nil || len(ms) != 1 {
		t.Errorf("%v, %v", ms, err)
	}
	if _, err := b.take(t.Context(), 5); !errors.Is(err, end) {
		t.Errorf("got %v", err)
	}
}
