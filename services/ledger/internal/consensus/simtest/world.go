package simtest

import (
	"container/heap"
	"fmt"
	"math/rand/v2"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Options name a run.
type Options struct {
	Seed  uint64
	Nodes int   // 3 or 5
	Keep  []int // numbers of the plan's actions to do; nil: all
	Trace bool
	// New makes a node's core: consensus.New unless a test plants a fault.
	New func(consensus.Config, consensus.Start, push.Log, raft.Ticks) (*consensus.Core, error)
}

// Stats says what a run exercised.
type Stats struct {
	Steps, Leaders, Commits, Reads, Crashes, Wipes, Rejoins, Cuts, Resets, Transfers, DiskErrors, Repeated, Refused int
}

// Add sums up.
func (s *Stats) Add(o Stats) {
	for _, p := range [][2]*int{
		{&s.Steps, &o.Steps},
		{&s.Leaders, &o.Leaders},
		{&s.Commits, &o.Commits},
		{&s.Reads, &o.Reads},
		{&s.Crashes, &o.Crashes},
		{&s.Wipes, &o.Wipes},
		{&s.Rejoins, &o.Rejoins},
		{&s.Cuts, &o.Cuts},
		{&s.Resets, &o.Resets},
		{&s.Transfers, &o.Transfers},
		{&s.DiskErrors, &o.DiskErrors},
		{&s.Repeated, &o.Repeated},
		{&s.Refused, &o.Refused},
	} {
		*p[0] += *p[1]
	}
}

// Times of a run, in ticks of a perfect clock.
const (
	faultyTime = 4000
	healTime   = 4000
	electMin   = 100
	electMax   = 200
	tickEvery  = 7
)

type event struct {
	at  int64
	seq int
	do  func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) } //nolint:errcheck // only events are pushed
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*a = old[:len(old)-1]
	return e
}

type world struct {
	opts   Options
	rng    *rand.Rand
	now    int64
	seq    int
	agenda agenda
	nodes  []*node
	net    network
	check  check
	stats  Stats
	trace  []string
	failed string
	calm   bool  // faults are over
	quiet  int64 // until then nobody writes
	nextID uint64
	prefer bool // priorities are set
	uneven bool // every other node waits longer before it stands for election, and promises so
}

// Run plays one seed. The result is nil when nothing was found.
func Run(o Options) (*Failure, Stats) {
	if o.New == nil {
		o.New = consensus.New
	}
	w := &world{opts: o, rng: rand.New(rand.NewPCG(o.Seed, uint64(o.Nodes)))}
	plan := newPlan(w.rng, o.Nodes)
	w.prefer = w.rng.IntN(4) == 0
	w.uneven = w.rng.IntN(4) == 0
	w.check.init(w)
	w.net.init(w)
	for i := range o.Nodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	for _, n := range w.nodes {
		n.start()
		n.scheduleTick()
	}
	for i, a := range plan {
		if o.Keep == nil || contains(o.Keep, i) {
			w.at(a.at, func() { w.perform(i, a) })
		}
	}
	w.client()
	w.playUntil(faultyTime, func() bool { return false })
	if w.failed == "" {
		w.heal()
		w.playUntil(faultyTime+healTime, w.agreed)
		if w.failed == "" && !w.agreed() {
			w.fail("the group does not agree %d ticks after all faults ended:%s", healTime, w.describe())
		}
	}
	for _, n := range w.nodes {
		n.account()
	}
	if w.failed == "" {
		return nil, w.stats
	}
	return &Failure{opts: o, Reason: w.failed, Step: w.stats.Steps, Time: w.now, plan: plan, trace: w.trace}, w.stats
}

func (w *world) playUntil(end int64, done func() bool) {
	for w.failed == "" && len(w.agenda) > 0 && w.agenda[0].at <= end {
		e := heap.Pop(&w.agenda).(event) //nolint:errcheck // only events are pushed
		w.now = e.at
		w.stats.Steps++
		e.do()
		if w.stats.Steps%64 == 0 && done() {
			return
		}
	}
}

func (w *world) at(t int64, do func()) {
	w.seq++
	heap.Push(&w.agenda, event{at: max(t, w.now), seq: w.seq, do: do})
}

func (w *world) after(d int64, do func()) { w.at(w.now+d, do) }

func (w *world) fail(format string, args ...any) {
	if w.failed == "" {
		w.failed = fmt.Sprintf(format, args...)
	}
}

func (w *world) note(format string, args ...any) {
	if w.opts.Trace {
		w.trace = append(w.trace, fmt.Sprintf("%6d ", w.now)+fmt.Sprintf(format, args...))
	}
}

// client writes and reads now and then, anywhere.
func (w *world) client() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if l := w.leader(); l != nil && w.rng.IntN(2) == 0 {
		n = l
	}
	if n.up {
		if w.rng.IntN(3) > 0 && w.now >= w.quiet {
			n.propose(1 + w.rng.IntN(5))
		} else {
			n.read()
		}
	}
	w.after(1+w.rng.Int64N(16), w.client)
}

// leader returns the running leader of the highest term.
func (w *world) leader() *node {
	var best *node
	for _, n := range w.nodes {
		if n.up && n.soft.Role == consensus.Leader && (best == nil || n.soft.Term > best.soft.Term) {
			best = n
		}
	}
	return best
}

// heal ends all faults.
func (w *world) heal() {
	w.note("all faults end")
	w.calm = true
	w.net.heal()
	for _, n := range w.nodes {
		n.diskFails, n.slowUntil = false, 0
		n.resume()
		n.start()
	}
}

// agreed says that all nodes vote, hold the same and have committed it, some of it in the calm.
func (w *world) agreed() bool {
	l := w.leader()
	if !w.calm || l == nil || w.now < faultyTime+healTime/8 {
		return false
	}
	s := l.core.Status()
	for _, n := range w.nodes {
		t := n.core.Status()
		if !n.up || !t.Voter || t.Leader != l.id || t.Term != s.Term || t.Committed < s.Committed-64 || t.Committed < w.check.published(l) {
			return false
		}
	}
	return s.Committed > 0 && w.check.top().Term == s.Term
}

func (w *world) describe() string {
	out := ""
	for _, n := range w.nodes {
		out += fmt.Sprintf("\n    %s up=%v busy=%v %+v saved end %v", n.id, n.up, n.busy, n.core.Status(), n.saved.end())
	}
	return out
}

func contains(list []int, x int) bool {
	for _, v := range list {
		if v == x {
			return true
		}
	}
	return false
}
