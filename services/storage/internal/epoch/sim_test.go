package epoch

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The simulation walks the deciding functions of this package, as they run, through what can happen to three storages:
// puts, deliveries, acks, flushes, killed processes, power losses, wiped disks, cut networks, clean stops, promotions, half
// a promise round, chains, and a settling at the end. A record is one byte of the log. What the runner (package role), the
// log and the streams do around a decision is told here in one line each.
//
// P1 a common prefix by the epochs is the same bytes; P2 a PUT_OK record survives while at most `required` copies of it are
// lost; P3 no reader sees a record that vanishes (with refuse; without it: a PUT_OK one); P4 nothing is cut without being
// kept; P5 it settles without an operator's step that no reason names; P6 Readable goes back only at a restart or a cut.

const (
	simNodes   = 3
	simRecords = 14
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
	end    int64
	synced int64
	r, ck  int64 // Readable, its checkpoint
	seen   int64 // what readers have seen
	link   int   // upstream, -1
	acked  int64 // reported on the link, -1
	want   int64
	sync   bool
}

type simConfig struct {
	required int
	refuse   bool
	syncMask int
	keep     int64
	wipe     bool
}

type simState struct {
	w     law
	c     simConfig
	n     [simNodes]simNode
	cut   [simNodes][simNodes]bool
	recs  int8
	ids   ID
	stat  [simRecords]simStatus
	seen  [simRecords]bool
	lost  [simRecords]int
	at    [simRecords]int
	off   [simRecords]int64
	viol  string
	heard []Heard
}

func newSim(w law, c simConfig) *simState {
	s := &simState{w: w, c: c, ids: 1}
	list := List{{1, 0, 1}}
	for i := range s.n {
		n := &s.n[i]
		n.sync = c.syncMask&(1<<i) != 0
		n.up, n.link, n.acked, n.want = true, -1, -1, -1
		n.lin = Lineage{Role: RoleSlave, Epochs: list, Promise: list.Last(), SyncFlush: n.sync, Boot: "0"}
		if i > 0 {
			n.link, n.acked = 0, 0
		}
	}
	s.n[0].lin.Role, s.n[0].lin.Open, s.n[0].open = RoleSyncMaster, true, true
	return s
}

func (s *simState) reach(a, b int) bool { return a != b && s.n[a].up && s.n[b].up && !s.cut[a][b] }

func (s *simState) unlink(i int) {
	n := &s.n[i]
	n.link, n.acked, n.lag, n.want = -1, -1, false, -1
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
		if s.stat[r] == simPending && s.at[r] == i {
			s.stat[r] = simOther
		}
	}
}

// down is a process that ends.
func (s *simState) down(i int) {
	n := &s.n[i]
	n.up, n.open = false, false
	s.unlink(i)
	s.dropSlaves(i)
	s.endPuts(i)
}

// stepDown is role's: durable first, then the links, the waiting puts.
func (s *simState) stepDown(i int) {
	n := &s.n[i]
	n.lin, n.open = SteppedDown(n.lin), false
	s.dropSlaves(i)
	if s.w.holds(ruleEndPuts) {
		s.endPuts(i)
	}
}

func (s *simState) tell(j int) Heard {
	n := &s.n[j]
	return Heard{
		NodeID: int64(j), Epochs: n.lin.Epochs, Promise: n.lin.Promise, End: n.end, Whole: s.w.whole(n.lin),
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
	return OpenState{Lineage: n.lin, End: n.end, Sync: true, N: simNodes, Required: s.c.required, Clean: n.clean}
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
		return true
	}
	moved := false
	for range 2 * simNodes {
		st = s.openState(m)
		st.Heard = s.hear(m)
		d := s.w.decideOpen(st)
		if d.Action == OpenAsk {
			done := false
			if d, done = s.round(m, st, d.Reign, 1<<simNodes-1, half); done {
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
				return moved
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
		d := s.w.decidePromise(s.n[j].lin, p)
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
}

// copyLog follows b as a starting master does, to its end.
func (s *simState) copyLog(m, b int) bool {
	n, p := &s.n[m], &s.n[b]
	l := CopyLineage(n.lin, n.end)
	r := s.request(m, l)
	a, _ := s.w.decideFollow(s.upstream(b), r)
	plan := s.w.decideAnswer(Own{Lineage: n.lin, End: n.end, FileSize: 1 << 20, Copying: true}, a)
	if plan.Refused || plan.Cut {
		return false
	}
	n.lin = plan.Next
	copy(n.log[n.end:p.end], p.log[n.end:p.end])
	n.end = p.end
	return true
}

// promote is role's Promote by an operator who reaches the nodes of mask; half stops it after so many promises (-1: never). A
// node that has been promoted half-way goes on by the event "open", or is promoted again.
func (s *simState) promote(t, mask, half int) bool {
	if mask&(1<<t) == 0 || !s.n[t].up || s.ids > 100 || half >= 0 && s.n[t].open {
		return false
	}
	st := s.openState(t)
	st.Promote = true
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
	if d, _ = s.round(t, st, d.Reign, mask, half); d.Action == OpenNow {
		s.openNow(t, d.Reign)
	}
	return true
}

func (s *simState) path(u int) (ids []int64) {
	for k := 0; k < simNodes && u >= 0; k++ {
		ids = append(ids, int64(u))
		u = s.n[u].link
	}
	return ids
}

func (s *simState) upstream(u int) Upstream {
	p := &s.n[u]
	return Upstream{NodeID: int64(u), Lineage: p.lin, Open: p.open, End: p.end, FileSize: 1 << 20, MaxFrame: 1, Path: s.path(u)}
}

func (s *simState) request(i int, l Lineage) FollowRequest {
	return FollowRequest{NodeID: int64(i), Epochs: l.Epochs, Promise: l.Promise, End: s.n[i].end, FileSize: 1 << 20, MaxFrame: 1}
}

// follow is role's slave path; crash 1 stops it behind the cut, 2 behind the saved list.
func (s *simState) follow(i, u, crash int) bool {
	n, p := &s.n[i], &s.n[u]
	if !s.reach(i, u) || n.lin.Role.Master() || n.link >= 0 {
		return false
	}
	e := s.w.decideEmptyFollow(n.lin, s.hear(i), simNodes, s.c.required)
	if !e.Follow {
		return false
	}
	n.lin = e.Next
	a, down := s.w.decideFollow(s.upstream(u), s.request(i, n.lin))
	if down {
		s.stepDown(u)
	}
	plan := s.w.decideAnswer(Own{Lineage: n.lin, End: n.end, FileSize: 1 << 20}, a)
	if plan.Refused || plan.Compare {
		return down || e.Changed
	}
	if (plan.Cut || plan.Reset) && !s.cutTo(i, plan) {
		return down || e.Changed
	}
	if crash == 1 {
		s.down(i)
		return true
	}
	n.lin = plan.Next
	if plan.DropLinks {
		s.dropSlaves(i)
	}
	if crash == 2 {
		s.down(i)
		return true
	}
	n.link, n.acked, n.want = u, -1, plan.Want
	_ = p
	s.caughtUp(i)
	return true
}

func (s *simState) caughtUp(i int) {
	if n := &s.n[i]; n.want >= 0 && n.end >= n.want && !n.lin.Whole() {
		n.synced = n.end
		n.lin = CaughtUp(n.lin, n.end)
	}
}

// cutTo is the log's Truncate behind Rollback; false: it does not fit.
func (s *simState) cutTo(i int, p Plan) bool {
	n, t := &s.n[i], p.At
	if p.Keep && n.end-p.KeepFrom > s.c.keep {
		if s.w.holds(ruleKeep) {
			return false
		}
		s.viol = "P4: cut without being kept"
	}
	if !p.Keep && t < n.end {
		s.viol = "P4: cut without being kept"
	}
	s.dropSlaves(i)
	n.end = t
	n.synced, n.r, n.seen = min(n.synced, t), min(n.r, t), min(n.seen, t)
	if s.w.holds(ruleClipCheckpoint) {
		n.ck = min(n.ck, t)
	}
	return true
}

// confirmed is the ack tracker: how many slaves have confirmed the byte at off.
func (s *simState) confirmed(m int, off int64) (k int) {
	own := s.ownStart(m)
	for j := range s.n {
		if a := s.n[j].acked; s.n[j].link == m && a > off && (a >= own || !s.w.holds(ruleOwnStart)) {
			k++
		}
	}
	return k
}

func (s *simState) ownStart(m int) int64 {
	if l := s.n[m].lin.Epochs; len(l) > 0 {
		return l[len(l)-1].Start
	}
	return 0
}

func (s *simState) inSync(m int) (k int) {
	for j := range s.n {
		if n := &s.n[j]; n.link == m && n.acked >= 0 && !n.lag {
			k++
		}
	}
	return k
}

func (s *simState) progress(m int) Progress {
	n := &s.n[m]
	p := Progress{
		Written: n.end, Flushed: n.synced, InSync: s.inSync(m), Required: s.c.required, OwnStart: s.ownStart(m),
		Sync: true, SyncFlush: n.sync, Refuse: s.c.refuse,
	}
	for p.Acked < n.end && s.confirmed(m, p.Acked) >= s.c.required {
		p.Acked++
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
		if s.stat[r] == simPending {
			m := s.at[r]
			n := &s.n[m]
			if n.up && n.lin.Role.Master() && s.confirmed(m, s.off[r]) >= s.c.required && (!n.sync || n.synced > s.off[r]) {
				s.stat[r] = simOK
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
		for k := range v {
			s.seen[n.log[k]] = true
		}
	}
}

func (s *simState) lose(i int, from int64) {
	n := &s.n[i]
	for k := from; k < n.end; k++ {
		s.lost[n.log[k]]++
	}
	n.end = min(n.end, from)
	n.synced = min(n.synced, n.end)
}

// check holds P1 and P2 against the state.
func (s *simState) check() {
	for a := range s.n {
		for b := a + 1; b < simNodes; b++ {
			x, y := &s.n[a], &s.n[b]
			at, common := Part(x.lin.Epochs, x.end, y.lin.Epochs, y.end)
			for k := int64(0); common > 0 && k < at; k++ {
				if x.log[k] != y.log[k] {
					s.viol = fmt.Sprintf("P1: nodes %d and %d differ at %d below the common offset", a, b, k)
					return
				}
			}
		}
	}
	for r := range s.recs {
		if s.stat[r] == simOK && s.lost[r] <= s.c.required && !s.somewhere(r) {
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
	for k := range n.end {
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

// randomAct draws an event with the weights of the design's model.
func randomAct(r *rand.Rand, wipe bool) simAct {
	a := simAct{a: r.IntN(simNodes), b: r.IntN(simNodes)}
	if r.IntN(5) == 0 {
		if a.what = "catchup"; r.IntN(4) == 0 {
			a.what = "boot"
		}
		a.c = r.IntN(4)
		return a
	}
	for w, k := r.IntN(100), 0; ; k++ {
		if w -= simWeights[k].n; w < 0 {
			a.what = simWeights[k].what
			break
		}
	}
	switch a.what {
	case "promote":
		a.b, a.c = 1+r.IntN(7), max(0, r.IntN(8)-4)
	case "settle":
		if r.IntN(3) > 0 {
			a.what, a.c = "follow", 1+r.IntN(2)
		}
	case "wipe":
		if !wipe {
			a.what, a.c = "follow", 1+r.IntN(2)
		}
	}
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
