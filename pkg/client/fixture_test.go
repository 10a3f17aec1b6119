package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
)

func dial(t *testing.T, o client.Options, nodes ...*clienttest.Storage) *client.Client {
	t.Helper()
	for _, n := range nodes {
		o.Addresses = append(o.Addresses, n.Addr())
	}
	c, err := client.Dial(t.Context(), o)
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

func message(i int) *client.Message {
	return &client.Message{Topic: "t", QueueId: new(int32), Body: fmt.Appendf(nil, "%06d", i)}
}

func bodies(n *clienttest.Storage) []string {
	var out []string
	for _, m := range n.Stored("t", 0) {
		out = append(out, string(m.GetMessage().GetBody()))
	}
	return out
}

// recorder collects the outcomes of a Sender.
type recorder struct {
	mu  sync.Mutex
	all []client.Outcome
}

func (r *recorder) add(o client.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, o)
}

func (r *recorder) outcomes() []client.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]client.Outcome(nil), r.all...)
}

// inOrder fails unless there is one outcome for each of n messages, in order.
func (r *recorder) inOrder(t *testing.T, n int) []client.Outcome {
	t.Helper()
	all := r.outcomes()
	if len(all) != n {
		t.Fatalf("%d outcomes for %d messages", len(all), n)
	}
	for i, o := range all {
		if o.Sequence != uint64(i+1) {
			t.Fatalf("outcome %d is that of message %d", i+1, o.Sequence)
		}
		if (o.Result == nil) == (o.Err == nil) {
			t.Fatalf("message %d: result %v and error %v", o.Sequence, o.Result, o.Err)
		}
	}
	return all
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
