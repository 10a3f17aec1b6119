package consensus

import (
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

func TestT19_OnlyTheLongerLogWins(t *testing.T) {
	// E01: a and b hold 1..100 of term 3, c holds 60 but has seen term 8; a is down and c's timer is first.
	c := &cluster{t: t, nodes: map[raft.NodeID]*bench{}, order: []raft.NodeID{"b", "c"}, cut: map[[2]raft.NodeID]bool{}}
	c.nodes["b"] = newBench(t, testConfig("b", 3), raft.HardState{Term: 3, Voter: true}, runs(repeat(3, 100)...), 99)
	c.nodes["c"] = newBench(t, testConfig("c", 3), raft.HardState{Term: 8, Voter: true}, runs(repeat(3, 60)...), 59)
	c.nodes["c"].c.deadline = 0
	for range 200 {
		c.pass(5)
		if c.nodes["c"].c.role == Leader {
			t.Fatal("c leads with the shorter log")
		}
	}
	if c.leader() != c.nodes["b"] {
		t.Fatal("b does not lead")
	}
	c.same()
	if got := c.nodes["b"].disk.last(); got < 100 {
		t.Errorf("log ends at %d", got)
	}
}

func TestT19_OneVoteATerm(t *testing.T) {
	// E07, E10: vote for x, hear x, be asked by y; with a restart between, or not.
	for _, restart := range []bool{false, true} {
		b := newBench(t, testConfig("a", 3), raft.HardState{Term: 1, Voter: true}, runs(1, 1), 1)
		b.pass(b.cfg.ElectionMin)
		b.want("vote for b", b.step(raft.Message{Type: raft.Vote, From: "b", Term: 9, Index: 1, LogTerm: 1}), raft.OK)
		b.want("heartbeat of b", b.step(raft.Message{Type: raft.Heartbeat, From: "b", Term: 9, Round: 1}), raft.OK)
		if restart {
			b.start()
			b.pass(b.cfg.ElectionMin)
			b.want("term", b.c.hard.Term, raft.Term(9))
		} else {
			b.want("vote for c while b is alive", b.step(raft.Message{Type: raft.Vote, From: "c", Term: 9, Index: 5, LogTerm: 1}), raft.LeaderAlive)
		}
		b.take()
		b.want("vote for c", b.step(raft.Message{Type: raft.Vote, From: "c", Term: 9, Index: 5, LogTerm: 1, Force: true}), raft.AlreadyVoted)
		b.want("refusals", len(b.take(raft.VoteAnswer)), 1)
		b.want("vote", b.hard.Vote, raft.NodeID("b"))
	}
}

func TestT19_NoVoteForAnotherOnceTheLeaderIsKnown(t *testing.T) {
	b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
	b.step(raft.Message{Type: raft.Heartbeat, From: "b", Term: 2, Round: 1}) // b was elected by c alone
	b.want("vote for c", b.step(raft.Message{Type: raft.Vote, From: "c", Term: 2, Index: 5, LogTerm: 1, Force: true}), raft.AlreadyVoted)
}

func TestT19_AVoteIsAPromise(t *testing.T) {
	// E09: the grant leaves only with a Ready whose hard state is saved; a driver that cannot save never sends it.
	b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
	b.now += b.cfg.ElectionMin
	if why := b.c.Step(b.now, raft.Message{Type: raft.Vote, From: "b", To: "a", Term: 4, Index: raft.NoIndex, LogTerm: raft.NoTerm}); why != raft.OK {
		t.Fatal(why)
	}
	r := b.c.Ready()
	if r.HardState == nil || *r.HardState != (raft.HardState{Term: 4, Vote: "b", Voter: true}) || len(r.Messages) != 0 || len(r.Promises) != 1 {
		t.Errorf("hard state %+v, messages %v, promises %v", r.HardState, r.Messages, r.Promises)
	}
	b.c.Advance()

	// The candidate's own vote is one too: its requests wait for it.
	b.pass(2 * b.cfg.ElectionMax)
	b.take()
	b.now = b.c.deadline
	b.c.Tick(b.now)
	b.work()
	for _, m := range b.take(raft.PreVote)[:1] {
		if why := b.c.Step(b.now, raft.Message{Type: raft.PreVoteAnswer, From: m.To, To: "a", Term: m.Term}); why != raft.OK {
			t.Fatal(why)
		}
	}
	r = b.c.Ready()
	if r.HardState == nil || r.HardState.Vote != "a" || len(r.Messages) != 0 || len(r.Promises) != 2 {
		t.Errorf("hard state %+v, messages %v, promises %v", r.HardState, r.Messages, r.Promises)
	}
}

func TestT19_LateGrantIsNotCounted(t *testing.T) {
	// E11
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 8, Voter: true}, runs(), raft.NoIndex)
	for b.c.hard.Term < 10 {
		b.pass(5)
		for _, m := range b.take(raft.PreVote) {
			b.step(raft.Message{Type: raft.PreVoteAnswer, From: m.To, Term: m.Term})
		}
	}
	b.want("role", b.c.role, Candidate)
	b.want("grant of term 9", b.step(raft.Message{Type: raft.VoteAnswer, From: "b", Term: 9}), raft.OldTerm)
	b.want("role", b.c.role, Candidate)
	b.want("grant of a node that is no voter", b.step(raft.Message{Type: raft.VoteAnswer, From: "b", Term: 10, Learner: true}), raft.StaleAnswer)
	b.want("grant of term 10", b.step(raft.Message{Type: raft.VoteAnswer, From: "b", Term: 10}), raft.OK)
	b.want("role", b.c.role, Leader)
}

func TestT19_TermNeverFalls(t *testing.T) {
	// E14: a cut to an entry of term 3 leaves the node in its term.
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 9, Voter: true}, runs(1, 3, 3, 9, 9), 1)
	b.want("truncate", b.step(raft.Message{Type: raft.Truncate, From: "b", Term: 10, Index: 2, LogTerm: 3}), raft.OK)
	b.want("end", b.c.log.End(), raft.Mark{Index: 2, Term: 3})
	b.want("disk", b.disk.last(), raft.Index(2))
	b.want("term", b.hard.Term, raft.Term(10))
	b.start()
	b.want("term after a start", b.c.hard.Term, raft.Term(10))
}

func TestT19_VoteSeesWhatCameBefore(t *testing.T) {
	// E08: an entry taken in the same round counts for the vote that follows.
	b := newBench(t, testConfig("a", 3), raft.HardState{Term: 1, Voter: true}, runs(1), 0)
	e := []raft.Entry{{Index: 1, Term: 1, Size: 100}}
	if why := b.c.Step(b.now, raft.Message{Type: raft.Append, From: "b", To: "a", Term: 1, Index: 0, LogTerm: 1, Entries: e, Commit: 1}); why != raft.OK {
		t.Fatal(why)
	}
	b.want("vote", b.step(raft.Message{Type: raft.Vote, From: "c", Term: 2, Index: 0, LogTerm: 1, Force: true}), raft.ShortLog)
}

func TestT20_IsolatedFollowerReturns(t *testing.T) {
	// E03, E04: cut both ways, inbound only, outbound only, for 300 election timeouts, with writes going on.
	for _, way := range []string{"both", "inbound", "outbound"} {
		t.Run(way, func(t *testing.T) {
			c := newCluster(t, 3)
			l := c.elect("a")
			term := l.c.hard.Term
			for _, o := range []raft.NodeID{"a", "b"} {
				c.cut[[2]raft.NodeID{o, "c"}] = way != "outbound"
				c.cut[[2]raft.NodeID{"c", o}] = way != "inbound"
			}
			for range 60 {
				c.pass(100)
				if _, why := l.propose(3); why != raft.OK {
					t.Fatal(why)
				}
				c.deliver()
			}
			clear(c.cut)
			if way != "outbound" && c.nodes["c"].committed >= l.committed {
				t.Fatal("c has missed nothing")
			}
			c.pass(2 * l.cfg.ElectionMax)
			if c.leader() != l || l.c.hard.Term != term || l.c.role != Leader {
				t.Errorf("leader %v, term %d, want a, %d", c.leader().cfg.ID, c.leader().c.hard.Term, term)
			}
			c.same()
		})
	}
}

func TestT20_TransferHasALagLimit(t *testing.T) {
	// E02, E20, E13
	c := newCluster(t, 3)
	l := c.elect("a")
	c.isolate("c", true)
	for range 11 {
		if _, why := l.propose(100); why != raft.OK {
			t.Fatal(why)
		}
		c.pass(20)
	}
	c.isolate("c", false)
	for _, to := range []raft.NodeID{"c", "a", "x"} {
		if why := l.c.Transfer(l.now, to); why == raft.OK {
			t.Errorf("transfer to %s is not refused", to)
		}
	}
	if _, why := l.propose(1); why != raft.OK {
		t.Errorf("write after a refused transfer: %v", why)
	}
	c.pass(400)

	c.drop = func(m raft.Message) bool { return m.Type == raft.TakeLeadership } // the target dies at the wrong moment
	if why := l.c.Transfer(l.now, "c"); why != raft.OK {
		t.Fatal(why)
	}
	if _, why := l.propose(1); why != raft.Transferring {
		t.Errorf("write in a transfer: %v", why)
	}
	l.work()
	c.pass(l.cfg.TransferTimeout + 5)
	if _, why := l.propose(1); why != raft.OK {
		t.Errorf("write after a failed transfer: %v", why)
	}
	l.want("lease in the rest of the term", l.c.leaseHolds(), false)

	c.drop = nil
	c.deliver()
	if why := l.c.Transfer(l.now, "c"); why != raft.OK {
		t.Fatal(why)
	}
	l.work()
	c.pass(50)
	if c.leader() != c.nodes["c"] || l.c.role != Follower {
		t.Errorf("c does not lead after a transfer")
	}
}

func TestPriorityMovesLeadership(t *testing.T) {
	c := newCluster(t, 3)
	for _, b := range c.nodes {
		b.c.cfg.Priority, b.c.cfg.PriorityInterval = map[raft.NodeID]int{"b": 1}, 500
	}
	c.elect("a")
	c.pass(600)
	if c.leader() != c.nodes["b"] {
		t.Error("the preferred node does not lead")
	}
	c.same()
}

// TestPriorityIsNotInsistedOn: a better leader that never takes over is asked ever less often.
func TestPriorityIsNotInsistedOn(t *testing.T) {
	c := newCluster(t, 3)
	for _, b := range c.nodes {
		b.c.cfg.Priority, b.c.cfg.PriorityInterval = map[raft.NodeID]int{"b": 1}, 500
	}
	l := c.elect("a")
	term, asked := l.c.hard.Term, 0
	c.drop = func(m raft.Message) bool {
		if m.Type == raft.TakeLeadership {
			asked++
		}
		return m.Type == raft.TakeLeadership
	}
	c.pass(16_000) // after 500, 500, 1,000, 2,000 and 4,000, each behind the transfer before
	l.want("asked", asked, 5)
	l.want("role", l.c.role, Leader)
	l.want("term", l.c.hard.Term, term)
	c.drop = nil
	c.pass(32_000)
	if c.leader() != c.nodes["b"] {
		t.Error("the preferred node does not lead")
	}
}

func TestElectionBugs(t *testing.T) {
	t.Run("E15 a reply of a higher term leaves the log alone", func(t *testing.T) {
		b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
		b.lead()
		if _, why := b.propose(5); why != raft.OK {
			t.Fatal(why)
		}
		b.want("answer", b.step(raft.Message{Type: raft.AppendAnswer, From: "b", Term: 50, Refused: raft.Conflict, Index: raft.NoIndex, LogTerm: raft.NoTerm}), raft.OK)
		b.want("role", b.c.role, Follower)
		b.want("term", b.hard.Term, raft.Term(50))
		b.want("end", b.disk.last(), raft.Index(5))
	})
	t.Run("E16 granting starts a full timeout", func(t *testing.T) {
		b := newBench(t, testConfig("a", 3), raft.Bootstrap(), runs(), raft.NoIndex)
		b.pass(b.c.deadline - b.now - 5)
		b.want("vote", b.step(raft.Message{Type: raft.Vote, From: "b", Term: 3, Index: raft.NoIndex, LogTerm: raft.NoTerm}), raft.OK)
		b.pass(b.cfg.ElectionMin - 5)
		b.want("role", b.c.role, Follower)
	})
	t.Run("E17 the node of the older term learns the newer from a refused pre-vote", func(t *testing.T) {
		b := newBench(t, testConfig("a", 3), raft.HardState{Term: 5, Voter: true}, runs(5, 5), 1)
		b.pass(2 * b.cfg.ElectionMax)
		b.step(raft.Message{Type: raft.PreVoteAnswer, From: "b", Term: 8, Refused: raft.OldTerm})
		b.want("term", b.hard.Term, raft.Term(8))
	})
	t.Run("E05 a new leader whose first heartbeats are lost is not toppled at once", func(t *testing.T) {
		c := newCluster(t, 3)
		c.drop = func(m raft.Message) bool { return m.Type == raft.Heartbeat }
		b := c.nodes["a"]
		for range 100 {
			if c.pass(5); c.leader() != nil {
				b = c.leader()
				break
			}
		}
		term := b.c.hard.Term
		c.pass(b.cfg.ElectionMin / 2)
		c.drop = nil
		c.pass(2 * b.cfg.ElectionMax)
		if c.leader().c.hard.Term > term+1 {
			t.Errorf("%d elections", c.leader().c.hard.Term-term)
		}
	})
	t.Run("E21 a deposed leader answers no reads", func(t *testing.T) {
		c := newCluster(t, 3)
		old := c.elect("a")
		c.isolate("a", true)
		c.pass(4 * old.cfg.ElectionMax)
		if l := c.leader(); l == old {
			t.Fatal("no new leader")
		}
		if why := old.c.Read(old.now, 1); why != raft.NoLeader {
			t.Errorf("read: %v", why)
		}
	})
}
