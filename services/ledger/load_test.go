package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
)

// TestT22_TransfersUnderWriters: leadership moves again and again under writers with keys; everything acknowledged is there, everything
// that is there stands once, and at the end a single append goes through.
func TestT22_TransfersUnderWriters(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	leader(t, g)
	var stop atomic.Bool
	var wg sync.WaitGroup
	const writers = 16
	counts := make([]int, writers)
	for w := range writers {
		wg.Go(func() {
			c := newClient(t)
			for !stop.Load() {
				c.put(g, fmt.Sprint(w, "-", counts[w]))
				counts[w]++
			}
		})
	}
	for moved := 0; moved < 15; {
		l := leader(t, g)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := l.election().TransferLeadership(ctx, &ledgerv1.TransferLeadershipRequest{})
		cancel()
		if err == nil {
			moved++
		}
	}
	stop.Store(true)
	wg.Wait()
	last := newClient(t).put(g, "last").GetIndex()
	for _, s := range g {
		seen := map[string]int{}
		for _, body := range s.bodies(last) {
			seen[body]++
		}
		total := 1
		for w, n := range counts {
			total += n
			for i := range n {
				if body := fmt.Sprint(w, "-", i); seen[body] != 1 {
					t.Errorf("%s has %q %d times", s.cfg.SelfID, body, seen[body])
				}
			}
		}
		if len(seen) != total {
			t.Errorf("%s has %d bodies, %d were appended", s.cfg.SelfID, len(seen), total)
		}
	}
}

// TestLargestBody: what fits into an entry of 4 MiB with its key goes everywhere, alone and in a stream.
func TestLargestBody(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, func(c *Config) { c.MappedFileSizeForEntryData = 8 << 20 })
	for _, s := range g {
		s.onDisk()
	}
	startAll(g)
	body := make([]byte, maxBody)
	body[0], body[maxBody-1] = 1, 2
	c := newClient(t)
	last := c.put(g, string(body)).GetIndex()
	poll(t, "a stream", func(ctx context.Context) error {
		stream, err := leader(t, g).ledger().AppendStream(ctx)
		if err != nil {
			return err
		}
		for i := range uint64(3) {
			if err := stream.Send(&ledgerv1.AppendStreamRequest{Sequence: 2 + i, Bodies: [][]byte{body}, ClientId: c.id, AfterIndex: -1}); err != nil {
				break // receiving says why
			}
		}
		for sequence := uint64(0); sequence < 4; {
			r, err := stream.Recv()
			if err != nil {
				return err
			}
			sequence = r.GetSequence()
			last = r.GetIndexes()[len(r.GetIndexes())-1]
		}
		return nil
	})
	for _, s := range g {
		if got := s.bodies(last); len(got) != 4 || len(got[0]) != maxBody || got[3] != string(body) {
			t.Errorf("%s has %d bodies", s.cfg.SelfID, len(got))
		}
	}
	_, err := g[0].ledger().Append(t.Context(), &ledgerv1.AppendRequest{Body: make([]byte, maxBody+1)})
	wantReason(t, "one byte more", err, "INVALID_FIELD")
}

// BenchmarkAppendStream appends bodies of 1 KiB in requests of 64 to a group of three whose entries are synced before they are
// acknowledged.
func BenchmarkAppendStream(b *testing.B) {
	g := newGroup(b, 3, func(c *Config) {
		c.MappedFileSizeForEntryData, c.MappedFileSizeForEntryIndex = 512<<20, 64<<20
	})
	for _, s := range g {
		s.onDisk()
	}
	startAll(g)
	l := leader(b, g)
	stream, err := l.ledger().AppendStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	const batch = 64
	bodies := make([][]byte, batch)
	for i := range bodies {
		bodies[i] = make([]byte, 1024)
	}
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	requests := uint64(b.N+batch-1) / batch //nolint:gosec // positive
	sent := make(chan error, 1)
	go func() {
		for i := range requests {
			if err := stream.Send(&ledgerv1.AppendStreamRequest{Sequence: 1 + i*batch, Bodies: bodies}); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	last := uint64(0)
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		last = r.GetSequence()
	}
	b.StopTimer()
	if err := <-sent; err != nil || last != requests*batch {
		b.Fatal(last, err)
	}
}
