package peer_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/peer"
)

// log is a leader's log of entries of 52 bytes, all of term 1.
type log struct {
	mu    sync.Mutex
	cuts  uint64
	views func() // called before each View
}

func (l *log) Cuts() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cuts
}

func (l *log) View(first raft.Index, count int, _ int64) ([]byte, int, func(), error) {
	if l.views != nil {
		l.views()
	}
	if first > 1<<20 {
		return nil, 0, func() {}, entrylog.ErrOutOfRange
	}
	var b []byte
	for i := range count {
		e := entry.New(0, []byte("body"))
		entry.Stamp(e, first+raft.Index(i), 1, 52*(int64(first)+int64(i)), false)
		b = append(b, e...)
	}
	return b, count, func() {}, nil
}

// end is one member: what it gets goes to got, unless answer makes an answer of it.
type end struct {
	t      *testing.T
	tr     *peer.Transport
	got    chan raft.Message
	answer func(raft.Message) (raft.Message, bool)
	full   bool
}

// Deliver implements peer.Inbox.
func (e *end) Deliver(m raft.Message) bool {
	if e.full {
		return false
	}
	if e.answer != nil {
		if a, ok := e.answer(m); ok {
			a.From, a.To = m.To, m.From
			e.tr.Send([]raft.Message{a})
		}
	}
	select {
	case e.got <- m:
	default:
	}
	return true
}

func (e *end) next() raft.Message {
	e.t.Helper()
	select {
	case m := <-e.got:
		return m
	case <-time.After(testkit.Patience):
		e.t.Fatal("no message came")
		return raft.Message{}
	}
}

// pair makes the members a and b; a reaches b through a proxy.
func pair(t *testing.T, l peer.Log, tune func(*peer.Options)) (a, b *end, proxy *testkit.Proxy) {
	t.Helper()
	var listeners []net.Listener
	for range 2 {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, ln)
	}
	proxy = testkit.NewProxy(t, listeners[1].Addr().String())
	addresses := map[raft.NodeID]string{"a": listeners[0].Addr().String(), "b": proxy.Addr()}
	ends := []*end{{t: t, got: make(chan raft.Message, 4096)}, {t: t, got: make(chan raft.Message, 4096)}}
	for i, id := range []raft.NodeID{"a", "b"} {
		o := peer.Options{
			Group: "g", Self: id, Members: addresses,
			Dial: func(addr string) (*grpc.ClientConn, error) {
				return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			},
		}
		if tune != nil {
			tune(&o)
		}
		tr, err := peer.New(o, l, ends[i])
		if err != nil {
			t.Fatal(err)
		}
		ends[i].tr = tr
		srv := grpc.NewServer()
		members := peer.NewMembers(tr, nil)
		ledgerv1.RegisterPushServiceServer(srv, members)
		ledgerv1.RegisterElectionServiceServer(srv, members)
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = srv.Serve(listeners[i]) })
		wg.Go(func() { _ = tr.Run(ctx) })
		t.Cleanup(func() {
			stop()
			srv.Stop()
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
			wg.Wait()
		})
	}
	return ends[0], ends[1], proxy
}

// everyMessage has one of each kind with all fields that it carries.
func everyMessage() []raft.Message {
	return []raft.Message{
		{Type: raft.Compare, Term: 7, Seq: 1, Index: 5, LogTerm: 6},
		{Type: raft.Truncate, Term: 7, Seq: 2, Index: 5, LogTerm: 6, Reset: true, Nonce: 1 << 63},
		{Type: raft.Append, Term: 7, Seq: 3, Index: 5, LogTerm: 1, Commit: 4, Count: 3, Bytes: 156},
		{Type: raft.Append, Term: 7, Seq: 3, Index: -1, LogTerm: -1, Commit: -1},
		{Type: raft.Commit, Term: 7, Seq: 4, Index: 5, LogTerm: 6, Commit: 4},
		{Type: raft.Heartbeat, Term: 7, Round: 8, Sent: -9},
		{Type: raft.PreVote, Term: 7, Index: 5, LogTerm: 6, Learner: true},
		{Type: raft.Vote, Term: 7, Index: -1, LogTerm: -1, Force: true},
		{Type: raft.TakeLeadership, Term: 7},
		{Type: raft.ReadIndex, Term: 7, ReadID: 10, Nonce: 11},
		{Type: raft.Rejoin, Term: 7, Nonce: 12, Learner: true},
	}
}

// TestEveryMessageArrives, and so does its answer, whole: by the stream or by the call.
func TestEveryMessageArrives(t *testing.T) {
	a, b, _ := pair(t, &log{}, nil)
	b.answer = func(m raft.Message) (raft.Message, bool) {
		reply := raft.Message{Type: m.Type.Answer(), Term: m.Term + 1, Round: m.Round, Sent: m.Sent, ReadID: m.ReadID, Learner: true, Refused: raft.ShortLog}
		switch m.Type {
		case raft.Compare, raft.Truncate, raft.Append, raft.Commit:
			reply.Seq, reply.Index, reply.LogTerm, reply.End, reply.Commit, reply.Nonce = m.Seq, 3, 9, 5, -1, 77
		case raft.Heartbeat:
			reply.End, reply.Commit, reply.Silence = 5, 4, 1500
		case raft.ReadIndex:
			reply.Index, reply.Nonce = 3, m.Nonce
		case raft.Rejoin:
			reply.Leads, reply.End, reply.Nonce, reply.Refused = true, 5, m.Nonce, raft.OK
		default:
		}
		return reply, reply.Type != 0
	}
	for _, m := range everyMessage() {
		m.From, m.To = "a", "b"
		a.tr.Send([]raft.Message{m})
		got := b.next()
		if m.Type == raft.Append {
			if len(got.Entries) != m.Count {
				t.Errorf("%d entries, want %d", len(got.Entries), m.Count)
			}
			for i, e := range got.Entries {
				if e.Index != m.Index+1+raft.Index(i) || string(e.Payload[entry.HeaderSize:]) != "body" {
					t.Errorf("entry %+v", e)
				}
			}
			m.Count, m.Bytes, got.Entries = 0, 0, nil
		}
		id := got.ReadID // the server's own
		got.ReadID = m.ReadID
		if !same(got, m) {
			t.Errorf("%v arrived as %+v, want %+v", m.Type, got, m)
		}
		want, ok := b.answer(m)
		if !ok {
			continue
		}
		want.From, want.To = "b", "a"
		reply := a.next()
		if want.ReadID = reply.ReadID; m.Type == raft.ReadIndex && reply.ReadID != 10 {
			t.Errorf("the answer's ReadID is %d, the server's was %d", reply.ReadID, id)
		}
		if !same(reply, want) {
			t.Errorf("%v arrived as %+v, want %+v", want.Type, reply, want)
		}
	}
	if s := a.tr.Status("b"); !s.Connected || s.Err != nil || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

func same(a, b raft.Message) bool {
	a.Entries, b.Entries = nil, nil
	return a.Type == b.Type && a.From == b.From && a.To == b.To && a.Term == b.Term && a.Index == b.Index && a.LogTerm == b.LogTerm &&
		a.Commit == b.Commit && a.End == b.End && a.Seq == b.Seq && a.Round == b.Round && a.Sent == b.Sent && a.Nonce == b.Nonce &&
		a.Silence == b.Silence && a.ReadID == b.ReadID && a.Refused == b.Refused && a.Force == b.Force && a.Reset == b.Reset && a.Leads == b.Leads && a.Learner == b.Learner
}

// TestAppendsOfACutLogAreDropped: their entries may be others by now.
func TestAppendsOfACutLogAreDropped(t *testing.T) {
	l := &log{}
	a, b, _ := pair(t, l, nil)
	l.views = func() { // between the order and its execution
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cuts == 0 {
			l.cuts++
		}
	}
	send := func(index raft.Index) {
		a.tr.Send([]raft.Message{{Type: raft.Append, From: "a", To: "b", Term: 7, Index: index, LogTerm: 1, Count: 1, Bytes: 52}})
	}
	compare := func() {
		a.tr.Send([]raft.Message{{Type: raft.Compare, From: "a", To: "b", Term: 7, Index: 5, LogTerm: 1}})
	}
	send(1)
	send(2) // ordered before or after the cut
	compare()
	m := b.next()
	if m.Type == raft.Append && m.Index == 2 {
		m = b.next()
	}
	if m.Type != raft.Compare || a.tr.Status("b").Dropped == 0 {
		t.Fatalf("%+v came after the cut, %+v", m, a.tr.Status("b"))
	}
	send(3)
	send(1 << 30) // not there
	compare()
	m = b.next()
	if m.Type != raft.Append || m.Index != 3 || b.next().Type != raft.Compare {
		t.Errorf("%+v", m)
	}
}

// TestT24_BulkAndBlackHoles: pushes that nobody takes neither block Send nor delay heartbeats; a black hole ends calls by their
// deadline; queues are bounded; and all goes on when the hole is closed.
func TestT24_BulkAndBlackHoles(t *testing.T) {
	a, b, proxy := pair(t, &log{}, func(o *peer.Options) { o.PushQueue, o.ControlQueue, o.CallTimeout = 50, 8, 200*time.Millisecond })
	b.answer = func(m raft.Message) (raft.Message, bool) {
		return raft.Message{Type: raft.HeartbeatAnswer, Term: m.Term, Round: m.Round, ReadID: m.ReadID}, m.Type == raft.Heartbeat
	}
	heartbeat := func(round uint64) {
		a.tr.Send([]raft.Message{{Type: raft.Heartbeat, From: "a", To: "b", Term: 7, Round: round}})
	}
	push := raft.Message{Type: raft.Append, From: "a", To: "b", Term: 7, Index: 1, LogTerm: 1, Count: 1000, Bytes: 52_000}
	heartbeat(1)
	if m := a.next(); m.Round != 1 {
		t.Fatalf("%+v", m)
	}
	proxy.Stall(testkit.Up)
	for range 2000 {
		a.tr.Send([]raft.Message{push})
	}
	for i := range uint64(100) {
		heartbeat(100 + i)
	}
	dropped := a.tr.Status("b").Dropped
	if dropped < 1000 {
		t.Errorf("%d messages were dropped", dropped)
	}
	a.tr.Send([]raft.Message{{Type: raft.ReadIndex, From: "a", To: "b", Term: 7, ReadID: 3, Nonce: 4}})
	if m := a.next(); m.Type != raft.ReadIndexAnswer || m.ReadID != 3 || m.Nonce != 4 || m.Refused != raft.NoLeader || a.tr.Status("b").Err == nil {
		t.Errorf("a read that nobody answers: %+v", m)
	}
	proxy.Resume(testkit.Up)
	for round := uint64(1000); ; round++ {
		heartbeat(round)
		select {
		case m := <-a.got:
			if m.Round >= 1000 {
				return
			}
		case <-time.After(testkit.Patience):
			t.Fatal("no heartbeat was answered after the hole was closed")
		}
	}
}

// TestT24_StreamsLeaveNothingBehind: hundreds of push streams that are answered, cancelled, broken and replaced.
func TestT24_StreamsLeaveNothingBehind(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	_, b, proxy := pair(t, &log{}, nil)
	b.answer = func(m raft.Message) (raft.Message, bool) {
		return raft.Message{Type: raft.CompareAnswer, Term: m.Term, Index: -1, LogTerm: -1}, m.Type == raft.Compare && m.Seq%2 == 0
	}
	conn, err := grpc.NewClient("passthrough:///"+proxy.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := ledgerv1.NewPushServiceClient(conn)
	var cancels []context.CancelFunc
	answered := 0
	for i := range uint64(300) {
		ctx, cancel := context.WithCancel(t.Context())
		cancels = append(cancels, cancel)
		s, err := client.Push(ctx, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		e := &ledgerv1.Envelope{Group: "g", From: "a", To: "b", Term: 1}
		if i%10 == 9 {
			e.Group = "other"
		}
		err = s.Send(&ledgerv1.PushRequest{Push: &ledgerv1.PushRequest_Compare{Compare: &ledgerv1.CompareRequest{Envelope: e, Seq: i}}})
		if err == nil && i%20 == 0 { // or the stream before it was late, and has replaced it
			if _, err = s.Recv(); err == nil {
				answered++
			}
		}
		switch i % 3 {
		case 0:
			cancel()
		case 1:
			_ = s.CloseSend()
		}
		if i == 150 {
			proxy.CutAll()
		}
	}
	for _, cancel := range slices.Backward(cancels) {
		cancel()
	}
	if answered == 0 {
		t.Error("nothing was answered")
	}
}

// TestUnaryPushesThatTheNodeMerges: one answer is for all that it covers.
func TestUnaryPushesThatTheNodeMerges(t *testing.T) {
	_, b, proxy := pair(t, &log{}, nil)
	var mu sync.Mutex
	calls := 0
	b.answer = func(m raft.Message) (raft.Message, bool) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		return raft.Message{Type: raft.AppendAnswer, Term: m.Term, Index: 10, ReadID: m.ReadID}, calls == 3
	}
	conn, err := grpc.NewClient("passthrough:///"+proxy.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			r, err := ledgerv1.NewPushServiceClient(conn).Append(t.Context(), &ledgerv1.PushServiceAppendRequest{
				Envelope: &ledgerv1.Envelope{Group: "g", From: "a", To: "b", Term: 1}, Index: 5,
			})
			if err != nil || r.GetAnswer().GetIndex() != 10 {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	wg.Wait()
	b.full = true
	if _, err := ledgerv1.NewPushServiceClient(conn).Commit(t.Context(), &ledgerv1.CommitRequest{
		Envelope: &ledgerv1.Envelope{Group: "g", From: "a", To: "b", Term: 1},
	}); err == nil {
		t.Error("a full inbox takes a push")
	}
}
