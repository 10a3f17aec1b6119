package consensus

import (
	"errors"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

func TestT20_FarApartLogsMeetInTermsNotEntries(t *testing.T) {
	// P17 and T20.3: 3,000 entries of 6 terms differ; the follower starts no election meanwhile.
	mine := runs(append(repeat(1, 100), slices.Concat(repeat(2, 500), repeat(4, 500), repeat(6, 500))...)...)
	theirs := runs(append(repeat(1, 100), slices.Concat(repeat(3, 500), repeat(5, 500), repeat(7, 500))...)...)
	c := &cluster{t: t, nodes: map[raft.NodeID]*bench{}, order: []raft.NodeID{"a", "b"}, cut: map[[2]raft.NodeID]bool{}}
	c.nodes["a"] = newBench(t, testConfig("a", 3), raft.HardState{Term: 8, Voter: true}, theirs, 50)
	c.nodes["b"] = newBench(t, testConfig("b", 3), raft.HardState{Term: 8, Voter: true}, mine, 50)
	probes := 0
	c.drop = func(m raft.Message) bool {
		if m.Type == raft.Compare {
			probes++
		}
		return false
	}
	c.elect("a")
	c.pass(400)
	c.same()
	if probes == 0 || probes > 8 {
		t.Errorf("%d times COMPARE for 6 terms", probes)
	}
	if n := c.nodes["b"].c.counters.Elections; n != 0 {
		t.Errorf("%d elections by the follower", n)
	}
}

func wiped(t *testing.T, id raft.NodeID, now raft.Ticks) *bench {
	b := &bench{t: t, cfg: testConfig(id, 3), disk: runs(), committed: raft.NoIndex, now: now}
	b.start()
	return b
}

func TestT21_WipedFollowerIdleLeader(t *testing.T) {
	for _, purge := range []raft.Index{raft.NoIndex, 500} { // steps 1 and 2: with nothing purged, and with 0..500
		c := newCluster(t, 3)
		l := c.elect("a")
		for range 20 {
			if _, why := l.propose(50); why != raft.OK {
				t.Fatal(why)
			}
			c.pass(10)
		}
		c.pass(50)
		if purge != raft.NoIndex {
			base, why := l.c.Purge(l.now, purge)
			if why != raft.OK {
				t.Fatal(why)
			}
			l.disk = memLog{base: base, log: slices.Clone(l.disk.log[purge+1:])}
		}
		c.nodes["c"] = wiped(t, "c", l.now)
		w := c.nodes["c"]
		w.want("wiped node votes", w.step(raft.Message{Type: raft.Vote, From: "b", Term: 50, Index: 2000, LogTerm: 49, Force: true}), raft.NotVoter)
		w.take()
		c.pass(300) // no write
		c.same()
		w.want("first", w.c.log.Base.Index, purge)
		w.want("voter again", w.hard.Voter, true)
		w.want("its vote", w.hard.Vote, raft.NodeID("a"))
	}
}

func TestT21_NextEntryPurgedWhileAway(t *testing.T) {
	// P04: the follower is away, not wiped, and what it needs next is gone.
	c := newCluster(t, 3)
	l := c.elect("a")
	c.isolate("c", true)
	for range 20 {
		if _, why := l.propose(50); why != raft.OK {
			t.Fatal(why)
		}
		c.pass(10)
	}
	base, why := l.c.Purge(l.now, 600)
	if why != raft.OK {
		t.Fatal(why)
	}
	l.disk = memLog{base: base, log: slices.Clone(l.disk.log[601:])}
	c.isolate("c", false)
	c.pass(300)
	c.same()
	l.want("first of c", c.nodes["c"].c.log.Base.Index, raft.Index(600))
}

func TestT21_CommitBeforeAnyEntry(t *testing.T) {
	b := wiped(t, "a", 0)
	b.want("heartbeat", b.step(raft.Message{Type: raft.Heartbeat, From: "b", Term: 3, Commit: 1000}), raft.OK)
	b.want("commit push", b.step(raft.Message{Type: raft.Commit, From: "b", Term: 3, Index: raft.NoIndex, LogTerm: raft.NoTerm, Commit: 1000}), raft.CommitBeyondEnd)
	b.want("append", b.step(raft.Message{Type: raft.Append, From: "b", Term: 3, Index: raft.NoIndex, LogTerm: raft.NoTerm, Commit: 1000}), raft.OK)
	b.want("committed", b.committed, raft.NoIndex)
	b.want("counted", b.c.counters.Refused[raft.CommitBeyondEnd], uint64(2))
}

func TestT21_NoNewGroupOfWipedNodes(t *testing.T) {
	c := newCluster(t, 3)
	l := c.elect("a")
	if _, why := l.propose(10); why != raft.OK {
		t.Fatal(why)
	}
	c.pass(50)
	keep := c.nodes["c"].disk.last()
	now := l.now
	c.nodes["a"], c.nodes["b"] = wiped(t, "a", now), wiped(t, "b", now)
	third := c.nodes["c"]
	c.nodes["c"] = nil
	c.pass(2000) // two of three, wiped, started first
	if l := c.leader(); l != nil {
		t.Fatalf("%s leads a group of wiped nodes", l.cfg.ID)
	}
	third.pass(2000)
	third.take()
	c.nodes["c"] = third
	c.pass(2000)
	if l := c.leader(); l != nil {
		t.Fatalf("%s leads without a quorum of voters", l.cfg.ID)
	}
	third.want("what was acknowledged", third.disk.last(), keep)
	for _, id := range []raft.NodeID{"a", "b"} {
		third.want("voter", c.nodes[id].hard.Voter, false)
	}
}

func TestT22_GapsDoNotSilenceTheNode(t *testing.T) {
	// P05: 10,000 pushes that cannot be written, then votes.
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 1, Voter: true}, runs(1), 0)
	for i := range raft.Index(10_000) {
		e := []raft.Entry{{Index: i + 101, Term: 1, Size: 100}}
		if why := b.c.Step(b.now, raft.Message{Type: raft.Append, From: "b", To: "a", Term: 1, Index: i + 100, LogTerm: 1, Entries: e}); why != raft.Gap {
			t.Fatalf("push %d: %v", i, why)
		}
	}
	if n := len(b.c.out.pending); n != 0 {
		t.Errorf("%d entries kept", n)
	}
	b.work()
	b.take()
	b.pass(2 * b.cfg.ElectionMax)
	b.want("role", b.c.role, PreCandidate)
	b.take()
	b.step(raft.Message{Type: raft.Vote, From: "c", Term: 2, Index: 5, LogTerm: 1})
	b.step(raft.Message{Type: raft.Heartbeat, From: "c", Term: 2, Round: 1})
	b.want("answers", len(b.take(raft.VoteAnswer, raft.HeartbeatAnswer)), 2)
}

func TestT22_RepeatedPushIsTaken(t *testing.T) {
	// P06: the answer of an APPEND is lost, the follower changes roles, and the batch comes again and cut differently.
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 1, Voter: true}, runs(), raft.NoIndex)
	push := func(term raft.Term, from, to raft.Index) raft.Reason {
		m := raft.Message{Type: raft.Append, From: "b", Term: term, Index: from - 1, LogTerm: 1, Commit: raft.NoIndex}
		if from == 0 {
			m.LogTerm = raft.NoTerm
		}
		for i := from; i <= to; i++ {
			m.Entries = append(m.Entries, raft.Entry{Index: i, Term: 1, Size: 100})
		}
		return b.step(m)
	}
	b.want("push", push(1, 0, 4), raft.OK)
	b.take()
	b.pass(2 * b.cfg.ElectionMax)
	b.want("role", b.c.role, PreCandidate)
	for _, batch := range [][2]raft.Index{{0, 4}, {0, 2}, {3, 6}, {6, 6}, {2, 8}, {0, 8}} {
		b.want("push again", push(2, batch[0], batch[1]), raft.OK)
		got := b.take(raft.AppendAnswer)
		if len(got) != 1 || got[0].Refused != raft.OK || got[0].Index < batch[1] {
			t.Errorf("%v: answers %+v", batch, got)
		}
	}
	b.want("end", b.disk.last(), raft.Index(8))
	for i, e := range b.disk.log {
		b.want("index", e.Index, raft.Index(i))
	}
	b.want("overlaps", b.c.counters.Overlaps, uint64(2))
	b.want("repeats", b.c.counters.Repeated, uint64(4))
}

func TestT22_AcksNeedNoLaterWrite(t *testing.T) {
	// P07: ten appends and silence; no time passes.
	c := newCluster(t, 3)
	l := c.elect("a")
	for range 10 {
		if _, why := l.propose(1); why != raft.OK {
			t.Fatal(why)
		}
	}
	c.deliver()
	c.same()
	l.want("committed", l.committed, l.disk.last())
}

func TestT22_LeavingLeadershipEndsAllWaits(t *testing.T) {
	// P21: 100 pending appends and reads, each way out.
	ways := map[string]func(*bench){
		"higher term": func(b *bench) {
			b.step(raft.Message{Type: raft.HeartbeatAnswer, From: "b", Term: 99, Refused: raft.OldTerm})
		},
		"lost quorum": func(b *bench) { b.pass(b.cfg.ElectionMax + 10) },
		"new leader":  func(b *bench) { b.step(raft.Message{Type: raft.Heartbeat, From: "b", Term: 99, Round: 1}) },
	}
	for name, leave := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
			b.lead()
			for i := range uint64(100) {
				if _, why := b.propose(1); why != raft.OK {
					t.Fatal(why)
				}
				if why := b.c.Read(b.now, i); why != raft.OK {
					t.Fatal(why)
				}
			}
			b.want("reads done", len(b.reads), 0)
			leave(b)
			b.want("role", b.c.role, Follower)
			b.want("reads done", len(b.reads), 100)
			for _, r := range b.reads {
				b.want("read", r.Refused, raft.NotLeader)
			}
			b.want("waiting", len(b.c.waiting), 0)
		})
	}
}

func TestT22_WritesGoOnAfterManyTransfers(t *testing.T) {
	// P22
	c := newCluster(t, 3)
	l := c.elect("a")
	for i := range 50 {
		for range 20 {
			if _, why := l.propose(1); why != raft.OK {
				t.Fatal(why)
			}
		}
		c.deliver()
		if why := l.c.Transfer(l.now, []raft.NodeID{"a", "b", "c"}[(slices.Index(c.order, l.cfg.ID)+1)%3]); why != raft.OK {
			t.Fatalf("transfer %d: %v", i, why)
		}
		l.work()
		c.pass(25)
		if c.leader() == l {
			t.Fatalf("transfer %d: %s still leads", i, l.cfg.ID)
		}
		l = c.leader()
	}
	if _, why := l.propose(1); why != raft.OK {
		t.Fatal(why)
	}
	c.pass(40)
	c.same()
	l.want("committed", l.committed, l.disk.last())
}

func TestT23_Figure8(t *testing.T) {
	// P10, P12: the schedule of figure 8 up to (c): an entry of term 2 on a majority, by the leader of term 4. (d): it is replaced.
	// So at (c) it must not be committed.
	b := newBench(t, testConfig("a", 5), raft.HardState{Term: 3, Voter: true}, runs(1, 2), 0)
	b.lead()
	term := b.hard.Term
	for _, id := range []raft.NodeID{"b", "c"} {
		b.step(raft.Message{Type: raft.CompareAnswer, From: id, Term: term, Index: 0, LogTerm: 1, End: 0, Commit: raft.NoIndex, Seq: b.c.peer(id).Seq})
		b.step(raft.Message{Type: raft.AppendAnswer, From: id, Term: term, Index: 1, End: 1, Commit: raft.NoIndex, Seq: b.c.peer(id).Seq})
	}
	b.want("committed by counting an entry of term 2", b.committed, raft.Index(0))
	b.want("role", b.c.role, Leader)
	for _, id := range []raft.NodeID{"b", "c"} { // (e): with an own entry on the majority all before it is committed
		b.step(raft.Message{Type: raft.AppendAnswer, From: id, Term: term, Index: 2, End: 2, Commit: raft.NoIndex, Seq: b.c.peer(id).Seq})
	}
	b.want("committed with an own entry", b.committed, raft.Index(2))
}

func TestT23_FormerLeadersEntryCommitsWithoutAWrite(t *testing.T) {
	// P11: the leader dies between the majority and the commit.
	c := newCluster(t, 3)
	l := c.elect("a")
	c.drop = func(m raft.Message) bool { return m.Type == raft.AppendAnswer }
	at, why := l.propose(1)
	if why != raft.OK {
		t.Fatal(why)
	}
	c.deliver()
	c.drop = nil
	c.nodes["a"] = nil
	c.nodes["b"].want("committed", c.nodes["b"].committed < at.Index, true)
	c.pass(1000)
	c.same()
	if got := c.leader().committed; got < at.Index {
		t.Errorf("committed %d, want %d", got, at.Index)
	}
}

func TestT23_CommitOnlyWhatMatches(t *testing.T) {
	// P13: a wrong entry 10, an empty push with prev 9 and commit 11.
	for _, how := range []raft.MessageType{raft.Append, raft.Commit} {
		b := newBench(t, testConfig("a", 3), raft.HardState{Term: 2, Voter: true}, runs(append(repeat(1, 10), 2, 2)...), 5)
		b.want("push", b.step(raft.Message{Type: how, From: "b", Term: 3, Index: 9, LogTerm: 1, Commit: 11}), raft.OK)
		b.want("committed", b.committed, raft.Index(9))
	}
}

func TestT23_TruncateBelowCommitIsRefused(t *testing.T) {
	// P01 and T23.4: committed 20, order to cut to 15.
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 2, Voter: true}, runs(repeat(1, 25)...), 20)
	b.want("truncate", b.step(raft.Message{Type: raft.Truncate, From: "b", Term: 3, Index: 15, LogTerm: 1}), raft.TruncateCommitted)
	b.want("alarms", len(b.alarms), 1)
	b.want("alarm", b.alarms[0], Alarm{Reason: raft.TruncateCommitted, From: "b", Index: 15, Committed: 20})
	b.want("end", b.disk.last(), raft.Index(24))
	b.want("reset", b.step(raft.Message{Type: raft.Truncate, From: "b", Term: 3, Index: 18, LogTerm: 2, Reset: true}), raft.TruncateStale)
	b.want("end", b.disk.last(), raft.Index(24))
	if _, err := New(b.cfg, Start{HardState: b.hard, Base: raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}, Runs: []raft.Run{{First: 0, Term: 1}}, Last: 15, Committed: 20}, &b.disk, 0); !errors.Is(err, ErrStart) {
		t.Errorf("start with the commit index beyond the end: %v", err)
	}
}

func TestT23_LateTruncateOfTheSameLeader(t *testing.T) {
	// What the leader of this term is known to have is not cut, whatever comes late.
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 2, Voter: true}, runs(1, 1, 2, 2), 0)
	order := raft.Message{Type: raft.Truncate, From: "b", Term: 3, Index: 1, LogTerm: 1, Nonce: b.c.incarnation}
	b.want("truncate", b.step(order), raft.OK)
	e := []raft.Entry{{Index: 2, Term: 1, Size: 100}}
	b.want("append", b.step(raft.Message{Type: raft.Append, From: "b", Term: 3, Index: 1, LogTerm: 1, Entries: e}), raft.OK)
	b.want("again", b.step(order), raft.TruncateStale)
	b.want("end", b.disk.last(), raft.Index(2))
	b.pass(2 * b.cfg.ElectionMax)
	b.step(raft.Message{Type: raft.Heartbeat, From: "b", Term: 3, Round: 9})
	b.want("after an election that came to nothing", b.step(order), raft.TruncateStale)
	b.start()
	b.want("after a start", b.step(order), raft.TruncateStale)
	b.want("end", b.disk.last(), raft.Index(2))
	b.want("deposed leader", b.step(raft.Message{Type: raft.Truncate, From: "c", Term: 2, Index: 0, LogTerm: 1}), raft.OldTerm)
	b.want("alarms", len(b.alarms), 0)
}

func TestT23_RepeatedAppendKeepsTheTail(t *testing.T) {
	// P23: 1..10 here, 1..5 come again.
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 2, Voter: true}, runs(repeat(2, 10)...), 2)
	m := raft.Message{Type: raft.Append, From: "b", Term: 2, Index: raft.NoIndex, LogTerm: raft.NoTerm, Commit: raft.NoIndex}
	for i := range raft.Index(5) {
		m.Entries = append(m.Entries, raft.Entry{Index: i, Term: 2, Size: 100})
	}
	b.want("push", b.step(m), raft.OK)
	b.want("end", b.disk.last(), raft.Index(9))
}

func TestT23_UnreplicatedEntryOfADeadLeaderGoes(t *testing.T) {
	// P24: a writes 21 locally and dies; b leads and writes its own; a comes back.
	c := newCluster(t, 3)
	a := c.elect("a")
	if _, why := a.propose(20); why != raft.OK {
		t.Fatal(why)
	}
	c.pass(50)
	c.isolate("a", true)
	lost, why := a.propose(3)
	if why != raft.OK {
		t.Fatal(why)
	}
	c.pass(1000)
	if c.leader() == a {
		t.Fatal("no new leader")
	}
	if _, why := c.leader().propose(2); why != raft.OK {
		t.Fatal(why)
	}
	c.pass(50)
	a.start() // as after kill -9
	c.isolate("a", false)
	c.pass(400)
	c.same()
	if got := a.disk.log[lost.Index].Term; got == lost.Term {
		t.Error("the old leader's entry is still there")
	}
}
