package ledger_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/ledger"
)

// window is one that a test can leave behind.
const window = 100

// dial makes a client of some addresses of the group, or of all.
func dial(t *testing.T, g *clienttest.Ledger, o ledger.Options, addrs ...string) *ledger.Client {
	t.Helper()
	if o.Addresses = addrs; len(addrs) == 0 {
		o.Addresses = g.Addrs()
	}
	c, err := ledger.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// fill appends n entries that are nobody's.
func fill(t *testing.T, c *ledger.Client, n int) {
	t.Helper()
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = []byte("filler")
	}
	if _, err := c.Appender(ledger.AppenderOptions{NoKey: true}).AppendBatch(t.Context(), bodies); err != nil {
		t.Fatal(err)
	}
}

// recorder collects the outcomes of a Sender.
type recorder struct {
	mu  sync.Mutex
	all []ledger.Outcome
}

func (r *recorder) add(o ledger.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, o)
}

// inOrder fails unless there is one outcome for each of n entries, in order.
func (r *recorder) inOrder(t *testing.T, n int) []ledger.Outcome {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) != n {
		t.Fatalf("%d outcomes for %d entries", len(r.all), n)
	}
	for i, o := range r.all {
		if o.Sequence != uint64(i+1) {
			t.Fatalf("outcome %d is that of entry %d", i+1, o.Sequence)
		}
	}
	return r.all
}
