package configtest

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Errors as the real service gives them.
var (
	errNotMaster    = errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "this node takes no changes")
	errExists       = errdefs.New(errdefs.AlreadyExists, "ALREADY_EXISTS", "there is one of that name")
	errNotFound     = errdefs.New(errdefs.NotFound, "NOT_FOUND", "there is none of that name")
	errPrecondition = errdefs.New(errdefs.FailedPrecondition, "PRECONDITION_FAILED", "it was changed since")
	errWasReset     = errdefs.New(errdefs.FailedPrecondition, "OFFSET_WAS_RESET", "the offset was reset since")
	errBeyondEnd    = errdefs.New(errdefs.OutOfRange, "OFFSET_BEYOND_END", "the offset lies behind the queue's end")
)

// Key is a queue of a group.
type Key struct {
	Group, Topic string
	Queue        int32
}

// Group is nodes that share their tables. All methods may be called concurrently.
type Group struct {
	Nodes []*Node

	mu      sync.Mutex
	leader  int // index of the node that leads, -1: none
	epoch   int64
	topics  map[string]*configsyncv1.Topic
	groups  map[string]*configsyncv1.SubscriptionGroup
	offsets map[Key]*configsyncv1.QueryOffset
	delays  map[int32]*configsyncv1.DelayOffset
	ends    map[Key]int64 // without a group
	before  func(n *Node, method string) error
	after   func(n *Node, method string) error
	status  func(*Node, *configsyncv1.StatusResponse)
	diff    []*configsyncv1.Difference
}

// Node is one of them.
type Node struct {
	configsyncv1.UnimplementedTopicServiceServer
	configsyncv1.UnimplementedSubscriptionGroupServiceServer
	configsyncv1.UnimplementedOffsetServiceServer
	configsyncv1.UnimplementedConfigAdminServiceServer

	tb     testing.TB
	group  *Group
	number int

	mu     sync.Mutex
	addr   string
	server *grpc.Server
	calls  map[string]int
}

// Start starts n nodes, the first one leading in reign 1, that stop at the end of the test. Their tables are empty. addrs are where
// they listen; without them they take free loopback ports.
func Start(tb testing.TB, n int, addrs ...string) *Group {
	tb.Helper()
	g := &Group{
		epoch: 1, topics: map[string]*configsyncv1.Topic{}, groups: map[string]*configsyncv1.SubscriptionGroup{},
		offsets: map[Key]*configsyncv1.QueryOffset{}, delays: map[int32]*configsyncv1.DelayOffset{}, ends: map[Key]int64{},
	}
	for i := range n {
		node := &Node{tb: tb, group: g, number: i, calls: map[string]int{}}
		if i < len(addrs) {
			node.addr = addrs[i]
		}
		g.Nodes = append(g.Nodes, node)
		node.Restart()
		tb.Cleanup(node.Stop)
	}
	return g
}

// Addrs returns the addresses of all nodes.
func (g *Group) Addrs() []string {
	all := make([]string, 0, len(g.Nodes))
	for _, n := range g.Nodes {
		all = append(all, n.Addr())
	}
	return all
}

// Lead makes a node the master of the next reign; -1: nobody leads.
func (g *Group) Lead(node int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leader = node
	g.epoch++
}

// SetEnd tells the next offset of a queue, as a storage does; without it any offset is taken.
func (g *Group) SetEnd(topic string, queue int32, end int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends[Key{Topic: topic, Queue: queue}] = end
}

// SetOffset sets an offset and its reset epoch, backwards too: as a reset, or as a new master that has not heard of a commit.
func (g *Group) SetOffset(k Key, offset int64, epoch uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offsets[k] = &configsyncv1.QueryOffset{QueueId: k.Queue, Offset: offset, ResetEpoch: epoch}
}

// Offset returns an offset, -1 where there is none.
func (g *Group) Offset(k Key) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.offsets[k]; o != nil {
		return o.GetOffset()
	}
	return -1
}

// BeforeCall lets f refuse a call; f is called without locks and may block.
func (g *Group) BeforeCall(f func(n *Node, method string) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = f
}

// AfterCall lets f spoil the answer of a call that was carried out; f is called without locks and may block.
func (g *Group) AfterCall(f func(n *Node, method string) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.after = f
}

// OnStatus lets f change each Status answer.
func (g *Group) OnStatus(f func(*Node, *configsyncv1.StatusResponse)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = f
}

// SetDiff makes Diff find these differences.
func (g *Group) SetDiff(ds ...*configsyncv1.Difference) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.diff = ds
}

// Addr returns host:port, the same over restarts.
func (n *Node) Addr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// Calls returns how often a method, such as "Commit", was called.
func (n *Node) Calls(method string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[method]
}

// Restart listens and serves again after Stop.
func (n *Node) Restart() {
	n.tb.Helper()
	ln, err := clienttest.Listen(n.Addr())
	if err != nil {
		n.tb.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(n.unary), grpc.ChainStreamInterceptor(n.streaming))
	configsyncv1.RegisterTopicServiceServer(server, n)
	configsyncv1.RegisterSubscriptionGroupServiceServer(server, n)
	configsyncv1.RegisterOffsetServiceServer(server, n)
	configsyncv1.RegisterConfigAdminServiceServer(server, n)
	n.mu.Lock()
	n.server, n.addr = server, ln.Addr().String()
	n.mu.Unlock()
	go func() { _ = server.Serve(ln) }() // ends with Stop
}

// Stop breaks all connections and closes the port.
func (n *Node) Stop() {
	n.mu.Lock()
	server := n.server
	n.server = nil
	n.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (n *Node) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	n.mu.Lock()
	n.calls[method]++
	n.mu.Unlock()
	n.group.mu.Lock()
	before, after := n.group.before, n.group.after
	n.group.mu.Unlock()
	if before != nil {
		if err := before(n, method); err != nil {
			return nil, grpcx.ToStatus(err)
		}
	}
	resp, err := next(ctx, req)
	if err == nil && after != nil {
		err = after(n, method)
	}
	return resp, grpcx.ToStatus(err)
}

func (n *Node) streaming(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	n.mu.Lock()
	n.calls[path.Base(info.FullMethod)]++
	n.mu.Unlock()
	return grpcx.ToStatus(next(srv, ss))
}

// leads returns NOT_MASTER unless the node leads. g.mu is held.
func (n *Node) leads() error {
	g := n.group
	switch {
	case g.leader == n.number:
		return nil
	case g.leader < 0:
		return errNotMaster
	}
	return errNotMaster.With("master", g.Nodes[g.leader].Addr())
}

// pageSize is that of lists unless asked otherwise: small, so that there is more than one page.
const pageSize = 2

// page cuts a page out of sorted names; a token is the last name of the page before.
func page(names []string, token string, size int32) (cut []string, next string) {
	if size == 0 {
		size = pageSize
	}
	at, found := slices.BinarySearch(names, token)
	if found {
		at++
	}
	end := min(at+int(size), len(names))
	if end < len(names) {
		next = names[end-1]
	}
	return names[at:end], next
}

// etag is a hash of what m is.
func etag(m proto.Message) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range fmt.Sprint(m) {
		h = (h ^ uint64(c)) * 1099511628211 //nolint:gosec // a hash
	}
	return h | 1
}

func queueName(k Key) string {
	return k.Topic + " " + k.Group + " " + strconv.Itoa(1_000_000+int(k.Queue))
}
