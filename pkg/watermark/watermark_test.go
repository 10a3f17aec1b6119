package watermark_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
)

func TestNeverGoesBack(t *testing.T) {
	m := watermark.New(10)
	if m.Advance(9) || m.Advance(10) || m.Load() != 10 {
		t.Errorf("moved by a smaller or equal number: %d", m.Load())
	}
	if !m.Advance(11) || m.Load() != 11 {
		t.Errorf("did not move: %d", m.Load())
	}
}

func TestWakesInOrderAndOnlyWhoIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := watermark.New(0)
		var mu sync.Mutex
		got := map[int64]error{}
		for _, want := range []int64{30, 10, 20, 40} {
			go func() {
				err := m.Wait(t.Context(), want)
				mu.Lock()
				defer mu.Unlock()
				got[want] = err
			}()
		}
		synctest.Wait()
		m.Advance(20)
		synctest.Wait()
		mu.Lock()
		if len(got) != 2 || got[10] != nil || got[20] != nil {
			t.Errorf("after 20: %v", got)
		}
		mu.Unlock()
		m.Close(watermark.ErrTruncated)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !errors.Is(got[30], watermark.ErrTruncated) || !errors.Is(got[40], watermark.ErrTruncated) {
			t.Errorf("after close: %v", got)
		}
	})
}

func TestASlowWaiterDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := watermark.New(0)
		start := time.Now()
		slow := make(chan error, 1)
		go func() { slow <- m.WaitUntil(t.Context(), 1000, start.Add(5*time.Second)) }()
		quick := make(chan time.Duration, 1)
		go func() {
			if err := m.Wait(t.Context(), 1); err != nil {
				t.Error(err)
			}
			quick <- time.Since(start)
		}()
		synctest.Wait()
		m.Advance(1)
		if d := <-quick; d != 0 {
			t.Errorf("the quick waiter took %v", d)
		}
		if err := <-slow; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("the slow one: %v after %v", err, time.Since(start))
		}
	})
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := watermark.New(0).Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := watermark.New(5).Wait(ctx, 5); err != nil {
		t.Errorf("what is there already needs no context: %v", err)
	}
}

func TestClosed(t *testing.T) {
	m := watermark.New(3)
	m.Close(nil)
	m.Close(errors.New("second"))
	if err := m.Wait(t.Context(), 4); !errors.Is(err, watermark.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := m.Wait(t.Context(), 3); err != nil {
		t.Errorf("reached before the close: %v", err)
	}
	if m.Advance(9) || m.Load() != 3 {
		t.Error("moved after the close")
	}
	select {
	case <-m.Done():
	default:
		t.Error("Done is open")
	}
}

// TestAgainstAModel lets many waiters with random deadlines race one advancer and checks each answer.
func TestAgainstAModel(t *testing.T) {
	m := watermark.New(0)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			for range 50 {
				n := rand.Int64N(5000)
				err := m.WaitUntil(t.Context(), n, time.Now().Add(time.Duration(rand.IntN(2000))*time.Microsecond))
				if err == nil && m.Load() < n {
					t.Errorf("woken at %d for %d", m.Load(), n)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	for n := int64(1); n <= 5000; n++ {
		m.Advance(n)
	}
	wg.Wait()
}

func TestWaitAllocatesNothing(t *testing.T) {
	m := watermark.New(0)
	n := int64(0)
	next := make(chan int64)
	go func() {
		for v := range next {
			m.Advance(v)
		}
	}()
	defer close(next)
	ctx := t.Context()
	allocs := testing.AllocsPerRun(200, func() {
		n++
		next <- n
		if err := m.WaitUntil(ctx, n, time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
	})
	if allocs > 0.5 {
		t.Errorf("%v allocations a wait", allocs)
	}
}

func BenchmarkAdvanceWithoutWaiters(b *testing.B) {
	m := watermark.New(0)
	for i := 0; b.Loop(); i++ {
		m.Advance(int64(i))
	}
}

// TestDeadlinesOfManyWaiters: one timer serves them all, whatever the order of their deadlines, and stays quiet for those that
// were woken in time.
func TestDeadlinesOfManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := watermark.New(0)
		start := time.Now()
		var wg sync.WaitGroup
		for i, ms := range []int{500, 100, 300, 200, 0, 400, 100} {
			wg.Go(func() {
				var deadline time.Time
				if ms > 0 {
					deadline = start.Add(time.Duration(ms) * time.Millisecond)
				}
				err := m.WaitUntil(t.Context(), int64(10+i), deadline)
				switch took := time.Since(start).Milliseconds(); {
				case ms == 0 || ms > 350:
					if err != nil || took != 350 {
						t.Errorf("with a deadline of %d ms: woken after %d ms: %v", ms, took, err)
					}
				case !errors.Is(err, context.DeadlineExceeded) || took != int64(ms):
					t.Errorf("with a deadline of %d ms: %v after %d ms", ms, err, took)
				}
			})
		}
		<-time.After(350 * time.Millisecond)
		m.Advance(100)
		wg.Wait()
		// The timer that is left finds nobody, and a later waiter gets one of its own.
		<-time.After(time.Second)
		began := time.Now()
		err := m.WaitUntil(t.Context(), 200, began.Add(time.Millisecond))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Millisecond {
			t.Errorf("a later waiter: %v after %v", err, time.Since(began))
		}
	})
}

// TestAdvanceRacesClose: what was said at the close stays true.
func TestAdvanceRacesClose(t *testing.T) {
	for range 2000 {
		m := watermark.New(0)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for n := int64(1); n <= 50; n++ {
					m.Advance(n)
				}
			})
		}
		for n := range int64(8) {
			wg.Go(func() {
				if err := m.Wait(t.Context(), n*7); err == nil && m.Load() < n*7 || err != nil && !errors.Is(err, watermark.ErrClosed) {
					t.Errorf("woken at %d for %d: %v", m.Load(), n*7, err)
				}
			})
		}
		m.Close(nil)
		at := m.Load()
		wg.Wait()
		if m.Load() != at {
			t.Fatalf("closed at %d, now at %d", at, m.Load())
		}
	}
}

func TestLargestNumber(t *testing.T) {
	m := watermark.New(-1)
	if m.Load() != -1 || m.Advance(-1) || !m.Advance(0) {
		t.Errorf("a mark may begin below 0: %d", m.Load())
	}
	m.Advance(math.MaxInt64)
	if err := m.Wait(t.Context(), math.MaxInt64); err != nil || m.Load() != watermark.Max {
		t.Errorf("%v at %d", err, m.Load())
	}
}

// BenchmarkAdvance is what many do who each append and tell of it, while one waits for what is far away.
func BenchmarkAdvance(b *testing.B) {
	m := watermark.New(0)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- m.Wait(ctx, math.MaxInt64) }()
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Advance(n.Add(300))
		}
	})
	cancel()
	<-done
}

// BenchmarkWaits is a closed loop of 512 that each wait for a number of their own.
func BenchmarkWaits(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	written, acked := watermark.New(0), watermark.New(0)
	go func() {
		for n := int64(0); written.Wait(ctx, n+1) == nil; {
			n = written.Load()
			acked.Advance(n)
		}
	}()
	var n atomic.Int64
	var wg sync.WaitGroup
	for range 512 {
		wg.Go(func() {
			for n.Load() < int64(b.N) {
				mine := n.Add(1)
				written.Advance(mine)
				if err := acked.WaitUntil(ctx, mine, time.Now().Add(time.Minute)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
