package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

func TestPutCarriesTheTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	a := clienttest.Start(t, clienttest.Options{})
	c := dial(t, client.Options{TracerProvider: tp}, a)
	m := message(1)
	m.Properties = map[string]string{"k": "v"}
	ctx, root := tp.Tracer("test").Start(t.Context(), "root")
	r, err := c.Producer(client.ProducerOptions{}).Put(ctx, m)
	root.End()
	if err != nil || r.GetStatus() != client.StatusOK {
		t.Fatalf("%v, %v", r, err)
	}
	if len(m.GetProperties()) != 1 {
		t.Errorf("the caller's message was changed: %v", m.GetProperties())
	}
	props := a.Stored("t", 0)[0].GetMessage().GetProperties()
	var put trace.SpanContext
	for _, s := range spans.GetSpans() {
		if s.Name == "put t" && s.SpanKind == trace.SpanKindProducer && s.Parent.SpanID() == root.SpanContext().SpanID() {
			put = s.SpanContext
		}
	}
	want := "00-" + put.TraceID().String() + "-" + put.SpanID().String() + "-01"
	if !put.IsValid() || props["traceparent"] != want || props["k"] != "v" {
		t.Errorf("properties %v, want traceparent %s", props, want)
	}
}

func TestPutWithoutATraceAddsNothing(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	c := dial(t, client.Options{}, a)
	if _, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), message(1)); err != nil {
		t.Fatal(err)
	}
	if p := a.Stored("t", 0)[0].GetMessage().GetProperties(); len(p) != 0 {
		t.Errorf("properties %v", p)
	}
}

func TestPutFollowsTheNamedMaster(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{Slave: true}), clienttest.Start(t, clienttest.Options{})
	a.SetMaster(false, b.Addr())
	c := dial(t, client.Options{}, a) // b is known to a only
	p := c.Producer(client.ProducerOptions{RetryFor: -1})
	for i := range 3 {
		if _, err := p.Put(t.Context(), message(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(bodies(b)); got != 3 || a.Calls("Put") != 1 {
		t.Errorf("%d messages on the master, %d puts at the slave", got, a.Calls("Put"))
	}
}

func TestPutFindsTheMasterOfTheHighestEpoch(t *testing.T) {
	down := clienttest.Start(t, clienttest.Options{})
	stale := clienttest.Start(t, clienttest.Options{Epoch: 3})
	fresh := clienttest.Start(t, clienttest.Options{Epoch: 4})
	down.Stop()
	c := dial(t, client.Options{}, down, stale, fresh)
	if _, err := c.Producer(client.ProducerOptions{RetryFor: -1}).Put(t.Context(), message(1)); err != nil {
		t.Fatal(err)
	}
	if len(bodies(fresh)) != 1 || len(bodies(stale)) != 0 {
		t.Error("the put went to the master of the lower epoch")
	}
}

func TestPutFindsTheMasterBySlavesUpstream(t *testing.T) {
	gone, slave, master := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true}), clienttest.Start(t, clienttest.Options{})
	gone.Stop()
	slave.SetMaster(false, master.Addr()) // the upstream in its Status
	c := dial(t, client.Options{}, gone, slave)
	if _, err := c.Producer(client.ProducerOptions{RetryFor: -1}).Put(t.Context(), message(1)); err != nil {
		t.Fatal(err)
	}
	if len(bodies(master)) != 1 {
		t.Error("not at the slave's upstream")
	}
}

func TestPutWithoutAMasterSaysWhy(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{Slave: true})
	c := dial(t, client.Options{}, a)
	_, err := c.Producer(client.ProducerOptions{RetryFor: -1}).Put(t.Context(), message(1))
	if !errors.Is(err, client.ErrNoMaster) || !strings.Contains(err.Error(), a.Addr()+" is a slave") {
		t.Errorf("got %v", err)
	}
}

func TestPutUnreachable(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	a.Stop()
	c := dial(t, client.Options{}, a)
	_, err := c.Producer(client.ProducerOptions{RetryFor: -1}).Put(t.Context(), message(1))
	if !errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Fatalf("got %v", err)
	}
	if e := errdefs.As(err); e.Meta["address"] != a.Addr() || !strings.Contains(e.Error(), "connection refused") {
		t.Errorf("got %v", e)
	}
}

func TestPutTriesAgainWhatIsNotStored(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	var tries atomic.Int32
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		if tries.Add(1) < 3 {
			return 0, errdefs.New(errdefs.Unavailable, "STARTING", "not yet")
		}
		return client.StatusOK, nil
	})
	c := dial(t, client.Options{}, a)
	if _, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), message(1)); err != nil || tries.Load() != 3 {
		t.Errorf("%v after %d tries", err, tries.Load())
	}
}

func TestPutDoesNotTryAgainWhatCannotSucceed(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		return 0, errdefs.Invalid("message.topic", "is bad")
	})
	c := dial(t, client.Options{}, a)
	_, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), message(1))
	if errdefs.ClassOf(err) != errdefs.InvalidArgument || errdefs.As(err).Field != "message.topic" || a.Calls("Put") != 1 {
		t.Errorf("got %v after %d puts", err, a.Calls("Put"))
	}
}

func TestPutWithUnknownOutcomeIsNotSentAgain(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	block := make(chan struct{})
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) { <-block; return client.StatusOK, nil })
	defer close(block)
	c := dial(t, client.Options{}, a)
	_, err := c.Producer(client.ProducerOptions{}).Put(within(t, 50*time.Millisecond), message(1))
	if !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || a.Calls("Put") != 1 {
		t.Errorf("got %v after %d puts", err, a.Calls("Put"))
	}
}

func TestPutResendsWithOneKey(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	var tries atomic.Int32
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		if tries.Add(1) == 1 {
			return 0, errdefs.New(errdefs.Internal, "PANIC", "the call failed inside the server")
		}
		return client.StatusOK, nil
	})
	c := dial(t, client.Options{}, a)
	_, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), message(1))
	if !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Fatalf("without Resend: %v", err)
	}
	tries.Store(0)
	var keys []string
	a.OnPut(func(m *client.Message) (storagev1.PutStatus, error) {
		keys = append(keys, m.GetProperties()["UNIQ_KEY"])
		if tries.Add(1) == 1 {
			return 0, errdefs.New(errdefs.Internal, "PANIC", "the call failed inside the server")
		}
		return client.StatusOK, nil
	})
	r, err := c.Producer(client.ProducerOptions{Resend: true}).Put(t.Context(), message(2))
	if err != nil || len(keys) != 2 || keys[0] != keys[1] || len(keys[0]) != 32 || r.GetMessageId() != keys[0] {
		t.Errorf("%v, %v, keys %v", r, err, keys)
	}
}

func TestPutResentAndRefusedStaysUnknown(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	var tries atomic.Int32
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		if tries.Add(1) == 1 {
			return 0, errdefs.New(errdefs.Internal, "PANIC", "the call failed inside the server")
		}
		return client.StatusDiskFull, nil
	})
	c := dial(t, client.Options{}, a)
	r, err := c.Producer(client.ProducerOptions{Resend: true}).Put(t.Context(), message(1))
	if !errors.Is(err, client.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "later try") || r != nil {
		t.Errorf("%v, %v", r, err)
	}
}

func TestPutReturnsStatusesAsResults(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	c := dial(t, client.Options{}, a)
	acks := int32(2)
	p := c.Producer(client.ProducerOptions{Acks: &acks, SlaveTimeout: time.Second})
	for _, st := range []client.Status{client.StatusFlushSlaveTimeout, client.StatusSlaveNotAvailable, client.StatusDiskFull, client.StatusMessageIllegal} {
		a.OnPut(func(*client.Message) (storagev1.PutStatus, error) { return st, nil })
		r, err := p.Put(t.Context(), message(1))
		if err != nil || r.GetStatus() != st || r.GetReason() == "" || r.GetAckedSlaves() != 2 {
			t.Errorf("%v: %v, %v", st, r, err)
		}
		if client.Stored(st) != (r.GetOffset() >= 0) {
			t.Errorf("%v: Stored says %v, offset %d", st, client.Stored(st), r.GetOffset())
		}
	}
}

func TestPutBatch(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{Slave: true}), clienttest.Start(t, clienttest.Options{})
	a.SetMaster(false, b.Addr())
	c := dial(t, client.Options{}, a)
	p := c.Producer(client.ProducerOptions{})
	rs, err := p.PutBatch(t.Context(), []*client.Message{message(0), message(1), message(2)})
	if err != nil || len(rs) != 3 || rs[2].GetQueueOffset() != 2 {
		t.Errorf("%v, %v", rs, err)
	}
	if _, err := p.PutBatch(t.Context(), nil); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("an empty batch: %v", err)
	}
}

func TestDialChecksAddresses(t *testing.T) {
	for _, addrs := range [][]string{nil, {""}, {"localhost"}, {"127.0.0.1:10911", "x:"}} {
		_, err := client.Dial(t.Context(), client.Options{Addresses: addrs})
		if e := errdefs.As(err); e == nil || e.Field != "addresses" || e.Remedy == "" {
			t.Errorf("%q: %v", addrs, err)
		}
	}
}

func TestDialWaitsUntilReady(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	a.Stop()
	o := client.Options{Addresses: []string{a.Addr()}, WaitReady: true}
	if _, err := client.Dial(within(t, 100*time.Millisecond), o); !errors.Is(err, client.ErrUnreachable) {
		t.Fatalf("got %v", err)
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := client.Dial(within(t, 10*time.Second), o)
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	a.Restart()
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

func TestClosedClient(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	c, err := client.Dial(t.Context(), client.Options{Addresses: []string{a.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), message(1)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestPutOnABrokenConnectionIsUnknown(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	block := make(chan struct{})
	a.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		go a.Stop()
		<-block
		return client.StatusOK, nil
	})
	defer close(block)
	c := dial(t, client.Options{}, a)
	_, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), message(1))
	if !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, client.ErrUnreachable) || a.Calls("Put") != 1 {
		t.Errorf("got %v after %d puts", err, a.Calls("Put"))
	}
}
