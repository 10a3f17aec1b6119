package nodes

import (
	"context"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// Errors; pkg/client has them under its own name too.
var (
	ErrClosed = errdefs.New(errdefs.Canceled, "CLIENT_CLOSED", "the client is closed")
	// ErrNoMaster: none of the nodes that answered is an open master.
	ErrNoMaster = errdefs.New(errdefs.Unavailable, "NO_OPEN_MASTER", "no open master")
)

// Set holds the connections. All methods may be called concurrently.
type Set struct {
	addresses []string
	dialer    *grpcx.Dialer

	mu     sync.Mutex
	nodes  map[string]*Node
	master string // address of the node that puts go to
	closed bool
}

// Node is a connection to one storage.
type Node struct {
	Addr  string
	Msg   storagev1.MessageServiceClient
	Admin storagev1.StorageAdminServiceClient
	conn  *grpc.ClientConn
}

// New makes a set of at least one address; connections are made when they are first needed.
func New(addresses []string, dialer *grpcx.Dialer) (*Set, error) {
	if len(addresses) == 0 {
		return nil, errdefs.Invalid("addresses", "is empty").WithRemedy("name at least one storage, such as 127.0.0.1:10911")
	}
	for _, a := range addresses {
		if err := CheckAddress(a); err != nil {
			return nil, err
		}
	}
	return &Set{addresses: slices.Clone(addresses), dialer: dialer, nodes: map[string]*Node{}, master: addresses[0]}, nil
}

// CheckAddress returns a field error unless a is host:port.
func CheckAddress(a string) error {
	_, port, err := net.SplitHostPort(a)
	if err != nil || port == "" {
		return errdefs.Invalid("addresses", "%q is no address", a).WithRemedy("write host:port, such as 127.0.0.1:10911")
	}
	return nil
}

// Close closes all connections; calls under way end with an error.
func (s *Set) Close() error {
	s.mu.Lock()
	nodes := s.nodes
	s.nodes, s.closed = nil, true
	s.mu.Unlock()
	var err error
	for _, n := range nodes {
		err = Join(err, n.conn.Close())
	}
	return err
}

// Addresses returns the addresses that the set was made with. They must not be changed.
func (s *Set) Addresses() []string { return s.addresses }

// Get returns the connection to addr, made now if there is none.
func (s *Set) Get(addr string) (*Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if n := s.nodes[addr]; n != nil {
		return n, nil
	}
	conn, err := s.dialer.Dial(addr)
	if err != nil {
		return nil, err
	}
	n := &Node{Addr: addr, conn: conn, Msg: storagev1.NewMessageServiceClient(conn), Admin: storagev1.NewStorageAdminServiceClient(conn)}
	s.nodes[addr] = n
	return n, nil
}

// Reconnect lets connections that wait after a failure try at once.
func (s *Set) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		n.conn.ResetConnectBackoff()
	}
}

// Queues reads all pages of ListQueues.
func (n *Node) Queues(ctx context.Context, topic string) ([]*storagev1.Queue, error) {
	var all []*storagev1.Queue
	for token := ""; ; {
		resp, err := n.Msg.ListQueues(ctx, &storagev1.ListQueuesRequest{Topic: topic, PageToken: token})
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetQueues()...)
		next := resp.GetNextPageToken()
		if next == "" {
			return all, nil
		}
		if next == token {
			return nil, errdefs.New(errdefs.Internal, "PAGE_TOKEN_REPEATED", "the list of queues does not come to an end")
		}
		token = next
	}
}

// WaitReady returns when one of the addresses has answered, or with their errors when ctx ends.
func (s *Set) WaitReady(ctx context.Context) error {
	var last error
	for try := 0; ; try++ {
		answers, errs := s.survey(ctx, s.addresses)
		if len(answers) > 0 {
			return nil
		}
		if last == nil || ctx.Err() == nil { // that the time is up says less
			last = Join(errs...)
		}
		s.Reconnect()
		if !sleep.For(ctx, Backoff(try)) {
			return last
		}
	}
}
