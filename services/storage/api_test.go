package main

import (
	"context"
	"slices"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// TestEveryMethodAnswers calls every method that reflection shows on a master and on a slave.
func TestEveryMethodAnswers(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().awaitSlaves(1)
	g[0].fill(20)
	for _, n := range g {
		servicetest.EveryMethod(t, n.conn, n.cfg.BrokerRole, "tandem.storage.v1.MessageService", "tandem.storage.v1.StorageAdminService",
			"tandem.storage.v1.ReplicationService", "grpc.health.v1.Health")
	}
	same(t, g[0], g[1])
}

// TestReadingAndAdministering calls what a healthy pair answers with results.
func TestReadingAndAdministering(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().awaitSlaves(1)
	queue := int32(3)
	var last *storagev1.PutResult
	for i := range 10 {
		tag := []string{"TagA", "TagB"}[i%2]
		last = g[0].put([]byte{byte(i)}, func(r *storagev1.PutRequest) { r.Message.Tag, r.Message.QueueId = tag, &queue })
	}
	end := g[0].end64()
	for _, n := range g {
		n.awaitEnd(end)
		ctx, msg := t.Context(), n.message()
		got, err := msg.Get(ctx, &storagev1.GetRequest{Topic: "TopicTest", QueueId: 3, TagFilter: "TagB"})
		if err != nil || len(got.GetMessages()) != 5 || got.GetNextQueueOffset() != 10 || got.GetMessages()[4].GetQueueOffset() != 9 {
			t.Errorf("get of a tag: %v, %v", got, err)
		}
		byOffset, err := msg.GetByOffset(ctx, &storagev1.GetByOffsetRequest{Offset: last.GetOffset()})
		if err != nil || !slices.Equal(byOffset.GetMessage().GetMessage().GetBody(), []byte{9}) {
			t.Errorf("get by offset: %v, %v", byOffset, err)
		}
		list, err := msg.ListQueues(ctx, &storagev1.ListQueuesRequest{Topic: "TopicTest"})
		if err != nil || len(list.GetQueues()) != 1 || list.GetQueues()[0].GetMaxQueueOffset() != 10 {
			t.Errorf("queues: %v, %v", list, err)
		}
		found, err := msg.SearchOffset(ctx, &storagev1.SearchOffsetRequest{Topic: "TopicTest", QueueId: list.GetQueues()[0].GetQueueId(), StoreTimestamp: 1})
		if err != nil || found.GetQueueOffset() != 0 || found.GetMaxQueueOffset() != 10 {
			t.Errorf("search: %v, %v", found, err)
		}
		sums, err := n.admin().Checksum(ctx, &storagev1.ChecksumRequest{})
		if err != nil || sums.GetToOffset() != end || len(sums.GetChecksums()) != 1 {
			t.Errorf("checksums: %v, %v", sums, err)
		}
		flushed, err := n.admin().FlushNow(ctx, &storagev1.FlushNowRequest{})
		if err != nil || flushed.GetFlushedOffset() != end {
			t.Errorf("flush: %v, %v", flushed, err)
		}
	}
	// A stream that waits gets what comes later, on the slave too.
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for _, n := range g {
		s, err := n.message().GetStream(ctx, &storagev1.GetStreamRequest{Topic: "TopicTest", QueueId: 3, QueueOffset: 10})
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan *storagev1.GetStreamResponse, 1)
		go func() {
			defer close(first)
			if r, err := s.Recv(); err == nil {
				first <- r
			}
		}()
		select {
		case r := <-first:
			t.Errorf("something came before it was put: %v", r)
		case <-time.After(20 * time.Millisecond):
		}
		defer func() {
			r := <-first
			if len(r.GetMessages()) == 0 || r.GetMessages()[0].GetQueueOffset() != 10 {
				t.Errorf("the stream of %s brought %v", n.cfg.BrokerRole, r)
			}
		}()
	}
	g[0].put([]byte("later"), func(r *storagev1.PutRequest) { r.Message.QueueId = &queue })
}
