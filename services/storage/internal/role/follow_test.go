package role_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role"
	"github.com/tandemlog/tandem/services/storage/internal/role/slave"
)

// dieAt has the process die at its k-th change of log or disk; the result says whether it came to that.
func (n *node) dieAt(k int) func() bool {
	left := k
	strike := func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if left--; left <= 0 {
			n.dead.Store(true)
			return errDead
		}
		return nil
	}
	n.log.mu.Lock()
	n.log.step = func(string) error { return strike() }
	n.log.mu.Unlock()
	n.fs.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() {
			if err := strike(); err != nil {
				return memfs.FailBefore(err)
			}
		}
		if op.Kind == memfs.KindRename && strings.HasSuffix(op.To, "/lineage") {
			n.log.mu.Lock()
			defer n.log.mu.Unlock()
			n.log.steps = append(n.log.steps, "save")
		}
		return memfs.Action{}
	})
	return n.dead.Load
}

// survive takes away the hooks of dieAt.
func (n *node) survive() {
	n.fs.SetHook(nil)
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	n.log.step = nil
}

// ahead makes a slave that is ahead of a master which cannot fetch that any more.
func ahead(t *testing.T, n int) *cluster {
	t.Helper()
	c := opened(t, n)
	m := c.nodes[0]
	if _, err := m.log.FlushNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.put("lost|")
	c.same("base|lost|")
	for _, s := range c.nodes[1:] {
		s.cut.Store(true)
	}
	m.power()
	m.o.AllowDataLoss = true
	m.start()
	c.until("open", m.isOpen)
	m.put("other|")
	return c
}

// TestT5_CrashBetweenTheStepsOfACut kills the slave at every change that it makes of its disk while it follows.
func TestT5_CrashBetweenTheStepsOfACut(t *testing.T) {
	died := 0
	for k := 1; k < 100; k++ {
		more := true
		bubble(t, func(t *testing.T) {
			c := ahead(t, 2)
			s := c.nodes[1]
			isDead := s.dieAt(k)
			s.cut.Store(false)
			wait(10 * time.Second)
			if more = isDead(); more {
				died++
				if text := s.log.text(); text != "base|lost|" && text != "base|" && text != "base|other|" {
					t.Errorf("died at %d with %q", k, text)
				}
				if s.log.text() == "base|" && len(s.log.kept) == 0 {
					t.Errorf("died at %d: cut, and nothing kept", k)
				}
				s.die(s.fs.CrashClone(memfs.OnlySynced))
				s.start()
			} else {
				s.survive()
			}
			c.same("base|other|")
			if len(s.log.kept) == 0 || !strings.HasSuffix(s.log.kept[0], " lost|") {
				t.Errorf("died at %d: kept %q", k, s.log.kept)
			}
			if !more {
				c.orderOfACut(s)
			}
		})
		if !more {
			break
		}
	}
	if died < 8 {
		t.Errorf("only %d deaths", died)
	}
}

func (c *cluster) orderOfACut(s *node) {
	c.t.Helper()
	want := []string{"rollback 5", "truncate 5", "save"}
	got := slices.DeleteFunc(slices.Clone(s.log.steps), func(x string) bool { return x == "flush" })
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		c.t.Errorf("steps %q, want %q", got, want)
	}
}

// TestCrashWhileOpening kills the master at every change that it makes of its disk until it is open.
func TestCrashWhileOpening(t *testing.T) {
	died := 0
	for k := 1; k < 100; k++ {
		more := true
		bubble(t, func(t *testing.T) {
			c := opened(t, 3)
			m := c.nodes[0]
			m.kill()
			isDead := m.dieAt(k)
			if err := m.launch(); err != nil && !errors.Is(err, errDead) || err == nil && !m.opensOrDies() {
				t.Fatalf("neither open nor dead: %v", err)
			}
			if more = isDead(); more {
				died++
				m.die(m.fs.CrashClone(memfs.OnlySynced))
				m.start()
			} else {
				m.survive()
			}
			c.until("open", m.isOpen)
			m.put("x|")
			c.same("base|x|")
		})
		if !more {
			break
		}
	}
	if died < 8 {
		t.Errorf("only %d deaths", died)
	}
}

func (n *node) opensOrDies() bool {
	for range 300 {
		if n.dead.Load() || n.isOpen() {
			return true
		}
		wait(100 * time.Millisecond)
	}
	return false
}

func TestRollbackFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := ahead(t, 2)
		s := c.nodes[1]
		s.cleanStop()
		s.o.RollbackKeep = 3
		s.cut.Store(false)
		s.start()
		wait(10 * time.Second)
		up := s.m.State().Upstream
		if up.State != role.LinkRefused || up.Reason != epoch.ReasonRollbackFull || !strings.Contains(up.Remedy, "ha.rollbackKeep") {
			t.Fatalf("link %+v", up)
		}
		if s.log.text() != "base|lost|" {
			t.Errorf("cut to %q without being kept", s.log.text())
		}
		s.cleanStop()
		s.o.AllowDataLoss = true
		s.start()
		c.same("base|other|")
	})
}

func TestAHalfRecordIsCutBeforeOpening(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		m := c.nodes[0]
		m.kill()
		m.log.append("half")
		m.start()
		c.until("open", m.isOpen)
		m.put("x|")
		c.same("base|x|")
	})
}

// TestFoldersOfRocketMQ: histories without epochs are compared by checksums, to the byte.
func TestFoldersOfRocketMQ(t *testing.T) {
	long := strings.Repeat("0123456789abcde|", 40_000) // 640,000 bytes
	for _, tc := range []struct {
		name, slave, kept string
		first             int64
	}{
		{"empty", "", "", 0},
		{"equal", long, "", 0},
		{"prefix", long[:500_003], "", 0},
		{"tail differs", long[:500_000] + "another end|", "500000-500012-1 another end|", 0},
		{"nothing equal", "something else|", "0-15-1 something else|", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 2)
				c.nodes[0].log = newLog(0, long)
				c.nodes[1].log = newLog(0, tc.slave)
				c.nodes[1].o.AllowDataLoss = tc.name == "nothing equal"
				for _, n := range c.nodes {
					n.start()
				}
				c.until("open", c.nodes[0].isOpen)
				c.nodes[0].put("new|")
				c.same(long + "new|")
				if got := strings.Join(c.nodes[1].log.kept, ";"); got != tc.kept {
					t.Errorf("kept %.80q, want %.80q", got, tc.kept)
				}
			})
		})
	}
}

// TestBadBytesInASharedEpoch: where the tail's checksum differs, the logs are compared though their epochs agree.
func TestBadBytesInASharedEpoch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		s := c.nodes[1]
		c.nodes[0].put("one|two|three|")
		c.same("base|one|two|three|")
		s.kill()
		s.log.change(func(b []byte) []byte { b[10] ^= 1; return b })
		s.start()
		c.same("base|one|two|three|")
		if len(s.log.kept) != 1 || !strings.HasPrefix(s.log.kept[0], "10-19-") {
			t.Errorf("kept %q", s.log.kept)
		}
	})
}

func TestASlaveBehindTheRetention(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		m, s := c.nodes[0], c.nodes[1]
		s.kill()
		wait(time.Second)
		m.put("more|")
		m.log.mu.Lock()
		m.log.first, m.log.data = 7, m.log.data[7:] // retention has removed the beginning
		m.log.mu.Unlock()
		s.start()
		c.same("re|")
		if s.log.FirstOffset() != 7 || len(s.log.kept) != 0 {
			t.Errorf("first %d kept %q: a prefix that the master had too is dropped", s.log.FirstOffset(), s.log.kept)
		}
	})
}

func TestAChainAndItsCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		last := c.nodes[2]
		last.cleanStop()
		last.o.MasterAddress = "1"
		last.start()
		c.nodes[0].put("x|")
		c.same("base|x|")
		if up := last.m.State().Upstream; up.Address != "1" || up.State != role.LinkInSync {
			t.Errorf("link %+v", up)
		}
		a := c.ask(c.nodes[2], epoch.FollowRequest{NodeID: 1, Downstream: []int64{1, 2}})
		if a.Action != epoch.ActionRefuse || a.Reason != epoch.ReasonCycle {
			t.Errorf("a cycle got %+v", a)
		}
	})
}

// ask sends one Follow to n and returns the first answer.
func (c *cluster) ask(n *node, r epoch.FollowRequest) (first epoch.FollowAnswer) {
	c.t.Helper()
	if r.Cluster == "" {
		r.Cluster, r.BrokerName = "c", "b"
	}
	r.MaxFrame = 1 << 10
	err := n.m.OnFollow(c.t.Context(), r, func(a epoch.FollowAnswer) error {
		first = a
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		c.t.Error(err)
	}
	return first
}

var errEnough = errors.New("one answer is enough")

func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		list := c.nodes[0].m.State().Lineage.Epochs
		newer := append(slices.Clone(list), epoch.Entry{Epoch: 9, Start: 5, ID: 9})
		twin := epoch.List{{Epoch: 1, Start: 0, ID: 4711}}
		for _, tc := range []struct {
			reason string
			at     int
			r      epoch.FollowRequest
		}{
			{epoch.ReasonWrongCluster, 0, epoch.FollowRequest{NodeID: 9, Cluster: "other", BrokerName: "b"}},
			{epoch.ReasonSameNode, 0, epoch.FollowRequest{NodeID: 0}},
			{epoch.ReasonSameNode, 0, epoch.FollowRequest{NodeID: 1, Address: "elsewhere", Epochs: list}},
			{epoch.ReasonCycle, 1, epoch.FollowRequest{NodeID: 0, Epochs: list, End: 5}},
			{epoch.ReasonBadRequest, 0, epoch.FollowRequest{NodeID: 9, End: -1}},
			{epoch.ReasonFileSize, 0, epoch.FollowRequest{NodeID: 9, FileSize: 12}},
			{epoch.ReasonEpochConflict, 0, epoch.FollowRequest{NodeID: 9, Epochs: twin, End: 5}},
			{epoch.ReasonAhead, 1, epoch.FollowRequest{NodeID: 9, Epochs: list, End: 50}},
			{epoch.ReasonStaleEpoch, 1, epoch.FollowRequest{NodeID: 9, Epochs: newer, End: 5}},
			{epoch.ReasonStaleEpoch, 0, epoch.FollowRequest{NodeID: 9, Epochs: list, End: 5, Promise: epoch.Promise{Epoch: 9, ID: 9}}},
		} {
			a := c.ask(c.nodes[tc.at], tc.r)
			if a.Action != epoch.ActionRefuse || a.Reason != tc.reason || a.Remedy == "" {
				t.Errorf("want %s, got %+v", tc.reason, a)
			}
		}
		// The last one told the master of a newer epoch.
		if c.nodes[0].isOpen() || lineageOf(t, c.nodes[0].fs.CrashClone(0)).Role != epoch.RoleSlave {
			t.Error("a master that was told of a newer epoch goes on")
		}
	})
}

func TestTooManySlaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		c.nodes[0].links.mu.Lock()
		c.nodes[0].links.full = true
		c.nodes[0].links.mu.Unlock()
		a := c.ask(c.nodes[0], epoch.FollowRequest{NodeID: 9, Epochs: c.nodes[0].m.State().Lineage.Epochs})
		if a.Action != epoch.ActionRefuse || a.Reason != epoch.ReasonTooManySlaves || a.Remedy == "" {
			t.Errorf("got %+v", a)
		}
	})
}

func TestAMasterThatIsNotOpenRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[0].start()
		wait(10 * time.Second)
		a := c.ask(c.nodes[0], epoch.FollowRequest{NodeID: 1})
		if a.Action != epoch.ActionRefuse || a.Reason != epoch.ReasonNotOpen || a.Remedy == "" {
			t.Errorf("got %+v", a)
		}
	})
}

func TestAMasterWithAnotherLogWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		m := c.nodes[0]
		c.nodes[0].put("tail|")
		c.same("base|tail|")
		m.kill()
		// Another reign on the slaves, which this master has not seen, but whose number it has promised.
		m.log.change(func([]byte) []byte { return []byte("base|mine|") })
		for _, s := range c.nodes[1:] {
			s.kill()
			s.log.change(func([]byte) []byte { return []byte("base|theirs|") })
			l := lineageOf(t, s.fs)
			l.Epochs = append(l.Epochs, epoch.Entry{Epoch: 2, Start: 5, ID: 22})
			l.Promise = epoch.Promise{Epoch: 2, ID: 22}
			s.write(l)
			s.start()
		}
		l := lineageOf(t, m.fs)
		l.Promise = epoch.Promise{Epoch: 2, ID: 22}
		m.write(l)
		m.start()
		wait(30 * time.Second)
		s := m.m.State()
		if s.Open || s.Reason != epoch.ReasonLogDiverges || !strings.Contains(s.Remedy, "promote node") {
			t.Errorf("state %+v", s)
		}
		if m.log.text() != "base|mine|" {
			t.Errorf("a starting master cut its log to %q", m.log.text())
		}
	})
}

func TestUncleanUntilCaughtUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		s := c.nodes[1]
		if _, err := s.log.FlushNow(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.nodes[0].put("x|")
		c.same("base|x|")
		s.power()
		s.cut.Store(true)
		s.start()
		wait(time.Second)
		if s.m.State().Lineage.Whole() {
			t.Fatal("whole after a power loss under async flush")
		}
		s.kill() // the process alone: must not hide the power loss
		s.start()
		if s.m.State().Lineage.Whole() {
			t.Fatal("a second crash hid the first")
		}
		s.cut.Store(false)
		c.same("base|x|")
		c.until("whole", func() bool { return s.m.State().Lineage.Whole() })
		if s.log.whole == 0 || s.log.Flushed().Load() != 7 {
			t.Errorf("MarkWhole %d times, flushed %d", s.log.whole, s.log.Flushed().Load())
		}
	})
}

func TestLegacyMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1)
		n := c.nodes[0]
		n.o.Role, n.o.Legacy, n.o.MasterAddress, n.o.Required = epoch.RoleSlave, true, "java:10912", 0
		n.start()
		wait(0)
		if len(n.args) != 1 || n.args[0].Token != nil || n.args[0].EmptyReport != 1 || n.args[0].Addr != "java:10912" {
			t.Fatalf("stream %+v", n.args)
		}
		n.log.append("java|")
		wait(0)
		if r := n.log.Readable().Load(); r != 5 {
			t.Errorf("Readable %d, want the own end", r)
		}
		if up := n.m.State().Upstream; up.State != role.LinkInSync || up.Connects != 1 {
			t.Errorf("link %+v", up)
		}
		n.cleanStop()
		n.log, n.o.LegacyFirst = newLog(0, ""), 4<<20
		n.start()
		wait(0)
		if n.log.End() != 4<<20 || n.args[1].EmptyReport != 0 {
			t.Errorf("begins at %d, stream %+v", n.log.End(), n.args[1])
		}
		n.cleanStop()
		l := lineageOf(t, n.fs)
		l.Epochs = epoch.List{{Epoch: 1, Start: 0, ID: 1}}
		n.write(l)
		n.start()
		wait(time.Second)
		if up := n.m.State().Upstream; up.Reason != slave.ErrLegacyEpochs.Reason {
			t.Errorf("a log with epochs follows RocketMQ: %+v", up)
		}
	})
}

func TestAppendsEndBeforeAStepDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		m := c.nodes[0]
		if err := m.m.Enter(); err != nil {
			t.Fatal(err)
		}
		answered := make(chan epoch.Heard, 1)
		go func() {
			h, err := m.m.OnPromise(context.Background(), epoch.PromiseRequest{
				Cluster: "c", BrokerName: "b", NodeID: 9, Reign: epoch.Promise{Epoch: 7, ID: 77},
			})
			if err != nil {
				t.Error(err)
			}
			answered <- h
		}()
		// A lock is nothing that the bubble's clock waits for: let the others run until the role is saved, and on.
		for lineageOf(t, m.fs.CrashClone(0)).Role.Master() {
			runtime.Gosched()
		}
		for range 10_000 {
			runtime.Gosched()
		}
		select {
		case h := <-answered:
			t.Fatalf("answered %+v while an append was on its way", h)
		default:
		}
		m.log.append("x|")
		m.m.Leave()
		if h := <-answered; h.End != 7 {
			t.Errorf("told the end %d, the append made it 7", h.End)
		}
	})
}

func TestTwoCandidates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			if n.o.Role = epoch.RoleSyncMaster; n.o.NodeID == 2 {
				n.o.Role = epoch.RoleSlave
			}
			n.start()
		}
		c.until("one is open, the other has become its slave", func() bool {
			a, b := c.nodes[0], c.nodes[1]
			return a.isOpen() && !b.m.State().Role.Master() || b.isOpen() && !a.m.State().Role.Master()
		})
	})
}

func TestBadOptions(t *testing.T) {
	for _, change := range []func(o *role.Options){
		func(o *role.Options) { o.Role = epoch.RoleUnset },
		func(o *role.Options) { o.Required = 9 },
		func(o *role.Options) { o.Peers = append(o.Peers, o.Address) },
		func(o *role.Options) { o.Legacy = true },
	} {
		n := newCluster(t, 3).nodes[0]
		n.o.FS = n.fs
		change(&n.o)
		_, err := role.Open(n.o, n.log, newLinks(n.log), n, n)
		if e := errdefs.As(err); e == nil || e.Field == "" {
			t.Errorf("%+v: %v", n.o, err)
		}
	}
}

func TestABrokenLineageIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		s := c.nodes[1]
		s.kill()
		damage(t, s.fs)
		if err := s.fs.Rename(lineageName, lineageName+".bak"); err != nil {
			t.Fatal(err)
		}
		s.o.FS = s.fs
		_, err := role.Open(s.o, s.log, newLinks(s.log), s, s)
		if !errors.Is(err, epoch.ErrBadLineage) || errdefs.As(err).Remedy == "" {
			t.Errorf("got %v", err)
		}
	})
}

func TestRangeChecksumLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 2)
		for _, r := range [][3]int64{{-1, 5, 4096}, {0, 6, 4096}, {4, 3, 4096}, {0, 5, 1}, {0, 5, 65 << 20}} {
			if _, _, err := c.nodes[0].m.OnRangeChecksum(t.Context(), r[0], r[1], r[2]); errdefs.ClassOf(err) == errdefs.Unknown {
				t.Errorf("%v: %v", r, err)
			}
		}
		sums, to, err := c.nodes[0].m.OnRangeChecksum(t.Context(), 0, 5, 4096)
		if err != nil || len(sums) != 1 || to != 5 {
			t.Errorf("%v %d %v", sums, to, err)
		}
	})
}

// write puts a lineage on the disk of a node that is down.
func (n *node) write(l epoch.Lineage) {
	n.c.t.Helper()
	if err := writeLineage(n.fs, l); err != nil {
		n.c.t.Fatal(fmt.Errorf("node %d: %w", n.o.NodeID, err))
	}
}
