package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
)

// loadReport is bench's JSON. Durations are microseconds, a megabyte is 10^6 bytes of bodies.
type loadReport struct {
	Benchmark   string           `json:"benchmark"`
	Topic       string           `json:"topic"`
	Concurrency int              `json:"concurrency"`
	Size        int64            `json:"size,omitempty"`
	Acks        *int32           `json:"acks,omitempty"` // none: as the storage is set up
	Seconds     float64          `json:"seconds"`
	Interrupted bool             `json:"interrupted"`
	Calls       int64            `json:"calls"` // of get; else as messages
	Messages    int64            `json:"messages"`
	PerSecond   float64          `json:"messagesPerSecond"`
	MBPerSecond float64          `json:"megabytesPerSecond"`
	Statuses    map[string]int64 `json:"statuses"`
	Latency     loadLatency      `json:"latencyMicros"`
	Histogram   []loadSpan       `json:"histogram"`
}

type loadLatency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

type loadSpan struct {
	UpTo  float64 `json:"upToMicros"`
	Count int64   `json:"count"`
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// print writes what was measured.
func (b *load) print(took time.Duration, interrupted bool) error {
	seconds := max(took.Seconds(), 1e-9)
	rate, mb := float64(b.messages.Load())/seconds, float64(b.bytes.Load())/1e6/seconds
	h := &b.took
	if b.a.json() {
		r := loadReport{
			Benchmark: b.verb, Topic: b.f.topic, Concurrency: b.f.concurrency, Seconds: seconds, Interrupted: interrupted,
			Calls: h.n.Load(), Messages: b.messages.Load(), PerSecond: rate, MBPerSecond: mb, Statuses: b.statuses(),
			Latency: loadLatency{
				micros(h.mean()), micros(h.percentile(0.5)), micros(h.percentile(0.9)), micros(h.percentile(0.99)),
				micros(h.percentile(0.999)), micros(time.Duration(h.most.Load())),
			},
			Histogram: []loadSpan{},
		}
		if b.verb != "get" {
			r.Size = int64(b.f.size)
		}
		if b.verb != "get" && b.f.acks >= 0 {
			r.Acks = &b.f.acks
		}
		for _, s := range h.spans() {
			r.Histogram = append(r.Histogram, loadSpan{micros(s.upTo), s.count})
		}
		return printJSON(b.a.out, r)
	}
	sayf(b.a.out, "%s in %s: %.0f/s, %.1f MB/s\n", plural(int(b.messages.Load()), "message"), shortDuration(took), rate, mb)
	if statuses := b.statuses(); len(statuses) > 0 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(statuses)) {
			parts = append(parts, itoa(statuses[name])+" "+name)
		}
		say(b.a.out, strings.Join(parts, ", "))
	}
	if h.n.Load() == 0 {
		return nil
	}
	sayf(b.a.out, "\nmean %s  p50 %s  p90 %s  p99 %s  p99.9 %s  max %s\n\n", fineDuration(h.mean()), fineDuration(h.percentile(0.5)),
		fineDuration(h.percentile(0.9)), fineDuration(h.percentile(0.99)), fineDuration(h.percentile(0.999)), fineDuration(time.Duration(h.most.Load())))
	unit := "PUTS"
	if b.verb == "get" {
		unit = "GETS"
	}
	h.print(b.a.out, unit)
	return nil
}

// statuses are the counts by name.
func (b *load) statuses() map[string]int64 {
	all := map[string]int64{}
	if b.unknown > 0 {
		all[client.ErrOutcomeUnknown.Reason] = b.unknown
	}
	for i := range b.counts {
		n := b.counts[i].Load()
		if n == 0 {
			continue
		}
		name := client.StatusName(client.Status(i)) //nolint:gosec // a small number
		if b.verb == "get" {
			name = strings.TrimPrefix(storagev1.GetStatus(i).String(), "GET_STATUS_") //nolint:gosec // a small number
		}
		all[name] += n
	}
	return all
}

// verdict returns the error of the command: what ended it, and what statuses other than PUT_OK mean.
func (b *load) verdict(ctx context.Context, c *client.Client) error {
	if b.verb == "get" {
		return b.failed
	}
	t := &tally{a: b.a, counts: map[client.Status]int{}, reason: b.reason}
	for i := range b.counts {
		if n := int(b.counts[i].Load()); n > 0 {
			t.total += n
			t.counts[client.Status(i)] = n //nolint:gosec // a small number
		}
	}
	if t.tooFewSlaves() {
		t.group = b.a.groupOf(ctx, c, b.f.acks)
	}
	told := t.verdict()
	if err := errors.Join(b.why, b.failed); err != nil {
		return err
	}
	return told
}
