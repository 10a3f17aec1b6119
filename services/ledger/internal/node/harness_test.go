package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

const root = "/node"

// member is one node with its disk, its log and its links.
type member struct {
	id   raft.NodeID
	c    *cluster
	fsys *memfs.FS
	log  *entrylog.Log
	node *node.Node
	stop context.CancelFunc
	done chan error // what Run returned
}

// cluster is a group in one bubble of fake time.
type cluster struct {
	t     *testing.T
	async bool
	tune  func(*node.Options)
	ids   []raft.NodeID
	lives uint64
	boot  string // of the machine

	mu    sync.Mutex
	nodes map[raft.NodeID]*member // that run
	cut   map[raft.NodeID]bool
	links map[[2]raft.NodeID]bool  // from, to: cut in this direction only
	drop  func(*raft.Message) bool // nil: none
}

func newCluster(t *testing.T, n int, tune func(*node.Options)) *cluster {
	t.Helper()
	c := &cluster{t: t, tune: tune, nodes: map[raft.NodeID]*member{}, cut: map[raft.NodeID]bool{}, links: map[[2]raft.NodeID]bool{}, boot: "b"}
	for i := range n {
		c.ids = append(c.ids, raft.NodeID(fmt.Sprintf("n%d", i)))
	}
	for _, id := range c.ids {
		c.start(id, memfs.New(), true)
	}
	return c
}

// start runs a node on a disk.
func (c *cluster) start(id raft.NodeID, fsys *memfs.FS, bootstrap bool) *member {
	c.t.Helper()
	log, r, err := entrylog.Open(fsys, root, entrylog.Options{DataFileSize: 64 << 10, IndexFileSize: 32 << 10, BootID: c.boot, Async: c.async})
	if err != nil {
		c.t.Fatal(err)
	}
	if bootstrap {
		if err := log.Bootstrap(); err != nil {
			c.t.Fatal(err)
		}
		r.HardState = raft.Bootstrap()
	}
	c.lives++
	o := node.Options{Core: consensus.DefaultConfig(id, c.ids, rand.NewPCG(c.lives, 7)), Async: c.async}
	if c.tune != nil {
		c.tune(&o)
	}
	m := &member{id: id, c: c, fsys: fsys, log: log, done: make(chan error, 1)}
	m.node, err = node.New(o, r.Start, log, m)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.nodes[id] = m
	c.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() { m.done <- m.node.Run(ctx) }()
	return m
}

// Send is the transport: it reads entries from the log and hands messages to the others' inboxes.
func (m *member) Send(messages []raft.Message) {
	for _, msg := range messages {
		m.honest(&msg)
		if msg.Type == raft.Append && !m.fill(&msg) {
			continue
		}
		m.c.mu.Lock()
		to := m.c.nodes[msg.To]
		if m.c.cut[m.id] || m.c.cut[msg.To] || m.c.links[[2]raft.NodeID{m.id, msg.To}] || m.c.nodes[m.id] != m ||
			m.c.drop != nil && m.c.drop(&msg) {
			to = nil
		}
		m.c.mu.Unlock()
		if to != nil {
			to.node.Deliver(msg)
		}
	}
}

// honest checks that what a message promises is on the disk.
func (m *member) honest(msg *raft.Message) {
	switch {
	case msg.Refused != raft.OK || m.c.async:
	case msg.Type == raft.AppendAnswer && msg.Index > m.log.Synced():
		m.c.t.Errorf("%s acknowledges %d, durable is %d", m.id, msg.Index, m.log.Synced())
	case msg.Type == raft.VoteAnswer || msg.Type == raft.Vote:
		candidate := msg.To
		if msg.Type == raft.Vote {
			candidate = m.id
		}
		// A later term keeps the promise as well: one turn may ask for votes and then hear of it, and the node never votes in the old one again.
		h, _, err := meta.ReadHard(m.fsys.CrashClone(memfs.OnlySynced), root)
		if err != nil || h.Term < msg.Term || h.Term == msg.Term && h.Vote != candidate {
			m.c.t.Errorf("%s votes for %s in term %d, on the disk is %+v, %v", m.id, candidate, msg.Term, h, err)
		}
	}
}

// pass lets (fake) time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // fake time

func (m *member) fill(msg *raft.Message) bool {
	for len(msg.Entries) < msg.Count {
		b, _, release, err := m.log.View(msg.Index+1+raft.Index(len(msg.Entries)), msg.Count-len(msg.Entries), 1<<20)
		if err != nil {
			return false
		}
		msg.Entries, err = entry.Split(msg.Entries, bytes.Clone(b))
		release()
		if err != nil {
			m.c.t.Error(err)
			return false
		}
	}
	return true
}

// end stops a node and returns what Run returned.
func (m *member) end() error {
	m.stop()
	err := <-m.done
	m.c.mu.Lock()
	if m.c.nodes[m.id] == m {
		delete(m.c.nodes, m.id)
	}
	m.c.mu.Unlock()
	return err
}

// crash ends a node as a power cut does and returns what is left of its disk.
func (m *member) crash() *memfs.FS {
	left := m.fsys.CrashClone(memfs.OnlySynced)
	_ = m.end()
	_ = m.log.Close()
	return left
}

func (c *cluster) isolate(id raft.NodeID, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[id] = on
}

// cutLinks cuts what id sends to the others, what they send to it, or heals both.
func (c *cluster) cutLinks(id raft.NodeID, out, in bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.ids {
		c.links[[2]raft.NodeID{id, o}], c.links[[2]raft.NodeID{o, id}] = out, in
	}
}

// lose has the links drop the messages that drop wants; nil: none.
func (c *cluster) lose(drop func(*raft.Message) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop = drop
}

func (c *cluster) all() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*member
	for _, id := range c.ids {
		if m := c.nodes[id]; m != nil {
			out = append(out, m)
		}
	}
	return out
}

// leader waits for the one who leads the highest term and is not cut off.
func (c *cluster) leader() *member {
	c.t.Helper()
	for range 1000 {
		var best *member
		for _, m := range c.all() {
			c.mu.Lock()
			cut := c.cut[m.id]
			c.mu.Unlock()
			if s := m.node.Soft(); !cut && s.Role == consensus.Leader && (best == nil || s.Term > best.node.Soft().Term) {
				best = m
			}
		}
		if best != nil {
			return best
		}
		pass(20 * time.Millisecond)
	}
	c.t.Fatal("no leader")
	return nil
}

// follower is one who does not lead.
func (c *cluster) follower() *member {
	leader := c.leader()
	for _, m := range c.all() {
		if m != leader {
			return m
		}
	}
	return nil
}

func batchOf(bodies ...string) []raft.Entry {
	var batch []raft.Entry
	for _, b := range bodies {
		p := entry.New(0, []byte(b))
		batch = append(batch, raft.Entry{Size: len(p), Payload: p})
	}
	return batch
}

// put appends and waits for the commit.
func (m *member) put(ctx context.Context, bodies ...string) (raft.Index, error) {
	p, err := m.node.Propose(ctx, batchOf(bodies...))
	if err != nil {
		return raft.NoIndex, err
	}
	return p.First.Index, p.Wait(ctx)
}

func (c *cluster) put(bodies ...string) raft.Index {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	i, err := c.leader().put(ctx, bodies...)
	if err != nil {
		c.t.Fatal(err)
	}
	return i
}

// bodies reads the clients' entries of a log up to last.
func (m *member) bodies(last raft.Index) []string {
	var out []string
	for i := m.log.First(); i <= last; i++ {
		b, _, release, err := m.log.View(i, 1, 1)
		if err != nil {
			m.c.t.Fatal(err)
		}
		if h, err := entry.Read(b); err != nil {
			m.c.t.Fatal(err)
		} else if h.Kind() == raft.Normal {
			out = append(out, string(h.Body(b)))
		}
		release()
	}
	return out
}

// settle waits until every node that runs has committed i.
func (c *cluster) settle(i raft.Index) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, m := range c.all() {
		if err := m.node.Committed().Wait(ctx, int64(i)); err != nil {
			c.t.Fatalf("%s stands at %d, not %d: %v", m.id, m.node.Committed().Load(), i, err)
		}
	}
}

// bubble runs a test in fake time and stops what is left.
func bubble(t *testing.T, n int, tune func(*node.Options), test func(*testing.T, *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, n, tune)
		defer func() {
			for _, m := range c.all() {
				if err := m.end(); err != nil {
					t.Errorf("%s: %v", m.id, err)
				}
				if err := m.log.Close(); err != nil {
					t.Errorf("%s: %v", m.id, err)
				}
			}
		}()
		test(t, c)
	})
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}
