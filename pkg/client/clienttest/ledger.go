package clienttest

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Errors as the real ledger gives them.
var (
	errNotLeader    = errdefs.New(errdefs.FailedPrecondition, "NOT_LEADER", "this node does not lead the group")
	errNotCommitted = errdefs.New(errdefs.OutOfRange, "INDEX_NOT_COMMITTED", "no entry of this index is committed")
	errWindowPassed = errdefs.New(errdefs.FailedPrecondition, "IDEMPOTENCE_WINDOW_PASSED", "the entry may stand already")
)

// Limits of a fake node.
const (
	ledgerMaxBody  = 64 << 10
	ledgerMaxBatch = 64
	ledgerWindow   = 1 << 20
)

// Ledger is a group whose nodes share one log: what is appended is committed at once. All methods may be called concurrently.
type Ledger struct {
	Nodes []*LedgerNode

	mu      sync.Mutex
	leader  int // index of the leading node, -1: none
	term    int64
	window  int64
	entries []*ledgerv1.LedgerEntry
	changed chan struct{} // closed and replaced at each append
	before  func(n *LedgerNode, body []byte) error
	onTail  func(n *LedgerNode) error
	after   func(n *LedgerNode, body []byte) error
	status  func(*LedgerNode, *ledgerv1.StatusResponse)
}

// LedgerNode is one member.
type LedgerNode struct {
	ledgerv1.UnimplementedLedgerServiceServer
	ledgerv1.UnimplementedLedgerAdminServiceServer
	ledgerv1.UnimplementedElectionServiceServer

	ID string

	tb     testing.TB
	group  *Ledger
	number int

	mu     sync.Mutex
	addr   string
	server *grpc.Server
	calls  map[string]int
}

// StartLedger starts a group of n nodes, n0 leading in term 1, that stops at the end of the test. Its log is empty.
func StartLedger(tb testing.TB, n int) *Ledger {
	tb.Helper()
	g := &Ledger{term: 1, window: ledgerWindow, changed: make(chan struct{})}
	for i := range n {
		node := &LedgerNode{ID: "n" + strconv.Itoa(i), tb: tb, group: g, number: i, calls: map[string]int{}}
		g.Nodes = append(g.Nodes, node)
		node.Restart()
		tb.Cleanup(node.Stop)
	}
	return g
}

// Addrs returns the addresses of all nodes.
func (g *Ledger) Addrs() []string {
	all := make([]string, 0, len(g.Nodes))
	for _, n := range g.Nodes {
		all = append(all, n.Addr())
	}
	return all
}

// Lead makes a node the leader of the next term; -1: nobody leads.
func (g *Ledger) Lead(node int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leader = node
	g.term++
}

// SetWindow makes the group remember the keys of its last n entries; they are very many otherwise.
func (g *Ledger) SetWindow(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.window = n
}

// NoOp appends the entry that opens a term.
func (g *Ledger) NoOp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(&ledgerv1.LedgerEntry{NoOp: true})
}

// BeforeTail lets f refuse a Tail.
func (g *Ledger) BeforeTail(f func(n *LedgerNode) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onTail = f
}

// BeforeAppend lets f refuse an entry; f is called without locks and may block.
func (g *Ledger) BeforeAppend(f func(n *LedgerNode, body []byte) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = f
}

// AfterAppend lets f spoil the answer about an entry that stands; f is called without locks and may block.
func (g *Ledger) AfterAppend(f func(n *LedgerNode, body []byte) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.after = f
}

// OnStatus lets f change each Status answer.
func (g *Ledger) OnStatus(f func(*LedgerNode, *ledgerv1.StatusResponse)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = f
}

// Entries returns the log.
func (g *Ledger) Entries() []*ledgerv1.LedgerEntry {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.entries)
}

// Bodies returns the bodies of the log as text.
func (g *Ledger) Bodies() []string {
	var all []string
	for _, e := range g.Entries() {
		all = append(all, string(e.GetBody()))
	}
	return all
}

// add puts an entry behind the last. mu is held.
func (g *Ledger) add(e *ledgerv1.LedgerEntry) {
	e.Index, e.Term = int64(len(g.entries)), g.term
	g.entries = append(g.entries, e)
	close(g.changed)
	g.changed = make(chan struct{})
}

// append adds an entry unless it stands already.
func (g *Ledger) append(n *LedgerNode, body []byte, channel int32, key *ledgerv1.IdempotenceKey) (*ledgerv1.AppendResponse, error) {
	g.mu.Lock()
	before, after := g.before, g.after
	g.mu.Unlock()
	switch {
	case len(body) == 0:
		return nil, errdefs.Invalid("body", "is empty")
	case len(body) > ledgerMaxBody:
		return nil, errdefs.Invalid("body", "is too large")
	}
	if before != nil {
		if err := before(n, body); err != nil {
			return nil, err
		}
	}
	resp, err := g.store(n, body, channel, key)
	if err == nil && after != nil {
		err = after(n, body)
	}
	return resp, err
}

func (g *Ledger) store(n *LedgerNode, body []byte, channel int32, key *ledgerv1.IdempotenceKey) (*ledgerv1.AppendResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.mustLead(n); err != nil {
		return nil, err
	}
	last := int64(len(g.entries)) - 1
	resp := &ledgerv1.AppendResponse{Index: last + 1, Term: g.term, CommittedIndex: last}
	if key != nil {
		if last-key.GetAfterIndex() > g.window {
			return nil, errWindowPassed
		}
		for _, e := range g.entries[key.GetAfterIndex()+1:] {
			if e.GetSequence() == key.GetSequence() && bytes.Equal(e.GetClientId(), key.GetClientId()) {
				resp.Index, resp.Repeated = e.GetIndex(), true
				return resp, nil
			}
		}
	}
	g.add(&ledgerv1.LedgerEntry{Body: body, Channel: channel, ClientId: key.GetClientId(), Sequence: key.GetSequence()})
	resp.CommittedIndex++
	return resp, nil
}

// mustLead is NOT_LEADER for all nodes but one. mu is held.
func (g *Ledger) mustLead(n *LedgerNode) error {
	if g.leader == n.number {
		return nil
	}
	err := errNotLeader
	if g.leader >= 0 {
		err = err.With("leader", g.Nodes[g.leader].ID).With("leader_address", g.Nodes[g.leader].Addr())
	}
	return err
}

// Addr returns host:port, the same over restarts.
func (n *LedgerNode) Addr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// Restart listens and serves again after Stop.
func (n *LedgerNode) Restart() {
	n.tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	ln, err := Listen(n.addr)
	if err != nil {
		n.tb.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(n.unary), grpc.ChainStreamInterceptor(n.streaming))
	ledgerv1.RegisterLedgerServiceServer(server, n)
	ledgerv1.RegisterLedgerAdminServiceServer(server, n)
	ledgerv1.RegisterElectionServiceServer(server, n)
	n.server, n.addr = server, ln.Addr().String()
	go func() { _ = server.Serve(ln) }() // ends with Stop
}

// Stop breaks all connections and closes the port.
func (n *LedgerNode) Stop() {
	n.mu.Lock()
	server := n.server
	n.server = nil
	n.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Calls returns how often a method, such as "Append", was called.
func (n *LedgerNode) Calls(method string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[method]
}

func (n *LedgerNode) count(fullMethod string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls[fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]]++
}

func (n *LedgerNode) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	n.count(info.FullMethod)
	resp, err := handler(ctx, req)
	return resp, grpcx.ToStatus(err)
}

func (n *LedgerNode) streaming(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	n.count(info.FullMethod)
	return grpcx.ToStatus(handler(srv, stream))
}

// bounds is GetBounds. mu of the group is not held.
func (n *LedgerNode) bounds() *ledgerv1.GetBoundsResponse {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	return &ledgerv1.GetBoundsResponse{
		CommittedIndex: int64(len(n.group.entries)) - 1, Window: n.group.window, MaxBodySize: ledgerMaxBody, MaxBatchEntries: ledgerMaxBatch,
		MaxBatchSize: 1 << 20, AppendTimeout: durationpb.New(appendTimeout),
	}
}
