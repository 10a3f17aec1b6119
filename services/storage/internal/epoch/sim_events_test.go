package epoch

import "strconv"

// apply does one event; false: it cannot happen now.
func (s *simState) apply(a simAct) bool {
	ok := s.event(a)
	if ok && a.what != "settle" {
		s.eager()
	}
	return ok
}

func (s *simState) event(a simAct) bool {
	n := &s.n[a.a]
	switch a.what {
	case "put":
		return s.put(a.a, a.c-1)
	case "deliver", "ack", "readable":
		return s.overLink(a)
	case "sync":
		if !n.up || n.synced >= n.end {
			return false
		}
		if a.b == 0 {
			n.synced++
		} else {
			n.synced = n.end
		}
	case "crash", "power", "wipe", "clean", "restart":
		return s.stopOrStart(a)
	case "open":
		return s.tryOpen(a.a, -1)
	case "half":
		return s.tryOpen(a.a, a.b)
	case "halfcopy":
		s.stop = a.b
		defer func() { s.stop = -1 }()
		return s.tryOpen(a.a, -1)
	case "retain":
		return s.retain(a.a, a.b)
	case "promote":
		return s.promote(a.a, a.b, a.c-1, false)
	case "force":
		return s.promote(a.a, a.b, a.c-1, true)
	case "demote":
		if !n.up || !n.lin.Role.Master() {
			return false
		}
		s.stepDown(a.a)
		s.endPuts(a.a)
	case "cut", "heal":
		if a.a == a.b || s.cut[a.a][a.b] == (a.what == "cut") {
			return false
		}
		s.cut[a.a][a.b], s.cut[a.b][a.a] = a.what == "cut", a.what == "cut"
		if n.link == a.b {
			s.unlink(a.a)
		}
		if s.n[a.b].link == a.a {
			s.unlink(a.b)
		}
	case "follow":
		return s.follow(a.a, a.b, a.c)
	case "settle":
		s.settle()
	case "catchup":
		return s.catchUp(a)
	case "boot":
		ok := s.apply(simAct{what: "restart", a: a.a})
		return s.apply(simAct{what: "open", a: a.a}) || ok
	default:
		return s.small(a)
	}
	return true
}

func (s *simState) small(a simAct) bool {
	n := &s.n[a.a]
	switch a.what {
	case "lag":
		if n.link < 0 {
			return false
		}
		n.lag = !n.lag
	case "checkpoint":
		if !n.up || n.ck == n.r {
			return false
		}
		n.ck = n.r
	case "degraded":
		p := s.progress(a.a)
		if !n.up || !n.open || p.InSync >= p.Required {
			return false
		}
		r, _ := s.w.readable(p)
		if r <= n.r {
			return false
		}
		n.r = r
	case "timeout":
		s.endPuts(a.a)
	default:
		panic("unknown event " + a.what)
	}
	return true
}

// put appends a record that waits for acks slaves, or for what the group requires (-1).
func (s *simState) put(m, acks int) bool {
	n := &s.n[m]
	if !n.up || !n.open || s.recs >= simRecords || n.end >= simRecords {
		return false
	}
	if s.c.refuse && s.inSync(m) < s.c.required {
		return false
	}
	if acks < 0 {
		acks = s.c.required
	}
	last := n.lin.Epochs.Last()
	x := simRecord{stat: simOther, at: m, off: n.end, reign: last.ID, acks: acks}
	x.outvoted = acks < s.c.required && s.rivalled(last)
	if s.inSync(m) >= acks {
		x.stat = simPending
	}
	s.rec[s.recs] = x
	n.log[n.end] = s.recs
	s.recs++
	n.end++
	return true
}

func (s *simState) overLink(a simAct) bool {
	n := &s.n[a.a]
	if n.link < 0 || !s.reach(a.a, n.link) {
		return false
	}
	u := &s.n[n.link]
	switch a.what {
	case "deliver":
		if n.end < u.first { // removed while it was being sent
			s.unlink(a.a)
			return true
		}
		if u.end <= n.end {
			return false
		}
		n.log[n.end] = u.log[n.end]
		n.end++
		s.caughtUp(a.a)
	case "ack":
		v := n.end
		if n.sync {
			v = n.synced
		}
		if v == n.acked {
			return false
		}
		s.report(a.a, v)
	case "readable":
		v := min(u.r, n.end)
		if v <= n.r {
			return false
		}
		n.r = v
	}
	return true
}

func (s *simState) catchUp(a simAct) (ok bool) {
	for range a.b + 1 {
		ok = s.apply(simAct{what: "deliver", a: a.a}) || ok
	}
	if a.c&1 == 0 {
		ok = s.apply(simAct{what: "ack", a: a.a}) || ok
	}
	if a.c&2 == 0 {
		ok = s.apply(simAct{what: "readable", a: a.a}) || ok
	}
	return ok
}

func (s *simState) stopOrStart(a simAct) bool {
	n := &s.n[a.a]
	switch {
	case a.what == "restart":
		if n.up {
			return false
		}
		s.restart(a.a)
		return true
	case a.what == "crash", a.what == "clean":
		if !n.up {
			return false
		}
	case !n.up && n.synced == n.end:
		return false
	}
	s.down(a.a)
	n.clean = a.what == "clean"
	switch a.what {
	case "clean":
		n.synced, n.ck = n.end, n.r
	case "power":
		n.boot++
		s.lose(a.a, n.synced)
	case "wipe":
		n.boot++
		s.lose(a.a, 0)
		n.lin, n.r, n.ck, n.seen, n.first = Lineage{}, 0, 0, 0, 0
	}
	n.seen = min(n.seen, n.end)
	return true
}

func (s *simState) restart(i int) {
	n := &s.n[i]
	b := Boot{Role: RoleSlave, Clean: n.clean, ID: strconv.Itoa(n.boot), SyncFlush: n.sync, First: n.first, End: n.end}
	if n.lin.Role.Master() {
		b.Role = RoleSyncMaster
	}
	if n.lin.Role == RoleUnset {
		n.lin = NewLineage(b)
	} else {
		n.lin = Booted(n.lin, b)
	}
	n.up, n.acks = true, n.newTracker()
	n.r = min(n.ck, n.end)
	if s.w.holds(ruleClipCheckpoint) {
		n.ck = n.r
	}
	if s.w.holds(ruleNewReadable) {
		n.seen = n.r
	}
}

// settle heals everything; an operator promotes the best-ranked node where nobody opens by itself.
func (s *simState) settle() {
	s.cut = [simMost][simMost]bool{}
	for i := range s.n {
		s.apply(simAct{what: "restart", a: i})
	}
	stuck, tries := false, 0
	for range 80 {
		progress := false
		for i := range s.n {
			progress = s.apply(simAct{what: "open", a: i}) || progress
		}
		m, again := s.oneMaster()
		if again {
			continue
		}
		if (m < 0 || stuck) && !progress {
			stuck = false
			if best := s.best(); s.apply(simAct{what: "promote", a: best, b: 1<<s.c.nodes - 1}) {
				progress, m = true, best
			}
		}
		if m >= 0 && s.replicate(m) {
			progress = true
		}
		if s.viol != "" {
			return
		}
		if progress {
			continue
		}
		if m < 0 {
			s.viol = "P5: no open master though the operator promotes by the rule"
			return
		}
		if s.c.keep >= simRecords && tries < 4 && !s.allFollow(m) {
			stuck = true
			tries++
			continue
		}
		s.settled(m)
		return
	}
	s.viol = "P5: it does not settle"
}

// oneMaster returns the open master; again: there were several, and those who hear of a newer reign have stepped down.
func (s *simState) oneMaster() (m int, again bool) {
	m = -1
	for i := range s.n {
		if !s.n[i].open {
			continue
		}
		if heard := s.hear(i); Outranked(s.n[i].lin, heard) || Contested(s.n[i].lin, heard) {
			s.stepDown(i)
			return -1, true
		}
		m = i
	}
	return m, false
}

func (s *simState) best() (best int) {
	rank := func(i int) Rank { return s.w.rank(s.n[i].lin.Epochs, s.n[i].end) }
	for i := range s.n {
		if Less(rank(best), rank(i)) {
			best = i
		}
	}
	return best
}

func (s *simState) allFollow(m int) bool {
	for i := range s.n {
		if i != m && s.n[i].link != m {
			return false
		}
	}
	return true
}

// replicate lets every slave follow m and catch up.
func (s *simState) replicate(m int) (progress bool) {
	do := func(what string, a, b int) {
		progress = s.apply(simAct{what: what, a: a, b: b}) || progress
	}
	for i := range s.n {
		n := &s.n[i]
		if i == m {
			continue
		}
		if n.link >= 0 && n.link != m {
			s.unlink(i)
			progress = true
		}
		if n.link < 0 {
			do("follow", i, m)
		}
		for s.apply(simAct{what: "deliver", a: i}) {
			progress = true
		}
		if n.sync {
			s.apply(simAct{what: "sync", a: i, b: 1})
		}
		do("ack", i, 0)
		do("readable", i, 0)
	}
	if s.n[m].sync {
		s.apply(simAct{what: "sync", a: m, b: 1})
	}
	return progress
}

// settled holds P2, P3 and P5 against a quiet cluster.
func (s *simState) settled(m int) {
	p := &s.n[m]
	for i := range s.n {
		n := &s.n[i]
		same := i == m || n.link == m && n.end == p.end
		for k := max(n.first, p.first); same && k < p.end; k++ {
			same = n.log[k] == p.log[k]
		}
		if !same {
			if s.c.keep >= simRecords {
				s.viol = "P5: settled, but a node does not follow or its log differs"
			}
			return
		}
	}
	for r := range s.recs {
		x := &s.rec[r]
		switch {
		case p.has(r), s.forced:
		case x.promised():
			s.viol = "P2: a PUT_OK record is not in the settled master's log"
		case x.seen && s.c.refuse && x.lost <= s.c.required && !x.expired:
			s.viol = "P3: a record that a reader saw has vanished"
		}
	}
}
