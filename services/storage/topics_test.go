package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
	"github.com/tandemlog/tandem/services/storage/internal/topics/topicstest"
)

// configsyncAt serves a fake at addr.
func configsyncAt(t *testing.T, f *topicstest.Fake, addr string) (stop func()) {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return f.Start(t, ln)
}

// withTable makes a storage beside a fake configsync, and starts both.
func withTable(t *testing.T, change ...func(*Config)) (*node, *topicstest.Fake) {
	t.Helper()
	f, addr := topicstest.New(), servicetest.FreeAddr(t)
	configsyncAt(t, f, addr)
	n := alone(t, append(change, func(c *Config) { c.ConfigSync.Address = addr })...).start().awaitOpen()
	n.await("the topic table", func(st *storagev1.StatusResponse) bool { return st.GetTopicTable().GetCurrent() })
	return n, f
}

func to(topic string, queue int32) func(*storagev1.PutRequest) {
	return func(r *storagev1.PutRequest) { r.Message.Topic, r.Message.QueueId = topic, &queue }
}

// awaitPut puts until what it gets is what ok wants; every other answer is a refusal.
func (n *node) awaitPut(what string, ok func(error) bool, change ...func(*storagev1.PutRequest)) error {
	n.t.Helper()
	deadline := time.Now().Add(testkit.Patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := n.tryPut([]byte(what), change...)
		if ok(err) {
			return err
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

func stored(err error) bool { return err == nil }

func reason(want string) func(error) bool {
	return func(err error) bool { return errdefs.ReasonOf(err) == want }
}

// TestTopicTable: a topic's queues and permissions hold for every way to put and to get; new topics are created in the table.
func TestTopicTable(t *testing.T) {
	t.Parallel()
	n, f := withTable(t, func(c *Config) { c.DefaultTopicQueueNums = 3 })
	n.put([]byte("first"), to("orders", 2))
	if c, ok := f.Topic("orders"); !ok || c.WriteQueues != 3 || c.ReadQueues != 3 || f.Creates("orders") != 1 {
		t.Errorf("created as %+v", c)
	}
	_, err := n.tryPut([]byte("x"), to("orders", 3))
	if e := errdefs.As(err); e == nil || e.Class != errdefs.InvalidArgument || e.Field != "message.queue_id" {
		t.Errorf("a queue that is not there: %v", err)
	}
	f.Set(chunk.Topic{Name: "orders", ReadQueues: 9, WriteQueues: 9, Perm: 6})
	began := time.Now()
	n.awaitPut("a new queue", stored, to("orders", 8))
	t.Logf("a put to a new queue was possible after %v", time.Since(began))

	f.Set(chunk.Topic{Name: "orders", ReadQueues: 2, WriteQueues: 9, Perm: 4})
	err = n.awaitPut("no write", reason("NO_PERMISSION"), to("orders", 0))
	if e := errdefs.As(err); e.Class != errdefs.PermissionDenied || e.Field != "message.topic" || e.Meta["topic"] != "orders" || e.Remedy == "" {
		t.Errorf("%v", err)
	}
	msg := func() *storagev1.Message { return &storagev1.Message{Topic: "orders", Body: []byte("x")} }
	_, err = n.message().PutBatch(t.Context(), &storagev1.PutBatchRequest{Messages: []*storagev1.Message{msg()}})
	if asError(err).Reason != "NO_PERMISSION" {
		t.Errorf("a batch: %v", err)
	}
	wantStatuses(t, n, []*storagev1.Message{msg(), {Topic: "other", Body: []byte("y")}},
		storagev1.PutStatus_PUT_STATUS_MESSAGE_ILLEGAL, storagev1.PutStatus_PUT_STATUS_PUT_OK)

	_, err = n.message().Get(t.Context(), &storagev1.GetRequest{Topic: "orders", QueueId: 2})
	if e := asError(err); e.Field != "queue_id" {
		t.Errorf("a get of a queue that is none for readers: %v", err)
	}
	n.awaitEnd(n.end64())
	r, err := n.message().Get(t.Context(), &storagev1.GetRequest{Topic: "other", QueueId: 99})
	if asError(err).Field != "queue_id" {
		t.Errorf("%v, %v", r, err)
	}
	f.Set(chunk.Topic{Name: "orders", ReadQueues: 9, WriteQueues: 9, Perm: 2})
	n.awaitPut("no read", stored, to("orders", 0))
	if _, err = n.message().Get(t.Context(), &storagev1.GetRequest{Topic: "orders"}); asError(err).Reason != "NO_PERMISSION" {
		t.Errorf("a get: %v", err)
	}
	stream, err := n.message().GetStream(t.Context(), &storagev1.GetStreamRequest{Topic: "orders"})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stream: %v", err)
	}
	f.Delete("orders")
	f.Set(chunk.Topic{Name: "last", ReadQueues: 1, WriteQueues: 1, Perm: 6})
	n.await("two topics", func(st *storagev1.StatusResponse) bool { return st.GetTopicTable().GetTopics() == 2 })
	if r, err := n.message().Get(t.Context(), &storagev1.GetRequest{Topic: "orders", QueueId: 8}); err != nil || len(r.GetMessages()) != 1 {
		t.Errorf("what a deleted topic has: %v, %v", r, err)
	}
}

// wantStatuses puts over a stream and compares the statuses; a refused message has a reason and the next one is taken.
func wantStatuses(t *testing.T, n *node, ms []*storagev1.Message, want ...storagev1.PutStatus) {
	t.Helper()
	stream, err := n.message().PutStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.Send(&storagev1.PutStreamRequest{Sequence: 1, Messages: ms}), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	var got []*storagev1.PutResult
	for len(got) < len(want) {
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, resp.GetResults()...)
	}
	for i, r := range got {
		if r.GetStatus() != want[i] || (r.GetReason() == "") != (want[i] == storagev1.PutStatus_PUT_STATUS_PUT_OK) {
			t.Errorf("message %d: %v, want %v", i, r, want[i])
		}
	}
}

// TestStorageWithoutItsConfigsync: a storage starts and works without it; once it had a table it keeps to that.
func TestStorageWithoutItsConfigsync(t *testing.T) {
	t.Parallel()
	addr := servicetest.FreeAddr(t)
	n := alone(t, func(c *Config) { c.ConfigSync.Address = addr }).start().awaitOpen()
	n.put([]byte("one"), to("orders", 7))
	n.put([]byte("two"), to("orders", 0))
	st := n.await("a reason", func(st *storagev1.StatusResponse) bool { return st.GetTopicTable().GetReason() == "UNREACHABLE" }).GetTopicTable()
	if st.GetKnown() || st.GetCurrent() || st.GetAddress() != addr || st.GetRemedy() == "" {
		t.Errorf("%v", st)
	}
	if c := strings.Count(n.log.Tail(), "the topic table is not known yet"); c != 1 {
		t.Errorf("%d warnings", c)
	}
	if m := n.metrics(); !strings.Contains(m, "\nstorage_topics_current 0") {
		t.Errorf("metrics without storage_topics_current:\n%s", m)
	}
	f := topicstest.New()
	f.Set(chunk.Topic{Name: "orders", ReadQueues: 2, WriteQueues: 2, Perm: 6})
	stop := configsyncAt(t, f, addr)
	n.await("the table", func(st *storagev1.StatusResponse) bool {
		return st.GetTopicTable().GetCurrent() && st.GetTopicTable().GetTopics() == 1
	})
	if _, err := n.tryPut([]byte("x"), to("orders", 7)); errdefs.As(err) == nil {
		t.Errorf("a queue that the table has not: %v", err)
	}
	stop()
	n.await("the loss", func(st *storagev1.StatusResponse) bool {
		return !st.GetTopicTable().GetCurrent() && st.GetTopicTable().GetKnown() && st.GetTopicTable().GetReason() != ""
	})
	n.put([]byte("three"), to("orders", 1))
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	_, err := n.message().Put(ctx, &storagev1.PutRequest{Message: &storagev1.Message{Topic: "new", Body: []byte("x")}})
	if e := asError(err); e.Class != errdefs.Unavailable || e.Reason != "TOPIC_NOT_CREATED" || e.Field != "message.topic" {
		t.Errorf("a new topic: %v", err)
	}
	f.Set(chunk.Topic{Name: "orders", ReadQueues: 4, WriteQueues: 4, Perm: 6})
	configsyncAt(t, f, addr)
	n.awaitPut("a new queue", stored, to("orders", 3))
	n.put([]byte("four"), to("new", 0))
}

// TestNoTopicIsCreatedUnasked: by a storage that is not to, or by a slave.
func TestNoTopicIsCreatedUnasked(t *testing.T) {
	t.Parallel()
	n, f := withTable(t, func(c *Config) { c.AutoCreateTopicEnable = false })
	_, err := n.tryPut([]byte("x"), to("new", 0))
	if e := errdefs.As(err); e == nil || e.Class != errdefs.NotFound || e.Reason != "TOPIC_NOT_FOUND" || !strings.Contains(e.Remedy, "tandemctl topic create new") {
		t.Errorf("a new topic: %v", err)
	}
	wantStatuses(t, n, []*storagev1.Message{{Topic: "new", Body: []byte("x")}}, storagev1.PutStatus_PUT_STATUS_MESSAGE_ILLEGAL)
	f.Set(chunk.Topic{Name: "new", ReadQueues: 1, WriteQueues: 1, Perm: 6})
	n.awaitPut("a topic that was created", stored, to("new", 0))

	s := follower(t, 1, n, func(c *Config) { c.ConfigSync.Address = n.cfg.ConfigSync.Address }).start()
	s.await("the table", func(st *storagev1.StatusResponse) bool { return st.GetTopicTable().GetTopics() == 1 })
	if _, err := s.tryPut([]byte("x"), to("another", 0)); errdefs.ReasonOf(err) != "NOT_MASTER" {
		t.Errorf("a slave: %v", err)
	}
	if c := f.Creates("new") + f.Creates("another"); c != 0 {
		t.Errorf("%d creations", c)
	}
}
