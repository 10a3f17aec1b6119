package watermark

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxKept bounds the waiters that a mark keeps for reuse.
const maxKept = 1024

// ErrTruncated is what waiters get whose mark was closed by a cut of the data behind it.
var ErrTruncated = errors.New("watermark: the data behind it was cut")

// ErrClosed is what waiters get whose mark was closed without a reason of its own.
var ErrClosed = errors.New("watermark: closed")

// closed is the bit of Mark.state that ends it.
const closed = 1

// Mark is a growing int64. The zero value is not usable; see New. All methods may be called concurrently.
type Mark struct {
	state atomic.Int64 // twice the number, and 1 once closed
	first atomic.Int64 // the lowest number that is waited for, or more than any: who moves state past it must wake

	mu      sync.Mutex
	waiters []*waiter   // by want, lowest first; new ones are nearly always the highest
	timer   *time.Timer // runs expire
	alarm   time.Time   // when it does so next: no waiter's deadline is earlier; zero: not at all
	err     error       // not nil once closed
	done    chan struct{}
	spare   *waiter // for reuse
	kept    int     // how many were made that come back

	back atomic.Pointer[waiter] // those that have come back since spare was filled
}

// waiter belongs to the goroutine in wait; next and the send to wake belong to who took it out of the queue.
type waiter struct {
	want     int64
	deadline time.Time  // zero: none
	wake     chan error // capacity 1
	next     *waiter
	kept     bool // it comes back
}

// Max is the largest number of a mark; more counts as that much.
const Max = math.MaxInt64 >> 1

// New makes a mark that stands at value.
func New(value int64) *Mark {
	m := &Mark{done: make(chan struct{})}
	m.state.Store(min(value, Max) << 1)
	m.first.Store(math.MaxInt64)
	return m
}

// Load returns the number.
func (m *Mark) Load() int64 { return m.state.Load() >> 1 }

// Advance raises the number to n and wakes who waited for it. A smaller n, and any n after Close, is ignored; the result
// says whether the number moved. It takes no lock unless there is somebody to wake.
func (m *Mark) Advance(n int64) bool {
	n = min(n, Max)
	for {
		old := m.state.Load()
		if old&closed != 0 || n <= old>>1 {
			return false
		}
		if m.state.CompareAndSwap(old, n<<1) {
			break
		}
	}
	if n >= m.first.Load() {
		m.mu.Lock()
		woken := m.due()
		m.mu.Unlock()
		wakeAll(woken, nil)
	}
	return true
}

// Close ends the mark: every waiter and every later Wait for more than the number gets err (ErrClosed when nil). Only the
// first call counts.
func (m *Mark) Close(err error) {
	if err == nil {
		err = ErrClosed
	}
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return
	}
	m.err = err
	m.state.Or(closed)
	if m.timer != nil {
		m.timer.Stop()
	}
	there := m.due()
	woken := m.take(len(m.waiters))
	close(m.done)
	m.mu.Unlock()
	wakeAll(there, nil)
	wakeAll(woken, err)
}

// due takes out who waits for no more than the number. m.mu is held.
func (m *Mark) due() *waiter {
	n, k := m.Load(), 0
	for k < len(m.waiters) && m.waiters[k].want <= n {
		k++
	}
	if k == 0 {
		return nil
	}
	return m.take(k)
}

// take unlinks the first n waiters and chains them, the first one first. m.mu is held.
func (m *Mark) take(n int) *waiter {
	var first *waiter
	for i := n - 1; i >= 0; i-- {
		m.waiters[i].next = first
		first = m.waiters[i]
	}
	rest := copy(m.waiters, m.waiters[n:])
	clear(m.waiters[rest:])
	m.waiters = m.waiters[:rest]
	m.setFirst()
	return first
}

// setFirst follows a change of waiters. m.mu is held.
func (m *Mark) setFirst() {
	first := int64(math.MaxInt64)
	if len(m.waiters) > 0 {
		first = m.waiters[0].want
	}
	if first != m.first.Load() {
		m.first.Store(first)
	}
}

func wakeAll(w *waiter, err error) {
	for w != nil {
		next := w.next
		w.next = nil
		w.wake <- err
		w = next
	}
}

// Done is closed when the mark is.
func (m *Mark) Done() <-chan struct{} { return m.done }

// Err returns why the mark was closed, nil while it is not.
func (m *Mark) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Wait blocks until the number is at least n (nil), the mark is closed below n (its error) or ctx ends (ctx's error).
func (m *Mark) Wait(ctx context.Context, n int64) error {
	return m.WaitUntil(ctx, n, time.Time{})
}

// WaitUntil is Wait with a deadline besides ctx's; passing it gives context.DeadlineExceeded, the zero time is none. It
// spares the caller a context of its own.
func (m *Mark) WaitUntil(ctx context.Context, n int64, deadline time.Time) error {
	if n = min(n, Max); m.Load() >= n {
		return nil
	}
	w, err := m.enqueue(n, deadline)
	if w == nil {
		return err
	}
	select {
	case err = <-w.wake:
	case <-ctx.Done():
		err = m.abandon(w, ctx.Err())
	}
	m.giveBack(w)
	return err
}

// waiter returns one that is in no queue. m.mu is held.
func (m *Mark) waiter() *waiter {
	if m.spare == nil {
		m.spare = m.back.Swap(nil)
	}
	w := m.spare
	if w != nil {
		m.spare, w.next = w.next, nil
		return w
	}
	w = &waiter{wake: make(chan error, 1)}
	if m.kept < maxKept {
		m.kept++
		w.kept = true
	}
	return w
}

// giveBack needs no lock, which Advance may want: waiters are put back one by one and fetched all at once.
func (m *Mark) giveBack(w *waiter) {
	for w.kept {
		w.next = m.back.Load()
		if m.back.CompareAndSwap(w.next, w) {
			return
		}
	}
}

// enqueue returns a queued waiter, or nil and the answer when there is nothing to wait for.
func (m *Mark) enqueue(n int64, deadline time.Time) (*waiter, error) {
	m.mu.Lock()
	if there := m.Load() >= n; there || m.err != nil {
		err := m.err
		m.mu.Unlock()
		if there {
			err = nil
		}
		return nil, err
	}
	w := m.waiter()
	w.want, w.deadline = n, deadline
	i := len(m.waiters)
	m.waiters = append(m.waiters, w)
	for i > 0 && m.waiters[i-1].want > n {
		m.waiters[i] = m.waiters[i-1]
		i--
	}
	m.waiters[i] = w
	m.arm(deadline)
	m.setFirst()
	woken := m.due() // by who advanced before it could see first
	m.mu.Unlock()
	wakeAll(woken, nil)
	return w, nil
}

// arm sees to it that expire runs at the deadline at the latest. m.mu is held. The timer is not stopped when nobody waits any
// more: it is one for all waiters, and the next one's deadline is mostly later.
func (m *Mark) arm(deadline time.Time) {
	if deadline.IsZero() || !m.alarm.IsZero() && !deadline.Before(m.alarm) {
		return
	}
	m.alarm = deadline
	if m.timer == nil {
		m.timer = time.AfterFunc(time.Until(deadline), m.expire)
	} else {
		m.timer.Reset(time.Until(deadline))
	}
}

// expire wakes those whose deadline has passed.
func (m *Mark) expire() {
	now := time.Now()
	var first time.Time // deadline of those that stay
	var late *waiter
	m.mu.Lock()
	m.waiters = slices.DeleteFunc(m.waiters, func(w *waiter) bool {
		switch {
		case w.deadline.IsZero():
			return false
		case w.deadline.After(now):
			if first.IsZero() || w.deadline.Before(first) {
				first = w.deadline
			}
			return false
		}
		w.next, late = late, w
		return true
	})
	m.setFirst()
	m.alarm = time.Time{}
	m.arm(first)
	m.mu.Unlock()
	wakeAll(late, context.DeadlineExceeded)
}

// abandon takes w out of the queue and returns reason, unless w was woken in the meantime: then that answer stands.
func (m *Mark) abandon(w *waiter, reason error) error {
	m.mu.Lock()
	if i := slices.Index(m.waiters, w); i >= 0 {
		m.waiters = slices.Delete(m.waiters, i, i+1)
		m.setFirst()
		m.mu.Unlock()
		return reason
	}
	m.mu.Unlock()
	return <-w.wake
}
