package consensus

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// bench is one core with its disk, for scripts: every Ready is done at once.
type bench struct {
	t    *testing.T
	c    *Core
	cfg  Config
	disk memLog
	hard raft.HardState
	now  raft.Ticks

	out       []raft.Message // all that left, until taken
	committed raft.Index
	reads     []ReadState
	alarms    []Alarm
	last      Ready // the last one that was not empty
}

type memLog struct {
	base raft.Mark
	log  []raft.Entry
}

func (l *memLog) last() raft.Index { return l.base.Index + raft.Index(len(l.log)) }

func (l *memLog) Extent(first, last raft.Index, maxEntries int, maxBytes int64) (count int, bytes int64) {
	for i := first; i <= last && count < maxEntries; i++ {
		size := int64(l.log[i-l.base.Index-1].Size)
		if count > 0 && bytes+size > maxBytes {
			break
		}
		count++
		bytes += size
	}
	return count, bytes
}

func testConfig(id raft.NodeID, n int) Config {
	peers := []raft.NodeID{"a", "b", "c", "d", "e"}[:n]
	c := DefaultConfig(id, peers, rand.NewPCG(1, uint64(id[0])))
	c.ElectionMin, c.ElectionMax, c.Heartbeat, c.LeaseMargin, c.Retry, c.TransferTimeout = 100, 200, 20, 20, 50, 150
	return c
}

// runs makes a log whose entry i has the i-th term.
func runs(terms ...raft.Term) memLog {
	l := memLog{base: raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}}
	for i, t := range terms {
		l.log = append(l.log, raft.Entry{Index: raft.Index(i), Term: t, Size: 100})
	}
	return l
}

// repeat is n times the term.
func repeat(t raft.Term, n int) []raft.Term { return slices.Repeat([]raft.Term{t}, n) }

func newBench(t *testing.T, cfg Config, hard raft.HardState, log memLog, committed raft.Index) *bench {
	t.Helper()
	b := &bench{t: t, cfg: cfg, disk: log, hard: hard, committed: committed}
	b.start()
	return b
}

// start is a boot from what is saved.
func (b *bench) start() {
	b.t.Helper()
	s := Start{HardState: b.hard, Base: b.disk.base, Last: b.disk.last(), Committed: b.committed}
	for i, e := range b.disk.log {
		if i == 0 || b.disk.log[i-1].Term != e.Term {
			s.Runs = append(s.Runs, raft.Run{First: e.Index, Term: e.Term})
		}
	}
	c, err := New(b.cfg, s, &b.disk, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	b.c, b.out = c, nil
	b.work()
}

// work does Readies until nothing is left to do.
func (b *bench) work() {
	for {
		r := b.c.Ready()
		if b.c.Empty(&r) {
			b.c.Advance()
			return
		}
		b.save(r)
		for _, m := range slices.Concat(r.Messages, r.Promises) {
			if m.Type == raft.Append {
				from := m.Index - b.disk.base.Index
				m.Entries = slices.Clone(b.disk.log[from : from+raft.Index(m.Count)])
			}
			b.out = append(b.out, m)
		}
		b.committed = r.Committed
		b.reads = append(b.reads, r.Reads...)
		b.alarms = append(b.alarms, r.Alarms...)
		b.last = r
		b.c.Advance()
	}
}

func (b *bench) save(r Ready) {
	if r.HardState != nil {
		b.hard = *r.HardState
	}
	if r.Cut != nil {
		if r.Cut.Reset {
			b.disk = memLog{base: raft.Mark{Index: r.Cut.Last, Term: r.Cut.Term}}
		} else {
			b.disk.log = slices.Clone(b.disk.log[:r.Cut.Last-b.disk.base.Index])
		}
	}
	b.disk.log = append(b.disk.log, r.Entries...)
}

// step takes a message in and returns the reason, OK for none.
func (b *bench) step(m raft.Message) raft.Reason {
	b.t.Helper()
	if m.To == "" {
		m.To = b.cfg.ID
	}
	if m.Type == raft.Truncate && m.Nonce == 0 {
		m.Nonce = b.c.incarnation
	}
	r := b.c.Step(b.now, m)
	b.work()
	return r
}

// pass lets time pass, with a tick each 5.
func (b *bench) pass(d raft.Ticks) {
	for end := b.now + d; b.now < end; {
		b.now += min(5, end-b.now)
		b.c.Tick(b.now)
		b.work()
	}
}

// take returns what left since the last call, of the given types or all.
func (b *bench) take(types ...raft.MessageType) []raft.Message {
	var got []raft.Message
	for _, m := range b.out {
		if len(types) == 0 || slices.Contains(types, m.Type) {
			got = append(got, m)
		}
	}
	b.out = nil
	return got
}

func (b *bench) propose(n int) (raft.Mark, raft.Reason) {
	batch := make([]raft.Entry, n)
	for i := range batch {
		batch[i].Size = 100
	}
	m, r := b.c.Propose(b.now, batch)
	b.work()
	return m, r
}

// lead makes b the leader by the others' votes.
func (b *bench) lead() {
	b.t.Helper()
	for range 500 {
		if b.c.role == Leader {
			b.take()
			return
		}
		b.pass(5)
		for _, m := range b.take(raft.PreVote, raft.Vote) {
			b.step(raft.Message{Type: m.Type.Answer(), From: m.To, Term: m.Term})
		}
	}
	b.t.Fatal("no leader")
}

func (b *bench) want(what string, got, want any) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// cluster is a few benches and perfect links, but for those that are cut.
type cluster struct {
	t     *testing.T
	nodes map[raft.NodeID]*bench
	order []raft.NodeID
	cut   map[[2]raft.NodeID]bool
	drop  func(raft.Message) bool
}

func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t, nodes: map[raft.NodeID]*bench{}, cut: map[[2]raft.NodeID]bool{}}
	for _, id := range []raft.NodeID{"a", "b", "c", "d", "e"}[:n] {
		c.order = append(c.order, id)
		c.nodes[id] = newBench(t, testConfig(id, n), raft.Bootstrap(), runs(), raft.NoIndex)
	}
	return c
}

// deliver carries messages until none is under way.
func (c *cluster) deliver() {
	for range 10_000 {
		moved := false
		for _, id := range c.order {
			b := c.nodes[id]
			if b == nil {
				continue
			}
			for _, m := range b.take() {
				to := c.nodes[m.To]
				if to != nil && !c.cut[[2]raft.NodeID{id, m.To}] && (c.drop == nil || !c.drop(m)) {
					to.step(m)
					moved = true
				}
			}
		}
		if !moved {
			return
		}
	}
	c.t.Fatal("messages without end")
}

// pass lets time pass everywhere.
func (c *cluster) pass(d raft.Ticks) {
	for range d / 5 {
		for _, id := range c.order {
			if b := c.nodes[id]; b != nil {
				b.pass(5)
			}
		}
		c.deliver()
	}
}

func (c *cluster) leader() *bench {
	var best *bench
	for _, id := range c.order {
		if b := c.nodes[id]; b != nil && b.c.role == Leader && (best == nil || b.c.hard.Term > best.c.hard.Term) {
			best = b
		}
	}
	return best
}

func (c *cluster) elect(id raft.NodeID) *bench {
	c.t.Helper()
	b := c.nodes[id]
	b.c.heard, b.c.deadline = b.now-b.cfg.ElectionMax, b.now
	for _, o := range c.nodes {
		if o != nil {
			o.c.heard = o.now - o.cfg.ElectionMax
		}
	}
	c.pass(5)
	if b.c.role != Leader {
		c.t.Fatalf("%s does not lead", id)
	}
	c.pass(20)
	return b
}

func (c *cluster) isolate(id raft.NodeID, cut bool) {
	for _, o := range c.order {
		c.cut[[2]raft.NodeID{id, o}], c.cut[[2]raft.NodeID{o, id}] = cut, cut
	}
}

// same wants all running nodes to hold and to have committed the same.
func (c *cluster) same() {
	c.t.Helper()
	var first *bench
	for _, id := range c.order {
		b := c.nodes[id]
		switch {
		case b == nil:
		case first == nil:
			first = b
		case b.disk.last() != first.disk.last() || b.committed != first.committed || b.c.log.End() != first.c.log.End():
			c.t.Errorf("%s ends at %v, committed %d; %s at %v, committed %d", id, b.c.log.End(), b.committed, first.cfg.ID, first.c.log.End(), first.committed)
		}
	}
}
