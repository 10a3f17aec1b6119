package node

import (
	"sync"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// batch is what came in since the last round.
type batch struct {
	control []raft.Message
	pushes  []raft.Message
	calls   []*call
}

// inbox gathers what others want of the node until it takes all of it at once.
type inbox struct {
	wake chan struct{} // capacity 1

	maxMessages  int
	maxPushBytes int64
	maxCalls     int

	mu        sync.Mutex
	next      batch
	pushBytes int64
	dropped   uint64
	closed    error
}

// deliver takes a message, or drops it when there are too many of its kind: Raft repeats what matters.
func (b *inbox) deliver(m *raft.Message) bool {
	b.mu.Lock()
	ok := b.put(m)
	b.mu.Unlock()
	if ok {
		b.ring()
	}
	return ok
}

func (b *inbox) put(m *raft.Message) bool {
	bytes := int64(0)
	for i := range m.Entries {
		bytes += int64(m.Entries[i].Size)
	}
	switch {
	case b.closed != nil:
		return false
	case m.Type != raft.Append && len(b.next.control) < b.maxMessages:
		b.next.control = append(b.next.control, *m)
	case m.Type == raft.Append && len(b.next.pushes) < b.maxMessages && (b.pushBytes == 0 || b.pushBytes+bytes <= b.maxPushBytes):
		b.next.pushes = append(b.next.pushes, *m)
		b.pushBytes += bytes
	default:
		b.dropped++
		return false
	}
	return true
}

// call takes a call; the error says why not.
func (b *inbox) call(c *call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed != nil:
		return b.closed
	case len(b.next.calls) >= b.maxCalls:
		return ErrBusy
	}
	b.next.calls = append(b.next.calls, c)
	b.ring()
	return nil
}

func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take swaps what has gathered with an empty batch.
func (b *inbox) take(used *batch) {
	clear(used.control)
	clear(used.pushes)
	clear(used.calls)
	used.control, used.pushes, used.calls = used.control[:0], used.pushes[:0], used.calls[:0]
	b.mu.Lock()
	defer b.mu.Unlock()
	*used, b.next = b.next, *used
	b.pushBytes = 0
}

// close refuses what comes and returns the calls that nobody will serve.
func (b *inbox) close(err error) []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = err
	calls := b.next.calls
	b.next = batch{}
	return calls
}

func (b *inbox) drops() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
