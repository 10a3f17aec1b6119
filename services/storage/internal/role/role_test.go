package role_test

import (
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role"
	"github.com/tandemlog/tandem/services/storage/internal/role/slave"
)

func TestAloneOpensAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1)
		n := c.nodes[0]
		n.o.Required = 0
		n.start()
		wait(0)
		if !n.isOpen() {
			t.Fatalf("not open: %+v", n.m.State())
		}
		n.put("a|")
		wait(0)
		if r := n.log.Readable().Load(); r != 2 {
			t.Errorf("Readable %d, want 2", r)
		}
		l := n.m.State().Lineage
		if len(l.Epochs) != 1 || l.Epochs[0].Epoch != 1 || l.Promise != l.Epochs.Last() || !l.Whole() || !l.Open || !n.log.ahead {
			t.Errorf("lineage %+v ahead %t", l, n.log.ahead)
		}
	})
}

func TestAFreshSetOpensWhenAllAreHeard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[0].start()
		c.nodes[1].start()
		wait(20e9)
		s := c.nodes[0].m.State()
		if s.Open || s.Reason != epoch.ReasonNotEnoughNodes || !strings.Contains(s.Remedy, "2 (connection refused)") {
			t.Fatalf("state %+v", s)
		}
		err := c.nodes[0].m.CheckOpen()
		if e := errdefs.As(err); e == nil || e.Reason != "NOT_MASTER" || e.Meta["reason"] != epoch.ReasonNotEnoughNodes || e.Remedy == "" {
			t.Errorf("CheckOpen %v", err)
		}
		if up := c.nodes[1].m.State().Upstream; up.State != role.LinkDisconnected || up.Reason != slave.ErrNoUpstream.Reason {
			t.Errorf("slave's link %+v", up)
		}
		c.nodes[2].start()
		c.until("open", c.nodes[0].isOpen)
		c.nodes[0].put("hello|world|")
		c.same("hello|world|")
		for _, n := range c.nodes[1:] {
			s := n.m.State()
			if s.Upstream.State != role.LinkInSync || s.Master != "0" || !s.Lineage.Whole() || s.Upstream.End != 12 || s.Upstream.Readable != 12 {
				t.Errorf("slave %+v", s)
			}
			if e := errdefs.As(n.m.CheckOpen()); e == nil || e.Meta["master"] != "0" {
				t.Errorf("a slave's refusal names no master: %v", e)
			}
		}
	})
}

// opened starts all nodes and waits until the master is open and followed.
func opened(t *testing.T, n int) *cluster {
	t.Helper()
	c := newCluster(t, n)
	for _, x := range c.nodes {
		x.start()
	}
	c.until("open", c.nodes[0].isOpen)
	c.nodes[0].put("base|")
	c.same("base|")
	return c
}

func TestCleanStopContinuesUnasked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m := c.nodes[0]
		m.cleanStop()
		c.nodes[1].cut.Store(true)
		c.nodes[2].cut.Store(true)
		m.start()
		wait(0)
		if l := m.m.State().Lineage; !m.isOpen() || len(l.Epochs) != 1 {
			t.Fatalf("state %+v", m.m.State())
		}
		c.nodes[1].cut.Store(false)
		c.nodes[2].cut.Store(false)
		m.put("more|")
		c.same("base|more|")
	})
}

func TestAKilledMasterNeedsItsQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m := c.nodes[0]
		m.kill()
		c.nodes[1].kill()
		c.nodes[2].cut.Store(true)
		m.start()
		wait(30e9)
		if m.isOpen() || m.m.State().Reason != epoch.ReasonNotEnoughNodes {
			t.Fatalf("state %+v", m.m.State())
		}
		c.nodes[2].cut.Store(false) // itself and one more: N - required
		c.until("open", m.isOpen)
		if l := m.m.State().Lineage.Epochs; len(l) != 2 || l[1].Epoch < 2 || l[1].Start != 5 {
			t.Errorf("list %v", l)
		}
		c.nodes[1].start()
		m.put("x|")
		c.same("base|x|")
	})
}

// TestT2_SlaveAheadOfACrashedMaster is H01: an async master loses its tail with its machine, a slave has it.
func TestT2_SlaveAheadOfACrashedMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m := c.nodes[0]
		if _, err := m.log.FlushNow(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.put("lost|")
		c.same("base|lost|")
		m.power()
		if m.log.text() != "base|" {
			t.Fatalf("the test loses nothing: %q", m.log.text())
		}
		m.start()
		c.until("open", m.isOpen)
		if got := m.log.text(); got != "base|lost|" {
			t.Errorf("opened with %q: it has not fetched what it lost", got)
		}
		m.put("new|")
		c.same("base|lost|new|")
	})
}

// TestT2_ForcedMasterCutsWhoIsAhead is the other half: the master cannot fetch its tail, and an operator says so.
func TestT2_ForcedMasterCutsWhoIsAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		m, s := c.nodes[0], c.nodes[1]
		if _, err := m.log.FlushNow(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.put("lost|")
		c.same("base|lost|")
		s.cut.Store(true)
		m.power()
		m.o.AllowDataLoss = true
		m.start()
		c.until("open", m.isOpen)
		m.put("other|")
		s.cut.Store(false)
		c.same("base|other|")
		if len(s.log.kept) != 1 || !strings.HasSuffix(s.log.kept[0], "lost|") {
			t.Errorf("kept %q", s.log.kept)
		}
	})
}

func TestAsyncMasterWaitsForStartWaitOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		m := c.nodes[0]
		m.o.Role = epoch.RoleAsyncMaster
		m.start()
		wait(2500e6)
		if m.isOpen() {
			t.Fatal("open before ha.startWait")
		}
		c.until("open", m.isOpen)
		m.put("a|")
		wait(0)
		if r := m.log.Readable().Load(); r != 2 {
			t.Errorf("Readable %d", r)
		}
	})
}

func TestReadableFollowsTheAcks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		m, s := c.nodes[0], c.nodes[1]
		m.cleanStop()
		m.o.RefuseWithoutReplicas = true
		m.start()
		c.until("slave is back", func() bool { return m.isOpen() && m.links.InSync() == 1 })
		s.kill()
		wait(1e9)
		m.put("x|")
		wait(10e9)
		if r := m.log.Readable().Load(); r != 5 {
			t.Errorf("Readable %d moved without replicas", r)
		}
		s.start()
		c.same("base|x|")
	})
}

func TestReadableFollowsWrittenWithoutSlaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		c.nodes[1].kill()
		wait(1e9)
		c.nodes[0].put("x|")
		wait(0)
		if r := c.nodes[0].log.Readable().Load(); r != 7 {
			t.Errorf("Readable %d, want 7", r)
		}
	})
}

func TestWaitingPutsEndWhenSteppingDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m := c.nodes[0]
		acked := m.links.Acked(1)
		ended := make(chan error, 1)
		go func() { ended <- acked.Wait(t.Context(), 1<<40) }()
		wait(0)
		var atShut string
		m.links.onShut = func(error) {
			clone := m.fs.CrashClone(0)
			atShut = lineageOf(t, clone).Role.String()
		}
		h, err := m.m.OnPromise(t.Context(), epoch.PromiseRequest{Cluster: "c", BrokerName: "b", NodeID: 9, Reign: epoch.Promise{Epoch: 7, ID: 77}})
		if err != nil || !h.Promised || h.OpenMaster || h.Promise.Epoch != 7 || h.End != 5 {
			t.Fatalf("%+v %v", h, err)
		}
		if atShut != "slave" {
			t.Errorf("links were dropped while the disk still said %q", atShut)
		}
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a waiting put was confirmed")
			}
		default:
			t.Error("answered while a put still waits")
		}
		if m.isOpen() || m.m.Enter() == nil {
			t.Error("takes puts after a promise")
		}
	})
}

func TestNoAnswerWithoutTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		req := epoch.PromiseRequest{Cluster: "c", BrokerName: "b", NodeID: 9, Reign: epoch.Promise{Epoch: 7, ID: 77}}
		for _, n := range c.nodes {
			breakDisk(n)
			if h, err := n.m.OnPromise(t.Context(), req); err == nil {
				t.Errorf("node %d answered %+v without a disk", n.o.NodeID, h)
			}
			n.fs.SetHook(nil)
		}
		if !c.nodes[0].isOpen() {
			t.Error("the master stepped down though nothing was saved")
		}
		h, err := c.nodes[1].m.OnPromise(t.Context(), req)
		if err != nil || !h.Promised || lineageOf(t, c.nodes[1].fs.CrashClone(0)).Promise.Epoch != 7 {
			t.Errorf("%+v %v", h, err)
		}
		again, err := c.nodes[1].m.OnPromise(t.Context(), req)
		if err != nil || !again.Promised {
			t.Errorf("the same promise again: %+v %v", again, err)
		}
		req.Reign = epoch.Promise{Epoch: 7, ID: 78}
		if h, err := c.nodes[1].m.OnPromise(t.Context(), req); err != nil || h.Promised || h.Promise.ID != 77 {
			t.Errorf("promised epoch 7 twice: %+v %v", h, err)
		}
	})
}

func TestAnOpenMasterLooksForANewerOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		c.nodes[0].cut.Store(true)
		for _, n := range c.nodes[1:] {
			if _, err := n.m.OnPromise(t.Context(), epoch.PromiseRequest{Cluster: "c", BrokerName: "b", NodeID: 9, Reign: epoch.Promise{Epoch: 9, ID: 99}}); err != nil {
				t.Fatal(err)
			}
		}
		wait(10e9)
		if !c.nodes[0].isOpen() {
			t.Fatal("stepped down though it heard of nothing")
		}
		c.nodes[0].cut.Store(false)
		c.until("stepped down", func() bool { return !c.nodes[0].isOpen() })
		if r := lineageOf(t, c.nodes[0].fs.CrashClone(0)).Role; r != epoch.RoleSlave {
			t.Errorf("role on disk %v", r)
		}
	})
}

func TestAnEmptySlaveHearsItsPeersFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		s := c.nodes[2]
		s.kill()
		s.fs, s.log, s.clean = newFS(), newLog(0, ""), true // a new disk
		c.nodes[1].cut.Store(true)
		s.start()
		wait(20e9)
		up := s.m.State().Upstream
		if up.Reason != slave.ErrForgotten.Reason || len(s.log.text()) > 0 {
			t.Fatalf("link %+v log %q", up, s.log.text())
		}
		c.nodes[1].cut.Store(false)
		c.same("base|")
		if !s.m.State().Lineage.Whole() {
			t.Error("caught up, but not whole")
		}
	})
}

func TestALostLineageIsHeardOfAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		s := c.nodes[2]
		s.kill()
		damage(t, s.fs)
		s.cut.Store(true)
		s.start()
		if l := s.m.State().Lineage; l.Whole() || l.Promise.Epoch != 0 {
			t.Errorf("an older copy of the lineage counts as whole: %+v", l)
		}
		s.cut.Store(false)
		c.until("whole", func() bool { return s.m.State().Lineage.Whole() })
		c.same("base|")
	})
}
