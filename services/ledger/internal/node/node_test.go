package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

// TestAppendsAreCommittedEverywhere: eight clients, and all logs are the same.
func TestAppendsAreCommittedEverywhere(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		var wg sync.WaitGroup
		var last atomic.Int64
		for client := range 8 {
			wg.Go(func() {
				for i := range 50 {
					at, err := leader.put(t.Context(), fmt.Sprintf("%d-%d", client, i), "second")
					if err != nil {
						t.Error(err)
						return
					}
					for {
						old := last.Load()
						if int64(at)+1 <= old || last.CompareAndSwap(old, int64(at)+1) {
							break
						}
					}
				}
			})
		}
		wg.Wait()
		end := raft.Index(last.Load())
		c.settle(end)
		want := leader.bodies(end)
		if len(want) != 800 {
			t.Errorf("%d entries", len(want))
		}
		for _, m := range c.all() {
			if got := m.bodies(end); !slices.Equal(got, want) {
				t.Errorf("%s has other entries than %s", m.id, leader.id)
			}
			s, err := m.node.Status(t.Context())
			if err != nil || s.Committed != end || s.Leader != leader.id || s.Dropped != 0 || s.Async {
				t.Errorf("%s: %+v, %v", m.id, s, err)
			}
		}
	})
}

// TestReadsSeeWhatWasAcknowledged asks leader and followers.
func TestReadsSeeWhatWasAcknowledged(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		for i := range 20 {
			at := c.put(fmt.Sprint(i))
			for _, m := range c.all() {
				index, err := m.node.Read(t.Context())
				if err != nil || index < at || int64(index) > m.node.Committed().Load() {
					t.Fatalf("%s reads at %d after %d was acknowledged: %v", m.id, index, at, err)
				}
			}
		}
		// A follower that is cut off is never answered, a leader that is cut off confirms nothing.
		alone := c.follower()
		c.isolate(alone.id, true)
		asked := time.Now()
		_, err := alone.node.Read(t.Context())
		wantErr(t, err, node.ErrReadLost)
		if d := time.Since(asked); d > 6*time.Second {
			t.Errorf("the read ended after %v", d)
		}
		c.isolate(alone.id, false)
		old := c.leader()
		c.isolate(old.id, true)
		pass(900 * time.Millisecond)
		if _, err := old.node.Read(t.Context()); err == nil {
			t.Error("a leader without a quorum and a lease confirms a read")
		}
		c.isolate(old.id, false)
	})
}

// TestT22_LostLeadershipEndsWaits: proposals that wait end when a quorum is lost; they are never called committed.
func TestT22_LostLeadershipEndsWaits(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.put("first")
		old := c.leader()
		c.isolate(old.id, true)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				_, err := old.put(t.Context(), fmt.Sprint("lost ", i))
				if !errors.Is(err, node.ErrNotLeader) {
					t.Errorf("proposal on a leader without a quorum: %v", err)
				}
			})
		}
		wg.Wait()
		at := c.put("second")
		if _, err := old.put(t.Context(), "no"); !errors.Is(err, node.ErrNotLeader) {
			t.Error(err)
		}
		c.isolate(old.id, false)
		c.settle(at)
		for _, m := range c.all() {
			if got := m.bodies(at); !slices.Equal(got, []string{"first", "second"}) {
				t.Errorf("%s: %q", m.id, got)
			}
		}
	})
}

// TestT23_CrashesLoseNothing crashes each node in turn, the leader too, in a way that loses what was not synced.
func TestT23_CrashesLoseNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		var want []string
		var last raft.Index
		for round := range 6 {
			for i := range 20 {
				body := fmt.Sprintf("%d-%d", round, i)
				c.put(body)
				want = append(want, body)
			}
			m := c.leader()
			if round%2 == 1 {
				m = c.follower()
			}
			left := m.crash()
			last = c.put(fmt.Sprint("without ", m.id))
			want = append(want, fmt.Sprint("without ", m.id))
			c.start(m.id, left, false)
		}
		c.settle(last)
		for _, m := range c.all() {
			if got := m.bodies(last); !slices.Equal(got, want) {
				t.Errorf("%s has %d entries, want %d", m.id, len(got), len(want))
			}
		}
	})
}

// TestT21_WipedNodeComesBack: it catches up without a new write, and votes again only then.
func TestT21_WipedNodeComesBack(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		var last raft.Index
		for i := range 200 {
			last = c.put(fmt.Sprint(i))
		}
		c.settle(last)
		if err := c.leader().node.Purge(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		wiped := c.follower()
		wiped.crash()
		m := c.start(wiped.id, memfs.New(), false)
		if m.node.Soft().Voter {
			t.Fatal("a wiped node votes")
		}
		c.settle(last)
		pass(2 * time.Second)
		if !m.node.Soft().Voter || m.log.First() != 101 || len(m.bodies(last)) == 0 {
			t.Errorf("%+v, first %d", m.node.Soft(), m.log.First())
		}
	})
}

func TestTransfer(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.put("x")
		old, to := c.leader(), c.follower()
		if err := old.node.Transfer(t.Context(), to.id); err != nil {
			t.Fatal(err)
		}
		if s := old.node.Soft(); s.Role == consensus.Leader {
			t.Errorf("%+v", s)
		}
		c.put("y")
		if c.leader() != to {
			t.Errorf("%s leads, not %s", c.leader().id, to.id)
		}
		wantErr(t, old.node.Transfer(t.Context(), to.id), node.ErrNotLeader)
		if err := to.node.Transfer(t.Context(), to.id); errdefs.ClassOf(err) != errdefs.InvalidArgument {
			t.Error(err)
		}
		// To one that has gone: this node leads on.
		c.isolate(old.id, true)
		err := to.node.Transfer(t.Context(), old.id)
		if !errors.Is(err, node.ErrTransferFailed) {
			t.Error(err)
		}
		c.isolate(old.id, false)
		c.put("z")
	})
}

// TestFailedSyncStopsTheNode: nothing is acknowledged, and all waits end.
func TestFailedSyncStopsTheNode(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, c *cluster) {
		c.put("x")
		m := c.leader()
		m.fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindSync {
				return memfs.FailBefore(nil)
			}
			return memfs.Proceed
		})
		_, err := m.put(t.Context(), "y")
		wantErr(t, err, node.ErrStopped)
		if err := <-m.done; err == nil || errdefs.ClassOf(err) != errdefs.DataLoss {
			t.Errorf("Run ended with %v", err)
		}
		for _, err := range []error{m.node.Committed().Wait(t.Context(), 1000), m.node.Purge(t.Context(), 0)} {
			wantErr(t, err, node.ErrStopped)
		}
		_, err = m.node.Read(t.Context())
		wantErr(t, err, node.ErrStopped)
		if m.node.Deliver(raft.Message{Type: raft.Heartbeat}) {
			t.Error("a stopped node takes messages")
		}
		m.done <- nil
	})
}

// TestFullDiskSilencesTheNode: what cannot be refused waits, and nothing is promised meanwhile.
func TestFullDiskSilencesTheNode(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		at := c.put("x")
		c.settle(at)
		m := c.follower()
		m.fsys.SetQuota(1)
		term := m.node.Soft().Term
		leader := c.leader()
		c.isolate(leader.id, true) // somebody must vote
		pass(10 * time.Second)
		s, err := m.node.Status(t.Context())
		if err != nil || !errors.Is(s.DiskFull, vfs.ErrNoSpace) {
			t.Fatalf("%+v, %v", s, err)
		}
		for _, o := range c.all() {
			if s := o.node.Soft(); s.Role == consensus.Leader && s.Term > term {
				t.Errorf("%s leads term %d without a vote on disk", o.id, s.Term)
			}
		}
		m.fsys.SetQuota(0)
		at = c.put("y")
		c.isolate(leader.id, false)
		c.settle(at)
		if s, err := m.node.Status(t.Context()); err != nil || s.DiskFull != nil {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestT22_BulkDoesNotSilenceTheNode: pushes that nobody takes fill their lane only.
func TestT22_BulkDoesNotSilenceTheNode(t *testing.T) {
	bubble(t, 3, func(o *node.Options) { o.MaxMessages, o.MaxPushBytes, o.MaxCalls = 100, 10_000, 5 }, func(t *testing.T, c *cluster) {
		at := c.put("x")
		c.settle(at)
		m, leader := c.follower(), c.leader()
		release := m.hold()
		gap := raft.Message{Type: raft.Append, From: leader.id, To: m.id, Term: m.node.Soft().Term, Index: at + 500, LogTerm: 1, Entries: batchOf("gap")}
		gap.Entries[0].Index, gap.Entries[0].Term = at+501, 1
		taken := 0
		for range 10_000 {
			if m.node.Deliver(gap) {
				taken++
			}
		}
		if taken == 0 || taken > 100 {
			t.Errorf("%d pushes were taken", taken)
		}
		if !m.node.Deliver(raft.Message{Type: raft.Heartbeat, From: leader.id, To: m.id, Term: m.node.Soft().Term}) {
			t.Error("no room for a heartbeat")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		refused := 0
		for range 20 {
			if _, err := m.node.Read(ctx); errors.Is(err, node.ErrBusy) {
				refused++
			}
		}
		if refused != 15 {
			t.Errorf("%d calls of 20 were refused, 5 fit", refused)
		}
		release()
		at = c.put("y")
		c.settle(at)
		if s, err := m.node.Status(t.Context()); err != nil || s.Dropped < uint64(10_000-taken) {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// hold keeps the node's loop inside of a save until release is called.
func (m *member) hold() (release func()) {
	inside, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	m.fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindWrite || op.Kind == memfs.KindWritev {
			once.Do(func() { close(inside); <-gate })
		}
		return memfs.Proceed
	})
	m.c.put("to be written")
	<-inside
	return func() { close(gate) }
}

// TestStopAndGoOn stops all nodes cleanly: nothing has to be read again, and the terms go on.
func TestStopAndGoOn(t *testing.T) {
	for _, how := range []string{"sync", "async", "crash"} {
		async := how == "async"
		bubble(t, 3, nil, func(t *testing.T, c *cluster) {
			c.async = async
			for _, m := range c.all() { // once more, in this mode
				if err := errors.Join(m.end(), m.log.Close()); err != nil {
					t.Fatal(err)
				}
				c.start(m.id, m.fsys, false)
			}
			at := c.put("x", "y")
			c.settle(at + 1)
			pass(5 * time.Second)
			term := c.leader().node.Soft().Term
			stopped := c.all()
			for _, m := range stopped {
				if how == "crash" {
					m.fsys = m.crash() // the checkpoint was noted before
				} else if err := errors.Join(m.end(), m.log.Close()); err != nil {
					t.Fatal(err)
				}
			}
			for _, old := range stopped {
				id := old.id
				m := c.start(id, old.fsys, false)
				if s := m.node.Soft(); s.Term != term || !s.Voter {
					t.Errorf("%s starts with %+v", id, s)
				}
				if m.node.Committed().Load() < int64(at+1) {
					t.Errorf("%s starts at %d", id, m.node.Committed().Load())
				}
			}
			c.settle(c.put("z"))
		})
	}
}
