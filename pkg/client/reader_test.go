package client_test

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"runtime"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

func put(t *testing.T, a *clienttest.Storage, from, to int) {
	t.Helper()
	p := dial(t, client.Options{}, a).Producer(client.ProducerOptions{})
	for i := from; i < to; i++ {
		if _, err := p.Put(t.Context(), message(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReaderGoesToTheNextAddress(t *testing.T) {
	down, a := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{})
	put(t, a, 0, 3)
	down.Stop()
	r := dial(t, client.Options{}, down, a).Reader()
	resp, err := r.Get(t.Context(), &client.GetRequest{Topic: "t", QueueOffset: 1})
	if err != nil || len(resp.GetMessages()) != 2 || resp.GetNextQueueOffset() != 3 {
		t.Errorf("%v, %v", resp, err)
	}
	m, err := r.GetByOffset(t.Context(), 6)
	if err != nil || string(m.GetMessage().GetBody()) != "000001" {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := r.GetByOffset(t.Context(), 7); errdefs.ReasonOf(err) != "NO_RECORD" || a.Calls("GetByOffset") != 2 {
		t.Errorf("an answer with an error is an answer: %v after %d calls", err, a.Calls("GetByOffset"))
	}
	a.Stop()
	if _, err := r.Get(t.Context(), &client.GetRequest{Topic: "t"}); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

func TestQueuesReadsAllPages(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{Queues: 5})
	c := dial(t, client.Options{}, a)
	for range 7 {
		if _, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), &client.Message{Topic: "t", Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	qs, err := c.Reader().Queues(t.Context(), "t")
	if err != nil || len(qs) != 5 || qs[1].GetMaxQueueOffset() != 2 || qs[4].GetMaxQueueOffset() != 1 {
		t.Errorf("%v, %v", qs, err)
	}
	admin, err := c.Admin("")
	if err != nil {
		t.Fatal(err)
	}
	if qs, err := admin.ListQueues(t.Context(), "other"); err != nil || len(qs) != 0 {
		t.Errorf("%v, %v", qs, err)
	}
}

func TestTailGoesOnWhereItWas(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	put(t, a, 0, 5)
	var got []string
	var retries int
	done := errors.New("enough")
	err := dial(t, client.Options{}, a).Reader().Tail(t.Context(), client.TailOptions{
		Topic: "t", From: 1,
		OnRetry: func(err error, pause time.Duration) {
			if err == nil || pause <= 0 {
				t.Errorf("%v, %v", err, pause)
			}
			retries++
		},
	}, func(m *client.StoredMessage) error {
		got = append(got, string(m.GetMessage().GetBody()))
		switch len(got) {
		case 3:
			a.Stop() // in the middle of what one answer brought
			a.Restart()
			put(t, a, 5, 7)
		case 6:
			return done
		}
		return nil
	})
	if !errors.Is(err, done) || !slices.Equal(got, wantBodies(1, 7)) {
		t.Errorf("%v, %v", got, err)
	}
	if retries == 0 {
		t.Error("OnRetry was not told")
	}
}

func TestTailNeedsOneAnswerFirst(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{})
	a.Stop()
	b.Stop()
	none := func(*client.StoredMessage) error { return nil }
	err := dial(t, client.Options{}, a, b).Reader().Tail(t.Context(), client.TailOptions{Topic: "t"}, none)
	if !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	b.Restart()
	put(t, b, 0, 1)
	err = dial(t, client.Options{}, b).Reader().Tail(t.Context(), client.TailOptions{Topic: "t", From: 5}, none)
	if errdefs.ClassOf(err) != errdefs.OutOfRange {
		t.Errorf("behind the end: %v", err)
	}
	err = dial(t, client.Options{}, b, a).Reader().Tail(within(t, 20*time.Second), client.TailOptions{Topic: "t", From: 5}, none)
	if errdefs.ClassOf(err) != errdefs.OutOfRange {
		t.Errorf("behind the end, the other address down: %v", err)
	}
}

// TestTailOfAnIdleQueueOutlivesAnOutage: nothing has come yet when the only node goes away for a while.
func TestTailOfAnIdleQueueOutlivesAnOutage(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	done := errors.New("enough")
	tailed := make(chan error, 1)
	go func() {
		tailed <- dial(t, client.Options{}, a).Reader().Tail(t.Context(), client.TailOptions{Topic: "t"}, func(m *client.StoredMessage) error {
			if body := string(m.GetMessage().GetBody()); body != "000000" {
				t.Errorf("got %q", body)
			}
			return done
		})
	}()
	for a.Calls("GetStream") == 0 {
		if t.Context().Err() != nil {
			t.Fatal("no tail began")
		}
		runtime.Gosched()
	}
	a.Stop()
	a.Restart()
	put(t, a, 0, 1)
	if err := <-tailed; !errors.Is(err, done) {
		t.Errorf("got %v", err)
	}
}

// TestTailEndsWhereAllRefuse: another try would end the same way.
func TestTailEndsWhereAllRefuse(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	put(t, a, 0, 1)
	for _, code := range []codes.Code{codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied} {
		retries := 0
		a.OnGetStream(func(r *storagev1.GetStreamRequest) error {
			if r.GetQueueOffset() == 0 {
				return nil
			}
			return status.Error(code, "by the test")
		})
		ctx, cancel := context.WithCancel(t.Context())
		err := dial(t, client.Options{}, a).Reader().Tail(ctx, client.TailOptions{Topic: "t", OnRetry: func(error, time.Duration) {
			if retries++; retries > 1 { // the first is for the outage
				cancel()
			}
		}}, func(*client.StoredMessage) error {
			a.Stop()
			a.Restart()
			return nil
		})
		cancel()
		if status.Code(grpcx.ToStatus(err)) != code || retries != 1 {
			t.Errorf("%v: got %v after %d retries", code, err, retries)
		}
	}
}

// TestTailPassesALaggingReplica: after the break the next address has not all messages yet.
func TestTailPassesALaggingReplica(t *testing.T) {
	a, lagging := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{})
	put(t, a, 0, 4)
	put(t, lagging, 0, 1)
	var got []string
	done := errors.New("enough")
	err := dial(t, client.Options{}, a, lagging).Reader().Tail(t.Context(), client.TailOptions{Topic: "t"}, func(m *client.StoredMessage) error {
		got = append(got, string(m.GetMessage().GetBody()))
		switch len(got) {
		case 4:
			a.Stop()
			a.Restart()
			put(t, a, 4, 5)
		case 5:
			return done
		}
		return nil
	})
	if !errors.Is(err, done) || !slices.Equal(got, wantBodies(0, 5)) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTailFilters(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	p := dial(t, client.Options{}, a).Producer(client.ProducerOptions{})
	for _, tag := range []string{"x", "y", "x", "z"} {
		if _, err := p.Put(t.Context(), &client.Message{Topic: "t", QueueId: new(int32), Body: []byte("b"), Tag: tag}); err != nil {
			t.Fatal(err)
		}
	}
	var got []int64
	ctx, cancel := context.WithCancel(t.Context())
	err := dial(t, client.Options{}, a).Reader().Tail(ctx, client.TailOptions{Topic: "t", Filter: "y||z"}, func(m *client.StoredMessage) error {
		got = append(got, m.GetQueueOffset())
		if len(got) == 2 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || !slices.Equal(got, []int64{1, 3}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAdmin(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	log := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // 3.2 MB: several chunks
	a.SetLog(1000, log)
	admin, err := dial(t, client.Options{}, a).Admin("")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	st, err := admin.Status(ctx)
	if err != nil || st.GetWatermarks().GetWrittenOffset() != 1000+int64(len(log)) {
		t.Errorf("%v, %v", st, err)
	}
	if n, err := admin.FlushNow(ctx); err != nil || n != 1000+int64(len(log)) {
		t.Errorf("%d, %v", n, err)
	}
	var b bytes.Buffer
	if n, err := admin.Range(ctx, 1001, 0, &b); err != nil || n != int64(len(log)-1) || !bytes.Equal(b.Bytes(), log[1:]) {
		t.Errorf("range of %d bytes, %v", n, err)
	}
	if _, err := admin.Range(ctx, 0, 10, &b); errdefs.ReasonOf(err) != "OFFSET_OUTSIDE" || errdefs.As(err).Meta["first"] != "1000" {
		t.Errorf("before the first offset: %v", err)
	}
	sums, err := admin.Checksum(ctx, 1000, 1000+8192+10, 4096)
	if err != nil || len(sums.GetChecksums()) != 3 || sums.GetChecksums()[2] != crc32.Checksum(log[8192:8202], crc32.MakeTable(crc32.Castagnoli)) {
		t.Errorf("%v, %v", sums, err)
	}
}

func TestWatchStatus(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	admin, err := dial(t, client.Options{}, a).Admin(a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	n := 0
	err = admin.WatchStatus(t.Context(), 100*time.Millisecond, func(st *client.NodeStatus) error {
		if st.GetRole() != storagev1.Role_ROLE_SYNC_MASTER {
			t.Errorf("%v", st)
		}
		if n++; n == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	err = admin.WatchStatus(t.Context(), 0, func(*client.NodeStatus) error {
		go a.Stop()
		return nil
	})
	if errdefs.ClassOf(err) != errdefs.Unavailable {
		t.Errorf("after a stop: %v", err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRangeStopsWhenTheWriterFails(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	a.SetLog(0, make([]byte, 3<<20))
	admin, err := dial(t, client.Options{}, a).Admin("")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := admin.Range(t.Context(), 0, 0, fullDisk{}); n != 0 || err == nil || err.Error() != "disk full" {
		t.Errorf("%d, %v", n, err)
	}
}
