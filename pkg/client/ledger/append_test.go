package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

var errUnknown = errdefs.New(errdefs.Unknown, "APPEND_UNKNOWN", "leadership ended before the entry was committed")

func TestAppend(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{Channel: 7})
	for i := range 3 {
		r, err := a.Append(t.Context(), []byte{byte('a' + i)})
		if err != nil || r.GetIndex() != int64(i) || r.GetTerm() != 1 || r.GetRepeated() {
			t.Fatalf("%v, %v", r, err)
		}
	}
	b, err := a.AppendBatch(t.Context(), [][]byte{[]byte("d"), []byte("e")})
	if err != nil || !slices.Equal(b.GetIndexes(), []int64{3, 4}) {
		t.Fatalf("%v, %v", b, err)
	}
	for i, e := range g.Entries() {
		if len(e.GetClientId()) != 16 || !bytes.Equal(e.GetClientId(), g.Entries()[0].GetClientId()) || e.GetSequence() != uint64(i+1) || e.GetChannel() != 7 {
			t.Errorf("entry %d: %v", i, e)
		}
	}
}

func TestAppendFollowsTheNamedLeader(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	g.Lead(2)
	c := dial(t, g, ledger.Options{}, g.Nodes[0].Addr()) // the others are known to the nodes only
	a := c.Appender(ledger.AppenderOptions{RetryFor: -1})
	for range 3 {
		if _, err := a.Append(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.Nodes[0].Calls("Append"); n != 1 || len(g.Entries()) != 3 {
		t.Errorf("%d appends at a follower, %d entries", n, len(g.Entries()))
	}
}

func TestAppendFindsTheLeaderAmongTheAddresses(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	c := dial(t, g, ledger.Options{})
	a := c.Appender(ledger.AppenderOptions{RetryFor: -1})
	if _, err := a.Append(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	g.Nodes[0].Stop()
	g.Lead(1)
	if _, err := a.Append(t.Context(), []byte("y")); err != nil || len(g.Entries()) != 2 {
		t.Fatalf("%v, %d entries", err, len(g.Entries()))
	}
	if addr, err := c.FindLeader(t.Context()); err != nil || addr != g.Nodes[1].Addr() {
		t.Errorf("%v, %v", addr, err)
	}
}

func TestAppendWithoutALeaderSaysWhy(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	g.Lead(-1)
	g.Nodes[2].Stop()
	_, err := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{RetryFor: -1}).Append(t.Context(), []byte("x"))
	if !errors.Is(err, ledger.ErrNoLeader) || !strings.Contains(err.Error(), g.Nodes[0].Addr()+" is a follower") ||
		!strings.Contains(err.Error(), g.Nodes[2].Addr()+" is not reached") {
		t.Errorf("got %v", err)
	}
}

func TestAppendWaitsForALeader(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	g.Lead(-1)
	var once sync.Once
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{OnRetry: func(err error, _ time.Duration) {
		if !errors.Is(err, ledger.ErrNoLeader) {
			t.Errorf("it waits for %v", err)
		}
		once.Do(func() { g.Lead(1) })
	}})
	if r, err := a.Append(t.Context(), []byte("x")); err != nil || r.GetTerm() != 3 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestAppendStandsOnce loses the first answer; the entry stands, and the second try finds it, at another leader.
func TestAppendStandsOnce(t *testing.T) {
	for name, lose := range map[string]func(n *clienttest.LedgerNode) error{
		"the node says that it does not know": func(*clienttest.LedgerNode) error { return errUnknown },
		"the connection breaks":               func(n *clienttest.LedgerNode) error { n.Stop(); return errUnknown },
		"the node fails":                      func(*clienttest.LedgerNode) error { return errdefs.New(errdefs.DataLoss, "LOG_FAULTED", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			g := clienttest.StartLedger(t, 3)
			var tries atomic.Int32
			g.AfterAppend(func(n *clienttest.LedgerNode, _ []byte) error {
				if tries.Add(1) > 1 {
					return nil
				}
				g.Lead(1)
				return lose(n)
			})
			r, err := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{}).Append(t.Context(), []byte("x"))
			if err != nil || r.GetIndex() != 0 || !r.GetRepeated() || len(g.Entries()) != 1 {
				t.Errorf("%v, %v, %d entries", r, err, len(g.Entries()))
			}
		})
	}
}

func TestAppendGivesUpANodeThatIsSilent(t *testing.T) {
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
	a := dial(t, g, ledger.Options{TryTimeout: 50 * time.Millisecond}).Appender(ledger.AppenderOptions{})
	if r, err := a.Append(t.Context(), []byte("x")); err != nil || r.GetTerm() != 2 {
		t.Errorf("%v, %v", r, err)
	}
}

func TestAppendWithoutAKeyIsNotSentAgain(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	g.AfterAppend(func(*clienttest.LedgerNode, []byte) error { return errUnknown })
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{NoKey: true})
	if _, err := a.Append(t.Context(), []byte("x")); !errors.Is(err, ledger.ErrAppendUnknown) || g.Nodes[0].Calls("Append") != 1 {
		t.Errorf("%v after %d tries", err, g.Nodes[0].Calls("Append"))
	}
	if e := g.Entries(); len(e) != 1 || len(e[0].GetClientId()) != 0 || e[0].GetSequence() != 0 {
		t.Errorf("%v", e)
	}
	var tries atomic.Int32
	g.AfterAppend(nil)
	g.BeforeAppend(func(*clienttest.LedgerNode, []byte) error {
		if tries.Add(1) < 3 {
			return errdefs.New(errdefs.ResourceExhausted, "LEADER_PENDING_FULL", "x")
		}
		return nil
	})
	if _, err := a.Append(t.Context(), []byte("y")); err != nil || tries.Load() != 3 {
		t.Errorf("what is certainly not there: %v after %d tries", err, tries.Load())
	}
}

func TestAppendUnknownAtTheDeadline(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	g.AfterAppend(func(*clienttest.LedgerNode, []byte) error { return errUnknown })
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{})
	_, err := a.Append(within(t, 300*time.Millisecond), []byte("x"))
	if !errors.Is(err, ledger.ErrAppendUnknown) || g.Nodes[0].Calls("Append") < 2 || len(g.Entries()) != 1 {
		t.Errorf("%v after %d tries", err, g.Nodes[0].Calls("Append"))
	}
	// A later refusal does not make it certain that the entry is not there.
	var tries atomic.Int32
	g.BeforeAppend(func(*clienttest.LedgerNode, []byte) error {
		if tries.Add(1) > 1 {
			return errdefs.New(errdefs.InvalidArgument, "INVALID_FIELD", "x")
		}
		return nil
	})
	if _, err := a.Append(t.Context(), []byte("y")); !errors.Is(err, ledger.ErrAppendUnknown) {
		t.Errorf("got %v", err)
	}
}

// TestAppendAfterALongPause: the group has forgotten the keys since this client's last append. That is no reason to refuse an
// entry that was never sent before; one that was stays unknown.
func TestAppendAfterALongPause(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	g.SetWindow(window)
	c := dial(t, g, ledger.Options{})
	a := c.Appender(ledger.AppenderOptions{})
	if _, err := a.Append(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	fill(t, dial(t, g, ledger.Options{}), window+1)
	if r, err := a.Append(t.Context(), []byte("b")); err != nil || r.GetRepeated() {
		t.Fatalf("%v, %v", r, err)
	}
	other := dial(t, g, ledger.Options{})
	g.AfterAppend(func(_ *clienttest.LedgerNode, body []byte) error {
		if string(body) == "c" {
			fill(t, other, window+1)
			return errUnknown
		}
		return nil
	})
	before := len(g.Entries())
	_, err := a.Append(t.Context(), []byte("c"))
	if !errors.Is(err, ledger.ErrAppendUnknown) || !errors.Is(err, ledger.ErrWindowPassed) {
		t.Errorf("got %v", err)
	}
	if n := len(g.Entries()); n != before+window+2 {
		t.Errorf("%d entries, want one of its own", n-before)
	}
}

func TestAppendChecksBodies(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	a := dial(t, g, ledger.Options{}).Appender(ledger.AppenderOptions{})
	for _, bodies := range [][][]byte{nil, {nil}, {make([]byte, 1<<17)}, {[]byte("x"), nil}} {
		if _, err := a.AppendBatch(t.Context(), bodies); errdefs.ClassOf(err) != errdefs.InvalidArgument || g.Nodes[0].Calls("AppendBatch") != 0 {
			t.Errorf("%d bodies: %v", len(bodies), err)
		}
	}
	if _, err := a.Append(t.Context(), nil); errdefs.As(err).Field != "body" {
		t.Errorf("got %v", err)
	}
}

func TestAppendUnreachableAndClosed(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	c := dial(t, g, ledger.Options{})
	a := c.Appender(ledger.AppenderOptions{RetryFor: -1})
	g.Nodes[0].Stop()
	if _, err := a.Append(within(t, 500*time.Millisecond), []byte("x")); !errors.Is(err, ledger.ErrUnreachable) || errdefs.As(err).Meta["address"] != g.Nodes[0].Addr() {
		t.Errorf("got %v", err)
	}
	g.Nodes[0].Restart()
	if _, err := a.Append(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Append(ctx, []byte("y")); err == nil || errors.Is(err, ledger.ErrAppendUnknown) {
		t.Errorf("cancelled before it began: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), []byte("z")); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestDialChecksAddresses(t *testing.T) {
	for _, addrs := range [][]string{nil, {""}, {"localhost"}} {
		_, err := ledger.Dial(ledger.Options{Addresses: addrs})
		if e := errdefs.As(err); e == nil || e.Field != "addresses" || e.Remedy == "" {
			t.Errorf("%q: %v", addrs, err)
		}
	}
}
