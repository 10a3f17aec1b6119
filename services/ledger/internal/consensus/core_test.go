package consensus

import (
	"errors"
	"slices"
	"testing"
	"testing/quick"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

func TestBadInputChangesNothing(t *testing.T) {
	entry := func(i raft.Index, t raft.Term, size int) []raft.Entry {
		return []raft.Entry{{Index: i, Term: t, Size: size}}
	}
	tests := []struct {
		name string
		m    raft.Message
		want raft.Reason
	}{
		{"no type", raft.Message{From: "b", Term: 5}, raft.BadMessage},
		{"unknown type", raft.Message{Type: 99, From: "b", Term: 5}, raft.BadMessage},
		{"unknown sender", raft.Message{Type: raft.Heartbeat, From: "x", Term: 50}, raft.UnknownPeer},
		{"from itself", raft.Message{Type: raft.Vote, From: "a", Term: 50}, raft.UnknownPeer},
		{"for another", raft.Message{Type: raft.Heartbeat, From: "b", To: "c", Term: 50}, raft.WrongTarget},
		{"term below zero", raft.Message{Type: raft.Heartbeat, From: "b", Term: -1}, raft.BadMessage},
		{"term out of this world", raft.Message{Type: raft.Heartbeat, From: "b", Term: 1 << 62}, raft.BadMessage},
		{"entry's term above its leader's", raft.Message{Type: raft.Compare, From: "b", Term: 50, Index: 1, LogTerm: 51}, raft.BadMessage},
		{"older term", raft.Message{Type: raft.Append, From: "b", Term: 4, Index: 3, LogTerm: 3}, raft.OldTerm},
		{"second leader in the term", raft.Message{Type: raft.Append, From: "c", Term: 5, Index: 3, LogTerm: 3}, raft.OtherLeader},
		{"gap in front", raft.Message{Type: raft.Append, From: "b", Term: 5, Index: 9, LogTerm: 3, Entries: entry(10, 3, 100)}, raft.Gap},
		{"gap inside", raft.Message{Type: raft.Append, From: "b", Term: 50, Index: 3, LogTerm: 3, Entries: entry(5, 3, 100)}, raft.BadBatch},
		{"size", raft.Message{Type: raft.Append, From: "b", Term: 50, Index: 3, LogTerm: 3, Entries: entry(4, 3, 0)}, raft.BadBatch},
		{"too large", raft.Message{Type: raft.Append, From: "b", Term: 50, Index: 3, LogTerm: 3, Entries: entry(4, 3, 5<<20)}, raft.BadBatch},
		{"term falls", raft.Message{Type: raft.Append, From: "b", Term: 50, Index: 3, LogTerm: 3, Entries: entry(4, 2, 100)}, raft.BadBatch},
		{"term above the leader's", raft.Message{Type: raft.Append, From: "b", Term: 50, Index: 3, LogTerm: 3, Entries: entry(4, 51, 100)}, raft.BadBatch},
		{"another entry before", raft.Message{Type: raft.Append, From: "b", Term: 5, Index: 3, LogTerm: 4}, raft.Conflict},
		{"another entry inside", raft.Message{Type: raft.Append, From: "b", Term: 5, Index: 2, LogTerm: 3, Entries: entry(3, 4, 100)}, raft.Conflict},
		{"another committed entry", raft.Message{Type: raft.Append, From: "b", Term: 5, Index: 1, LogTerm: 2}, raft.CommittedConflict},
		{"commit beyond the end", raft.Message{Type: raft.Commit, From: "b", Term: 5, Index: 3, LogTerm: 3, Commit: 4}, raft.CommitBeyondEnd},
		{"cut of what is committed", raft.Message{Type: raft.Truncate, From: "b", Term: 5, Index: 0, LogTerm: 1}, raft.TruncateCommitted},
		{"cut beyond the end", raft.Message{Type: raft.Truncate, From: "b", Term: 5, Index: 8, LogTerm: 3}, raft.Gap},
		{"cut at another entry", raft.Message{Type: raft.Truncate, From: "b", Term: 5, Index: 2, LogTerm: 4}, raft.Conflict},
		{"answer to a follower", raft.Message{Type: raft.AppendAnswer, From: "b", Term: 5, Index: 3}, raft.StaleAnswer},
		{"vote that was not asked for", raft.Message{Type: raft.VoteAnswer, From: "b", Term: 5}, raft.StaleAnswer},
		{"answer to a read of another life", raft.Message{Type: raft.ReadIndexAnswer, From: "b", Term: 5, Nonce: 1}, raft.StaleAnswer},
		{"rejoin that was not asked for", raft.Message{Type: raft.RejoinAnswer, From: "b", Term: 5, Nonce: 1}, raft.StaleAnswer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, testConfig("a", 3), raft.HardState{Term: 5, Vote: "b", Voter: true}, runs(1, 1, 3, 3), 1)
			b.step(raft.Message{Type: raft.Heartbeat, From: "b", Term: 5, Round: 1})
			hard, end, committed := b.hard, b.c.log.End(), b.committed
			b.want("reason", b.step(tt.m), tt.want)
			b.want("counted", b.c.Status().Counters.Refused[tt.want], uint64(1))
			b.want("hard state", b.hard, hard)
			b.want("end", b.c.log.End(), end)
			b.want("disk", b.disk.last(), end.Index)
			b.want("committed", b.committed, committed)
		})
	}
}

func TestNewRefuses(t *testing.T) {
	good := Start{HardState: raft.HardState{Term: 3, Voter: true}, Base: raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}, Runs: []raft.Run{{First: 0, Term: 1}, {First: 4, Term: 3}}, Last: 6, Committed: 2}
	if _, err := New(testConfig("a", 3), good, &memLog{}, 0); err != nil {
		t.Fatal(err)
	}
	starts := map[string]func(*Start){
		"commit index beyond the end": func(s *Start) { s.Committed = 7 },
		"log above its term":          func(s *Start) { s.Term = 2 },
		"terms that fall":             func(s *Start) { s.Runs = []raft.Run{{First: 0, Term: 3}, {First: 4, Term: 1}} },
		"runs without entries":        func(s *Start) { s.Last = raft.NoIndex },
		"entries without runs":        func(s *Start) { s.Runs = nil },
		"run beyond the end":          func(s *Start) { s.Last = 3 },
		"hole behind the base":        func(s *Start) { s.Runs[0].First = 1 },
		"negative term":               func(s *Start) { s.Term = -1 },
	}
	for name, spoil := range starts {
		s := good
		s.Runs = slices.Clone(good.Runs)
		spoil(&s)
		if _, err := New(testConfig("a", 3), s, &memLog{}, 0); !errors.Is(err, ErrStart) {
			t.Errorf("%s: %v", name, err)
		}
	}
	configs := map[string]struct {
		spoil func(*Config)
		want  error
	}{
		"without itself": {func(c *Config) { c.ID = "x" }, ErrPeers},
		"a node twice":   {func(c *Config) { c.Peers = []raft.NodeID{"a", "b", "b"} }, ErrPeers},
		"no limit":       {func(c *Config) { c.MaxBatchBytes = 0 }, ErrConfig},
		"no range":       {func(c *Config) { c.ElectionMax = c.ElectionMin }, ErrConfig},
		"rare beats":     {func(c *Config) { c.Heartbeat = c.ElectionMin }, ErrConfig},
		"no randomness":  {func(c *Config) { c.Random = nil }, ErrConfig},
	}
	for name, tt := range configs {
		c := testConfig("a", 3)
		tt.spoil(&c)
		if _, err := New(c, good, &memLog{}, 0); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOneNodeAlone(t *testing.T) {
	b := newBench(t, testConfig("a", 1), raft.Bootstrap(), runs(), raft.NoIndex)
	b.pass(b.cfg.ElectionMax + 5)
	b.want("role", b.c.role, Leader)
	if _, why := b.propose(3); why != raft.OK {
		t.Fatal(why)
	}
	b.want("committed", b.committed, raft.Index(3))
	if why := b.c.Read(b.now, 7); why != raft.OK {
		t.Fatal(why)
	}
	b.work()
	b.want("reads", len(b.reads), 1)
	b.want("read", b.reads[0], ReadState{ID: 7, Index: 3})
}

func TestLimitsOfProposals(t *testing.T) {
	b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
	if _, why := b.propose(1); why != raft.NotLeader {
		t.Errorf("proposal to a follower: %v", why)
	}
	b.lead()
	b.c.cfg.MaxUncommitted = 10
	for _, batch := range [][]raft.Entry{nil, {{Size: 0}}, {{Size: 5 << 20}}, {{Size: 100}, {Size: 100, Kind: raft.NoOp}}} {
		if _, why := b.c.Propose(b.now, batch); why != raft.BadProposal {
			t.Errorf("%v: %v", batch, why)
		}
	}
	if _, why := b.propose(9); why != raft.OK {
		t.Fatal(why)
	}
	if _, why := b.propose(1); why != raft.PendingFull {
		t.Errorf("proposal beyond the limit: %v", why)
	}
	b.want("end", b.disk.last(), raft.Index(9))
}

func TestPipelineKeepsItsQuotas(t *testing.T) {
	// P19: a follower that does not answer is sent no more than its quotas, and does not slow the others.
	c := newCluster(t, 3)
	l := c.elect("a")
	l.c.cfg.MaxInflightEntries, l.c.cfg.MaxInflightBytes, l.c.cfg.MaxInflightBatches, l.c.cfg.MaxBatchEntries = 20, 1500, 3, 6
	c.drop = func(m raft.Message) bool { return m.From == "c" && m.Type == raft.AppendAnswer }
	for range 100 {
		if _, why := l.propose(10); why != raft.OK {
			t.Fatal(why)
		}
		c.deliver()
		for _, d := range l.c.peers {
			if d.InflightEntries > 20 || d.InflightBytes > 1600 || d.InflightBatches() > 3 {
				t.Fatalf("%s: %d entries, %d bytes, %d batches in flight", d.ID, d.InflightEntries, d.InflightBytes, d.InflightBatches())
			}
		}
	}
	l.want("committed", l.committed, l.disk.last())
	c.drop = nil
	c.pass(500)
	c.same()
}

func TestAnswersOutOfOrder(t *testing.T) {
	// P18: a refusal that comes after the success it was overtaken by moves nothing back.
	b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
	b.lead()
	d := b.c.peer("b")
	term := b.hard.Term
	b.step(raft.Message{Type: raft.CompareAnswer, From: "b", Term: term, Index: raft.NoIndex, LogTerm: raft.NoTerm, End: raft.NoIndex, Commit: raft.NoIndex, Seq: d.Seq})
	old := d.Seq
	if _, why := b.propose(10); why != raft.OK {
		t.Fatal(why)
	}
	b.pass(b.cfg.Retry) // nothing was answered: COMPARE again
	b.want("state", d.State, push.Comparing)
	b.want("late success", b.step(raft.Message{Type: raft.AppendAnswer, From: "b", Term: term, Index: 10, End: 10, Commit: raft.NoIndex, Seq: old}), raft.OK)
	b.want("committed", b.committed, raft.Index(10))
	b.want("late refusal", b.step(raft.Message{Type: raft.AppendAnswer, From: "b", Term: term, Index: 3, LogTerm: term, End: 3, Refused: raft.Gap, Seq: old}), raft.StaleAnswer)
	b.want("match", d.Match, raft.Index(10))
	b.want("more than there is", b.step(raft.Message{Type: raft.AppendAnswer, From: "b", Term: term, Index: 99, End: 99, Seq: d.Seq}), raft.BadMessage)
	b.want("of the future", b.step(raft.Message{Type: raft.HeartbeatAnswer, From: "b", Term: term, Round: 1 << 40}), raft.BadMessage)
}

func TestReads(t *testing.T) {
	c := newCluster(t, 3)
	l := c.elect("a")
	if _, why := l.propose(5); why != raft.OK {
		t.Fatal(why)
	}
	c.pass(40)
	if why := l.c.Read(l.now, 1); why != raft.OK {
		t.Fatal(why)
	}
	l.work()
	l.want("read under the lease", len(l.reads), 1) // no message was delivered

	l.now += l.cfg.ElectionMin // the lease is over
	if why := l.c.Read(l.now, 2); why != raft.OK {
		t.Fatal(why)
	}
	l.work()
	l.want("read without a lease or a round", len(l.reads), 1)
	c.deliver()
	l.want("read after a round", len(l.reads), 2)
	l.want("index", l.reads[1].Index, l.committed)

	f := c.nodes["b"]
	if why := f.c.Read(f.now, 3); why != raft.OK {
		t.Fatal(why)
	}
	f.work()
	c.deliver()
	f.want("reads", len(f.reads), 1)
	f.want("index", f.reads[0], ReadState{ID: 3, Index: l.committed})
}

// TestLeaseOfTheShortestSilence: members may be configured with other times, such as while an operator changes them node by node. A
// lease lasts as long as those who grant it are silent, not as long as the leader would be.
func TestLeaseOfTheShortestSilence(t *testing.T) {
	c := newCluster(t, 3)
	slow := c.nodes["a"]
	slow.cfg.ElectionMin, slow.cfg.ElectionMax, slow.cfg.LeaseMargin = 300, 400, 60
	slow.start()
	old := c.elect("a")
	old.c.Read(old.now, 1)
	old.work()
	old.want("read under the lease", len(old.reads), 1)
	c.isolate("a", true)
	c.pass(220)
	l := c.leader()
	if l == old || old.c.role != Leader {
		t.Fatalf("%s leads, the old leader is a %v", l.cfg.ID, old.c.role)
	}
	l.propose(1)
	c.deliver()
	old.c.Read(old.now, 2)
	old.work()
	old.want("read on the leader that was replaced", len(old.reads), 1)
}

func TestDriverMistakesPanic(t *testing.T) {
	for name, do := range map[string]func(*Core){
		"Advance without Ready":     func(c *Core) { c.Advance() },
		"input between":             func(c *Core) { c.Ready(); c.Tick(1) },
		"second Ready in one round": func(c *Core) { c.Ready(); c.Ready() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			do(b.c)
		})
	}
}

// TestQuorumAgainstSorting compares the insertion with the obvious way.
func TestQuorumAgainstSorting(t *testing.T) {
	same := func(have []int64) bool {
		have = append(have, 0)[:min(len(have)+1, maxPeers)]
		c := &Core{}
		for _, v := range have[1:] {
			c.peers = append(c.peers, &member{Dispatcher: push.Dispatcher{Acked: raft.Index(v)}})
		}
		sorted := slices.Clone(have)
		slices.Sort(sorted)
		slices.Reverse(sorted)
		return c.quorumOf(have[0], (*member).ackedAt) == sorted[len(sorted)/2]
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
}

// TestStepAllocatesNothing holds the follower's and the leader's hot paths to no allocation once warm.
func TestStepAllocatesNothing(t *testing.T) {
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 1, Voter: true}, runs(1), 0)
	next := raft.Index(1)
	entries := make([]raft.Entry, 1)
	once := func() {
		entries[0] = raft.Entry{Index: next, Term: 1, Size: 100}
		if why := b.c.Step(b.now, raft.Message{Type: raft.Append, From: "b", To: "a", Term: 1, Index: next - 1, LogTerm: 1, Entries: entries, Commit: next - 1}); why != raft.OK {
			t.Fatal(why)
		}
		b.c.Ready()
		b.c.Advance()
		next++
	}
	once()
	if n := testing.AllocsPerRun(200, once); n > 0 {
		t.Errorf("%v allocations a push", n)
	}
}

func TestStatusShowsTheGroup(t *testing.T) {
	c := newCluster(t, 3)
	l := c.elect("a")
	c.isolate("c", true)
	if _, why := l.propose(5); why != raft.OK {
		t.Fatal(why)
	}
	c.pass(60)
	s := l.c.Status()
	l.want("role", s.Role.String(), "LEADER")
	l.want("lease", s.UnderLease, true)
	l.want("committed", s.Committed, s.Last)
	b, far := s.Peers[0], s.Peers[1]
	l.want("match of b", b.Match, s.Last)
	l.want("state of b", b.State.String(), "APPEND")
	l.want("state of c", far.State.String(), "COMPARE")
	l.want("lag of c", far.Lag, raft.Index(5))
	l.want("silence of c", far.Silent >= 60, true)
	l.want("peers of a follower", len(c.nodes["b"].c.Status().Peers), 0)
}

func TestReadsThatCannotBeServed(t *testing.T) {
	b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
	b.want("no leader", b.c.Read(b.now, 1), raft.NoLeader)
	b.want("asked, but no leader", b.step(raft.Message{Type: raft.ReadIndex, From: "b", ReadID: 9, Nonce: 4}), raft.NotLeader)
	got := b.take(raft.ReadIndexAnswer)
	b.want("answers", len(got), 1)
	b.want("answer", got[0].Refused, raft.NotLeader)
	b.lead()
	b.c.cfg.MaxPendingReads = 1
	b.want("first", b.c.Read(b.now, 2), raft.OK)
	b.want("second", b.c.Read(b.now, 3), raft.ReadsFull)
	b.step(raft.Message{Type: raft.ReadIndex, From: "b", Term: b.hard.Term, ReadID: 9, Nonce: 4})
	b.want("asked", b.take(raft.ReadIndexAnswer)[0].Refused, raft.ReadsFull)
	b.want("before the no-op is committed", len(b.reads), 0)
}

// fixed is a log without memory whose entries all take 100 bytes.
type fixed struct{}

func (fixed) Extent(first, last raft.Index, maxEntries int, maxBytes int64) (count int, bytes int64) {
	count = min(int(last-first+1), maxEntries, int(maxBytes/100))
	return count, int64(count) * 100
}

// BenchmarkLeader is a leader of three: 64 entries proposed, sent, acked by both and committed.
func BenchmarkLeader(b *testing.B) {
	none := raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}
	c, err := New(testConfig("a", 3), Start{HardState: raft.Bootstrap(), Base: none, Last: raft.NoIndex, Committed: raft.NoIndex}, fixed{}, 0)
	if err != nil {
		b.Fatal(err)
	}
	c.campaign(true)
	c.becomeLeader()
	for _, d := range c.peers {
		c.Step(0, raft.Message{Type: raft.CompareAnswer, From: d.ID, To: "a", Term: 1, Index: raft.NoIndex, LogTerm: raft.NoTerm, End: raft.NoIndex, Seq: d.Seq})
	}
	batch := make([]raft.Entry, 64)
	for i := range batch {
		batch[i].Size = 100
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, why := c.Propose(0, batch); why != raft.OK {
			b.Fatal(why)
		}
		c.Ready()
		c.Advance()
		for _, d := range c.peers {
			c.Step(0, raft.Message{Type: raft.AppendAnswer, From: d.ID, To: "a", Term: 1, Index: c.log.Last, End: c.log.Last, Commit: c.committed, Seq: d.Seq})
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch)), "ns/entry")
}
