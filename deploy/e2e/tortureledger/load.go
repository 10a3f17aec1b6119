package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/sleep"
)

const (
	streamers = 2 // clients that append over streams
	callers   = 6 // clients that call; the last one appends without keys
	// patience is how long an append is tried.
	patience = 4 * time.Second
	// inFlight bounds a stream's entries without an outcome: few, as each may be the one whose fate stays open.
	inFlight = 16
	// readBack is how far before the end a read begins, and readMost how much it asks for.
	readBack, readMost = 4, 64
)

// load is the clients of one window.
type load struct {
	c     *cluster
	h     *history
	count func(string)  // takes the reasons of appends that were not acknowledged
	began time.Time     // of the run: operations are told in times since then
	pace  time.Duration // between two operations of a client
	stop  chan struct{}
	wg    sync.WaitGroup
}

// startLoad starts eight clients that spread the window's operations over its time. window is part of what they append.
func startLoad(ctx context.Context, c *cluster, h *history, count func(string), began time.Time, window int, lasts time.Duration) (*load, error) {
	l := &load{c: c, h: h, count: count, began: began, pace: lasts * (streamers + callers) / maxOps, stop: make(chan struct{})}
	for i := range streamers + callers {
		addrs := c.addrs()
		for range i % copies { // each begins with another node
			addrs = append(addrs[1:], addrs[0])
		}
		cl, err := ledger.Dial(ledger.Options{Addresses: addrs, Timeout: patience, TryTimeout: time.Second})
		if err != nil {
			l.end()
			return nil, err
		}
		w := &worker{l: l, c: cl, number: i, window: window}
		l.wg.Go(func() {
			if i < streamers {
				w.streams(ctx)
			} else {
				w.calls(ctx, cl.Appender(ledger.AppenderOptions{NoKey: i == streamers+callers-1}))
			}
			_ = cl.Close() // all outcomes are there
		})
	}
	return l, nil
}

// end stops the clients and waits for the outcomes.
func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

func (l *load) ended(ctx context.Context) bool {
	select {
	case <-l.stop:
		return true
	default:
		return ctx.Err() != nil
	}
}

func (l *load) now() time.Duration { return time.Since(l.began) }

// worker is one client.
type worker struct {
	l              *load
	c              *ledger.Client
	number, window int
	appends        int
	seen           int64 // last index that it saw
}

// next names a new append and makes its body, which has a length of its own.
func (w *worker) next() (id string, body []byte) {
	w.appends++
	id = fmt.Sprintf("w%d.c%d.%d", w.window, w.number, w.appends)
	return id, fmt.Appendf(nil, "%s %s", id, strings.Repeat(string(rune('a'+w.appends%26)), w.appends*7919%300))
}

// idOf takes the name out of a body that is whole.
func idOf(body []byte) (string, error) {
	id, rest, ok := strings.Cut(string(body), " ")
	var window, number, n int
	if _, err := fmt.Sscanf(id, "w%d.c%d.%d", &window, &number, &n); err != nil || !ok || rest != strings.Repeat(string(rune('a'+n%26)), n*7919%300) {
		return "", fmt.Errorf("the body %q is not what was appended", body)
	}
	return id, nil
}

// calls makes one call after the other: two appends, then a read.
func (w *worker) calls(ctx context.Context, a *ledger.Appender) {
	for i := 0; !w.l.ended(ctx) && w.l.h.begin(); i++ {
		if i%3 == 2 {
			w.read(ctx)
		} else {
			w.append(ctx, a)
		}
		sleep.For(ctx, w.l.pace)
	}
}

func (w *worker) append(ctx context.Context, a *ledger.Appender) {
	id, body := w.next()
	o := op{client: w.number, id: id, call: w.l.now()}
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := a.Append(call, body)
	o.ret, o.fate, o.index = w.l.now(), w.fateOf(err), r.GetIndex()
	w.seen = max(w.seen, r.GetIndex())
	w.l.h.add(o)
}

// fateOf is what an error says of an append.
func (w *worker) fateOf(err error) fate {
	if err == nil {
		return done
	}
	reason := errdefs.ReasonOf(err)
	if reason == "" {
		reason = err.Error()
	}
	w.l.count(reason)
	if errors.Is(err, ledger.ErrAppendUnknown) {
		return unknown
	}
	return refused
}

// read asks one node for the end of the log. That it does not answer is no news.
func (w *worker) read(ctx context.Context) {
	o := op{client: w.number, call: w.l.now()}
	call, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	from := max(w.seen-readBack, 0)
	resp, err := w.l.c.ledger(rand.IntN(copies)).GetRange(call, &ledgerv1.GetRangeRequest{Index: from, MaxEntries: readMost})
	o.ret, o.index = w.l.now(), resp.GetCommittedIndex()
	if err != nil {
		return
	}
	o.fate = done
	if o.shown, err = entriesOf(resp.GetEntries()); err != nil || int64(len(o.shown)) != max(min(o.index+1-from, readMost), 0) {
		o.shown = []entry{{index: o.index, id: fmt.Sprintf("%d entries from %d on, to %d; %v", len(o.shown), from, o.index, err)}} // what the check will show
	}
	w.seen = max(w.seen, o.index)
	w.l.h.add(o)
}

// entriesOf takes what a node shows apart.
func entriesOf(es []*ledgerv1.LedgerEntry) ([]entry, error) {
	out := make([]entry, 0, len(es))
	for _, e := range es {
		got := entry{index: e.GetIndex(), term: e.GetTerm()}
		if !e.GetNoOp() {
			var err error
			if got.id, err = idOf(e.GetBody()); err != nil {
				return out, fmt.Errorf("entry %d: %w", e.GetIndex(), err)
			}
		}
		out = append(out, got)
	}
	return out, nil
}

// streams appends over a stream, and over the next one where that ends.
func (w *worker) streams(ctx context.Context) {
	a := w.c.Appender(ledger.AppenderOptions{MaxInFlight: inFlight, MaxBatch: 4})
	for !w.l.ended(ctx) {
		more := true
		// The error is that of the last entry, which its callback has noted.
		_ = a.Stream(ctx, func(s *ledger.Sender) error {
			for more = w.l.h.begin(); more && !w.l.ended(ctx); more = w.l.h.begin() {
				id, body := w.next()
				o := op{client: w.number, id: id, call: w.l.now()}
				_, err := s.Send(ctx, body, func(out ledger.Outcome) {
					done := o
					done.ret, done.fate, done.index = w.l.now(), w.fateOf(out.Err), out.Index
					w.l.h.add(done)
				})
				if err != nil {
					o.ret, o.fate = w.l.now(), w.fateOf(err)
					w.l.h.add(o)
					return err
				}
				sleep.For(ctx, w.l.pace)
			}
			return nil
		})
		if !more {
			return
		}
		sleep.For(ctx, 10*time.Millisecond)
	}
}

// readLog reads what a node shows as committed, from an index to another one.
func (c *cluster) readLog(ctx context.Context, id int, from, to int64) ([]entry, error) {
	ctx, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	var all []entry
	for from <= to {
		resp, err := c.ledger(id).GetRange(ctx, &ledgerv1.GetRangeRequest{
			Index: from, MaxEntries: int32(min(to-from+1, 4096)), MaxBytes: 1 << 20, Consistency: ledgerv1.Consistency_CONSISTENCY_LOCAL, //nolint:gosec // bounded
		})
		if err != nil {
			return nil, fmt.Errorf("%s: read its log from %d: %w", c.nodes[id].Name, from, err)
		}
		es, err := entriesOf(resp.GetEntries())
		if err != nil || len(es) == 0 {
			return nil, fmt.Errorf("%s: read its log from %d: %d entries, %w", c.nodes[id].Name, from, len(es), err)
		}
		all = append(all, es...)
		from = resp.GetNextIndex()
	}
	return all, nil
}

// sameLog says how two logs differ, or nothing.
func sameLog(a, b []entry) string {
	if slices.Equal(a, b) {
		return ""
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%+v instead of %+v", b[i], a[i])
		}
	}
	return fmt.Sprintf("%d entries instead of %d", len(b), len(a))
}
