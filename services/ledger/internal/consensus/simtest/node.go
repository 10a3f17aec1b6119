package simtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// maxInbox bounds what waits for a node; more is lost, as in the real transport.
const maxInbox = 512

// disk is what a node has written; a second one holds what a power failure leaves.
type disk struct {
	hard      raft.HardState
	base      raft.Mark
	log       []raft.Entry // never changed in place: a cut copies
	committed raft.Index
}

func (d *disk) last() raft.Index { return d.base.Index + raft.Index(len(d.log)) }

func (d *disk) entry(i raft.Index) *raft.Entry {
	if i <= d.base.Index || i > d.last() {
		return nil
	}
	return &d.log[i-d.base.Index-1]
}

func (d *disk) end() raft.Mark {
	if len(d.log) == 0 {
		return d.base
	}
	e := d.log[len(d.log)-1]
	return raft.Mark{Index: e.Index, Term: e.Term}
}

// holds says that the disk has the entry, or has had it and purged it.
func (d *disk) holds(m raft.Mark) bool {
	e := d.entry(m.Index)
	return m.Index <= d.base.Index || e != nil && e.Term == m.Term
}

func (d *disk) start() consensus.Start {
	s := consensus.Start{HardState: d.hard, Base: d.base, Last: d.last(), Committed: min(d.committed, d.last())}
	for i, e := range d.log {
		if i == 0 || d.log[i-1].Term != e.Term {
			s.Runs = append(s.Runs, raft.Run{First: e.Index, Term: e.Term})
		}
	}
	return s
}

// Extent makes disk a push.Log.
func (d *disk) Extent(first, last raft.Index, maxEntries int, maxBytes int64) (count int, bytes int64) {
	for i := first; i <= last && count < maxEntries; i++ {
		size := int64(d.entry(i).Size)
		if count > 0 && bytes+size > maxBytes {
			break
		}
		count++
		bytes += size
	}
	return count, bytes
}

// node drives one core in the order of its contract.
type node struct {
	w     *world
	id    raft.NodeID
	index int
	core  *consensus.Core
	up    bool
	life  int // ends at a crash: events of an earlier one are void

	disk, saved disk
	ready       consensus.Ready
	busy        bool // a Ready is being done
	paused      bool
	inbox       []raft.Message
	tickDue     bool

	clockBase, clockAt int64
	rate               float64

	slowUntil int64
	diskFails bool
	soft      consensus.SoftState
}

func newNode(w *world, i int) *node {
	n := &node{w: w, index: i, id: raft.NodeID(fmt.Sprintf("n%d", i)), rate: 1, clockBase: w.rng.Int64N(1 << 30)}
	n.saved = disk{hard: raft.Bootstrap(), base: raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}, committed: raft.NoIndex}
	n.skew()
	return n
}

func (n *node) skew() {
	n.clockBase, n.clockAt = n.clock(), n.w.now
	n.rate = 0.96 + 0.08*n.w.rng.Float64()
}

func (n *node) clock() int64 { return n.clockBase + int64(float64(n.w.now-n.clockAt)*n.rate) }

func (n *node) ticks() raft.Ticks { return raft.Ticks(n.clock()) }

func (n *node) config() consensus.Config {
	c := consensus.Config{
		ID: n.id, Random: rand.NewPCG(n.w.rng.Uint64(), uint64(n.index)),
		ElectionMin: electMin, ElectionMax: electMax, Heartbeat: 20, LeaseMargin: 15, TransferTimeout: 150, PriorityInterval: 500,
		MaxTransferLag: 16,
		Limits: push.Limits{
			Retry: 60, MaxBatchEntries: 4, MaxBatchBytes: 500, MaxInflightEntries: 12, MaxInflightBytes: 1500, MaxInflightBatches: 4,
		},
		MaxUncommitted: 64, MaxPendingBytes: 4000, MaxEntryBytes: 400, MaxPendingReads: 8, NoOpBytes: 48,
	}
	for i := range n.w.opts.Nodes {
		c.Peers = append(c.Peers, raft.NodeID(fmt.Sprintf("n%d", i)))
	}
	if n.w.uneven && n.index%2 == 1 {
		c.ElectionMin, c.ElectionMax, c.LeaseMargin = c.ElectionMin+electMin, c.ElectionMax+electMin, 2*c.LeaseMargin
	}
	if n.w.prefer {
		c.Priority = map[raft.NodeID]int{"n0": 2, "n1": 1}
	}
	return c
}

// start boots a node from what its disk kept.
func (n *node) start() {
	if n.up || n.w.failed != "" {
		return
	}
	n.disk = n.saved
	n.life++
	core, err := n.w.opts.New(n.config(), n.disk.start(), &n.disk, n.ticks())
	if err != nil {
		n.w.fail("%s cannot start: %v", n.id, err)
		return
	}
	n.core, n.up, n.busy, n.paused, n.tickDue, n.inbox, n.soft = core, true, false, false, false, nil, consensus.SoftState{}
	n.w.note("%s starts: %+v end %v", n.id, n.disk.hard, n.disk.end())
	n.w.check.started(n)
	n.pump()
}

func (n *node) scheduleTick() {
	n.w.after(1+n.w.rng.Int64N(2*tickEvery-1), func() {
		n.tickDue = true
		n.pump()
		n.scheduleTick()
	})
}

func (n *node) receive(m raft.Message) {
	if n.up && len(n.inbox) < maxInbox {
		n.inbox = append(n.inbox, m)
		n.pump()
	}
}

func (n *node) idle() bool { return n.up && !n.paused && !n.busy && n.w.failed == "" }

// pump takes all inputs in and does what comes out, until nothing does or a sync must be waited for.
func (n *node) pump() {
	for n.idle() {
		inbox := n.inbox
		n.inbox = nil
		for _, m := range inbox {
			if n.w.opts.Trace {
				n.w.note("%s <- %s", n.id, show(m))
			}
			if why := n.core.Step(n.ticks(), m); why != raft.OK {
				n.w.note("%s refuses %v from %s: %v", n.id, m.Type, m.From, why)
				n.w.stats.Refused++
			}
		}
		if n.tickDue {
			n.tickDue = false
			n.core.Tick(n.ticks())
		}
		r := n.core.Ready()
		if n.core.Empty(&r) {
			n.core.Advance()
			return
		}
		n.do(r)
	}
}

// do writes, sends what may go at once and syncs, at once or later.
func (n *node) do(r consensus.Ready) {
	n.ready, n.busy = r, true
	n.write(r)
	for _, m := range r.Messages {
		n.send(m)
	}
	delay := int64(0)
	switch {
	case n.w.now < n.slowUntil:
		delay = n.w.rng.Int64N(electMax)
	case n.w.rng.IntN(4) == 0:
		delay = 1 + n.w.rng.Int64N(3)
	}
	if delay == 0 {
		n.synced()
		return
	}
	life := n.life
	n.w.after(delay, func() {
		if n.life == life && n.up {
			n.synced()
			n.pump()
		}
	})
}

func (n *node) write(r consensus.Ready) {
	d := &n.disk
	if r.HardState != nil {
		d.hard = *r.HardState
	}
	if r.Cut != nil {
		n.w.check.cut(n, r.Cut)
		if r.Cut.Reset {
			n.w.stats.Resets++
			d.base, d.log = raft.Mark{Index: r.Cut.Last, Term: r.Cut.Term}, nil
		} else {
			n.w.stats.Cuts++
			keep := r.Cut.Last - d.base.Index
			if keep < 0 || keep > raft.Index(len(d.log)) {
				n.w.fail("%s: cut to %d outside of its log %v..%v", n.id, r.Cut.Last, d.base, d.end())
				return
			}
			d.log = d.log[:keep:keep]
		}
	}
	for _, e := range r.Entries {
		n.w.check.entry(n, d.end(), e)
		d.log = append(d.log, e)
	}
}

// send fills in the entries as the real driver does: from the log, now.
func (n *node) send(m raft.Message) {
	if m.Type == raft.Append {
		m.Entries = make([]raft.Entry, 0, m.Count)
		for i := m.Index + 1; i <= m.Index+raft.Index(m.Count); i++ {
			e := n.disk.entry(i)
			if e == nil {
				n.w.fail("%s: APPEND of entry %d that is not in the log", n.id, i)
				return
			}
			m.Entries = append(m.Entries, *e)
		}
	}
	if n.w.opts.Trace {
		n.w.note("%s -> %s", n.id, show(m))
	}
	n.w.net.send(n, m)
}

// synced ends a Ready: all of it is durable, so promises leave and the commit index is published.
func (n *node) synced() {
	if n.diskFails {
		n.diskFails = false
		n.w.stats.DiskErrors++
		n.w.note("%s: sync fails", n.id)
		n.crash(n.w.rng.IntN(4))
		return
	}
	r := n.ready
	n.saved = n.disk
	for _, m := range r.Promises {
		n.w.check.promise(n, m)
		n.send(m)
	}
	n.w.check.publish(n, r)
	if r.Soft != nil {
		n.w.note("%s is %+v", n.id, *r.Soft)
		n.w.check.soft(n, *r.Soft)
		n.soft = *r.Soft
	}
	n.disk.committed = r.Committed
	n.core.Advance()
	n.busy = false
}

// crash takes power away. Of what was not synced nothing, everything, the hard state or a part of the entries is left.
func (n *node) crash(mode int) {
	if !n.up {
		return
	}
	n.account()
	n.w.stats.Crashes++
	if n.busy {
		switch mode {
		case 1:
			n.saved = n.disk
		case 2:
			n.saved.hard = n.disk.hard
		case 3:
			hard := n.saved.hard
			n.saved = n.disk
			n.saved.hard = hard
			keep := n.w.rng.IntN(len(n.saved.log) + 1)
			if first := len(n.saved.log) - len(n.ready.Entries); keep < first {
				keep = first
			}
			n.saved.log = n.saved.log[:keep:keep]
			n.saved.hard.Term = max(hard.Term, n.saved.end().Term) // a log is never opened below its terms
			if n.saved.hard.Term != hard.Term {
				n.saved.hard.Vote = ""
			}
		default:
		}
	}
	n.saved.committed = min(n.saved.committed, n.saved.last())
	n.saved.log = n.saved.log[:len(n.saved.log):len(n.saved.log)]
	n.up, n.inbox = false, nil
	n.life++
	n.w.note("%s crashes: left %+v end %v", n.id, n.saved.hard, n.saved.end())
	n.w.check.crashed(n)
}

// wipe loses the disk.
func (n *node) wipe() {
	n.crash(0)
	n.w.stats.Wipes++
	n.w.note("%s is wiped", n.id)
	n.saved = disk{base: raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}, committed: raft.NoIndex}
	n.w.check.wiped(n)
}

func (n *node) resume() {
	if n.paused {
		n.paused = false
		n.pump()
	}
}

func (n *node) propose(count int) {
	if !n.idle() {
		return
	}
	batch := make([]raft.Entry, count)
	for i := range batch {
		n.w.nextID++
		batch[i] = raft.Entry{Size: 50 + n.w.rng.IntN(200), Payload: binary.BigEndian.AppendUint64(nil, n.w.nextID)}
	}
	if at, why := n.core.Propose(n.ticks(), batch); why == raft.OK {
		n.w.note("%s takes %d entries from %v", n.id, count, at)
	}
	n.pump()
}

func (n *node) read() {
	if !n.idle() {
		return
	}
	n.w.nextID++
	if n.core.Read(n.ticks(), n.w.nextID) == raft.OK {
		n.w.check.readBegins(n, n.w.nextID)
	}
	n.pump()
}

// purge drops a committed prefix.
func (n *node) purge() {
	if !n.idle() {
		return
	}
	to := n.core.Status().Committed - raft.Index(n.w.rng.IntN(8))
	if to <= n.disk.base.Index || to > n.disk.last() {
		return
	}
	base, why := n.core.Purge(n.ticks(), to)
	if why != raft.OK {
		n.w.fail("%s: purge to %d: %v", n.id, to, why)
		return
	}
	n.w.note("%s purges to %v", n.id, base)
	n.disk.log = append([]raft.Entry(nil), n.disk.log[base.Index-n.disk.base.Index:]...)
	n.disk.base = base
	n.saved = n.disk
	n.pump()
}

func (n *node) account() {
	if n.up {
		n.w.stats.Repeated += int(n.core.Status().Counters.Repeated)
	}
}

func show(m raft.Message) string {
	s := fmt.Sprintf("%v %s>%s t%d", m.Type, m.From, m.To, m.Term)
	s += fmt.Sprintf(" at %d/%d end %d commit %d", m.Index, m.LogTerm, m.End, m.Commit)
	if m.Type == raft.Append {
		s += fmt.Sprintf(" +%d", len(m.Entries))
	}
	if m.Seq+m.Round > 0 {
		s += fmt.Sprintf(" seq %d round %d sent %d", m.Seq, m.Round, m.Sent)
	}
	if m.Refused != raft.OK {
		s += fmt.Sprintf(" refused (%v)", m.Refused)
	}
	for flag, set := range map[string]bool{" force": m.Force, " reset": m.Reset, " leads": m.Leads, " learner": m.Learner} {
		if set {
			s += flag
		}
	}
	return s
}
