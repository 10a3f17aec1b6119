package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

var errTooLarge = errdefs.New(errdefs.ResourceExhausted, grpcx.ReasonMessageTooLarge, "")

// outage lets a storage be away for some tries, then be there without being a master, then be one. Its method is an OnRetry.
type outage struct {
	a     *clienttest.Storage
	tries int
}

func (o *outage) onRetry(error, time.Duration) {
	switch o.tries++; o.tries {
	case 2:
		o.a.Restart()
		o.a.SetMaster(false, "")
	case 4:
		o.a.SetMaster(true, "")
	}
}

func TestPutsOutlastAnOutage(t *testing.T) {
	for _, resend := range []bool{false, true} {
		a := clienttest.Start(t, clienttest.Options{})
		a.Stop()
		c := dial(t, client.Options{Timeout: time.Minute}, a)
		o := &outage{a: a}
		p := c.Producer(client.ProducerOptions{Resend: resend, OnRetry: o.onRetry})
		if _, err := p.Put(t.Context(), message(0)); err != nil || o.tries < 4 {
			t.Errorf("resend %v: Put: %v after %d tries", resend, err, o.tries)
		}
		a.Stop()
		o.tries = 0
		for i, o := range sendAll(t, p, 20) {
			if o.Err != nil || o.Result.GetStatus() != client.StatusOK {
				t.Errorf("resend %v: message %d: %v, %v", resend, i, o.Result, o.Err)
			}
		}
		if got := len(bodies(a)); got != 21 || o.tries < 4 {
			t.Errorf("resend %v: %d messages stored, %d tries", resend, got, o.tries)
		}
	}
}

func TestPutGivesUpWithTheReasonNotTheDeadline(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{Slave: true}), clienttest.Start(t, clienttest.Options{})
	b.Stop()
	c := dial(t, client.Options{}, a, b)
	_, err := c.Producer(client.ProducerOptions{}).Put(within(t, 300*time.Millisecond), message(1))
	if !errors.Is(err, client.ErrNoMaster) || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Fatalf("got %v", err)
	}
	want := "no node takes puts: " + a.Addr() + " is a slave, " + b.Addr() + " is not reached (connection refused)"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestPutWithoutAnOpenMasterSaysWhatTheMasterLacks(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{Slave: true})
	a.OnStatus(func(st *storagev1.StatusResponse) {
		st.Role, st.Reason, st.Remedy = storagev1.Role_ROLE_SYNC_MASTER, "NOT_ENOUGH_NODES", "start the others"
	})
	_, err := dial(t, client.Options{}, a).Producer(client.ProducerOptions{RetryFor: -1}).Put(t.Context(), message(1))
	if want := "no node takes puts: " + a.Addr() + " is a master but not open (NOT_ENOUGH_NODES); start the others"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestSenderRefusesWhatIsTooLarge: on the stream gRPC would say so of all that is on it.
func TestSenderRefusesWhatIsTooLarge(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	c := dial(t, client.Options{MaxMessage: 64 << 10}, a)
	var rec recorder
	err := c.Producer(client.ProducerOptions{}).Stream(t.Context(), func(s *client.Sender) error {
		for i := range 40 { // together more than one request may hold
			m := message(i)
			m.Properties = map[string]string{"long": strings.Repeat("x", 10<<10)}
			if _, err := s.Send(t.Context(), m, rec.add); err != nil {
				return err
			}
		}
		big := &client.Message{Topic: "t", Body: make([]byte, 64<<10)}
		if _, err := s.Send(t.Context(), big, rec.add); !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), "vs. 65536)") {
			t.Errorf("got %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rec.inOrder(t, 40) {
		if o.Err != nil {
			t.Errorf("message %d: %v", o.Sequence, o.Err)
		}
	}
}

// TestStreamGivesUpWhatTheStorageFindsTooLarge: another try ends in the same way.
func TestStreamGivesUpWhatTheStorageFindsTooLarge(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{}) // takes gRPC's 4 MiB
	tries := 0
	p := dial(t, client.Options{MaxMessage: 16 << 20}, a).Producer(client.ProducerOptions{Resend: true, OnRetry: func(error, time.Duration) { tries++ }})
	var rec recorder
	err := p.Stream(t.Context(), func(s *client.Sender) error {
		_, err := s.Send(t.Context(), &client.Message{Topic: "t", Body: make([]byte, 5<<20)}, rec.add)
		return err
	})
	if !errors.Is(err, errTooLarge) || tries > 0 {
		t.Errorf("got %v after %d tries", err, tries)
	}
	if o := rec.inOrder(t, 1)[0]; !errors.Is(o.Err, errTooLarge) || errors.Is(o.Err, client.ErrOutcomeUnknown) {
		t.Errorf("got %v: it is certainly not stored", o.Err)
	}
}
