package node_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

// The reports of others that need time, here in fake time, on real logs: however slow the machine is, a wait of 50 ms is one.

// write appends every interval until the result is called; no append may fail. The result returns the last index.
func (c *cluster) write(every time.Duration) (stop func() raft.Index) {
	var last raft.Index
	quit, done := make(chan struct{}), make(chan struct{})
	leader := c.leader()
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			at, err := leader.put(c.t.Context(), fmt.Sprint(i))
			if err != nil {
				c.t.Errorf("append %d: %v", i, err)
				return
			}
			last = at
		}
	}()
	return func() raft.Index {
		close(quit)
		<-done
		return last
	}
}

// sameReign wants the leader and the term that there were.
func (c *cluster) sameReign(leader *member, term raft.Term) {
	c.t.Helper()
	for _, m := range c.all() {
		if s := m.status(); s.Term != term || s.Leader != leader.id || s.Counters.Elections != 0 && m != leader {
			c.t.Errorf("%s, led by %s in term %d before, is %+v", m.id, leader.id, term, s.SoftState)
		}
	}
}

// TestT20_IsolatedFollowerReturns: step 1, cut both ways, inbound and outbound for a minute each, under writes.
func TestT20_IsolatedFollowerReturns(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		leader, f := c.leader(), c.follower()
		term := leader.node.Soft().Term
		for _, cut := range [][2]bool{{true, true}, {false, true}, {true, false}} {
			stop := c.write(20 * time.Millisecond)
			c.cutLinks(f.id, cut[0], cut[1])
			pass(time.Minute)
			c.cutLinks(f.id, false, false)
			healed := time.Now()
			pass(100 * time.Millisecond)
			c.settle(stop())
			if d := time.Since(healed); d > 4*time.Second { // two election timeouts
				t.Errorf("cut %v: in sync after %v", cut, d)
			}
			c.sameReign(leader, term)
		}
	})
}

// TestT20_FarBehindDoesNotLead: step 2, by order and as the preferred leader.
func TestT20_FarBehindDoesNotLead(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		leader, f := c.leader(), c.follower()
		term := leader.node.Soft().Term
		c.isolate(f.id, true)
		var last raft.Index
		for range 11 {
			last = c.put(slices.Repeat([]string{"y"}, 100)...) + 99
		}
		err := leader.node.Transfer(t.Context(), f.id)
		if !errors.Is(err, node.ErrRefused) || errdefs.As(err).Meta["why"] != raft.TransferLag.String() {
			t.Error(err)
		}
		c.put("z")
		c.isolate(f.id, false)
		c.settle(last + 1)
		c.sameReign(leader, term)
	})
	prefer := func(o *node.Options) {
		o.Core.Priority = map[raft.NodeID]int{"n0": 1}
		o.Core.PriorityInterval = 500
	}
	bubble(t, 3, prefer, func(t *testing.T, c *cluster) {
		c.await("n0")
		c.settle(c.put("x"))
		c.isolate("n0", true)
		pass(5 * time.Second)
		leader := c.leader()
		term := leader.node.Soft().Term
		for range 11 {
			if i, err := leader.put(t.Context(), slices.Repeat([]string{"y"}, 100)...); err != nil {
				t.Fatal(i, err)
			}
			pass(500 * time.Millisecond)
		}
		if s := leader.node.Soft(); s.Term != term || s.Role != consensus.Leader {
			t.Errorf("%+v", s)
		}
		last := leader.node.Committed().Load()
		c.isolate("n0", false)
		c.await("n0") // delayed, until it has everything
		if got := c.leader().log.Last(); int64(got) < last {
			t.Errorf("it leads with %d of %d", got, last)
		}
	})
}

// await waits until id leads.
func (c *cluster) await(id raft.NodeID) {
	c.t.Helper()
	for range 1000 {
		if c.leader().id == id {
			return
		}
		pass(100 * time.Millisecond)
	}
	c.t.Fatalf("%s does not lead", id)
}

// TestT20_SlowComparison: step 3, a follower whose COMPARE and TRUNCATE take a minute and more starts no election.
func TestT20_SlowComparison(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		old := c.leader()
		c.isolate(old.id, true)
		for range 20 { // a tail of its own
			if _, err := old.node.Propose(t.Context(), batchOf(slices.Repeat([]string{"lost"}, 20)...)); err != nil {
				t.Fatal(err)
			}
		}
		pass(5 * time.Second)
		leader := c.leader()
		c.put("y")
		term, stood := leader.node.Soft().Term, old.status().Counters.Elections
		stop := c.write(time.Second)
		for _, lost := range []raft.MessageType{raft.CompareAnswer, raft.TruncateAnswer} {
			c.lose(func(m *raft.Message) bool { return m.From == old.id && m.Type == lost })
			c.isolate(old.id, false)
			pass(40 * time.Second)
			for _, p := range leader.status().Peers {
				if p.ID == old.id && p.State == push.Appending {
					t.Errorf("without %v it is %+v", lost, p)
				}
			}
		}
		c.lose(nil)
		last := stop()
		c.settle(last)
		if s := old.status(); s.Counters.Elections != stood || s.Term != term {
			t.Errorf("%+v, %d elections, %d before", s.SoftState, s.Counters.Elections, stood)
		}
		if s := leader.node.Soft(); s.Term != term || s.Role != consensus.Leader {
			t.Errorf("%+v", s)
		}
		if slices.Contains(old.bodies(last), "lost") {
			t.Error("the tail of its own is still there")
		}
	})
}

// TestT21_NextEntryPurgedWhileAway: step 2 for one that is not wiped; it begins where the leader does.
func TestT21_NextEntryPurgedWhileAway(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		at := c.put("x")
		c.settle(at)
		f := c.follower()
		left := f.crash()
		for range 10 {
			c.put(slices.Repeat([]string{"y"}, 100)...)
		}
		for _, m := range c.all() {
			c.settle(at + 600)
			if err := m.node.Purge(t.Context(), at+500); err != nil {
				t.Fatal(err)
			}
		}
		m := c.start(f.id, left, false)
		c.settle(at + 1000)
		if s := m.status(); m.log.First() != at+501 || !s.Voter {
			t.Errorf("first %d, want %d: %+v", m.log.First(), at+501, s)
		}
	})
}

// TestT21_AsyncMachineFailure: a node whose acknowledged entries may be gone with its machine has no vote until it has caught up.
func TestT21_AsyncMachineFailure(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.async = true
		for _, m := range c.all() {
			if err := errors.Join(m.end(), m.log.Close()); err != nil {
				t.Fatal(err)
			}
			c.start(m.id, m.fsys, false)
		}
		at := c.put("x")
		c.settle(at)
		f := c.follower()
		left := f.crash()
		c.boot = "after the failure"
		last := c.put("y")
		c.isolate(f.id, true)
		m := c.start(f.id, left, false)
		pass(time.Minute)
		if s := m.status(); s.Voter || s.Counters.Elections != 0 || s.Role != consensus.Follower {
			t.Errorf("%+v", s.SoftState)
		}
		c.isolate(f.id, false)
		c.settle(last)
		pass(2 * time.Second)
		if s := m.status(); !s.Voter || !slices.Equal(m.bodies(last), []string{"x", "y"}) {
			t.Errorf("%+v, %q", s.SoftState, m.bodies(last))
		}
	})
}

// soon fails when more than d has passed since began.
func soon(t *testing.T, what string, began time.Time, d time.Duration) {
	t.Helper()
	if took := time.Since(began); took > d {
		t.Errorf("%s took %v", what, took)
	}
}

// TestT22_VotesBesideBulk: step 1, 10,000 pushes that cannot be written, an election, and votes and heartbeats at once.
func TestT22_VotesBesideBulk(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		at := c.put("x")
		c.settle(at)
		m, leader := c.follower(), c.leader()
		term := m.node.Soft().Term
		c.isolate(m.id, true)
		for i := range raft.Index(10_000) {
			gap := raft.Message{Type: raft.Append, From: leader.id, To: m.id, Term: term, Index: at + 500 + i, LogTerm: 1, Entries: batchOf("gap")}
			gap.Entries[0].Index, gap.Entries[0].Term = at+501+i, 1
			m.node.Deliver(gap)
		}
		pass(3 * time.Second)
		if s := m.node.Soft(); s.Role != consensus.PreCandidate {
			t.Fatalf("%+v", s)
		}
		began := time.Now()
		m.node.Deliver(raft.Message{Type: raft.Vote, From: leader.id, To: m.id, Term: term + 1, Index: at + 10, LogTerm: term, Force: true})
		s := m.status()
		if s.Term != term+1 || s.Vote != leader.id {
			t.Errorf("%+v", s)
		}
		m.node.Deliver(raft.Message{Type: raft.Heartbeat, From: leader.id, To: m.id, Term: term + 1, Round: 1})
		if s := m.status(); s.Leader != leader.id || s.Last != at {
			t.Errorf("%+v", s)
		}
		soon(t, "a vote and a heartbeat", began, 100*time.Millisecond)
	})
}

// TestT22_AcksComeAtOnce: step 3, ten appends side by side and then silence.
func TestT22_AcksComeAtOnce(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		leader := c.leader()
		for range 10 {
			began := time.Now()
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					if _, err := leader.put(t.Context(), fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
					soon(t, "an append", began, 50*time.Millisecond)
				})
			}
			wg.Wait()
			pass(700 * time.Millisecond)
		}
	})
}

// TestT22_LeavingLeadershipAnswersAll: step 4, 100 appends that wait, each way out of leadership, and an append after it.
func TestT22_LeavingLeadershipAnswersAll(t *testing.T) {
	patient := func(o *node.Options) { o.Core.TransferTimeout = 4 * o.Core.Retry } // the target must be sent what it has not answered
	for _, way := range []string{"higher term", "transfer", "lost quorum", "shutdown"} {
		t.Run(way, func(t *testing.T) {
			bubble(t, 3, patient, func(t *testing.T, c *cluster) {
				c.settle(c.put("x"))
				old, f := c.leader(), c.follower()
				term := old.node.Soft().Term
				c.lose(func(m *raft.Message) bool { return m.Type == raft.AppendAnswer })
				var wg sync.WaitGroup
				var answered atomic.Int32
				for i := range 100 {
					wg.Go(func() {
						_, err := old.put(t.Context(), fmt.Sprint(i))
						answered.Add(1)
						if way == "transfer" && err == nil { // the new leader has it
							return
						}
						if !errors.Is(err, node.ErrNotLeader) && !errors.Is(err, node.ErrStopped) {
							t.Error(err)
						}
					})
				}
				pass(10 * time.Millisecond)
				if n := answered.Load(); n != 0 {
					t.Errorf("%d were answered before", n)
				}
				leave(c, old, f, way, term)
				ended := time.Now()
				wg.Wait()
				soon(t, "the last answer after the end of leadership", ended, 100*time.Millisecond)
				c.lose(nil)
				c.isolate(old.id, false)
				if way == "shutdown" {
					c.start(old.id, old.fsys, false)
				}
				c.settle(c.put("the last"))
			})
		})
	}
}

// leave ends the leadership of old and returns when it has ended.
func leave(c *cluster, old, f *member, way string, term raft.Term) {
	c.t.Helper()
	switch way {
	case "higher term":
		old.node.Deliver(raft.Message{Type: raft.HeartbeatAnswer, From: f.id, To: old.id, Term: term + 5, Refused: raft.OldTerm})
	case "transfer":
		c.lose(nil)
		if err := old.node.Transfer(c.t.Context(), f.id); err != nil {
			c.t.Error(err)
		}
	case "lost quorum":
		c.isolate(old.id, true)
	case "shutdown":
		if err := errors.Join(old.end(), old.log.Close()); err != nil {
			c.t.Error(err)
		}
		return
	}
	for range 10_000 {
		if old.node.Soft().Role != consensus.Leader {
			return
		}
		pass(time.Millisecond)
	}
	c.t.Fatalf("%s: it leads on", way)
}

// TestT22_FiftyTransfers: step 4, leadership moves 50 times under 1,000 writers; then one write.
func TestT22_FiftyTransfers(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		var stop atomic.Bool
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				for !stop.Load() {
					_, err := c.leader().put(t.Context(), "w")
					switch {
					case err == nil, errors.Is(err, node.ErrNotLeader), errors.Is(err, node.ErrTransferring), errors.Is(err, node.ErrPendingFull):
					default:
						t.Error(err)
						return
					}
					pass(20 * time.Millisecond)
				}
			})
		}
		for moved := 0; moved < 50; {
			old := c.leader()
			to := c.follower()
			if err := old.node.Transfer(t.Context(), to.id); err == nil {
				moved++
			} else if !errors.Is(err, node.ErrNotLeader) && !errors.Is(err, node.ErrRefused) && !errors.Is(err, node.ErrTransferFailed) {
				t.Fatal(err)
			}
			pass(50 * time.Millisecond)
		}
		stop.Store(true)
		wg.Wait()
		c.settle(c.put("the last"))
		for _, m := range c.all() {
			if s := m.status(); s.WaitingReads != 0 || s.Committed != s.Last {
				t.Errorf("%s: %+v", m.id, s)
			}
		}
	})
}

// TestT23_FormerLeadersEntry: step 2, the leader dies after a majority has the entry and before it is committed; no write
// comes after it.
func TestT23_FormerLeadersEntry(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		old := c.leader()
		c.lose(func(m *raft.Message) bool { return m.Type == raft.AppendAnswer })
		p, err := old.node.Propose(t.Context(), batchOf("y"))
		if err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Millisecond)
		if old.node.Committed().Load() >= int64(p.Last) {
			t.Fatal("it is committed already")
		}
		left := old.crash()
		c.lose(nil)
		next := c.leader()
		began := time.Now()
		c.settle(p.Last)
		soon(t, "the commit by the new leader", began, 2*time.Second)
		if got := next.bodies(p.Last); !slices.Equal(got, []string{"x", "y"}) {
			t.Errorf("%q", got)
		}
		c.start(old.id, left, false)
		c.settle(p.Last)
	})
}

// TestT23_OwnEntryOfADeadLeader: step 6, the leader writes an entry that nobody gets, crashes, and comes back after another has
// written its own in that place.
func TestT23_OwnEntryOfADeadLeader(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		for range 20 {
			c.put("x")
		}
		old := c.leader()
		c.settle(raft.Index(old.node.Committed().Load()))
		c.isolate(old.id, true)
		p, err := old.node.Propose(t.Context(), batchOf("lost"))
		if err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Millisecond)
		if old.log.Synced() < p.Last {
			t.Fatal("it is not on the disk")
		}
		left := old.crash()
		last := c.put("instead")
		m := c.start(old.id, left, false)
		if m.log.Last() != p.Last {
			t.Errorf("the crash left %d entries, want %d", m.log.Last(), p.Last)
		}
		c.isolate(old.id, false)
		c.settle(last)
		want := append(slices.Repeat([]string{"x"}, 20), "instead")
		for _, m := range c.all() {
			if got := m.bodies(last); !slices.Equal(got, want) {
				t.Errorf("%s: %q", m.id, got)
			}
		}
	})
}
