package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client/ledger"
)

// ledgerBenchFlags are those of ledger bench.
type ledgerBenchFlags struct {
	callers int
	size    byteSize
	batch   int
	stream  bool
	noKey   bool
	runsFor time.Duration
	yes     bool
}

func (a *app) ledgerBenchCommand() *cobra.Command {
	f := ledgerBenchFlags{size: 1 << 10}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Append random entries as fast as the group takes them, and say how fast that is",
		Long: "Append random entries for a while and print entries and bytes a second and the time from call to acknowledgement.\n" +
			"The entries stay in the log.",
		Example: "  tandemctl ledger bench\n" +
			"  tandemctl ledger bench --stream --size 256 --for 30s\n" +
			"  tandemctl ledger bench --callers 64 --batch 16",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ledgerBench(cmd.Context(), &f) },
	}
	fs := cmd.Flags()
	fs.IntVar(&f.callers, "callers", 16, "calls, or streams, at the same time")
	fs.Var(&f.size, "size", "`size` of a body")
	fs.IntVar(&f.batch, "batch", 0, "entries in one call")
	fs.BoolVar(&f.stream, "stream", false, "over streams")
	fs.BoolVar(&f.noKey, "no-key", false, "without idempotence keys")
	fs.DurationVar(&f.runsFor, "for", 10*time.Second, "how long")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (f *ledgerBenchFlags) check() error {
	switch {
	case f.callers < 1 || f.callers > 4096:
		return usagef("--callers %d is not within 1 and 4096", f.callers)
	case f.size < 1:
		return usagef("--size %v is not above 0", &f.size)
	case f.batch < 0 || f.batch > 4096:
		return usagef("--batch %d is not within 1 and 4096", f.batch)
	case f.batch > 0 && f.stream:
		return usagef("give either --batch or --stream")
	case f.runsFor <= 0:
		return usagef("--for %v is not above 0", f.runsFor)
	}
	return nil
}

func (a *app) ledgerBench(ctx context.Context, f *ledgerBenchFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	return a.withLedger(func(c *ledger.Client) error {
		b, err := c.Bounds(ctx, ledger.Linearizable)
		if err != nil {
			return err
		}
		if err := a.confirm(f.yes, "The log has %d entries; those of the bench stay in it. Go on?", b.GetCommittedIndex()+1-b.GetFirstIndex()); err != nil {
			return err
		}
		r := &ledgerBench{f: f, ap: c.Appender(ledger.AppenderOptions{NoKey: f.noKey}), body: make([]byte, f.size)}
		_, _ = rand.Read(r.body) // never fails
		began := time.Now()
		err = r.run(ctx)
		return errors.Join(a.printLedgerBench(r, time.Since(began)), err)
	})
}

// ledgerBench is a run of calls.
type ledgerBench struct {
	f    *ledgerBenchFlags
	ap   *ledger.Appender
	body []byte

	entries atomic.Int64
	times   latencies
}

// run makes calls from all sides until the time is up, ctx ends or one of them fails. Calls under way are waited for.
func (b *ledgerBench) run(ctx context.Context) error {
	end, stop := context.WithTimeout(ctx, b.f.runsFor)
	defer stop()
	var all sync.WaitGroup
	failed := make(chan error, b.f.callers)
	for range b.f.callers {
		all.Go(func() {
			if err := b.calls(ctx, end); err != nil {
				failed <- err
				stop()
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// calls makes one call after the other until end ends.
func (b *ledgerBench) calls(ctx, end context.Context) error {
	if b.f.stream {
		return b.ap.Stream(ctx, func(s *ledger.Sender) error {
			for end.Err() == nil {
				at := time.Now()
				if _, err := s.Send(ctx, b.body, func(o ledger.Outcome) { b.note(at, 1, o.Err) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	bodies := make([][]byte, b.f.batch)
	for i := range bodies {
		bodies[i] = b.body
	}
	for end.Err() == nil {
		var err error
		at := time.Now()
		if b.f.batch > 0 {
			_, err = b.ap.AppendBatch(ctx, bodies)
		} else {
			_, err = b.ap.Append(ctx, b.body)
		}
		b.note(at, max(1, b.f.batch), err)
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *ledgerBench) note(at time.Time, n int, err error) {
	if err == nil {
		b.entries.Add(int64(n))
		b.times.add(time.Since(at))
	}
}

// ledgerBenchResult is bench's JSON.
type ledgerBenchResult struct {
	Entries      int64   `json:"entries,string"`
	Seconds      float64 `json:"seconds"`
	EntriesPerS  float64 `json:"entriesPerSecond"`
	BytesPerS    float64 `json:"bytesPerSecond"`
	P50Micros    int64   `json:"p50Micros"`
	P99Micros    int64   `json:"p99Micros"`
	LongestMicro int64   `json:"longestMicros"`
}

func (a *app) printLedgerBench(b *ledgerBench, took time.Duration) error {
	n := b.entries.Load()
	rate := float64(n) / took.Seconds()
	p50, p99, most := b.times.percentile(0.5), b.times.percentile(0.99), b.times.percentile(1)
	if a.json() {
		return printJSON(a.out, ledgerBenchResult{n, took.Seconds(), rate, rate * float64(b.f.size), p50.Microseconds(), p99.Microseconds(), most.Microseconds()})
	}
	table(a.out, []string{"ENTRIES", "TIME", "ENTRIES/S", "BYTES/S", "P50", "P99", "LONGEST"}, [][]string{{
		itoa(n), shortDuration(took), itoa(int64(rate)), sizeText(int64(rate * float64(b.f.size))), fineDuration(p50), fineDuration(p99), fineDuration(most),
	}})
	return nil
}
