package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// TestBrokenCallsLeaveNothingBehind: appends, streams and tails that nobody answers, or that are given up, end with all that
// belonged to them.
func TestBrokenCallsLeaveNothingBehind(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	g := clienttest.StartLedger(t, 3)
	block := make(chan struct{})
	g.BeforeAppend(func(*clienttest.LedgerNode, []byte) error { <-block; return errUnknown })
	c := dial(t, g, ledger.Options{TryTimeout: 20 * time.Millisecond})
	a := c.Appender(ledger.AppenderOptions{})
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if _, err := a.Append(ctx, []byte("x")); !errors.Is(err, ledger.ErrAppendUnknown) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("append: %v", err)
		}
		err := a.Stream(ctx, func(s *ledger.Sender) error {
			_, err := s.Send(ctx, []byte("x"), nil)
			return err
		})
		if err == nil {
			t.Error("the stream ended well")
		}
		if err := c.Tail(ctx, ledger.TailOptions{}, func(*ledger.Entry) error { return nil }); err == nil {
			t.Error("the tail ended well")
		}
		cancel()
	}
	close(block)
}
