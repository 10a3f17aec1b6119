package consumer

import (
	"context"
	"sync"
)

// buffer holds the messages of one queue between its reader and its handler, in order and bounded. One goroutine puts, one takes.
type buffer struct {
	most, mostBytes int

	mu    sync.Mutex
	ms    []*Message
	bytes int
	ended bool
	err   error

	came, went chan struct{} // capacity 1: something was put, or the end; something was taken
}

func newBuffer(most, mostBytes int) *buffer {
	return &buffer{most: most, mostBytes: mostBytes, came: make(chan struct{}, 1), went: make(chan struct{}, 1)}
}

// put waits for room: a message larger than all of it goes in alone.
func (b *buffer) put(ctx context.Context, m *Message) error {
	size := int(m.GetSize())
	for {
		b.mu.Lock()
		if len(b.ms) == 0 || len(b.ms) < b.most && b.bytes+size <= b.mostBytes {
			b.ms = append(b.ms, m)
			b.bytes += size
			b.mu.Unlock()
			signal(b.came)
			return nil
		}
		b.mu.Unlock()
		select {
		case <-b.went:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end says that nothing more comes, and why.
func (b *buffer) end(err error) {
	b.mu.Lock()
	b.ended, b.err = true, err
	b.mu.Unlock()
	signal(b.came)
}

// take waits for messages and returns at most limit; the error is that of ctx, or, behind the last message, that of end.
func (b *buffer) take(ctx context.Context, limit int) ([]*Message, error) {
	for ctx.Err() == nil {
		b.mu.Lock()
		n := min(limit, len(b.ms))
		if n > 0 {
			ms := make([]*Message, n)
			copy(ms, b.ms)
			clear(b.ms[:n]) // the handler's from here on
			if b.ms = b.ms[n:]; len(b.ms) == 0 {
				b.ms = nil
			}
			for _, m := range ms {
				b.bytes -= int(m.GetSize())
			}
			b.mu.Unlock()
			signal(b.went)
			return ms, nil
		}
		ended, err := b.ended, b.err
		b.mu.Unlock()
		if ended {
			return nil, err
		}
		select {
		case <-b.came:
		case <-ctx.Done():
		}
	}
	return nil, ctx.Err()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
