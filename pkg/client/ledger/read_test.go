package ledger_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

func TestReads(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	c := dial(t, g, ledger.Options{TryTimeout: time.Second})
	g.NoOp()
	fill(t, c, 9)
	for _, stopped := range []int{-1, 0, 1} { // the last one answers for all
		if stopped >= 0 {
			g.Nodes[stopped].Stop()
		}
		e, err := c.Get(t.Context(), 0, ledger.Linearizable)
		if err != nil || !e.GetNoOp() {
			t.Errorf("%v, %v", e, err)
		}
		r, err := c.GetRange(t.Context(), &ledgerv1.GetRangeRequest{Index: 3, MaxEntries: 4})
		if err != nil || len(r.GetEntries()) != 4 || r.GetNextIndex() != 7 || r.GetCommittedIndex() != 9 {
			t.Errorf("%v, %v", r, err)
		}
		b, err := c.Bounds(t.Context(), ledger.Local)
		if err != nil || b.GetCommittedIndex() != 9 {
			t.Errorf("%v, %v", b, err)
		}
	}
	if _, err := c.Get(t.Context(), 10, ledger.Local); !errors.Is(err, ledger.ErrNotCommitted) || errdefs.As(err).Meta["committed"] != "9" {
		t.Errorf("got %v", err)
	}
	g.Nodes[2].Stop()
	if _, err := c.Get(within(t, 200*time.Millisecond), 0, ledger.Local); !errors.Is(err, ledger.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

var errEnough = errors.New("enough")

func TestTailGoesOnAtTheNextNode(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	c := dial(t, g, ledger.Options{})
	a := c.Appender(ledger.AppenderOptions{})
	const all = 30
	appended := make(chan error, 1)
	go func() {
		for i := range all {
			if _, err := a.Append(t.Context(), fmt.Appendf(nil, "%d", i)); err != nil {
				appended <- err
				return
			}
		}
		appended <- nil
	}()
	next := 0
	err := c.Tail(t.Context(), ledger.TailOptions{}, func(e *ledger.Entry) error {
		if e.GetIndex() != int64(next) || string(e.GetBody()) != fmt.Sprint(next) {
			return fmt.Errorf("entry %d: %v", next, e)
		}
		if next++; next%10 == 5 {
			n := g.Nodes[next/10]
			n.Stop()
			g.Lead((next/10 + 1) % 3)
			n.Restart()
		}
		if next == all {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("after %d entries: %v", next, err)
	}
	if err := <-appended; err != nil {
		t.Error(err)
	}
}

func TestTailFromTheEnd(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	c := dial(t, g, ledger.Options{})
	fill(t, c, 3)
	first := make(chan int64, 1)
	tailed := make(chan error, 1)
	go func() {
		tailed <- c.Tail(t.Context(), ledger.TailOptions{From: -1}, func(e *ledger.Entry) error {
			first <- e.GetIndex()
			return errEnough
		})
	}()
	for g.Nodes[0].Calls("Tail") == 0 {
		if t.Context().Err() != nil {
			t.Fatal("no tail began")
		}
		runtime.Gosched()
	}
	fill(t, c, 1)
	if err := <-tailed; !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	if n := <-first; n != 3 {
		t.Errorf("it began at %d", n)
	}
}

// TestTailOfAnIdleLedgerOutlivesAnOutage: nothing has come yet when the only node goes away for a while.
func TestTailOfAnIdleLedgerOutlivesAnOutage(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	tailed := make(chan error, 1)
	go func() {
		tailed <- dial(t, g, ledger.Options{}).Tail(t.Context(), ledger.TailOptions{}, func(*ledger.Entry) error { return errEnough })
	}()
	for g.Nodes[0].Calls("Tail") == 0 {
		if t.Context().Err() != nil {
			t.Fatal("no tail began")
		}
		runtime.Gosched()
	}
	g.Nodes[0].Stop()
	g.Nodes[0].Restart()
	fill(t, dial(t, g, ledger.Options{}), 1)
	if err := <-tailed; !errors.Is(err, errEnough) {
		t.Errorf("got %v", err)
	}
}

// TestAnAnswerThatIsTooLargeIsFinal: no node gives a smaller one, however often it is asked.
func TestAnAnswerThatIsTooLargeIsFinal(t *testing.T) {
	g := clienttest.StartLedger(t, 2)
	if _, err := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{}).Append(t.Context(), make([]byte, 50<<10)); err != nil {
		t.Fatal(err)
	}
	c := dial(t, g, ledger.Options{MaxMessage: 32 << 10, Timeout: time.Second})
	if _, err := c.Get(t.Context(), 0, ledger.Local); errdefs.ReasonOf(err) != grpcx.ReasonMessageTooLarge {
		t.Errorf("get: %v", err)
	}
	err := c.Tail(within(t, 10*time.Second), ledger.TailOptions{OnRetry: func(err error, _ time.Duration) {
		t.Errorf("tried again after %v", err)
	}}, func(*ledger.Entry) error { return errEnough })
	if errdefs.ReasonOf(err) != grpcx.ReasonMessageTooLarge {
		t.Errorf("tail: %v", err)
	}
	if gets, tails := g.Nodes[0].Calls("Get")+g.Nodes[1].Calls("Get"), g.Nodes[0].Calls("Tail")+g.Nodes[1].Calls("Tail"); gets != 1 || tails != 1 {
		t.Errorf("asked %d and %d times", gets, tails)
	}
}

// TestTailThatNoNodeTakesGivesUp: each is asked once.
func TestTailThatNoNodeTakesGivesUp(t *testing.T) {
	g := clienttest.StartLedger(t, 2)
	broken := errdefs.New(errdefs.DataLoss, "ENTRY_CORRUPT", "by the test")
	g.BeforeTail(func(*clienttest.LedgerNode) error { return broken })
	err := dial(t, g, ledger.Options{}).Tail(within(t, 20*time.Second), ledger.TailOptions{}, func(*ledger.Entry) error { return nil })
	if errdefs.ReasonOf(err) != broken.Reason || g.Nodes[0].Calls("Tail") != 1 || g.Nodes[1].Calls("Tail") != 1 {
		t.Errorf("got %v after %d and %d calls", err, g.Nodes[0].Calls("Tail"), g.Nodes[1].Calls("Tail"))
	}
}

func TestTailWithoutANodeGivesUp(t *testing.T) {
	g := clienttest.StartLedger(t, 2)
	g.Nodes[0].Stop()
	g.Nodes[1].Stop()
	err := dial(t, g, ledger.Options{}).Tail(t.Context(), ledger.TailOptions{}, func(*ledger.Entry) error { return nil })
	if !errors.Is(err, ledger.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

func TestAdmin(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	c := dial(t, g, ledger.Options{}, g.Nodes[1].Addr())
	ids, err := must(t, c, g.Nodes[0].Addr()).Bootstrap(t.Context(), []string{"n2", "n0", "n1"})
	if err != nil || len(ids) != 3 {
		t.Fatalf("%v, %v", ids, err)
	}
	st, err := must(t, c, g.Nodes[0].Addr()).Status(t.Context())
	if err != nil || ledger.RoleName(st.GetRole()) != "leader" || len(st.GetFollowers()) != 2 || ledger.PushStateName(st.GetFollowers()[0].GetState()) != "APPEND" {
		t.Errorf("%v, %v", st, err)
	}
	seen := 0
	err = must(t, c, "").WatchStatus(t.Context(), 100*time.Millisecond, func(st *ledger.NodeStatus) error {
		if seen++; seen == 3 {
			return errEnough
		}
		if st.GetId() != "n1" {
			t.Errorf("%v", st)
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
	moved, err := c.Transfer(t.Context(), "n2") // only n1 is known, which names n0
	if err != nil || moved.GetTarget() != "n2" || moved.GetTerm() != 1 {
		t.Fatalf("%v, %v", moved, err)
	}
	if addr, err := c.FindLeader(t.Context()); err != nil || addr != g.Nodes[2].Addr() {
		t.Errorf("%v, %v", addr, err)
	}
	if _, err := c.Transfer(t.Context(), "n9"); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

func must(t *testing.T, c *ledger.Client, addr string) *ledger.Admin {
	t.Helper()
	a, err := c.Admin(addr)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
