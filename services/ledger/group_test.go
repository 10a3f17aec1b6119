package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
)

var memberIDs = []string{"n0", "n1", "n2"}

// TestAGroupOfThree makes a group by one call, appends in all ways and reads in all ways, on every member.
func TestAGroupOfThree(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	for _, s := range g {
		s.start()
	}
	_, err := g[1].ledger().Append(t.Context(), &ledgerv1.AppendRequest{Body: []byte("x")})
	wantReason(t, "append without a group", err, "NOT_LEADER")
	_, err = g[1].ledger().GetBounds(t.Context(), &ledgerv1.GetBoundsRequest{})
	wantReason(t, "read without a group", err, "NO_LEADER")
	if st := g[1].status(); st.GetVoter() || st.GetReason() == "" || st.GetRemedy() == "" || g[1].app.ready(t.Context()) == nil {
		t.Errorf("a node without a group says %v", st)
	}
	_, err = g[1].admin().Bootstrap(t.Context(), &ledgerv1.BootstrapRequest{Members: memberIDs[:2]})
	wantReason(t, "bootstrap of others", err, "INVALID_FIELD")
	made, err := g[1].admin().Bootstrap(t.Context(), &ledgerv1.BootstrapRequest{Members: memberIDs})
	if err != nil || len(made.GetMembers()) < 2 {
		t.Fatalf("bootstrap: %v, %v", made, err)
	}
	hurry(g)
	l := leader(t, g)
	for _, s := range g {
		s.await("a vote", func(st *ledgerv1.StatusResponse) bool { return st.GetVoter() && st.GetReason() == "" })
		if err := s.app.ready(t.Context()); err != nil {
			t.Errorf("%s is not ready: %v", s.cfg.SelfID, err)
		}
	}
	_, err = g[2].admin().Bootstrap(t.Context(), &ledgerv1.BootstrapRequest{Members: memberIDs})
	wantReason(t, "a second bootstrap", err, "GROUP_EXISTS")

	last := appendInAllWays(t, g, l)
	for _, s := range g {
		readInAllWays(t, s, last)
	}
	if st := l.status(); st.GetRole() != ledgerv1.Role_ROLE_LEADER || len(st.GetFollowers()) != 2 || st.GetFlushMode() != ledgerv1.FlushMode_FLUSH_MODE_SYNC {
		t.Errorf("status of the leader: %v", st)
	}
	l.await("followers in sync", func(st *ledgerv1.StatusResponse) bool {
		for _, f := range st.GetFollowers() {
			if f.GetMatchIndex() != last || f.GetLag() != 0 || f.GetState() != ledgerv1.PushState_PUSH_STATE_APPEND || !f.GetConnected() {
				return false
			}
		}
		return true
	})
}

// appendInAllWays leaves 1 + 3 + 40 entries "0" to "43" and returns the index of the last.
func appendInAllWays(t *testing.T, g []*seat, l *seat) int64 {
	t.Helper()
	one, err := l.ledger().Append(t.Context(), &ledgerv1.AppendRequest{Body: []byte("0"), Channel: 7})
	if err != nil || one.GetTerm() < 1 || one.GetCommittedIndex() < one.GetIndex() {
		t.Fatalf("append: %v, %v", one, err)
	}
	for _, s := range others(g, l) {
		_, err := s.ledger().Append(t.Context(), &ledgerv1.AppendRequest{Body: []byte("no")})
		if e := wantReason(t, "append to a follower", err, "NOT_LEADER"); e.Meta["leader_address"] != l.cfg.Listen || e.Meta["leader"] != l.cfg.SelfID {
			t.Errorf("a follower names %v as the leader", e.Meta)
		}
	}
	batch, err := l.ledger().AppendBatch(t.Context(), &ledgerv1.AppendBatchRequest{Bodies: [][]byte{[]byte("1"), []byte("2"), []byte("3")}})
	if err != nil || len(batch.GetIndexes()) != 3 || batch.GetIndexes()[2] != batch.GetIndexes()[0]+2 {
		t.Fatalf("batch: %v, %v", batch, err)
	}
	stream, err := l.ledger().AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		bodies := [][]byte{[]byte(fmt.Sprint(4 + 2*i)), []byte(fmt.Sprint(5 + 2*i))}
		if err := stream.Send(&ledgerv1.AppendStreamRequest{Sequence: uint64(100 + 2*i), Bodies: bodies}); err != nil { //nolint:gosec // small
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var indexes []int64
	var sequence uint64
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.GetSequence() <= sequence || r.GetCommittedIndex() < r.GetIndexes()[len(r.GetIndexes())-1] {
			t.Errorf("answer %v after %d", r, sequence)
		}
		sequence = r.GetSequence()
		indexes = append(indexes, r.GetIndexes()...)
	}
	if sequence != 139 || len(indexes) != 40 || !slices.IsSorted(indexes) {
		t.Fatalf("stream: up to %d, indexes %v", sequence, indexes)
	}
	return indexes[39]
}

// readInAllWays sees the 44 entries on any member, at once where the read is linearizable.
func readInAllWays(t *testing.T, s *seat, last int64) {
	t.Helper()
	var b *ledgerv1.GetBoundsResponse
	poll(t, "a read", func(ctx context.Context) (err error) { // it may not have heard of the leader yet
		b, err = s.ledger().GetBounds(ctx, &ledgerv1.GetBoundsRequest{})
		return err
	})
	if b.GetFirstIndex() != 0 || b.GetCommittedIndex() < last || b.GetMaxBodySize() == 0 {
		t.Errorf("bounds: %v", b)
	}
	e, err := s.ledger().Get(t.Context(), &ledgerv1.GetRequest{Index: last})
	if err != nil || string(e.GetEntry().GetBody()) != "43" {
		t.Errorf("get: %v, %v", e, err)
	}
	_, err = s.ledger().Get(t.Context(), &ledgerv1.GetRequest{Index: last + 1000})
	wantReason(t, "get behind the end", err, "INDEX_NOT_COMMITTED")
	bodies := s.bodies(last)
	if len(bodies) != 44 || bodies[0] != "0" || bodies[43] != "43" {
		t.Errorf("%s reads %v", s.cfg.SelfID, bodies)
	}
	empty, err := s.ledger().GetRange(t.Context(), &ledgerv1.GetRangeRequest{Index: last + 1000})
	if err != nil || len(empty.GetEntries()) != 0 || empty.GetNextIndex() != last+1000 {
		t.Errorf("range behind the end: %v, %v", empty, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tail, err := s.ledger().Tail(ctx, &ledgerv1.TailRequest{Index: 0, MaxEntries: 7})
	for seen := int64(0); err == nil && seen <= last; {
		var r *ledgerv1.TailResponse
		r, err = tail.Recv()
		if err == nil && (len(r.GetEntries()) > 7 || r.GetEntries()[0].GetIndex() != seen) {
			t.Fatalf("tail at %d: %v", seen, r)
		}
		seen = r.GetNextIndex()
	}
	if err != nil {
		t.Errorf("tail: %v", err)
	}
}

// TestKilledLeader: acknowledged appends survive kill -9 of leaders, and those with a key stand once.
func TestKilledLeader(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, quick)
	for _, s := range g {
		s.onDisk().bootstrap().spawn()
	}
	c := newClient(t)
	var want []string
	var last int64
	for round := range 3 {
		for i := range 20 {
			body := fmt.Sprint(round, "-", i)
			c.put(g, body)
			want = append(want, body)
		}
		l := leader(t, g)
		l.hangUp()
		if err := l.signal(syscall.SIGKILL); err == nil {
			t.Error("a killed child left with exit code 0")
		}
		body := fmt.Sprint("without ", l.cfg.SelfID)
		last = c.put(g, body).GetIndex()
		want = append(want, body)
		l.spawn()
	}
	for _, s := range g {
		if got := s.bodies(last); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", s.cfg.SelfID, got, want)
		}
	}
	for _, s := range g {
		if err := s.halt(); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
	}
	for _, s := range g {
		if err := runCheck(t.Context(), vfs.OS(), s.cfg, nil, s.log); err != nil {
			t.Errorf("check of %s: %v", s.cfg.SelfID, err)
		}
	}
}

// TestStopHandsOver: a leader that is told to stop gives leadership away first, so that the others need no election timeout.
func TestStopHandsOver(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	c := newClient(t)
	c.put(g, "x")
	l := leader(t, g)
	l.await("followers in sync", func(st *ledgerv1.StatusResponse) bool {
		return st.GetFollowers()[0].GetLag() == 0 && st.GetFollowers()[1].GetLag() == 0
	})
	if err := l.halt(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(l.log.String(), "leadership handed over") {
		t.Error("leadership was not handed over")
	}
	c.put(g, "y")
	next := leader(t, g)
	// By order too, also to nobody in particular, and never by one who does not lead.
	to := others(g, next)[0]
	r, err := next.election().TransferLeadership(t.Context(), &ledgerv1.TransferLeadershipRequest{})
	if err != nil || r.GetTarget() != to.cfg.SelfID || r.GetAddress() != to.cfg.Listen {
		t.Fatalf("transfer: %v, %v", r, err)
	}
	to.await("leadership", func(st *ledgerv1.StatusResponse) bool { return st.GetRole() == ledgerv1.Role_ROLE_LEADER })
	_, err = next.election().TransferLeadership(t.Context(), &ledgerv1.TransferLeadershipRequest{Target: to.cfg.SelfID})
	wantReason(t, "transfer by a follower", err, "NOT_LEADER")
	_, err = to.election().TransferLeadership(t.Context(), &ledgerv1.TransferLeadershipRequest{Target: "nobody"})
	wantReason(t, "transfer to nobody", err, "INVALID_FIELD")
	_, err = to.election().TransferLeadership(t.Context(), &ledgerv1.TransferLeadershipRequest{Target: l.cfg.SelfID})
	wantReason(t, "transfer to one that is down", err, "REFUSED")
	before := to.status().GetTerm()
	r, err = to.election().TransferLeadership(t.Context(), &ledgerv1.TransferLeadershipRequest{Target: to.cfg.SelfID})
	if err != nil || r.GetTarget() != to.cfg.SelfID || r.GetAddress() != to.cfg.Listen || r.GetTerm() != 0 {
		t.Errorf("transfer to the leader: %v, %v", r, err)
	}
	if st := to.status(); st.GetRole() != ledgerv1.Role_ROLE_LEADER || st.GetTerm() != before {
		t.Errorf("after a transfer to the leader: %v in term %d, %d before", st.GetRole(), st.GetTerm(), before)
	}
}

// TestT21_WipedNode: it comes back with everything, without a new append, and has its vote again only then.
func TestT21_WipedNode(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	c := newClient(t)
	var last int64
	for i := range 100 {
		last = c.put(g, fmt.Sprint(i)).GetIndex()
	}
	w := others(g, leader(t, g))[0]
	if err := w.halt(); err != nil {
		t.Fatal(err)
	}
	w.wipe()
	w.start()
	w.await("a vote", func(st *ledgerv1.StatusResponse) bool {
		if st.GetVoter() && st.GetLastIndex() < last {
			t.Errorf("it votes with %d of %d entries", st.GetLastIndex(), last)
		}
		return st.GetVoter()
	})
	if got := w.bodies(last); len(got) != 100 {
		t.Errorf("%d entries came back", len(got))
	}
}

// TestT21_TwoWipedMakeNoGroup: neither by themselves nor by an order while the third is known to hold entries.
func TestT21_TwoWipedMakeNoGroup(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	last := newClient(t).put(g, "x").GetIndex()
	g[2].await("the entry", func(st *ledgerv1.StatusResponse) bool { return st.GetLastIndex() >= last })
	for _, s := range g {
		if err := s.halt(); err != nil {
			t.Fatal(err)
		}
	}
	g[0].wipe()
	g[1].wipe()
	g[0].start()
	g[1].start()
	_, err := g[0].admin().Bootstrap(t.Context(), &ledgerv1.BootstrapRequest{Members: memberIDs})
	if e := wantReason(t, "bootstrap without the third", err, "UNREACHABLE"); e.Meta["member"] != "n2" || !strings.Contains(e.Msg, "member n2 at "+g[2].cfg.Listen) {
		t.Errorf("it names %v: %v", e.Meta, e)
	}
	g[2].start()
	poll(t, "an answer of the third", func(ctx context.Context) error {
		_, err = g[0].admin().Bootstrap(ctx, &ledgerv1.BootstrapRequest{Members: memberIDs})
		if reason(err) == "UNREACHABLE" {
			return err
		}
		return nil
	})
	if e := wantReason(t, "bootstrap beside one that holds entries", err, "GROUP_EXISTS"); e.Meta["member"] != "n2" {
		t.Errorf("it names %v", e.Meta)
	}
	for _, s := range g {
		if st := s.status(); st.GetRole() == ledgerv1.Role_ROLE_LEADER || st.GetVoter() != (s == g[2]) {
			t.Errorf("%v", st)
		}
	}
}

// TestT20_IsolatedFollower: alone it raises no term, no write fails, and it comes back. That leader and term stay is shown in
// package node, where no machine can be too slow for it.
func TestT20_IsolatedFollower(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, quick)
	links := proxied(t, g)
	startAll(g)
	c := newClient(t)
	c.put(g, "x")
	f := others(g, leader(t, g))[0]
	for range 2 {
		isolate(links, g, f, true)
		alone := f.await("loneliness", func(st *ledgerv1.StatusResponse) bool { return st.GetRole() == ledgerv1.Role_ROLE_PRE_CANDIDATE })
		var last int64
		for i := range 20 {
			last = c.put(others(g, f), fmt.Sprint(i)).GetIndex()
		}
		if st := f.status(); st.GetTerm() != alone.GetTerm() || st.GetElections() != alone.GetElections() {
			t.Errorf("alone it has raised the term: %v", st)
		}
		isolate(links, g, f, false)
		f.await("the entries", func(st *ledgerv1.StatusResponse) bool { return st.GetCommittedIndex() >= last })
	}
}

// TestT24_BlackHole: a leader that nobody hears any more, without an end of its connections, is replaced, refuses reads, ends
// its appends as unknown, and comes back as a follower without what it alone had.
func TestT24_BlackHole(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, quick, func(c *Config) { c.AppendTimeout = 20 * time.Second })
	links := proxied(t, g)
	startAll(g)
	c := newClient(t)
	c.put(g, "first")
	old := leader(t, g)
	stall(links, g, old, true)
	var wg sync.WaitGroup
	for range 50 { // T22: all of them end
		wg.Go(func() {
			_, err := old.ledger().Append(t.Context(), &ledgerv1.AppendRequest{Body: []byte("lost")})
			if r := reason(err); r != "APPEND_UNKNOWN" && r != "NOT_LEADER" {
				t.Errorf("an append on a leader without a quorum: %v", err)
			}
		})
	}
	wg.Wait()
	last := c.put(others(g, old), "second").GetIndex()
	if _, err := old.ledger().GetBounds(t.Context(), &ledgerv1.GetBoundsRequest{}); err == nil {
		t.Error("a member that hears nobody confirms a read")
	}
	stall(links, g, old, false)
	for _, s := range g {
		if got := s.bodies(last); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("%s has %v", s.cfg.SelfID, got)
		}
	}
}

// proxied puts a proxy before each member for each other one: links[i][j] is how i reaches j.
func proxied(t testing.TB, g []*seat) [][]*testkit.Proxy {
	t.Helper()
	links := make([][]*testkit.Proxy, len(g))
	for i, from := range g {
		links[i] = make([]*testkit.Proxy, len(g))
		peers := slices.Clone(from.cfg.Peers)
		for j, to := range g {
			if i != j {
				links[i][j] = testkit.NewProxy(t, to.cfg.Listen)
				peers[j] = to.cfg.SelfID + "-" + links[i][j].Addr()
			}
		}
		from.cfg.Peers = peers
	}
	return links
}

// between calls do for every link that s is an end of.
func between(links [][]*testkit.Proxy, g []*seat, s *seat, do func(*testkit.Proxy)) {
	for i := range g {
		for j := range g {
			if i != j && (g[i] == s || g[j] == s) {
				do(links[i][j])
			}
		}
	}
}

// isolate cuts all connections of s and refuses new ones.
func isolate(links [][]*testkit.Proxy, g []*seat, s *seat, on bool) {
	between(links, g, s, func(p *testkit.Proxy) {
		p.Refuse(on)
		if on {
			p.CutAll()
		}
	})
}

// stall makes all links of s black holes.
func stall(links [][]*testkit.Proxy, g []*seat, s *seat, on bool) {
	between(links, g, s, func(p *testkit.Proxy) {
		for _, d := range []testkit.Direction{testkit.Up, testkit.Down} {
			if on {
				p.Stall(d)
			} else {
				p.Resume(d)
			}
		}
	})
}
