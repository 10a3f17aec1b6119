package main

import (
	"errors"
	"slices"
	"time"
)

// warmUp is the part of a measurement that does not count.
const warmUp = 100 * time.Millisecond

// report turns the durations of what happened within d into a rate and percentiles in microseconds. done is about what was
// done in all, with the warm-up.
func report(took []time.Duration, d time.Duration, a *answer) error {
	if len(took) == 0 {
		return errors.New("nothing was done in that time")
	}
	slices.Sort(took)
	a.Number["done"] = float64(len(took)) * (d + warmUp).Seconds() / d.Seconds()
	a.Number["per second"] = float64(len(took)) / d.Seconds()
	a.Number["p50 us"] = micros(took, 0.50)
	a.Number["p99 us"] = micros(took, 0.99)
	return nil
}

func micros(sorted []time.Duration, p float64) float64 {
	return float64(sorted[int(p*float64(len(sorted)-1))].Nanoseconds()) / 1e3
}
