package config

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// surveyTimeout bounds the question who is master.
const surveyTimeout = 2 * time.Second

// set holds the connections, and the master as far as it is known. All methods may be called concurrently.
type set struct {
	addresses []string
	dialer    *grpcx.Dialer

	mu     sync.Mutex
	nodes  map[string]*node
	master string // "": not known
	closed bool
}

// node is a connection to one config sync node.
type node struct {
	addr    string
	topics  configsyncv1.TopicServiceClient
	groups  configsyncv1.SubscriptionGroupServiceClient
	offsets configsyncv1.OffsetServiceClient
	admin   configsyncv1.ConfigAdminServiceClient
	conn    *grpc.ClientConn
}

func newSet(addresses []string, dialer *grpcx.Dialer) (*set, error) {
	if len(addresses) == 0 {
		return nil, errdefs.Invalid("addresses", "is empty").WithRemedy("name at least one node, such as 127.0.0.1:10921")
	}
	for _, a := range addresses {
		if err := nodes.CheckAddress(a); err != nil {
			return nil, err
		}
	}
	return &set{addresses: slices.Clone(addresses), dialer: dialer, nodes: map[string]*node{}}, nil
}

// Close closes all connections.
func (s *set) Close() error {
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

// get returns the connection to addr, made now if there is none.
func (s *set) get(addr string) (*node, error) {
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
	n := &node{
		addr: addr, conn: conn, topics: configsyncv1.NewTopicServiceClient(conn), groups: configsyncv1.NewSubscriptionGroupServiceClient(conn),
		offsets: configsyncv1.NewOffsetServiceClient(conn), admin: configsyncv1.NewConfigAdminServiceClient(conn),
	}
	s.nodes[addr] = n
	return n, nil
}

// known returns the master that took the last change, or one found by asking.
func (s *set) known(ctx context.Context) (*node, error) {
	s.mu.Lock()
	addr := s.master
	s.mu.Unlock()
	if addr == "" {
		return s.find(ctx)
	}
	return s.get(addr)
}

// moved notes that changes go to addr from now on; "": nobody knows.
func (s *set) moved(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master = addr
}

// reconnect lets connections that wait after a failure try at once.
func (s *set) reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		n.conn.ResetConnectBackoff()
	}
}

// heard is what one node said to a survey.
type heard struct {
	node   *node
	status *configsyncv1.StatusResponse
	err    error
}

// find asks all addresses, and the masters that they name, who takes changes, and notes it: the open one of the highest reign.
func (s *set) find(ctx context.Context) (*node, error) {
	asked := slices.Clone(s.addresses)
	answers := s.survey(ctx, asked)
	best := openOf(answers)
	if best == nil {
		var more []string
		for _, h := range answers {
			if m := h.status.GetMasterAddress(); nodes.CheckAddress(m) == nil && !slices.Contains(asked, m) && !slices.Contains(more, m) {
				more = append(more, m)
			}
		}
		hop := s.survey(ctx, more)
		best, answers = openOf(hop), append(answers, hop...)
	}
	if best == nil {
		s.moved("")
		return nil, noMaster(answers)
	}
	s.moved(best.addr)
	return best, nil
}

func (s *set) survey(ctx context.Context, addrs []string) []heard {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	answers := make([]heard, len(addrs))
	var all sync.WaitGroup
	for i, addr := range addrs {
		all.Go(func() {
			n, err := s.get(addr)
			if err != nil {
				answers[i] = heard{err: err}
				return
			}
			st, err := n.admin.Status(ctx, &configsyncv1.StatusRequest{})
			answers[i] = heard{n, st, nodes.Explain(err, addr)}
		})
	}
	all.Wait()
	return answers
}

// openOf returns the node that takes changes in the highest reign, or nil.
func openOf(answers []heard) *node {
	var best *node
	epoch := int64(-1)
	for _, h := range answers {
		if h.err == nil && h.status.GetOpen() && h.status.GetEpoch() > epoch {
			best, epoch = h.node, h.status.GetEpoch()
		}
	}
	return best
}

// noMaster says of each node why it takes no changes; when none has answered their errors say it.
func noMaster(answers []heard) error {
	var parts []string
	var errs []error
	remedy := ""
	for _, h := range answers {
		if h.err != nil {
			errs = append(errs, h.err)
			continue
		}
		part := h.node.addr + " is a slave"
		if h.status.GetMaster() {
			part = h.node.addr + " is a master but not open"
			remedy = cmp.Or(remedy, h.status.GetRemedy())
		}
		if r := h.status.GetReason(); r != "" && r != "SLAVE" {
			part += " (" + r + ")"
		}
		if m := h.status.GetMasterAddress(); m != "" {
			part += " of " + m
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nodes.Join(errs...)
	}
	for _, err := range errs {
		if e := errdefs.As(err); e != nil {
			addr := e.Meta["address"]
			why := strings.TrimPrefix(strings.TrimPrefix(e.Msg, grpcx.UnreachableText), "dial tcp "+addr+": connect: ")
			parts = append(parts, fmt.Sprintf("%s is not reached (%s)", addr, strings.Replace(why, " from "+addr, "", 1)))
		}
	}
	return ErrNoMaster.WithMsg("no node takes changes: %s", strings.Join(parts, ", ")).WithRemedy("%s", remedy)
}
