package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// sendAll sends messages [0, n) and returns the outcomes, in order, when all are there.
func sendAll(t *testing.T, p *client.Producer, n int) []client.Outcome {
	t.Helper()
	var rec recorder
	err := p.Stream(t.Context(), func(s *client.Sender) error {
		for i := range n {
			if _, err := s.Send(t.Context(), message(i), rec.add); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec.inOrder(t, n)
}

func wantBodies(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%06d", i))
	}
	return out
}

func TestStreamKeepsTheOrder(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	c := dial(t, client.Options{}, a)
	const n = 5000
	all := sendAll(t, c.Producer(client.ProducerOptions{MaxInFlight: 100, MaxBatch: 7}), n)
	for i, o := range all {
		if o.Err != nil || o.Result.GetQueueOffset() != int64(i) {
			t.Fatalf("message %d: %v, %v", i, o.Result, o.Err)
		}
	}
	if got := bodies(a); !slices.Equal(got, wantBodies(0, n)) {
		t.Errorf("%d messages, not those sent in order", len(got))
	}
	if a.Calls("PutStream") != 1 {
		t.Errorf("%d streams", a.Calls("PutStream"))
	}
}

func TestStreamGathers(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	started, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		once.Do(func() { close(started) })
		<-gate
		return client.StatusOK, nil
	})
	c := dial(t, client.Options{}, a)
	s := c.Producer(client.ProducerOptions{MaxInFlight: 10, MaxBatch: 4}).Sender()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(t.Context()) }()
	var rec recorder
	for i := range 10 {
		if _, err := s.Send(t.Context(), message(i), rec.add); err != nil {
			t.Fatal(err)
		}
	}
	<-started
	if _, err := s.Send(within(t, 20*time.Millisecond), message(10), rec.add); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the eleventh of ten in flight: %v", err)
	}
	if len(rec.outcomes()) != 0 {
		t.Error("an outcome before any answer")
	}
	close(gate)
	if err := s.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	rec.inOrder(t, 10)
	s.Close()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if _, err := s.Send(t.Context(), message(1), nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

func TestSenderBoundsBytes(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	c := dial(t, client.Options{}, a)
	s := c.Producer(client.ProducerOptions{MaxInFlightBytes: 100}).Sender()
	big := &client.Message{Topic: "t", QueueId: new(int32), Body: make([]byte, 400)}
	if _, err := s.Send(t.Context(), big, nil); err != nil {
		t.Fatalf("one message above the bound must pass alone: %v", err)
	}
	if _, err := s.Send(within(t, 10*time.Millisecond), message(1), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("above the bound: %v", err)
	}
	go func() { _ = s.Run(t.Context()) }()
	seq, err := s.Send(t.Context(), message(1), nil)
	if err != nil || seq != 2 {
		t.Errorf("%d, %v", seq, err)
	}
	if err := s.Await(t.Context(), seq); err != nil {
		t.Error(err)
	}
	if err := s.Await(t.Context(), 3); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("awaiting what was not sent: %v", err)
	}
	s.Close()
}

func TestSenderChecksMessages(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	s := dial(t, client.Options{}, a).Producer(client.ProducerOptions{}).Sender()
	for _, m := range []*client.Message{nil, {Topic: "t"}, {Body: []byte("x")}} {
		if _, err := s.Send(t.Context(), m, nil); errdefs.ClassOf(err) != errdefs.InvalidArgument {
			t.Errorf("%v: %v", m, err)
		}
	}
}

// TestStreamFailsOver lets the master step down after some messages: the rest must be on the new one, all once, in order.
func TestStreamFailsOver(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true, Epoch: 2})
	var count atomic.Int32
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		if count.Add(1) == 500 {
			a.SetMaster(false, "")
			b.SetMaster(true, "")
		}
		return client.StatusOK, nil
	})
	c := dial(t, client.Options{}, a, b)
	const n = 2000
	for i, o := range sendAll(t, c.Producer(client.ProducerOptions{}), n) {
		if o.Err != nil || o.Result.GetStatus() != client.StatusOK {
			t.Fatalf("message %d: %v, %v", i, o.Result, o.Err)
		}
	}
	if got := bodies(a); !slices.Equal(got, wantBodies(0, 500)) {
		t.Errorf("%d messages on the old master", len(got))
	}
	if got := bodies(b); !slices.Equal(got, wantBodies(500, n)) {
		t.Errorf("%d messages on the new master", len(got))
	}
}

// TestStreamDoesNotReorderOverARefusal: a node that refuses one message as no master and takes the next must not get the
// first one again behind it.
func TestStreamDoesNotReorderOverARefusal(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	a.OnPut(func(m *client.Message) (storagev1.PutStatus, error) {
		if string(m.GetBody()) == "000003" {
			return client.StatusNotMaster, nil
		}
		return client.StatusOK, nil
	})
	c := dial(t, client.Options{}, a)
	s := c.Producer(client.ProducerOptions{}).Sender()
	var rec recorder
	for i := range 10 { // before Run: one request
		if _, err := s.Send(t.Context(), message(i), rec.add); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, o := range rec.inOrder(t, 10) {
		want := client.StatusOK
		if i == 3 {
			want = client.StatusNotMaster
		}
		if o.Result.GetStatus() != want {
			t.Errorf("message %d: %v, %v", i, o.Result, o.Err)
		}
	}
	if got := bodies(a); !slices.Equal(got, append(wantBodies(0, 3), wantBodies(4, 10)...)) {
		t.Errorf("stored %v", got)
	}
}

func TestStreamGoesOnAfterAnIllegalMessage(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	a.OnPut(func(m *client.Message) (storagev1.PutStatus, error) {
		if string(m.GetBody()) == "000003" {
			return 0, errdefs.Invalid("messages.body", "is bad")
		}
		return client.StatusOK, nil
	})
	all := sendAll(t, dial(t, client.Options{}, a).Producer(client.ProducerOptions{}), 10)
	if all[3].Result.GetStatus() != client.StatusMessageIllegal || all[4].Result.GetStatus() != client.StatusOK {
		t.Errorf("%v, %v", all[3], all[4])
	}
}

// TestStreamBreaks breaks the connection under a stream: what was not answered is unknown and not sent again, what had not
// left arrives later.
func TestStreamBreaks(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	var count atomic.Int32
	broken := make(chan struct{})
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		if count.Add(1) == 50 {
			go func() {
				a.Stop()
				close(broken)
			}()
			<-broken // this message is stored and its answer lost
		}
		return client.StatusOK, nil
	})
	go func() {
		<-broken
		a.Restart()
	}()
	c := dial(t, client.Options{}, a)
	const n = 1000
	all := sendAll(t, c.Producer(client.ProducerOptions{MaxBatch: 10, MaxInFlight: 100}), n)
	stored := map[string]int{}
	for _, b := range bodies(a) {
		stored[b]++
	}
	unknown := map[string]bool{}
	for i, o := range all {
		body := fmt.Sprintf("%06d", i)
		times := stored[body]
		switch {
		case o.Err == nil && o.Result.GetStatus() == client.StatusOK && times == 1:
		case errors.Is(o.Err, client.ErrOutcomeUnknown) && times <= 1:
			unknown[body] = true
		default:
			t.Errorf("message %d, stored %d times: %v, %v", i, times, o.Result, o.Err)
		}
	}
	if len(unknown) == 0 || len(unknown) > 100 {
		t.Errorf("%d unknown outcomes", len(unknown))
	}
	// What the broken stream's end still stores, it may store after what the next stream brought.
	if known := slices.DeleteFunc(bodies(a), func(b string) bool { return unknown[b] }); !slices.IsSorted(known) {
		t.Error("stored out of order")
	}
}

func TestStreamResends(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	var count atomic.Int32
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		if count.Add(1) == 50 {
			return 0, errdefs.New(errdefs.Internal, "PANIC", "the call failed inside the server")
		}
		return client.StatusOK, nil
	})
	c := dial(t, client.Options{}, a)
	const n = 200
	for i, o := range sendAll(t, c.Producer(client.ProducerOptions{Resend: true, MaxBatch: 10}), n) {
		if o.Err != nil {
			t.Errorf("message %d: %v", i, o.Err)
		}
	}
	if got := slices.Compact(bodies(a)); !slices.Equal(got, wantBodies(0, n)) {
		t.Errorf("%d different messages", len(got))
	}
}

// TestStreamTrustsTheSequenceOfAnError: the storage says from which message on nothing is stored, so nothing is unknown.
func TestStreamTrustsTheSequenceOfAnError(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	var count atomic.Int32
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		if n := count.Add(1); n == 50 {
			return 0, errdefs.New(errdefs.Unavailable, "SERVER_STOPPING", "stopping").With("sequence", n)
		}
		return client.StatusOK, nil
	})
	const n = 200
	for i, o := range sendAll(t, dial(t, client.Options{}, a).Producer(client.ProducerOptions{MaxBatch: 10}), n) {
		if o.Err != nil {
			t.Errorf("message %d: %v", i, o.Err)
		}
	}
	if got := bodies(a); !slices.Equal(got, wantBodies(0, n)) {
		t.Errorf("%d messages", len(got))
	}
}

func TestSenderGivesUpAndSaysOfEachMessage(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	a.Stop()
	s := dial(t, client.Options{}, a).Producer(client.ProducerOptions{RetryFor: -1}).Sender()
	var rec recorder
	for i := range 3 {
		if _, err := s.Send(t.Context(), message(i), rec.add); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Run(t.Context())
	if !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("Run: %v", err)
	}
	for _, o := range rec.inOrder(t, 3) {
		if !errors.Is(o.Err, client.ErrUnreachable) || errors.Is(o.Err, client.ErrOutcomeUnknown) {
			t.Errorf("message %d: %v", o.Sequence, o.Err)
		}
	}
	if _, err := s.Send(t.Context(), message(9), nil); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("Send after the end: %v", err)
	}
	if err := s.Run(t.Context()); errdefs.ReasonOf(err) != "ALREADY_RUN" {
		t.Errorf("a second Run: %v", err)
	}
}

func TestSenderIdlesOverARestart(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	c := dial(t, client.Options{}, a)
	var rec recorder
	err := c.Producer(client.ProducerOptions{}).Stream(t.Context(), func(s *client.Sender) error {
		for i := range 3 {
			if _, err := s.Send(t.Context(), message(i), rec.add); err != nil {
				return err
			}
			if err := s.Flush(t.Context()); err != nil {
				return err
			}
			a.Stop()
			a.Restart()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rec.inOrder(t, 3) {
		if o.Err != nil && !errors.Is(o.Err, client.ErrOutcomeUnknown) {
			t.Error(o.Err)
		}
	}
}

func TestSenderEndsWithItsContext(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	started, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		once.Do(func() { close(started) })
		<-gate
		return client.StatusOK, nil
	})
	defer close(gate)
	s := dial(t, client.Options{}, a).Producer(client.ProducerOptions{MaxBatch: 2}).Sender()
	ctx, cancel := context.WithCancel(t.Context())
	var rec recorder
	for i := range 3 {
		if _, err := s.Send(ctx, message(i), rec.add); err != nil {
			t.Fatal(err)
		}
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	<-started
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	all := rec.inOrder(t, 3)
	if !errors.Is(all[0].Err, client.ErrOutcomeUnknown) {
		t.Errorf("sent: %v", all[0].Err)
	}
}

func TestSenderGivesUpASilentStream(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true, Epoch: 2})
	gate := make(chan struct{})
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		a.SetMaster(false, "")
		b.SetMaster(true, "")
		<-gate
		return client.StatusOK, nil
	})
	defer close(gate)
	p := dial(t, client.Options{Timeout: 100 * time.Millisecond}, a, b).Producer(client.ProducerOptions{MaxInFlight: 1})
	all := sendAll(t, p, 2)
	if !errors.Is(all[0].Err, client.ErrOutcomeUnknown) || !errors.Is(all[0].Err, client.ErrStalled) {
		t.Errorf("the first: %v", all[0])
	}
	if all[1].Err != nil || len(bodies(b)) != 1 {
		t.Errorf("the second: %v", all[1])
	}
}
