package main

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What clients put.
const (
	topic    = "benchmark"
	bodySize = 200
)

// warmUp is the part of a measurement that does not count.
const warmUp = 100 * time.Millisecond

// closedLoop lets callers, each made by `caller`, do one thing after the other for d, or until each has done one that counts,
// and returns rate and percentiles.
func closedLoop(callers int, d time.Duration, caller func(i int) func() error) (answer, error) {
	took := make([][]time.Duration, callers)
	errs := make([]error, callers)
	warm := time.Now().Add(warmUp)
	end := warm.Add(d)
	var wg sync.WaitGroup
	for i := range callers {
		do := caller(i)
		wg.Go(func() {
			mine := make([]time.Duration, 0, 1<<12)
			for began := time.Now(); errs[i] == nil && (len(mine) == 0 || began.Before(end)); {
				errs[i] = do()
				now := time.Now()
				if began.After(warm) {
					mine = append(mine, now.Sub(began))
				}
				began = now
			}
			took[i] = mine
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return answer{}, err // the others say the same
		}
	}
	return rates(slices.Concat(took...), d)
}

// window keeps n things under way for d: send begins one, and its callback is called at its end, by one goroutine in the order
// of the calls to send. It returns rate and percentiles.
func window(n int, d time.Duration, send func(done func(error)) error) (answer, error) {
	room := make(chan struct{}, n)
	took := make([]time.Duration, 0, 1<<16)
	var failed error        // until all have ended the callbacks' own, as is took
	var counted atomic.Bool // or one has failed
	warm := time.Now().Add(warmUp)
	end := warm.Add(d)
	var err error
	for err == nil {
		room <- struct{}{}
		began := time.Now()
		if counted.Load() && !began.Before(end) {
			<-room
			break
		}
		err = send(func(oneErr error) {
			switch {
			case oneErr != nil:
				failed = oneErr
				counted.Store(true)
			case began.After(warm):
				took = append(took, time.Since(began))
				counted.Store(true)
			}
			<-room
		})
	}
	if err != nil {
		return answer{}, err // the others may never end
	}
	for range n {
		room <- struct{}{}
	}
	if failed != nil {
		return answer{}, failed
	}
	return rates(took, d)
}

// rates turns the durations of what was done within d into an answer as workers give it.
func rates(took []time.Duration, d time.Duration) (answer, error) {
	if len(took) == 0 {
		return answer{}, errors.New("nothing was done in that time")
	}
	slices.Sort(took)
	percentile := func(p float64) float64 { return float64(took[int(p*float64(len(took)-1))].Nanoseconds()) / 1e3 }
	return rated(float64(len(took)), d, percentile(0.50), percentile(0.99)), nil
}

// rated is the answer for n things that were done within d; "done" is about what was done in all, with the warm-up.
func rated(n float64, d time.Duration, p50, p99 float64) answer {
	return answer{Number: map[string]float64{
		"done": n * (d + warmUp).Seconds() / d.Seconds(), "per second": n / d.Seconds(), "p50 us": p50, "p99 us": p99,
	}}
}
