package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/watermark"
)

const changeTopic = "TopicChange"

// mesh is a group in which each node reaches each other one through a proxy of its own.
type mesh struct {
	t     *testing.T
	nodes []*node
	calls [][]*testkit.Proxy // of i to j
	links []*testkit.Proxy   // to the replication port of i
}

func newMesh(t *testing.T, n int, change ...func(*Config)) *mesh {
	t.Helper()
	m := &mesh{t: t, nodes: group(t, syncMaster, n-1, change...)}
	for i, a := range m.nodes {
		a.cfg.HA.RefuseWithoutReplicas, a.cfg.SlaveTimeout = true, 500*time.Millisecond
		m.links = append(m.links, behind(a))
		m.calls = append(m.calls, make([]*testkit.Proxy, n))
		a.cfg.HA.Peers = []string{a.cfg.Listen}
		for j, b := range m.nodes {
			if i != j {
				m.calls[i][j] = testkit.NewProxy(t, b.cfg.Listen)
				a.cfg.HA.Peers = append(a.cfg.HA.Peers, m.calls[i][j].Addr())
			}
		}
	}
	for _, a := range m.nodes {
		a.start()
	}
	m.nodes[0].awaitOpen().awaitSlaves(int32(n - 1)) //nolint:gosec // a handful
	return m
}

// network cuts node i off from the others, or joins it to them again. Its clients reach it all the time.
func (m *mesh) network(i int, there bool) {
	for j := range m.nodes {
		if j == i {
			continue
		}
		for _, p := range []*testkit.Proxy{m.calls[i][j], m.calls[j][i]} {
			if p.Refuse(!there); !there {
				p.CutAll()
			}
		}
	}
	if m.links[i].Refuse(!there); !there {
		m.links[i].CutAll()
	}
}

// load puts messages to whichever node takes them, and reads them on every node, until it is stopped.
type load struct {
	m    *mesh
	oks  *watermark.Mark // puts that were answered PUT_OK
	stop func()

	mu   sync.Mutex
	ok   map[string]int64 // body of a PUT_OK, its offset
	sent map[string]bool
	seen []map[int64]string // by node: body at each queue offset
}

func (m *mesh) load(putters int) *load {
	ctx, cancel := context.WithCancel(m.t.Context())
	l := &load{m: m, oks: watermark.New(0), ok: map[string]int64{}, sent: map[string]bool{}}
	var wg sync.WaitGroup
	for p := range putters {
		wg.Go(func() { l.put(ctx, p) })
	}
	for i, n := range m.nodes {
		l.seen = append(l.seen, map[int64]string{})
		wg.Go(func() { l.read(ctx, i, n.cfg.Listen) })
	}
	l.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	m.t.Cleanup(l.stop)
	return l
}

// open makes a connection of its own, which a stop of a node does not take away.
func (m *mesh) open(addr string) *grpc.ClientConn {
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond}, MinConnectTimeout: testkit.Patience}))
	if err != nil {
		m.t.Error(err)
	}
	return c
}

func (l *load) put(ctx context.Context, putter int) {
	var clients []storagev1.MessageServiceClient
	for _, n := range l.m.nodes {
		c := l.m.open(n.cfg.Listen)
		defer func() { _ = c.Close() }()
		clients = append(clients, storagev1.NewMessageServiceClient(c))
	}
	queue := int32(0)
	for i, at := 0, 0; ctx.Err() == nil; i++ {
		body := fmt.Sprintf("%d-%d", putter, i)
		l.mu.Lock()
		l.sent[body] = true
		l.mu.Unlock()
		pctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		r, err := clients[at].Put(pctx, &storagev1.PutRequest{Message: &storagev1.Message{Topic: changeTopic, QueueId: &queue, Body: []byte(body)}})
		cancel()
		if err == nil && r.GetResult().GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK {
			l.mu.Lock()
			l.ok[body] = r.GetResult().GetOffset()
			l.oks.Advance(int64(len(l.ok)))
			l.mu.Unlock()
			continue
		}
		at = (at + 1) % len(clients)
		select { // the others may be no masters either
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// read follows the queue on one node and notes what it sees where.
func (l *load) read(ctx context.Context, i int, addr string) {
	c := l.m.open(addr)
	defer func() { _ = c.Close() }()
	for next := int64(0); ctx.Err() == nil; {
		s, err := storagev1.NewMessageServiceClient(c).GetStream(ctx, &storagev1.GetStreamRequest{Topic: changeTopic, QueueOffset: next, MaxMessages: 1024})
		for err == nil {
			var r *storagev1.GetStreamResponse
			if r, err = s.Recv(); err != nil {
				break
			}
			l.mu.Lock()
			for _, msg := range r.GetMessages() {
				at, body := msg.GetQueueOffset(), string(msg.GetMessage().GetBody())
				if was, again := l.seen[i][at]; again && was != body {
					l.m.t.Errorf("a reader of node %d saw %q and then %q at queue offset %d", i, was, body, at)
				}
				l.seen[i][at] = body
			}
			l.mu.Unlock()
			next = r.GetNextQueueOffset()
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// more waits until that many more puts were PUT_OK.
func (l *load) more(n int64) {
	l.m.t.Helper()
	ctx, cancel := context.WithTimeout(l.m.t.Context(), testkit.Patience)
	defer cancel()
	from := l.oks.Load()
	if err := l.oks.Wait(ctx, from+n); err != nil {
		for _, x := range l.m.nodes {
			l.m.t.Log(x.status())
		}
		l.m.t.Fatalf("only %d puts were PUT_OK, %d before: %v", l.oks.Load(), from, err)
	}
}

// judge stops everything and holds the promises: every PUT_OK is there once, what any reader saw is there, all copies are the
// same.
func (l *load) judge() {
	t := l.m.t
	t.Helper()
	l.stop()
	master := l.m.master()
	end := master.end64()
	for _, n := range l.m.nodes {
		n.awaitEnd(end)
	}
	final, once := map[int64]string{}, map[string]int64{}
	for next := int64(0); ; {
		r, err := master.message().Get(t.Context(), &storagev1.GetRequest{Topic: changeTopic, QueueOffset: next, MaxMessages: 1024})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range r.GetMessages() {
			body := string(m.GetMessage().GetBody())
			if at, twice := once[body]; twice {
				t.Errorf("%s stands at %d and at %d", body, at, m.GetOffset())
			}
			once[body], final[m.GetQueueOffset()] = m.GetOffset(), body
		}
		if len(r.GetMessages()) == 0 {
			break
		}
		next = r.GetNextQueueOffset()
	}
	for body, offset := range l.ok {
		if at, ok := once[body]; !ok || at != offset {
			t.Errorf("%s was PUT_OK at %d and is at %d (%t)", body, offset, at, ok)
		}
	}
	for i, seen := range l.seen {
		for at, body := range seen {
			if final[at] != body {
				t.Errorf("a reader of node %d saw %q at queue offset %d, where %q is now", i, body, at, final[at])
			}
		}
		if len(seen) < len(l.ok)/10 {
			t.Errorf("the reader of node %d saw %d messages of %d: it does not read", i, len(seen), len(l.ok))
		}
	}
	t.Logf("%d puts, %d PUT_OK, %d in the log", len(l.sent), len(l.ok), len(once))
	others := slices.DeleteFunc(slices.Clone(l.m.nodes), func(n *node) bool { return n == master })
	same(t, master, others...)
}

// master waits for the one open master that all others follow.
func (m *mesh) master() *node {
	m.t.Helper()
	return m.nodes[m.masterIndex()]
}

func (m *mesh) masterIndex() (i int) {
	m.t.Helper()
	eventually(m.t, "one master whom all follow", func() bool {
		open := 0
		for k, n := range m.nodes {
			if st := n.status(); st.GetOpen() && int(st.GetInSyncSlaves()) == len(m.nodes)-1 {
				i = k
				open++
			}
		}
		return open == 1
	})
	return i
}

func (n *node) promote(force bool) (*storagev1.PromoteResponse, error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), testkit.Patience)
	defer cancel()
	p, err := n.admin().Promote(ctx, &storagev1.PromoteRequest{Force: force})
	return p, grpcx.FromStatus(err)
}

func (n *node) kept() []*storagev1.Rollback {
	n.t.Helper()
	r, err := n.admin().ListRollbacks(n.t.Context(), &storagev1.ListRollbacksRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	return r.GetRollbacks()
}

// TestPlannedChanges: the master goes round under load, and nothing is lost or cut.
func TestPlannedChanges(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3)
	l := m.load(4)
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible
	var worst, pause time.Duration
	for range scaled(3, 50) {
		old := m.masterIndex()
		l.more(20)
		next := (old + 1 + r.IntN(2)) % 3
		began := time.Now()
		p, err := m.nodes[next].promote(false)
		worst = max(worst, time.Since(began))
		if err != nil || !p.GetPlanned() || p.GetRole() != storagev1.Role_ROLE_SYNC_MASTER {
			t.Fatalf("promote node %d instead of node %d: %v, %v", next, old, p, err)
		}
		if at := m.masterIndex(); at != next {
			t.Fatalf("node %d is master, node %d was promoted", at, next)
		}
		l.more(1)
		pause = max(pause, time.Since(began))
		m.nodes[old].await("that it has no slaves any more", func(st *storagev1.StatusResponse) bool {
			return st.GetRole() == storagev1.Role_ROLE_SLAVE && len(st.GetSlaves()) == 0
		})
	}
	t.Logf("a promotion took %v at most, with the first PUT_OK %v", worst, pause)
	for _, n := range m.nodes {
		if kept := n.kept(); len(kept) > 0 {
			t.Errorf("node %d had to cut %v", n.cfg.BrokerID, kept)
		}
	}
	l.judge()
}

// TestForcedChanges: the master is cut off with messages that nobody else has; another node is promoted; the old one comes back,
// running or restarted, keeps these messages aside, is cut to the last common offset and follows.
func TestForcedChanges(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3)
	l := m.load(4)
	kept := 0
	for round := range scaled(3, 50) {
		old := m.masterIndex()
		l.more(20)
		m.links[old].Stall(testkit.Down) // it writes on, its slaves hear nothing of it
		m.nodes[old].await("messages of its own", func(st *storagev1.StatusResponse) bool {
			w := st.GetWatermarks()
			return w.GetWrittenOffset() > w.GetAckedOffset()
		})
		m.network(old, false)
		m.links[old].Resume(testkit.Down)
		next := m.best(old)
		p, err := m.nodes[next].promote(true)
		if err != nil || p.GetPlanned() || p.GetAlreadyOpen() {
			t.Fatalf("round %d: promote node %d without node %d: %v, %v", round, next, old, p, err)
		}
		l.more(20)
		had := m.nodes[old].end64()
		before := len(m.nodes[old].kept())
		if round%2 == 1 {
			m.nodes[old].halt()
			m.network(old, true)
			m.nodes[old].start()
		} else {
			m.network(old, true)
		}
		if at := m.masterIndex(); at != next {
			t.Fatalf("round %d: node %d is master, node %d was promoted", round, at, next)
		}
		st := m.nodes[old].status()
		if had > p.GetStartOffset() { // else all that it had was on its way before the link stood still
			before++
			kept++
		}
		if st.GetRole() != storagev1.Role_ROLE_SLAVE || len(st.GetRollbacks()) != before {
			t.Fatalf("round %d: the old master had the log up to %d, the new reign began at %d; now it is %v", round, had, p.GetStartOffset(), st)
		}
		if had > p.GetStartOffset() {
			l.keptOf(m.nodes[old], p.GetStartOffset(), had)
		}
	}
	if kept == 0 {
		t.Error("no old master had anything of its own: the test proves nothing")
	}
	l.judge()
}

// best returns the node with the best log but for one, once both have lost it.
func (m *mesh) best(but int) int {
	m.t.Helper()
	best, end := -1, int64(-1)
	for i, n := range m.nodes {
		if i == but {
			continue
		}
		st := n.await("the end of the link", func(st *storagev1.StatusResponse) bool {
			s := st.GetUpstream().GetState()
			return s != storagev1.LinkState_LINK_STATE_IN_SYNC && s != storagev1.LinkState_LINK_STATE_CATCHING_UP
		})
		if w := st.GetWatermarks().GetWrittenOffset(); w > end {
			best, end = i, w
		}
	}
	return best
}

// keptOf checks that the range kept last begins where the new reign did and has nothing that was confirmed.
func (l *load) keptOf(n *node, from, end int64) {
	t := l.m.t
	t.Helper()
	i := slices.IndexFunc(n.kept(), func(r *storagev1.Rollback) bool {
		return r.GetFromOffset() == from && r.GetToOffset() == end && r.GetWhole()
	})
	if i < 0 {
		t.Errorf("node %d has kept %v, it had the log up to %d and the new reign began at %d", n.cfg.BrokerID, n.kept(), end, from)
		return
	}
	s, err := n.admin().ReadRollback(t.Context(), &storagev1.ReadRollbackRequest{Name: n.kept()[i].GetName()})
	messages := 0
	for err == nil {
		var r *storagev1.ReadRollbackResponse
		if r, err = s.Recv(); err != nil {
			break
		}
		for _, m := range r.GetMessages() {
			messages++
			body := string(m.GetMessage().GetBody())
			l.mu.Lock()
			_, ok := l.ok[body]
			sent := l.sent[body]
			l.mu.Unlock()
			if ok || !sent || m.GetOffset() < from {
				t.Errorf("%q at %d was cut: PUT_OK %t, sent %t", body, m.GetOffset(), ok, sent)
			}
		}
		if len(r.GetGaps()) > 0 {
			t.Errorf("left out: %v", r.GetGaps())
		}
	}
	if messages == 0 {
		t.Errorf("no messages in %v: %v", n.kept()[i], err)
	}
}

// TestToldOfANewerReign: a master that is asked to promise one refuses puts at once, and stays a slave over a restart.
func TestToldOfANewerReign(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 2)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().awaitSlaves(2)
	g[0].fill(20)
	g[1].awaitEnd(g[0].end64()) // one slave confirms a put, and this one is promoted below
	h, err := storagev1.NewReplicationServiceClient(g[0].conn).Promise(t.Context(), &storagev1.PromiseRequest{
		Cluster: g[0].cfg.BrokerClusterName, BrokerName: g[0].cfg.BrokerName, NodeId: 7, Epoch: 50, Id: 5050,
	})
	if err != nil || !h.GetPromised() || h.GetOpenMaster() {
		t.Fatalf("%v, %v", h, err)
	}
	if _, err := g[0].tryPut([]byte("too late")); asError(err).Reason != "NOT_MASTER" {
		t.Errorf("put: %v", err)
	}
	g[0].halt()
	g[0].start()
	if st := g[0].status(); st.GetRole() != storagev1.Role_ROLE_SLAVE || st.GetPromisedEpoch() != 50 {
		t.Errorf("after a restart: %v", st)
	}
	p, err := g[1].promote(false)
	if err != nil || p.GetEpoch() <= 50 {
		t.Fatalf("%v, %v", p, err)
	}
	g[1].awaitSlaves(2)
	g[1].fill(20)
	same(t, g[1], g[0], g[2])
}

// TestDemoteAndPromote by RPC: every refusal says what to do.
func TestDemoteAndPromote(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 2)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().awaitSlaves(2)
	g[0].fill(20)
	d, err := g[0].admin().Demote(t.Context(), &storagev1.DemoteRequest{})
	if err != nil || d.GetAlreadySlave() || d.GetEndOffset() != g[0].end64() {
		t.Fatalf("%v, %v", d, err)
	}
	if _, err := g[0].tryPut([]byte("nobody is master")); asError(err).Reason != "NOT_MASTER" || asError(err).Remedy == "" {
		t.Errorf("put: %v", err)
	}
	g[0].halt()
	g[2].halt()
	if _, err := g[1].promote(false); asError(err).Reason != "NOT_PROMOTED" || !strings.Contains(asError(err).Remedy, "no answer from") {
		t.Errorf("promoted alone: %v", err)
	}
	p, err := g[1].promote(true)
	if err != nil || p.GetRole() != storagev1.Role_ROLE_SYNC_MASTER {
		t.Fatalf("forced: %v, %v", p, err)
	}
	if p, err = g[1].promote(false); err != nil || !p.GetAlreadyOpen() {
		t.Errorf("again: %v, %v", p, err)
	}
	g[0].start()
	g[2].start()
	g[1].awaitSlaves(2)
	g[1].fill(20)
	if p, err = g[0].promote(false); err != nil || !p.GetPlanned() {
		t.Fatalf("home again: %v, %v", p, err)
	}
	g[0].awaitSlaves(2)
	g[0].fill(20)
	same(t, g[0], g[1], g[2])
}

// TestAnAsyncGroupChanges: ha.masterRole says what a promoted node becomes.
func TestAnAsyncGroupChanges(t *testing.T) {
	t.Parallel()
	g := group(t, asyncMaster, 1, func(c *Config) { c.HA.MasterRole = asyncMaster })
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().fill(20)
	g[1].awaitEnd(g[0].end64())
	p, err := g[1].promote(false)
	if err != nil || !p.GetPlanned() || p.GetRole() != storagev1.Role_ROLE_ASYNC_MASTER {
		t.Fatalf("%v, %v", p, err)
	}
	g[0].await("that it follows", func(st *storagev1.StatusResponse) bool {
		return st.GetUpstream().GetState() == storagev1.LinkState_LINK_STATE_IN_SYNC
	})
	g[0].halt()
	if r := g[1].put([]byte("waits for nobody")); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || r.GetAckedSlaves() != 0 {
		t.Errorf("put: %v", r)
	}
	g[0].start()
	same(t, g[1], g[0])
}

// TestAChainFollowsAChange: the slave of a slave goes along when that one is promoted, and can be promoted itself.
func TestAChainFollowsAChange(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 2)
	g[2].cfg.Master.Address = g[1].cfg.Listen
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen()
	g[1].await("the first link", func(st *storagev1.StatusResponse) bool {
		return st.GetUpstream().GetState() == storagev1.LinkState_LINK_STATE_IN_SYNC
	})
	g[2].halt() // which may follow the master, as node 1 did not serve yet
	g[2].start()
	g[2].await("the chain", func(st *storagev1.StatusResponse) bool { return st.GetUpstream().GetAddress() == g[1].cfg.Listen })
	for _, next := range []int{1, 2, 0} {
		p, err := g[next].promote(false)
		if err != nil || !p.GetPlanned() {
			t.Fatalf("promote node %d: %v, %v", next, p, err)
		}
		g[next].await("a slave", func(st *storagev1.StatusResponse) bool { return st.GetInSyncSlaves() > 0 })
		g[next].fill(20)
	}
	for _, n := range g {
		if kept := n.kept(); len(kept) > 0 {
			t.Errorf("node %d had to cut %v", n.cfg.BrokerID, kept)
		}
	}
	same(t, g[0], g[1], g[2])
}

// TestMasterRoleIsChecked: a group's kind of master must be one, and the node's own role must agree.
func TestMasterRoleIsChecked(t *testing.T) {
	for _, tc := range []struct{ role, master, want string }{
		{slave, "", syncMaster},
		{asyncMaster, "", asyncMaster},
		{slave, asyncMaster, asyncMaster},
		{syncMaster, asyncMaster, ""},
		{slave, slave, ""},
	} {
		c := defaultConfig()
		c.BrokerID, c.BrokerRole, c.HA.MasterRole = 1, tc.role, tc.master
		c.HA.Peers = []string{c.Listen, "127.0.0.1:20911"}
		err := c.Validate()
		if (err == nil) != (tc.want != "") || err == nil && c.HA.MasterRole != tc.want {
			t.Errorf("%s, %s: %q, %v", tc.role, tc.master, c.HA.MasterRole, err)
		}
		if err != nil && asError(err).Field != "ha.masterRole" {
			t.Errorf("%s, %s: %v", tc.role, tc.master, err)
		}
	}
}
