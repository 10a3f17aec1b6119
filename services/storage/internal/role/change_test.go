package role_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role"
	"github.com/tandemlog/tandem/services/storage/internal/role/change"
)

// promote has the node promoted and fails the test where that is an error.
func (n *node) promote(force bool) role.Promoted {
	n.c.t.Helper()
	p, err := n.m.Promote(n.c.t.Context(), force)
	if err != nil {
		n.c.t.Fatalf("promote node %d: %v", n.o.NodeID, err)
	}
	return p
}

// refusedPromote has a promotion fail for that reason, and nothing change by it.
func (n *node) refusedPromote(force bool, reason string) {
	n.c.t.Helper()
	before := n.m.State().Lineage
	_, err := n.m.Promote(n.c.t.Context(), force)
	e := errdefs.As(err)
	if e == nil || e.Meta["reason"] != reason && e.Reason != reason || e.Remedy == "" {
		n.c.t.Errorf("promote node %d: %v, want %s", n.o.NodeID, err, reason)
	}
	if after := n.m.State().Lineage; after.Role != before.Role || after.Promise != before.Promise || after.Candidate != before.Candidate {
		n.c.t.Errorf("a refused promotion changed %+v to %+v", before, after)
	}
}

// sameAs waits until all nodes have m's bytes and list.
func (c *cluster) sameAs(m *node, text string) {
	c.t.Helper()
	c.until("all logs are "+text, func() bool {
		want := m.m.State().Lineage.Epochs
		for _, n := range c.nodes {
			l := n.m.State().Lineage
			if n.log.text() != text || n.log.Readable().Load() != n.log.End() || !slices.Equal(l.Epochs, want) {
				return false
			}
		}
		return true
	})
}

// sever cuts the node off, with the links that it has.
func (n *node) sever() {
	n.cut.Store(true)
	for _, x := range n.c.nodes {
		if x != n {
			n.links.Revoke(x.o.NodeID, errUnreachable)
			x.links.Revoke(n.o.NodeID, errUnreachable)
		}
	}
	wait(0)
}

func (c *cluster) nothingKept() {
	c.t.Helper()
	for _, n := range c.nodes {
		if len(n.log.kept) > 0 {
			c.t.Errorf("node %d had to keep %q", n.o.NodeID, n.log.kept)
		}
	}
}

// TestPlannedChange: the old master hands over and follows; everything that it took is there, nothing is cut.
func TestPlannedChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		old, young := c.nodes[0], c.nodes[1]
		text := "base|"
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() { // puts all the time
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				if old.m.Enter() == nil {
					rec := fmt.Sprintf("%d|", i)
					old.log.append(rec)
					text += rec
					old.m.Leave()
				}
			}
		}()
		wait(time.Second)
		p := young.promote(false)
		close(stop)
		<-stopped
		if !p.Planned || p.AlreadyOpen || p.Role != epoch.RoleSyncMaster || p.Epoch < 2 || p.Start != int64(len(text)) || !young.isOpen() || old.isOpen() {
			t.Errorf("%+v, old open %t", p, old.isOpen())
		}
		if len(text) < 1000 {
			t.Errorf("hardly anything was put: %q", text)
		}
		young.put("new|")
		c.sameAs(young, text+"new|")
		c.nothingKept()
		if r := lineageOf(t, old.fs.CrashClone(memfs.OnlySynced)).Role; r != epoch.RoleSlave {
			t.Errorf("the old master's disk says %v", r)
		}
		if p = young.promote(false); !p.AlreadyOpen || p.Planned {
			t.Errorf("promoted again: %+v", p)
		}
		young.cleanStop() // the config says slave
		young.start()
		c.until("goes on as master", young.isOpen)
		young.put("more|")
		c.sameAs(young, text+"new|more|")
		old.promote(false)
		if p := young.promote(false); !p.Planned { // at once, though it does not follow yet
			t.Errorf("promoted again: %+v", p)
		}
		old.promote(false)
		old.put("home|")
		c.sameAs(old, text+"new|more|home|")
		c.nothingKept()
	})
}

// TestWaitingPutsEndInAPlannedChange: those that a slave confirms in time as PUT_OK, before the old master's role changes.
func TestWaitingPutsEndInAPlannedChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m := c.nodes[0]
		acked := m.links.Acked(1)
		m.put("last|")
		ended := make(chan error, 1)
		go func() { ended <- acked.Wait(t.Context(), 10) }()
		c.nodes[2].promote(false)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("a put that the slaves had ended with %v", err)
			}
		default:
			t.Error("a put still waits")
		}
	})
}

// TestADrainIsGivenUp: a candidate that ends the call, dies or is silent for too long lets the puts in again.
func TestADrainIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m := c.nodes[0]
		req := epoch.DrainRequest{Cluster: "c", BrokerName: "b", NodeID: 1, Reign: m.m.State().Lineage.Epochs.Last()}
		end, release, err := c.nodes[1].Drain(t.Context(), "0", req)
		if err != nil || end != 5 {
			t.Fatalf("%d %v", end, err)
		}
		e := errdefs.As(m.m.CheckOpen())
		if e == nil || e.Meta["reason"] != "HANDING_OVER" || e.Remedy == "" || m.m.Enter() == nil {
			t.Errorf("takes puts while it is drained: %v", e)
		}
		if _, _, err := c.nodes[2].Drain(t.Context(), "0", req); err == nil {
			t.Error("drained twice")
		}
		if m.links.InSync() != 2 {
			t.Error("a drain ended links")
		}
		release()
		wait(0)
		m.put("again|")
		c.same("base|again|")
		_, release, err = c.nodes[1].Drain(t.Context(), "0", req)
		if err != nil || m.isOpen() {
			t.Fatalf("open while it is drained, %v", err)
		}
		defer release()
		wait(31 * time.Second)
		m.put("late|")
		c.same("base|again|late|")
		for name, bad := range map[string]func(r *epoch.DrainRequest){
			"another cluster": func(r *epoch.DrainRequest) { r.Cluster = "d" },
			"another reign":   func(r *epoch.DrainRequest) { r.Reign.ID++ },
		} {
			r := req
			bad(&r)
			if _, _, err := c.nodes[1].Drain(t.Context(), "0", r); errdefs.As(err) == nil || errdefs.As(err).Remedy == "" || !m.isOpen() {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, _, err := c.nodes[1].Drain(t.Context(), "2", req); errdefs.As(err) == nil {
			t.Errorf("a slave is drained: %v", err)
		}
	})
}

// TestALogThatGrowsBehindTheDrain: the old master takes puts again before it promises; the promoted node fetches them.
func TestALogThatGrowsBehindTheDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		old, young := c.nodes[0], c.nodes[1]
		old.o.HoldMost = time.Millisecond
		old.cleanStop()
		old.start()
		c.until("open", func() bool { return old.isOpen() && old.links.InSync() == 2 })
		late := false
		young.fs.SetHook(func(op memfs.Op) memfs.Action { // the order is being saved
			if op.Kind == memfs.KindRename && !late {
				late = true
				<-time.After(2 * time.Millisecond)
				old.put("squeezed in|")
			}
			return memfs.Action{}
		})
		p := young.promote(false)
		if !late || p.Start != int64(len("base|squeezed in|")) {
			t.Errorf("%t %+v", late, p)
		}
		c.sameAs(young, "base|squeezed in|")
		c.nothingKept()
	})
}

// TestAChangeWithoutTheOldMaster: whole nodes are enough; the old one comes back, keeps what only it had, and follows.
func TestAChangeWithoutTheOldMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		old, young := c.nodes[0], c.nodes[1]
		old.sever()
		acked := old.links.Acked(1)
		old.put("only here|")
		p := young.promote(false)
		if p.Planned || p.Start != 5 {
			t.Errorf("%+v", p)
		}
		young.put("new|")
		wait(10 * time.Second)
		if acked.Load() > 5 {
			t.Error("a master that is cut off has confirmed a put")
		}
		old.cut.Store(false)
		c.sameAs(young, "base|new|")
		if len(old.log.kept) != 1 || !strings.HasSuffix(old.log.kept[0], " only here|") {
			t.Errorf("kept %q", old.log.kept)
		}
		if up := old.m.State().Upstream; up.Address != "1" {
			t.Errorf("the old master follows %+v", up)
		}
	})
}

// TestWhoMayBePromoted goes through the rule on running nodes.
func TestWhoMayBePromoted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m, a, b := c.nodes[0], c.nodes[1], c.nodes[2]
		b.sever()
		m.put("more|")
		c.until("one has more", func() bool { return a.log.text() == "base|more|" })
		m.kill()
		b.refusedPromote(false, epoch.ReasonNotEnoughNodes)
		b.cut.Store(false)
		b.refusedPromote(false, epoch.ReasonNotBest)
		a.cut.Store(true)
		p := b.promote(true) // another log, and fewer nodes
		if p.Start != 5 || p.Planned {
			t.Errorf("%+v", p)
		}
		b.put("forced|")
		a.cut.Store(false)
		m.start()
		c.sameAs(b, "base|forced|")
		for _, n := range []*node{m, a} {
			if len(n.log.kept) != 1 || !strings.HasSuffix(n.log.kept[0], " more|") {
				t.Errorf("node %d kept %q", n.o.NodeID, n.log.kept)
			}
		}
		for _, n := range c.nodes {
			n.links.Shut(nil)
		}
	})
}

// TestABehindSlaveDoesNotHoldPutsUp: the master is not drained for a node that has far to go.
func TestABehindSlaveDoesNotHoldPutsUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m, s := c.nodes[0], c.nodes[1]
		s.cleanStop()
		m.put("more|")
		s.o.MasterAddress = "2" // ahead of it, but this one cannot be followed yet
		c.nodes[2].cut.Store(true)
		s.start()
		m.links.mu.Lock()
		m.links.full = true
		m.links.mu.Unlock()
		wait(time.Second)
		s.refusedPromote(false, change.ErrBehind.Reason)
		m.put("x|")
	})
}

// TestAPromotionHalfWay: the candidate has asked one peer, and cannot hear enough; it says so and goes on by itself.
func TestAPromotionHalfWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m, young, third := c.nodes[0], c.nodes[1], c.nodes[2]
		third.cut.Store(true)
		wait(time.Second)
		young.fs.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindRename { // the order is being saved: now the master is gone, too
				m.cut.Store(true)
			}
			return memfs.Action{}
		})
		_, err := young.m.Promote(t.Context(), false)
		if e := errdefs.As(err); e == nil || e.Reason != change.HalfWay || !strings.Contains(e.Remedy, epoch.ReasonNotEnoughNodes) {
			t.Fatalf("promoted alone: %v", err)
		}
		young.fs.SetHook(nil)
		s := young.m.State()
		if s.Open || s.Role != epoch.RoleSyncMaster || s.Reason != change.HalfWay || s.Remedy == "" || young.m.Enter() == nil {
			t.Errorf("state %+v", s)
		}
		young.refusedSecond(t)
		third.cut.Store(false)
		c.until("open", young.isOpen)
		young.put("new|")
		m.cut.Store(false)
		c.sameAs(young, "base|new|")
	})
}

// refusedSecond: a promotion of a node that has begun already is repeated by the operator and says the same.
func (n *node) refusedSecond(t *testing.T) {
	t.Helper()
	_, err := n.m.Promote(t.Context(), false)
	if e := errdefs.As(err); e == nil || e.Meta["reason"] != epoch.ReasonNotEnoughNodes {
		t.Errorf("promoted again: %v", err)
	}
}

// TestAPromotionIsGivenUp by Demote; the peers have promised already, and another node is promoted above that.
func TestAPromotionIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m, young := c.nodes[0], c.nodes[1]
		c.nodes[2].cut.Store(true)
		young.fs.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindRename {
				m.cut.Store(true)
			}
			return memfs.Action{}
		})
		ended := make(chan error, 1)
		go func() { _, err := young.m.Promote(t.Context(), false); ended <- err }()
		wait(6 * time.Second)
		young.fs.SetHook(nil)
		if d, err := young.m.Demote(t.Context()); err != nil || d.AlreadySlave {
			t.Fatalf("%+v %v", d, err)
		}
		if e := errdefs.As(<-ended); e == nil || e.Reason != change.ErrOvertaken.Reason || e.Meta["reason"] != role.ErrDemoted.Reason {
			t.Errorf("the promotion ended with %v", e)
		}
		l := lineageOf(t, young.fs.CrashClone(memfs.OnlySynced))
		if l.Role != epoch.RoleSlave || l.Candidate.Epoch != 0 {
			t.Errorf("on the disk: %+v", l)
		}
		m.cut.Store(false)
		c.nodes[2].cut.Store(false)
		c.until("who is in sync", func() bool { return c.nodes[2].m.State().Upstream.State == role.LinkInSync })
		c.nodes[2].promote(false)
		c.nodes[2].put("x|")
		c.sameAs(c.nodes[2], "base|x|")
	})
}

// TestDemote: durable, links and waiting puts end, and nobody takes over by itself.
func TestDemote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m := c.nodes[0]
		acked := m.links.Acked(2)
		c.nodes[1].sever()
		m.put("x|")
		ended := make(chan error, 1)
		go func() { ended <- acked.Wait(t.Context(), 7) }() // a put that wants both slaves
		wait(0)
		d, err := m.m.Demote(t.Context())
		if err != nil || d.AlreadySlave || d.End != 7 {
			t.Fatalf("%+v %v", d, err)
		}
		wait(0)
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a put was confirmed that one slave lacks")
			}
		default:
			t.Error("a put still waits")
		}
		e := errdefs.As(m.m.CheckOpen())
		if e == nil || m.links.InSync() != 0 {
			t.Errorf("%v, %d in sync", e, m.links.InSync())
		}
		c.nodes[1].cut.Store(false)
		if d, err := m.m.Demote(t.Context()); err != nil || !d.AlreadySlave {
			t.Errorf("demoted again: %+v %v", d, err)
		}
		m.kill()
		m.start()
		wait(20 * time.Second)
		for _, n := range c.nodes {
			if n.isOpen() {
				t.Errorf("node %d has opened by itself", n.o.NodeID)
			}
		}
		c.nodes[1].refusedPromote(false, epoch.ReasonNotBest) // it lacks x|
		c.nodes[2].promote(false)
		c.nodes[2].put("y|")
		c.sameAs(c.nodes[2], "base|x|y|")
		c.nothingKept()
	})
}

// TestCrashWhilePromoting kills the node at each change that it makes of its disk while it is promoted. It goes on by itself once
// its order was durable; before that it is a slave as ever.
func TestCrashWhilePromoting(t *testing.T) {
	died := 0
	for k := 1; k < 100; k++ {
		more := true
		bubble(t, func(t *testing.T) {
			c := opened(t, 3)
			m, young := c.nodes[0], c.nodes[1]
			m.put("old|")
			c.same("base|old|")
			isDead := young.dieAt(k)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _ = young.m.Promote(ctx, false)
			if more = isDead(); more {
				died++
				young.die(young.fs.CrashClone(memfs.OnlySynced))
				young.start()
			} else {
				young.survive()
			}
			var master *node
			c.until("one master", func() bool {
				open := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return !n.isOpen() })
				if len(open) == 1 {
					master = open[0]
				}
				return len(open) == 1 && master.links.InSync() == 2
			})
			master.put("new|")
			c.sameAs(master, "base|old|new|")
			c.nothingKept()
		})
		if !more {
			break
		}
	}
	if died < 4 {
		t.Errorf("only %d deaths", died)
	}
}

// TestTwoArePromotedAtOnce: at most one stays, and all follow it.
func TestTwoArePromotedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		done := make(chan error, 2)
		for _, n := range c.nodes[1:] {
			go func() { _, err := n.m.Promote(t.Context(), false); done <- err }()
		}
		for range 2 {
			t.Log(<-done)
		}
		var master *node
		c.until("one master", func() bool {
			open := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return !n.isOpen() })
			if len(open) == 1 {
				master = open[0]
			}
			return len(open) == 1 && master.links.InSync() == 2
		})
		master.put("new|")
		c.sameAs(master, "base|new|")
		c.nothingKept()
	})
}

// TestTheKindOfMaster comes from the config of the group.
func TestTheKindOfMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.nodes[0].o.Role = epoch.RoleAsyncMaster
		c.nodes[1].o.MasterRole = epoch.RoleAsyncMaster
		for _, n := range c.nodes {
			n.start()
		}
		c.until("open", c.nodes[0].isOpen)
		c.nodes[0].put("a|")
		c.same("a|")
		if p := c.nodes[1].promote(false); p.Role != epoch.RoleAsyncMaster || !p.Planned {
			t.Errorf("%+v", p)
		}
		c.nodes[0].kill()
		c.nodes[1].put("b|")
		wait(0)
		if r := c.nodes[1].log.Readable().Load(); r != 4 {
			t.Errorf("Readable %d: an async master waits for nobody", r)
		}
		c.nodes[1].cleanStop()
		c.nodes[1].o.MasterRole = epoch.RoleSyncMaster // the group has become a sync one
		c.nodes[1].start()
		if r := c.nodes[1].m.State().Role; r != epoch.RoleSyncMaster {
			t.Errorf("role %v", r)
		}
	})
}

// TestAPromotedSlaveWithoutAGroup cannot tell the master that it follows.
func TestAPromotedSlaveWithoutAGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.nodes[0].o.Role, c.nodes[0].o.Peers, c.nodes[0].o.Required = epoch.RoleAsyncMaster, nil, 0
		s := c.nodes[1]
		s.o.Peers, s.o.Required, s.o.MasterAddress = nil, 0, "0"
		for _, n := range c.nodes {
			n.start()
		}
		c.until("open", c.nodes[0].isOpen)
		c.nodes[0].put("a|")
		c.same("a|")
		s.refusedPromote(false, "NO_PEERS")
		c.nodes[0].kill()
		if p := s.promote(true); p.Role != epoch.RoleAsyncMaster || p.Start != 2 {
			t.Errorf("%+v", p)
		}
		s.put("b|")
	})
}

// TestAChainFollows: the slave of a slave goes along when that one, or when it itself, is promoted.
func TestAChainFollows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		last := c.nodes[2]
		last.cleanStop()
		last.o.MasterAddress = "1"
		last.start()
		c.until("the chain", func() bool { u := last.m.State().Upstream; return u.Address == "1" && u.State == role.LinkInSync })
		c.nodes[1].promote(false)
		c.nodes[1].put("x|")
		c.sameAs(c.nodes[1], "base|x|")
		c.nodes[0].promote(false)
		c.until("it follows somebody", func() bool {
			return last.m.State().Upstream.State == role.LinkInSync && c.nodes[1].links.InSync()+c.nodes[0].links.InSync() == 2
		})
		if p := last.promote(false); !p.Planned {
			t.Errorf("%+v", p)
		}
		last.put("y|")
		c.sameAs(last, "base|x|y|")
		c.nothingKept()
	})
}
