package epoch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
)

// The simulation walks the deciding functions of this package, as they run, through what can happen to three to five
// storages: puts with acks of their own, deliveries, acks, flushes, killed processes, power losses, wiped disks, cut networks,
// clean stops, promotions, half a promise round, half a copy, cuts of the log that stop half-way, old files removed and the
// RESET that follows, chains, and a settling at the end. A record is one byte of the log. What slaves have confirmed is counted by
// the tracker of package acks, as it runs. What the runner (package role), the log and the streams do around a decision is told here
// in one line each.
//
// P1 a common prefix by the epochs is the same bytes; P2 a record that was PUT_OK with n acks survives while at most n copies
// of it are lost (with fewer than `required` acks: unless a reign was opened that had heard of no copy); P3 no reader sees a
// record that vanishes (with refuse; without it: a PUT_OK one); P4 nothing is cut without being kept; P5 it settles without an
// operator's step that no reason names; P6 Readable goes back only at a restart or a cut. What retention has removed anywhere
// may vanish; P2 and P3 do not bind who has forced a promotion.

const (
	simMost    = 5 // nodes
	simRecords = 14
	simFile    = 2 // records
)

// Rules of the neighbours, which only the simulation can switch off: they sit in commitlog.
const (
	ruleClipCheckpoint rule = 1 << (iota + 24) // the checkpoint is lowered at cut and start
	ruleNewReadable                            // a restart begins a new Readable
)

type simStatus int8

const (
	simNone simStatus = iota
	simPending
	simOK
	simOther // FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE
)

type simNode struct {
	lin    Lineage // durable
	boot   int     // of the machine
	up     bool
	clean  bool // the last stop was clean, and it has not opened since
	open   bool
	lag    bool
	log    [simRecords]int8
	first  int64
	end    int64
	synced int64
	r, ck  int64 // Readable, its checkpoint
	seen   int64 // what readers have seen
	link   int   // upstream, -1
	acked  int64 // reported on the link, -1
	member *acks.Member
	acks   *acks.Tracker // of the process
	want   int64
	sync   bool
}

type simConfig struct {
	nodes    int // 0: three
	required int
	refuse   bool
	syncMask int
	keep     int64
	wipe     bool
	retain   bool
	acks     bool // puts bring their own
	force    bool // operators do
}

// simRecord is one record's life.
type simRecord struct {
	stat  simStatus
	at    int // node that it was put to
	off   int64
	reign ID
	acks  int
	lost  int // copies
	seen  bool
	// expired: retention has removed a copy. outvoted: it was put with fewer acks than required, and a reign has begun that
	// had heard of no copy.
	expired, outvoted bool
}

type simState struct {
	w      law
	c      simConfig
	n      []simNode
	cut    [simMost][simMost]bool
	recs   int8
	ids    ID
	rec    [simRecords]simRecord
	begun  []Promise // all reigns
	stop   int       // records after which a copy is interrupted, -1: never
	forced bool
	cuts   uint64
	resets uint64
	viol   string
	heard  []Heard
}

func newSim(w law, c simConfig) *simState {
	if c.nodes == 0 {
		c.nodes = 3
	}
	s := &simState{w: w, c: c, n: make([]simNode, c.nodes), ids: 1, begun: []Promise{{1, 1}}, stop: -1}
	list := List{{1, 0, 1}}
	for i := range s.n {
		n := &s.n[i]
		n.sync = c.syncMask&(1<<i) != 0
		n.up, n.link, n.acked, n.want = true, -1, -1, -1
		n.acks = n.newTracker()
		n.lin = Lineage{Role: RoleSlave, Epochs: list, Promise: list.Last(), SyncFlush: n.sync, Boot: "0"}
		if i > 0 {
			n.link = 0
			s.report(i, 0)
		}
	}
	s.n[0].lin.Role, s.n[0].lin.Open, s.n[0].open = RoleSyncMaster, true, true
	s.reigns(0)
	return s
}

var errSim = errors.New("the reign is over")

func (n *simNode) newTracker() *acks.Tracker {
	return acks.New(simMost, simRecords+1, func() int64 { return n.end })
}

func (s *simState) reach(a, b int) bool { return a != b && s.n[a].up && s.n[b].up && !s.cut[a][b] }

func (s *simState) unlink(i int) {
	n := &s.n[i]
	if n.member != nil {
		s.n[n.link].acks.Leave(n.member)
	}
	n.link, n.acked, n.lag, n.want, n.member = -1, -1, false, -1, nil
}

func (s *simState) dropSlaves(i int) {
	for j := range s.n {
		if s.n[j].link == i {
			s.unlink(j)
		}
	}
}

func (s *simState) endPuts(i int) {
	for r := range s.recs {
		if x := &s.rec[r]; x.stat == simPending && x.at == i {
			x.stat = simOther
		}
	}
}

// down is a process that ends.
func (s *simState) down(i int) {
	n := &s.n[i]
	n.up, n.open = false, false
	n.acks.Shut(errSim)
	s.unlink(i)
	s.dropSlaves(i)
	s.endPuts(i)
}

// stepDown is role's: durable first, then the links, the waiting puts.
func (s *simState) stepDown(i int) {
	n := &s.n[i]
	n.lin, n.open = SteppedDown(n.lin), false
	if s.w.holds(ruleEndPuts) { // else a put waits on, for the marks of whatever reign
		n.acks.Shut(errSim)
	}
	s.dropSlaves(i)
	if s.w.holds(ruleEndPuts) {
		s.endPuts(i)
	}
}

func (s *simState) tell(j int) Heard {
	n := &s.n[j]
	return Heard{
		NodeID: int64(j), Epochs: n.lin.Epochs, Promise: n.lin.Promise, First: n.first, End: n.end, Whole: s.w.whole(n.lin),
		OpenMaster: n.open, FileSize: 1 << 20, Empty: n.lin.Empty,
	}
}

// hear asks all peers that m reaches.
func (s *simState) hear(m int) []Heard {
	s.heard = s.heard[:0]
	for j := range s.n {
		if s.reach(m, j) {
			s.heard = append(s.heard, s.tell(j))
		}
	}
	return s.heard
}

func (s *simState) openState(m int) OpenState {
	n := &s.n[m]
	return OpenState{Lineage: n.lin, First: n.first, End: n.end, Sync: true, N: s.c.nodes, Required: s.c.required, Clean: n.clean}
}

// tryOpen is role's starting loop; half stops it after so many promises (-1: never).
func (s *simState) tryOpen(m, half int) bool {
	n := &s.n[m]
	if !n.up || n.open || !n.lin.Role.Master() || s.ids > 100 {
		return false
	}
	st := s.openState(m)
	if d := s.w.decideOpen(st); d.Action == OpenContinue {
		n.open, n.clean = true, false
		s.reigns(m)
		return true
	}
	moved := false
	for range 2 * s.c.nodes {
		st = s.openState(m)
		st.Heard = s.hear(m)
		d := s.w.decideOpen(st)
		if d.Action == OpenAsk {
			done := false
			if d, done = s.round(m, st, d.Reign, 1<<s.c.nodes-1, half); done {
				return true
			}
			moved = true
		}
		switch d.Action {
		case OpenNow:
			s.openNow(m, d.Reign)
			return true
		case OpenStepDown:
			s.stepDown(m)
			return true
		case OpenCopy:
			if !s.copyLog(m, int(s.heard[d.From].NodeID)) {
				return moved || !n.up
			}
			moved = true
		default:
			return moved
		}
	}
	return moved
}

// round saves the candidacy, has the peers in mask promise and decides again; done: the round was stopped half-way.
func (s *simState) round(m int, st OpenState, p Promise, mask, half int) (OpenDecision, bool) {
	if p.ID == 0 {
		s.ids++
		p.ID = s.ids
	}
	if s.w.holds(ruleFence) {
		s.n[m].lin.Candidate = p
	}
	if st.Promote && !s.n[m].open { // the order is durable before anybody is asked
		s.n[m].lin.Role, s.n[m].clean = RoleSyncMaster, false
		s.unlink(m)
	}
	st.Lineage = s.n[m].lin
	s.heard = s.heard[:0]
	for j := range s.n {
		if !s.reach(m, j) || mask&(1<<j) == 0 {
			continue
		}
		if half == 0 {
			return OpenDecision{}, true
		}
		half--
		d := s.w.decidePromise(s.n[j].lin, p, nil)
		if d.StepDown && (s.w.holds(ruleFence) || st.Promote) {
			s.stepDown(j)
		}
		if d.Promised && s.w.holds(ruleFence) {
			s.n[j].lin = d.Next
		}
		if d.DropLinks {
			s.unlink(j)
			s.dropSlaves(j)
		}
		h := s.tell(j)
		h.Promised = d.Promised
		s.heard = append(s.heard, h)
	}
	st.Heard, st.Asked = s.heard, p
	return s.w.decideOpen(st), false
}

func (s *simState) openNow(m int, p Promise) {
	n := &s.n[m]
	if n.sync {
		n.synced = n.end
	}
	n.lin = s.w.opened(n.lin, n.end, p, RoleSyncMaster)
	if s.w.holds(ruleDropNew) {
		s.dropSlaves(m)
	}
	s.unlink(m)
	n.open, n.clean = true, false
	s.reigns(m)
	s.reignBegins(m)
}

// copyLog follows b as a starting master does, to its end or until it is interrupted; the list is saved before.
func (s *simState) copyLog(m, b int) bool {
	n, p := &s.n[m], &s.n[b]
	l := CopyLineage(n.lin, n.end)
	r := s.request(m, l)
	a, _ := s.w.decideFollow(s.upstream(b), r)
	plan := s.w.decideAnswer(Own{Lineage: n.lin, First: n.first, End: n.end, FileSize: 1 << 20, Copying: true}, a)
	if plan.Refused || plan.Cut || plan.Reset && !s.cutTo(m, b, plan) {
		return false
	}
	n.lin = plan.Next
	to := p.end
	if s.stop >= 0 {
		to = min(to, n.end+int64(s.stop))
	}
	copy(n.log[n.end:to], p.log[n.end:to])
	if n.end = to; s.stop >= 0 {
		s.down(m)
		return false
	}
	return true
}

// promote is role's Promote by an operator who reaches the nodes of mask; half stops it after so many promises (-1: never). A
// node that has been promoted half-way goes on by the event "open", or is promoted again.
func (s *simState) promote(t, mask, half int, force bool) bool {
	if mask&(1<<t) == 0 || !s.n[t].up || s.ids > 100 || half >= 0 && s.n[t].open {
		return false
	}
	st := s.openState(t)
	st.Promote, st.Force = true, force
	for j := range s.n {
		if j != t && mask&(1<<j) != 0 {
			if !s.reach(t, j) {
				return false
			}
			st.Heard = append(st.Heard, s.tell(j))
		}
	}
	d := s.w.decideOpen(st)
	if d.Action == OpenCopy && !s.n[t].open {
		return s.copyLog(t, int(st.Heard[d.From].NodeID))
	}
	if d.Action != OpenAsk {
		return false
	}
	s.forced = s.forced || force
	if d, _ = s.round(t, st, d.Reign, mask, half); d.Action == OpenNow {
		s.openNow(t, d.Reign)
	}
	return true
}

func (s *simState) path(u int) (ids []int64) {
	for k := 0; k < s.c.nodes && u >= 0; k++ {
		ids = append(ids, int64(u))
		u = s.n[u].link
	}
	return ids
}

func (s *simState) upstream(u int) Upstream {
	p := &s.n[u]
	return Upstream{NodeID: int64(u), Lineage: p.lin, Open: p.open, First: p.first, End: p.end, FileSize: 1 << 20, MaxFrame: 1, Path: s.path(u)}
}

func (s *simState) request(i int, l Lineage) FollowRequest {
	n := &s.n[i]
	return FollowRequest{NodeID: int64(i), Epochs: l.Epochs, Promise: l.Promise, First: n.first, End: n.end, FileSize: 1 << 20, MaxFrame: 1}
}

// How a follow is stopped.
const (
	stopCut   = 1 // behind the cut
	stopList  = 2 // behind the saved list
	stopKept  = 3 // the range is kept and the cut written down: the next start ends it
	stopAhead = 4 // the range is kept, nothing else is done
	stopPower = 8 // in that the machine goes down, not only the process
)

// follow is role's slave path.
func (s *simState) follow(i, u, stop int) bool {
	n := &s.n[i]
	if !s.reach(i, u) || n.lin.Role.Master() || n.link >= 0 {
		return false
	}
	e := s.w.decideEmptyFollow(n.lin, s.hear(i), s.c.nodes, s.c.required)
	if !e.Follow {
		return false
	}
	n.lin = e.Next
	a, down := s.w.decideFollow(s.upstream(u), s.request(i, n.lin))
	if down {
		s.stepDown(u)
	}
	plan := s.w.decideAnswer(Own{Lineage: n.lin, First: n.first, End: n.end, FileSize: 1 << 20}, a)
	if plan.Refused || plan.Compare {
		return down || e.Changed
	}
	at, cuts := stop&^stopPower, plan.Cut || plan.Reset
	if cuts && at == stopAhead {
		s.dropSlaves(i)
		s.stopped(i, stop)
		return true
	}
	if cuts && !s.cutTo(i, u, plan) {
		return down || e.Changed
	}
	if at == stopCut || cuts && at == stopKept {
		s.stopped(i, stop)
		return true
	}
	n.lin = plan.Next
	if plan.DropLinks {
		s.dropSlaves(i)
	}
	if at == stopList {
		s.stopped(i, stop)
		return true
	}
	n.link, n.acked, n.want = u, -1, plan.Want
	s.caughtUp(i)
	return true
}

func (s *simState) stopped(i, stop int) {
	what := "crash"
	if stop&stopPower != 0 {
		what = "power"
	}
	s.stopOrStart(simAct{what: what, a: i})
}

func (s *simState) caughtUp(i int) {
	if n := &s.n[i]; n.want >= 0 && n.end >= n.want && !n.lin.Whole() {
		n.synced = n.end
		n.lin = CaughtUp(n.lin, n.end)
	}
}

// confirmed is what k slaves have confirmed, by the tracker that runs.
func (s *simState) confirmed(m, k int) int64 {
	if k == 0 {
		return s.n[m].end
	}
	return s.n[m].acks.Acked(k).Load()
}

// reigns opens the tracker, with n's links or without.
func (s *simState) reigns(m int) {
	own := s.ownStart(m)
	if !s.w.holds(ruleOwnStart) {
		own = 0
	}
	s.n[m].acks.Open(own)
}

// report is a slave's word on its link; the first one begins its session.
func (s *simState) report(i int, v int64) {
	n := &s.n[i]
	u := &s.n[n.link]
	if n.acked = v; n.member == nil {
		n.member = &acks.Member{Key: acks.Key{Node: int64(i)}, Counts: true, Flushes: n.sync}
		u.acks.Join(n.member, v, time.Time{}, time.Time{})
		return
	}
	u.acks.Report(n.member, v, time.Time{})
}

func (s *simState) ownStart(m int) int64 {
	if l := s.n[m].lin.Epochs; len(l) > 0 {
		return l[len(l)-1].Start
	}
	return 0
}

// inSync counts the slaves in sync; one that lags is connected and is none.
func (s *simState) inSync(m int) int {
	k := s.n[m].acks.InSync()
	for j := range s.n {
		if n := &s.n[j]; n.link == m && n.acked >= 0 && n.lag {
			k--
		}
	}
	return k
}

func (s *simState) progress(m int) Progress {
	n := &s.n[m]
	p := Progress{
		Written: n.end, Flushed: n.synced, InSync: s.inSync(m), Required: s.c.required, OwnStart: s.ownStart(m),
		Acked: s.confirmed(m, s.c.required),
		Sync:  true, SyncFlush: n.sync, Refuse: s.c.refuse,
	}
	return p
}

// eager lets watermarks grow, puts end and readers see.
func (s *simState) eager() {
	for m := range s.n {
		if n := &s.n[m]; n.up && n.open {
			if p := s.progress(m); p.InSync >= p.Required {
				r, _ := s.w.readable(p)
				n.r = max(n.r, r)
			}
		}
	}
	for r := range s.recs {
		if x := &s.rec[r]; x.stat == simPending {
			n := &s.n[x.at]
			if n.up && n.lin.Role.Master() && s.confirmed(x.at, x.acks) > x.off && (!n.sync || n.synced > x.off) {
				x.stat = simOK
			}
		}
	}
	for i := range s.n {
		n := &s.n[i]
		if !n.up {
			continue
		}
		v := min(n.r, n.end)
		if v < n.seen {
			s.viol = "P6: Readable went back without a cut"
		}
		n.seen = v
		for k := n.first; k < v; k++ {
			s.rec[n.log[k]].seen = true
		}
	}
}

func (s *simState) lose(i int, from int64) {
	n := &s.n[i]
	for k := max(from, n.first); k < n.end; k++ {
		s.rec[n.log[k]].lost++
	}
	n.end = min(n.end, from)
	n.synced = min(n.synced, n.end)
}

// check holds P1 and P2 against the state.
func (s *simState) check() {
	for a := range s.n {
		for b := a + 1; b < s.c.nodes; b++ {
			x, y := &s.n[a], &s.n[b]
			at, common := Part(x.lin.Epochs, x.end, y.lin.Epochs, y.end)
			for k := max(x.first, y.first); common > 0 && k < at; k++ {
				if x.log[k] != y.log[k] {
					s.viol = fmt.Sprintf("P1: nodes %d and %d differ at %d below the common offset", a, b, k)
					return
				}
			}
		}
	}
	for r := range s.recs {
		if !s.forced && s.rec[r].promised() && !s.somewhere(r) {
			s.viol = "P2: a PUT_OK record is on no node"
			return
		}
	}
}

func (s *simState) somewhere(r int8) bool {
	for i := range s.n {
		if s.n[i].has(r) {
			return true
		}
	}
	return false
}

func (n *simNode) has(r int8) bool {
	for k := n.first; k < n.end; k++ {
		if n.log[k] == r {
			return true
		}
	}
	return false
}

// Act is one event; its text form is the script of a trace.
type simAct struct {
	what    string
	a, b, c int
}

func (a simAct) String() string { return fmt.Sprintf("%s %d %d %d", a.what, a.a, a.b, a.c) }

func parseTrace(text string) (tr []simAct) {
	for line := range strings.SplitSeq(text, ";") {
		var a simAct
		if _, err := fmt.Sscan(line, &a.what); err != nil {
			continue
		}
		_, _ = fmt.Sscan(strings.TrimPrefix(strings.TrimSpace(line), a.what), &a.a, &a.b, &a.c)
		tr = append(tr, a)
	}
	return tr
}

// randomAct draws an event with weights, most often for a node that it can happen to.
func (s *simState) randomAct(r *rand.Rand) simAct {
	a := s.c.draw(r)
	for k := 0; k < s.c.nodes && !s.suits(a); k++ {
		if r.IntN(8) == 0 {
			break
		}
		a.a = (a.a + 1) % s.c.nodes
	}
	return a
}

// suits reports whether a may have an effect.
func (s *simState) suits(a simAct) bool {
	n := &s.n[a.a]
	switch a.what {
	case "put", "degraded", "demote":
		return n.up && n.open
	case "deliver", "ack", "readable", "catchup", "lag":
		return n.link >= 0
	case "open", "half", "halfcopy":
		return n.up && n.lin.Role.Master() && !n.open
	case "boot", "restart":
		return !n.up
	case "follow":
		return n.up && n.link < 0 && !n.lin.Role.Master() && s.reach(a.a, a.b)
	}
	return true
}

func (c simConfig) draw(r *rand.Rand) simAct {
	a := simAct{a: r.IntN(c.nodes), b: r.IntN(c.nodes)}
	if r.IntN(5) == 0 {
		if a.what = "catchup"; r.IntN(4) == 0 {
			a.what = "boot"
		}
		a.c = r.IntN(4)
		return a
	}
	if c.retain && r.IntN(12) == 0 {
		a.what = "retain"
		return a
	}
	for w, k := r.IntN(100), 0; ; k++ {
		if w -= simWeights[k].n; w < 0 {
			a.what = simWeights[k].what
			break
		}
	}
	switch a.what {
	case "put":
		if c.acks && r.IntN(2) == 0 {
			a.c = 1 + r.IntN(c.nodes)
		}
	case "promote":
		if c.force && r.IntN(4) == 0 {
			a.what = "force"
		}
		a.b, a.c = 1+r.IntN(1<<c.nodes-1), max(0, r.IntN(8)-4)
	case "half":
		if r.IntN(2) == 0 {
			a.what = "halfcopy"
		}
	case "settle":
		if r.IntN(3) > 0 {
			a = stoppedFollow(r, a)
		}
	case "wipe":
		if !c.wipe {
			a = stoppedFollow(r, a)
		}
	}
	return a
}

func stoppedFollow(r *rand.Rand, a simAct) simAct {
	a.what, a.c = "follow", 1+r.IntN(4)+stopPower*(r.IntN(3)/2)
	return a
}

var simWeights = []struct {
	what string
	n    int
}{
	{"put", 14},
	{"deliver", 16},
	{"ack", 12},
	{"readable", 6},
	{"half", 2},
	{"sync", 4},
	{"crash", 3},
	{"power", 4},
	{"clean", 2},
	{"restart", 6},
	{"open", 4},
	{"promote", 5},
	{"demote", 1},
	{"cut", 2},
	{"heal", 2},
	{"follow", 10},
	{"lag", 1},
	{"checkpoint", 2},
	{"degraded", 1},
	{"timeout", 1},
	{"wipe", 1},
	{"settle", 1},
}
