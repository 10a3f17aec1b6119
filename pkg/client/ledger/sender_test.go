package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// send streams n numbered bodies and returns their outcomes.
func send(t *testing.T, a *ledger.Appender, n int) ([]ledger.Outcome, error) {
	t.Helper()
	r := &recorder{}
	err := a.Stream(t.Context(), func(s *ledger.Sender) error {
		for i := range n {
			if _, err := s.Send(t.Context(), fmt.Appendf(nil, "%04d", i), r.add); err != nil {
				return err
			}
		}
		return nil
	})
	return r.inOrder(t, n), err
}

func numbers(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%04d", i))
	}
	return all
}

func TestStream(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{MaxInFlight: 50, MaxBatch: 7})
	outcomes, err := send(t, a, 500)
	if err != nil || !slices.Equal(g.Bodies(), numbers(500)) {
		t.Fatalf("%v, %v", err, g.Bodies())
	}
	for i, o := range outcomes {
		if o.Err != nil || o.Index != int64(i) {
			t.Fatalf("entry %d: %+v", i, o)
		}
	}
}

// TestStreamStandsOnce breaks streams in every way, before and after entries stand, and moves the leader.
func TestStreamStandsOnce(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	var n atomic.Int32
	g.BeforeAppend(func(node *clienttest.LedgerNode, _ []byte) error {
		switch n.Add(1) % 40 {
		case 5:
			g.Lead(int(n.Load()) % 3)
		case 13:
			return errdefs.New(errdefs.ResourceExhausted, "LEADER_PENDING_FULL", "x")
		case 27:
			go func() { node.Stop(); node.Restart() }()
		}
		return nil
	})
	g.AfterAppend(func(*clienttest.LedgerNode, []byte) error {
		if n.Load()%40 == 33 {
			n.Add(1)
			return errUnknown
		}
		return nil
	})
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{MaxBatch: 10, MaxInFlight: 40})
	outcomes, err := send(t, a, 120)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.Bodies(), numbers(120)) {
		t.Errorf("the log: %v", g.Bodies())
	}
	for i, o := range outcomes {
		if o.Err != nil || o.Index != int64(i) {
			t.Errorf("entry %d: %+v", i, o)
		}
	}
}

func TestStreamWithoutKeysSaysWhatIsUnknown(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	g.Lead(1)
	var n atomic.Int32
	g.AfterAppend(func(*clienttest.LedgerNode, []byte) error {
		if n.Add(1) == 20 {
			return errUnknown
		}
		return nil
	})
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{NoKey: true, MaxBatch: 10, MaxInFlight: 30})
	outcomes, err := send(t, a, 100)
	if err != nil {
		t.Fatal(err)
	}
	unknown := 0
	bodies := g.Bodies()
	for i, o := range outcomes {
		body := fmt.Sprintf("%04d", i)
		switch {
		case errors.Is(o.Err, ledger.ErrAppendUnknown):
			unknown++
		case o.Err != nil:
			t.Errorf("entry %d: %v", i, o.Err)
		case bodies[o.Index] != body:
			t.Errorf("entry %d is not at %d", i, o.Index)
		}
		if count := len(slices.DeleteFunc(slices.Clone(bodies), func(b string) bool { return b != body })); count > 1 {
			t.Errorf("entry %d stands %d times", i, count)
		}
	}
	if unknown < 10 {
		t.Errorf("%d are unknown, the request that failed had 10", unknown)
	}
}

func TestStreamEndsWhereTryingDoesNotHelp(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	g.BeforeAppend(func(_ *clienttest.LedgerNode, body []byte) error {
		if string(body) >= "0005" {
			return errdefs.New(errdefs.PermissionDenied, "NOT_YOURS", "x")
		}
		return nil
	})
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{MaxBatch: 1})
	r := &recorder{}
	err := a.Stream(t.Context(), func(s *ledger.Sender) error {
		for i := range 10 {
			if _, err := s.Send(t.Context(), fmt.Appendf(nil, "%04d", i), r.add); err != nil {
				return nil //nolint:nilerr // Run has the reason
			}
		}
		return nil
	})
	if errdefs.ReasonOf(err) != "NOT_YOURS" {
		t.Fatalf("got %v", err)
	}
	for i, o := range r.inOrder(t, len(r.all)) {
		if i < 5 != (o.Err == nil) {
			t.Errorf("entry %d: %+v", i, o)
		}
		if i >= 5 && errdefs.ReasonOf(o.Err) == "" {
			t.Errorf("entry %d: %v", i, o.Err)
		}
	}
}

func TestStreamGivesUpALeaderThatIsSilent(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	block := make(chan struct{})
	defer close(block)
	g.BeforeAppend(func(n *clienttest.LedgerNode, _ []byte) error {
		if n == g.Nodes[0] {
			g.Lead(1)
			<-block
		}
		return nil
	})
	a := dial(t, g, ledger.Options{TryTimeout: 100 * time.Millisecond}).Appender(ledger.AppenderOptions{})
	if outcomes, err := send(t, a, 3); err != nil || outcomes[2].Index != 2 {
		t.Errorf("%v, %v", outcomes, err)
	}
}

func TestSendIsBounded(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	open := make(chan struct{})
	g.BeforeAppend(func(*clienttest.LedgerNode, []byte) error { <-open; return nil })
	a := dial(t, g, ledger.Options{TryTimeout: time.Minute}).Appender(ledger.AppenderOptions{MaxInFlight: 4})
	s := a.Sender()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(t.Context()) }()
	for range 4 {
		if _, err := s.Send(t.Context(), []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Send(within(t, 50*time.Millisecond), []byte("x"), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the fifth: %v", err)
	}
	if err := s.Await(t.Context(), 5); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("await what was not sent: %v", err)
	}
	close(open)
	if err := s.Flush(t.Context()); err != nil || len(g.Entries()) != 4 {
		t.Errorf("%v, %d entries", err, len(g.Entries()))
	}
	s.Close()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if _, err := s.Send(t.Context(), []byte("x"), nil); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := s.Run(t.Context()); errdefs.ReasonOf(err) != "ALREADY_RUN" {
		t.Errorf("run again: %v", err)
	}
}

// TestStreamAfterALongPause: a stream that was idle while others filled the window goes on, whether it asks for a newer index
// before it sends, or is told that its own is too old.
func TestStreamAfterALongPause(t *testing.T) {
	for _, aged := range []bool{true, false} {
		g := clienttest.StartLedger(t, 1)
		g.SetWindow(window)
		a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{})
		err := a.Stream(t.Context(), func(s *ledger.Sender) error {
			if _, err := s.Send(t.Context(), []byte("a"), nil); err != nil {
				return err
			}
			if err := s.Flush(t.Context()); err != nil {
				return err
			}
			fill(t, dial(t, g, ledger.Options{}), window+1)
			if aged {
				ledger.Age(s)
			}
			_, err := s.Send(t.Context(), []byte("b"), func(o ledger.Outcome) {
				if o.Err != nil {
					t.Errorf("aged %t, after the pause: %v", aged, o.Err)
				}
			})
			return err
		})
		if err != nil || len(g.Entries()) != window+3 {
			t.Errorf("aged %t: %v, %d entries", aged, err, len(g.Entries()))
		}
	}
}

// TestStreamWithoutKeysKeepsWhatWasNotTaken: a node says from which entry on it has taken nothing.
func TestStreamWithoutKeysKeepsWhatWasNotTaken(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	var n atomic.Int32
	g.BeforeAppend(func(*clienttest.LedgerNode, []byte) error {
		if n.Add(1) == 30 {
			g.Lead(2)
		}
		return nil
	})
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{NoKey: true, MaxBatch: 1, MaxInFlight: 30})
	outcomes, err := send(t, a, 100)
	if err != nil || !slices.Equal(g.Bodies(), numbers(100)) {
		t.Fatalf("%v, %v", err, g.Bodies())
	}
	for i, o := range outcomes {
		if o.Err != nil || o.Index != int64(i) {
			t.Errorf("entry %d: %+v", i, o)
		}
	}
}

// TestStreamWithoutKeysKeepsWhatCameBehindTheUnknown: a change of leader leaves one entry unknown, and the node says that it
// has taken nothing behind it.
func TestStreamWithoutKeysKeepsWhatCameBehindTheUnknown(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	var n atomic.Int32
	g.AfterAppend(func(*clienttest.LedgerNode, []byte) error {
		if n.Add(1) == 20 {
			g.Lead(2)
			return errUnknown.With("sequence", 21)
		}
		return nil
	})
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{NoKey: true, MaxBatch: 1, MaxInFlight: 30})
	outcomes, err := send(t, a, 100)
	if err != nil || !slices.Equal(g.Bodies(), numbers(100)) {
		t.Fatalf("%v, %v", err, g.Bodies())
	}
	for i, o := range outcomes {
		if i == 19 != errors.Is(o.Err, ledger.ErrAppendUnknown) || i != 19 && (o.Err != nil || o.Index != int64(i)) {
			t.Errorf("entry %d: %+v", i, o)
		}
	}
}
