package role_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role"
)

// cluster is storages in one bubble of time. Node i has the address "i".
type cluster struct {
	t     *testing.T
	nodes []*node
	ids   atomic.Uint64
}

// proc is what others reach of a running node.
type proc struct {
	m     *role.Manager
	ctx   context.Context //nolint:containedctx // ends with the process
	log   *memLog
	links *memLinks
}

type node struct {
	c     *cluster
	o     role.Options
	fs    *memfs.FS
	log   *memLog
	links *memLinks
	m     *role.Manager
	mu    sync.Mutex // guards args
	args  []role.StreamArgs
	boot  int
	clean bool
	cut   atomic.Bool // from everybody
	dead  atomic.Bool
	proc  atomic.Pointer[proc]
	stop  func() error
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }

// newCluster makes a sync master and slaves, n in all, and starts nobody.
func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t}
	for i := range n {
		x := &node{c: c, fs: memfs.New(), log: newLog(0, ""), clean: true, stop: func() error { return nil }}
		x.o = role.Options{
			Root: "root", Cluster: "c", BrokerName: "b", NodeID: int64(i), Address: strconv.Itoa(i), HAAddress: strconv.Itoa(i),
			Role: epoch.RoleSlave, Required: min(1, n-1), RollbackKeep: 1 << 20,
		}
		if i == 0 {
			x.o.Role = epoch.RoleSyncMaster
		}
		for j := range n {
			if j != i {
				x.o.Peers = append(x.o.Peers, strconv.Itoa(j))
			}
		}
		c.nodes = append(c.nodes, x)
	}
	t.Cleanup(c.stopAll)
	return c
}

func (c *cluster) stopAll() {
	for _, n := range c.nodes {
		if err := n.stop(); err != nil && !n.dead.Load() {
			c.t.Errorf("node %d: %v", n.o.NodeID, err)
		}
	}
}

func (c *cluster) at(addr string) *node {
	i, err := strconv.Atoi(addr)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.nodes[i]
}

var errUnreachable = errors.New("connection refused")

func (n *node) call(addr string) (*proc, error) {
	u := n.c.at(addr)
	p := u.proc.Load()
	if p == nil || p.ctx.Err() != nil || u.dead.Load() || u.cut.Load() || n.cut.Load() {
		return nil, errUnreachable
	}
	return p, nil
}

// start runs the node on what its disk has.
func (n *node) start() {
	n.c.t.Helper()
	if err := n.launch(); err != nil {
		n.c.t.Fatal(err)
	}
}

func (n *node) launch() error {
	n.dead.Store(false)
	n.stop = func() error { return nil }
	n.links = newLinks(n.log)
	n.o.FS, n.o.BootID = n.fs, strconv.Itoa(n.boot)
	n.o.Recovery.Clean = n.clean
	n.o.NewID = func() epoch.ID { return epoch.ID(n.c.ids.Add(1)) }
	n.o.Log = slog.New(slog.NewTextHandler(logWriter{n.c.t}, nil)).With("node", n.o.NodeID)
	m, err := role.Open(n.o, n.log, n.links, n, n)
	if err != nil {
		return err
	}
	n.m = m
	ctx, cancel := context.WithCancel(context.Background())
	n.proc.Store(&proc{m: m, ctx: ctx, log: n.log, links: n.links})
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stopped := false
	n.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	return nil
}

// cleanStop, kill and power end the process; power loses what was not flushed.
func (n *node) cleanStop() {
	if err := n.stop(); err != nil {
		n.c.t.Fatal(err)
	}
	if _, err := n.log.FlushNow(context.Background()); err != nil {
		n.c.t.Fatal(err)
	}
	n.clean = true
}

func (n *node) kill() {
	fs := n.fs.CrashClone(memfs.OnlySynced)
	n.die(fs)
}

func (n *node) die(fs *memfs.FS) {
	n.dead.Store(true)
	_ = n.stop() // what a dead process would still write is lost with its old disk
	n.fs, n.clean = fs, false
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	n.log.step = nil
}

func (n *node) power() {
	n.kill()
	n.boot++
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	f := n.log.flushed.Load()
	n.log.data = n.log.data[:f-n.log.first]
	n.log.marks(f, f, min(f, n.log.readable.Load()))
}

// put appends as store does.
func (n *node) put(text string) {
	n.c.t.Helper()
	if err := n.m.Enter(); err != nil {
		n.c.t.Fatal(err)
	}
	defer n.m.Leave()
	n.log.append(text)
}

// wait lets d pass and everything settle.
func wait(d time.Duration) {
	<-time.After(d) // of the bubble
	synctest.Wait()
}

// until waits at most a minute of the bubble for ok.
func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	for range 600 {
		if synctest.Wait(); ok() {
			return
		}
		wait(100 * time.Millisecond)
	}
	for _, n := range c.nodes {
		if n.m != nil {
			c.t.Logf("node %d: %+v log %q", n.o.NodeID, n.m.State(), n.log.text())
		}
	}
	c.t.Fatalf("not within a minute: %s", what)
}

func (n *node) isOpen() bool { return n.m.CheckOpen() == nil }

// same waits until all nodes have the master's bytes and Readable, and hold the same list.
func (c *cluster) same(text string) {
	c.t.Helper()
	c.until("all logs are "+text, func() bool {
		want := c.nodes[0].m.State().Lineage.Epochs
		for _, n := range c.nodes {
			l := n.m.State().Lineage
			if n.log.text() != text || n.log.Readable().Load() != n.log.End() || len(l.Epochs) != len(want) || l.Epochs.Last() != want.Last() {
				return false
			}
		}
		return true
	})
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
