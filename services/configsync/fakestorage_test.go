package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// queueEnds are a queue's first and next offset, and the next one as it was where the reign began.
type queueEnds struct{ min, max, before int64 }

// fakeStorage says what a storage would. Offsets are stored at their own number as time, ms.
type fakeStorage struct {
	storagev1.UnimplementedStorageAdminServiceServer
	storagev1.UnimplementedMessageServiceServer

	id   int64
	addr string

	mu      sync.Mutex
	master  bool
	epoch   int64
	queues  map[string]queueEnds // by topic/queue
	changed chan struct{}
	lists   int // ListQueues calls
}

// newFakeStorage serves at its own address until the test ends.
func newFakeStorage(t testing.TB, id int64) *fakeStorage {
	t.Helper()
	f := &fakeStorage{id: id, addr: servicetest.FreeAddr(t), queues: map[string]queueEnds{}, changed: make(chan struct{})}
	server, err := grpcx.NewServer(grpcx.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	storagev1.RegisterStorageAdminServiceServer(server, f)
	storagev1.RegisterMessageServiceServer(server, f)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("fake storage: %v", err)
		}
	})
	return f
}

// be changes what the storage is.
func (f *fakeStorage) be(master bool, epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.master, f.epoch = master, epoch
	close(f.changed)
	f.changed = make(chan struct{})
}

// set sets the ends of a queue.
func (f *fakeStorage) set(topic string, queue int, e queueEnds) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queues[fmt.Sprintf("%s/%d", topic, queue)] = e
}

func (f *fakeStorage) status() (*storagev1.StatusResponse, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := &storagev1.StatusResponse{Cluster: "DefaultCluster", BrokerName: "broker-a", NodeId: f.id, Role: storagev1.Role_ROLE_SLAVE, PromisedEpoch: f.epoch}
	if f.epoch > 0 {
		st.Epochs = []*storagev1.Epoch{{Epoch: f.epoch, StartOffset: 1000, Id: 7}}
	}
	if f.master {
		st.Role, st.Open = storagev1.Role_ROLE_SYNC_MASTER, true
	}
	return st, f.changed
}

func (f *fakeStorage) WatchStatus(_ *storagev1.WatchStatusRequest, stream grpc.ServerStreamingServer[storagev1.WatchStatusResponse]) error {
	for {
		st, changed := f.status()
		if err := stream.Send(&storagev1.WatchStatusResponse{Status: st}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (f *fakeStorage) ListQueues(_ context.Context, req *storagev1.ListQueuesRequest) (*storagev1.ListQueuesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	resp := &storagev1.ListQueuesResponse{}
	for name, e := range f.queues {
		var topic string
		var queue int32
		for i := range name {
			if name[i] == '/' {
				topic = name[:i]
				_, _ = fmt.Sscan(name[i+1:], &queue)
			}
		}
		if req.GetTopic() != "" && req.GetTopic() != topic {
			continue
		}
		q := &storagev1.Queue{Topic: topic, QueueId: queue, MinQueueOffset: e.min, MaxQueueOffset: e.max}
		if req.GetBelowOffset() > 0 {
			q.MaxQueueOffset = e.before
		}
		resp.Queues = append(resp.Queues, q)
	}
	return resp, nil
}

func (f *fakeStorage) SearchOffset(_ context.Context, req *storagev1.SearchOffsetRequest) (*storagev1.SearchOffsetResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.queues[fmt.Sprintf("%s/%d", req.GetTopic(), req.GetQueueId())]
	return &storagev1.SearchOffsetResponse{QueueOffset: min(max(req.GetStoreTimestamp(), e.min), e.max), MinQueueOffset: e.min, MaxQueueOffset: e.max}, nil
}

// withStorages makes nodes whose roles their fake storages say.
func withStorages(t testing.TB, count int, change ...func(*Config)) ([]*node, []*fakeStorage) {
	t.Helper()
	var nodes []*node
	var storages []*fakeStorage
	for i := range count {
		f := newFakeStorage(t, int64(i))
		n := newNode(t, int64(i), slave, append(change, func(c *Config) { c.Storage.Address = f.addr })...)
		// A silent fake does not speak unless something changes: the role counts for as long as the test.
		n.cfg.Storage.Timeout = 10 * 60e9
		nodes, storages = append(nodes, n), append(storages, f)
	}
	return know(nodes), storages
}

// promote makes one storage the master of the next reign, all others slaves.
func promote(storages []*fakeStorage, to int, epoch int64) {
	for i, f := range storages {
		if i != to {
			f.be(false, epoch)
		}
	}
	storages[to].be(true, epoch)
}
