package clienttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Errors as the real storage gives them.
var (
	errNotMaster = errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "this node is not an open master")
	errOutside   = errdefs.New(errdefs.OutOfRange, "OFFSET_OUTSIDE", "the offset is outside of the log")
)

// Options say how a Storage begins.
type Options struct {
	// Slave makes it begin as a slave, without a master to name.
	Slave bool
	// Epoch is that of its last reign; 0: 1.
	Epoch int64
	// Addr is where it listens; empty: a free loopback port.
	Addr string
	// Queues is the number of queues that messages without a queue go to in turn; 0: 1.
	Queues int
}

// Storage is one node. All methods may be called concurrently.
type Storage struct {
	storagev1.UnimplementedMessageServiceServer
	storagev1.UnimplementedStorageAdminServiceServer

	tb     testing.TB
	addr   string
	queues int

	mu     sync.Mutex
	server *grpc.Server
	master bool
	named  string // address of the master that NOT_MASTER names
	epoch  int64
	log    []byte
	first  int64 // offset of log[0]
	lists  map[string][]*storagev1.StoredMessage
	turn   int
	onPut  func(*storagev1.Message) (storagev1.PutStatus, error)
	onTail func(*storagev1.GetStreamRequest) error
	status func(*storagev1.StatusResponse)
	kept   []kept
	calls  map[string]int

	onPromote func(force bool) (*storagev1.PromoteResponse, error)
	onScrub   func(*storagev1.ScrubRequest) ([]*storagev1.ScrubResponse, error)
	onRepair  func(*storagev1.RepairRequest) ([]*storagev1.RepairResponse, error)

	changed chan struct{} // closed and replaced at each put
	down    chan struct{} // closed by Stop: handlers end
}

// Start starts a storage that stops at the end of the test.
func Start(tb testing.TB, o Options) *Storage {
	tb.Helper()
	s := &Storage{
		tb: tb, queues: max(o.Queues, 1), master: !o.Slave, epoch: max(o.Epoch, 1),
		lists: map[string][]*storagev1.StoredMessage{}, calls: map[string]int{}, changed: make(chan struct{}),
		addr: o.Addr,
	}
	s.Restart()
	tb.Cleanup(s.Stop)
	return s
}

// Addr returns host:port, the same over restarts.
func (s *Storage) Addr() string { return s.addr }

// Restart listens and serves again after Stop.
func (s *Storage) Restart() {
	s.tb.Helper()
	ln, err := Listen(s.addr)
	if err != nil {
		s.tb.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.streaming))
	storagev1.RegisterMessageServiceServer(server, s)
	storagev1.RegisterStorageAdminServiceServer(server, s)
	s.mu.Lock()
	s.server, s.addr, s.down = server, ln.Addr().String(), make(chan struct{})
	s.mu.Unlock()
	go func() { _ = server.Serve(ln) }() // ends with Stop
}

// Stop breaks all connections and closes the port.
func (s *Storage) Stop() {
	s.mu.Lock()
	server := s.server
	if server != nil {
		close(s.down)
	}
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// SetMaster sets the role; puts at a slave answer NOT_MASTER and name `master` unless it is "".
func (s *Storage) SetMaster(is bool, master string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master, s.named = is, master
}

// OnPut lets f decide on each message before it is stored: with a status that means not stored, or an error, it is not.
// f is called without locks and may block.
func (s *Storage) OnPut(f func(*storagev1.Message) (storagev1.PutStatus, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onPut = f
}

// OnGetStream lets f refuse a GetStream.
func (s *Storage) OnGetStream(f func(*storagev1.GetStreamRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onTail = f
}

// OnStatus lets f change each Status answer.
func (s *Storage) OnStatus(f func(*storagev1.StatusResponse)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = f
}

// SetLog replaces the bytes of the log, which then begins at first.
func (s *Storage) SetLog(first int64, log []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.log = first, slices.Clone(log)
}

// Log returns a copy of the bytes of the log.
func (s *Storage) Log() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Stored returns the messages of a queue.
func (s *Storage) Stored(topic string, queueID int32) []*storagev1.StoredMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists[queueKey(topic, queueID)])
}

// Calls returns how often a method, such as "Put", was called.
func (s *Storage) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

func queueKey(topic string, queueID int32) string { return fmt.Sprintf("%s %d", topic, queueID) }

func (s *Storage) count(fullMethod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[fullMethod[lastSlash(fullMethod)+1:]]++
}

func lastSlash(m string) int {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i] == '/' {
			return i
		}
	}
	return -1
}

func (s *Storage) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	s.count(info.FullMethod)
	resp, err := next(ctx, req)
	return resp, grpcx.ToStatus(err)
}

func (s *Storage) streaming(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	s.count(info.FullMethod)
	return grpcx.ToStatus(next(srv, ss))
}

// put stores one message or says why not.
func (s *Storage) put(m *storagev1.Message) (*storagev1.PutResult, error) {
	s.mu.Lock()
	onPut, master, named := s.onPut, s.master, s.named
	s.mu.Unlock()
	if !master {
		err := errNotMaster
		if named != "" {
			err = err.With("master", named)
		}
		return nil, err
	}
	status := storagev1.PutStatus_PUT_STATUS_PUT_OK
	if onPut != nil {
		st, err := onPut(m)
		if err != nil {
			return nil, err
		}
		status = max(st, status)
	}
	if status >= storagev1.PutStatus_PUT_STATUS_IN_SYNC_REPLICAS_NOT_ENOUGH {
		return &storagev1.PutResult{Status: status, Offset: -1, Reason: "as the test says"}, nil
	}
	r := s.store(m)
	r.Status = status
	if status != storagev1.PutStatus_PUT_STATUS_PUT_OK {
		r.Reason = "as the test says"
	}
	return r, nil
}

func (s *Storage) store(m *storagev1.Message) *storagev1.PutResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := m.GetQueueId()
	if m.QueueId == nil {
		queue = int32(s.turn % s.queues) //nolint:gosec // small
		s.turn++
	}
	key := queueKey(m.GetTopic(), queue)
	stored := &storagev1.Message{}
	proto.Merge(stored, m)
	stored.QueueId = &queue
	const when = 1_700_000_000_000
	r := &storagev1.PutResult{
		Offset: s.first + int64(len(s.log)), Size: int32(len(m.GetBody())), QueueId: queue, QueueOffset: int64(len(s.lists[key])), //nolint:gosec // test sizes
		OffsetMessageId: fmt.Sprintf("7F00000100002A9F%016X", s.first+int64(len(s.log))), MessageId: fmt.Sprintf("ID%d", len(s.log)), StoreTimestamp: when,
	}
	if id := m.GetProperties()["UNIQ_KEY"]; id != "" {
		r.MessageId = id
	}
	s.log = append(s.log, m.GetBody()...)
	s.lists[key] = append(s.lists[key], &storagev1.StoredMessage{
		Message: stored, Offset: r.GetOffset(), Size: r.GetSize(), QueueOffset: r.GetQueueOffset(), StoreTimestamp: when,
		BornHost: "127.0.0.1:5000", StoreHost: "127.0.0.1:10911", OffsetMessageId: r.GetOffsetMessageId(),
	})
	close(s.changed)
	s.changed = make(chan struct{})
	return r
}
