package once

import "sync"

// queue gathers requests until the loop takes them.
type queue struct {
	wake        chan struct{} // capacity 1
	maxBytes    int64
	maxRequests int

	mu     sync.Mutex
	next   []*Pending
	bytes  int64
	closed bool
}

func (q *queue) put(p *Pending) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrStopped
	case len(q.next) >= q.maxRequests || q.bytes > 0 && q.bytes+p.bytes > q.maxBytes:
		return ErrBusy
	}
	q.next = append(q.next, p)
	q.bytes += p.bytes
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// take returns what one proposal can carry, in order.
func (q *queue) take() []*Pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, entries, bytes := 0, 0, int64(0)
	for n < len(q.next) {
		p := q.next[n]
		if n > 0 && (entries+len(p.entries) > batchEntries || bytes+p.bytes > batchBytes) {
			break
		}
		entries += len(p.entries)
		bytes += p.bytes
		n++
	}
	batch := q.next[:n:n]
	q.next = q.next[n:]
	if len(q.next) == 0 {
		q.next = nil
	}
	q.bytes -= bytes
	return batch
}

// close refuses what comes and returns what is left.
func (q *queue) close() []*Pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	left := q.next
	q.next = nil
	return left
}
