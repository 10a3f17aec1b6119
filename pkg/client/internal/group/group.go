package group

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Errors; pkg/client/ledger has them under its own name too.
var (
	ErrNoLeader  = errdefs.New(errdefs.Unavailable, "NO_LEADER", "no node leads the group")
	ErrNotLeader = errdefs.New(errdefs.FailedPrecondition, "NOT_LEADER", "this node does not lead the group")
)

// metaLeader is the leader's address in a NOT_LEADER error.
const metaLeader = "leader_address"

// surveyTimeout bounds the question who leads.
const surveyTimeout = 2 * time.Second

// Set holds the connections, and the leader as far as it is known. All methods may be called concurrently.
type Set struct {
	addresses []string
	dialer    *grpcx.Dialer

	mu     sync.Mutex
	nodes  map[string]*Node
	leader string // address that appends go to
	closed bool
}

// Node is a connection to one member.
type Node struct {
	Addr     string
	Ledger   ledgerv1.LedgerServiceClient
	Admin    ledgerv1.LedgerAdminServiceClient
	Election ledgerv1.ElectionServiceClient
	conn     *grpc.ClientConn
}

// New makes a set of at least one address; connections are made when they are first needed.
func New(addresses []string, dialer *grpcx.Dialer) (*Set, error) {
	if len(addresses) == 0 {
		return nil, errdefs.Invalid("addresses", "is empty").WithRemedy("name at least one node, such as 127.0.0.1:20911")
	}
	for _, a := range addresses {
		if err := nodes.CheckAddress(a); err != nil {
			return nil, err
		}
	}
	return &Set{addresses: slices.Clone(addresses), dialer: dialer, nodes: map[string]*Node{}, leader: addresses[0]}, nil
}

// Close closes all connections; calls under way end with an error.
func (s *Set) Close() error {
	s.mu.Lock()
	all := s.nodes
	s.nodes, s.closed = nil, true
	s.mu.Unlock()
	var err error
	for _, n := range all {
		err = nodes.Join(err, n.conn.Close())
	}
	return err
}

// Get returns the connection to addr, made now if there is none.
func (s *Set) Get(addr string) (*Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nodes.ErrClosed
	}
	if n := s.nodes[addr]; n != nil {
		return n, nil
	}
	conn, err := s.dialer.Dial(addr)
	if err != nil {
		return nil, err
	}
	n := &Node{
		Addr: addr, conn: conn, Ledger: ledgerv1.NewLedgerServiceClient(conn), Admin: ledgerv1.NewLedgerAdminServiceClient(conn),
		Election: ledgerv1.NewElectionServiceClient(conn),
	}
	s.nodes[addr] = n
	return n, nil
}

// Guess returns the node that appends go to.
func (s *Set) Guess() (*Node, error) {
	s.mu.Lock()
	addr := s.leader
	s.mu.Unlock()
	return s.Get(addr)
}

// Moved notes that appends go to addr from now on.
func (s *Set) Moved(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = addr
}

// Addresses returns the addresses that the set was made with. They must not be changed.
func (s *Set) Addresses() []string { return s.addresses }

// Reconnect lets connections that wait after a failure try at once.
func (s *Set) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		n.conn.ResetConnectBackoff()
	}
}

// heard is what one node said to a survey.
type heard struct {
	node   *Node
	status *ledgerv1.StatusResponse
	err    error
}

// FindLeader asks all addresses, and the node that appends went to last, who leads, and notes it. It does not wait for a node
// that is silent once a majority of them has been heard and the leader among these is of the newest term.
func (s *Set) FindLeader(ctx context.Context) (*Node, error) {
	s.mu.Lock()
	asked := slices.Clone(s.addresses)
	if !slices.Contains(asked, s.leader) {
		asked = append(asked, s.leader)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	answers := make(chan heard, len(asked))
	for _, addr := range asked {
		all.Go(func() { answers <- s.ask(ctx, addr) })
	}
	var got []heard
	for range asked {
		got = append(got, <-answers)
		if n := leaderOf(got); n != nil && len(got) > len(asked)/2 {
			s.Moved(n.Addr)
			return n, nil
		}
	}
	if addr := namedBy(got, asked); addr != "" {
		s.Moved(addr)
		return s.Get(addr)
	}
	return nil, noLeader(got)
}

func (s *Set) ask(ctx context.Context, addr string) heard {
	n, err := s.Get(addr)
	if err != nil {
		return heard{err: err}
	}
	st, err := n.Admin.Status(ctx, &ledgerv1.StatusRequest{})
	return heard{n, st, nodes.Explain(err, addr)}
}

// leaderOf returns the node that leads the newest term that was heard of, or nil.
func leaderOf(got []heard) *Node {
	var best *Node
	term := int64(-1)
	for _, h := range got {
		switch t := h.status.GetTerm(); {
		case h.err != nil || t < term:
		case h.status.GetRole() == ledgerv1.Role_ROLE_LEADER:
			best, term = h.node, t
		case t > term:
			best, term = nil, t
		}
	}
	return best
}

// namedBy returns the leader's address as the node of the newest term knows it, if it was not asked itself.
func namedBy(got []heard, asked []string) string {
	addr, term := "", int64(-1)
	for _, h := range got {
		if h.err == nil && h.status.GetTerm() > term && h.status.GetLeaderAddress() != "" {
			addr, term = h.status.GetLeaderAddress(), h.status.GetTerm()
		}
	}
	if nodes.CheckAddress(addr) != nil || slices.Contains(asked, addr) {
		return ""
	}
	return addr
}

// noLeader says of each node why appends do not go there; when none has answered their errors say it.
func noLeader(got []heard) error {
	var parts []string
	var errs []error
	for _, h := range got {
		if h.err != nil {
			errs = append(errs, h.err)
			continue
		}
		part := h.node.Addr + " is a " + RoleName(h.status.GetRole())
		if l := h.status.GetLeader(); l != "" {
			part += " of " + l
		}
		if r := h.status.GetReason(); r != "" {
			part += " (" + r + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nodes.Join(errs...)
	}
	for _, err := range errs {
		if e := errdefs.As(err); e != nil {
			parts = append(parts, fmt.Sprintf("%s is not reached (%s)", e.Meta["address"], strings.TrimPrefix(e.Msg, grpcx.UnreachableText)))
		}
	}
	slices.Sort(parts)
	return ErrNoLeader.WithMsg("no node leads the group: %s", strings.Join(parts, ", "))
}

// RoleName returns a role in words: leader, follower, candidate, pre-candidate.
func RoleName(r ledgerv1.Role) string {
	return strings.ToLower(strings.ReplaceAll(nodes.EnumName(r.String(), "ROLE_", int32(r)), "_", "-"))
}

// Named returns the address of the leader that err names, or "".
func Named(err error) string {
	e := errdefs.As(err)
	if e == nil || e.Reason != ErrNotLeader.Reason || nodes.CheckAddress(e.Meta[metaLeader]) != nil {
		return ""
	}
	return e.Meta[metaLeader]
}
