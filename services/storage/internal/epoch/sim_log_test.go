package epoch

// cutTo is the log's Truncate or Reset behind Rollback, in favour of what node u serves; false: what goes does not fit.
func (s *simState) cutTo(i, u int, p Plan) bool {
	n, t := &s.n[i], p.At
	if p.Keep && n.end-p.KeepFrom > s.c.keep && s.w.holds(ruleKeep) {
		return false
	}
	from := t
	if p.Reset {
		from = n.first
	}
	for k := from; k < n.end; k++ {
		kept := p.Keep && k >= p.KeepFrom && n.end-p.KeepFrom <= s.c.keep
		gone := p.Reset && k < t && reignAt(s.n[u].lin.Epochs, k) == s.rec[n.log[k]].reign // there, by retention
		if !kept && !gone {
			s.viol = "P4: cut without being kept"
		}
	}
	s.dropSlaves(i)
	n.end = t
	if p.Reset { // a new log, whose watermarks begin where it does
		s.resets++
		n.first, n.synced, n.r, n.seen = t, t, t, t
		if s.w.holds(ruleClipCheckpoint) {
			n.ck = t
		}
		return true
	}
	s.cuts++
	n.synced, n.r, n.seen = min(n.synced, t), min(n.r, t), min(n.seen, t)
	if s.w.holds(ruleClipCheckpoint) {
		n.ck = min(n.ck, t)
	}
	return true
}

// reignAt returns the reign that wrote the byte at off, by a list.
func reignAt(l List, off int64) (id ID) {
	for _, e := range l {
		if e.Start <= off {
			id = e.ID
		}
	}
	return id
}

// retain is the log's DropBefore: whole files that are on the disk, one or all.
func (s *simState) retain(i, all int) bool {
	n := &s.n[i]
	to := n.first + simFile
	if all > 0 {
		to = n.synced - n.synced%simFile
	}
	if !n.up || to > n.synced || to <= n.first {
		return false
	}
	for k := n.first; k < to; k++ {
		s.rec[n.log[k]].expired = true
	}
	n.first = to
	return true
}

// promised reports whether the record must be somewhere.
func (x *simRecord) promised() bool {
	return x.stat == simOK && x.lost <= x.acks && !x.expired && !x.outvoted
}

// reignBegins notes which records with few acks the new reign of m did not know of.
func (s *simState) reignBegins(m int) {
	s.begun = append(s.begun, s.n[m].lin.Epochs.Last())
	for r := range s.recs {
		x := &s.rec[r]
		if x.acks >= s.c.required || x.outvoted || s.n[m].has(r) {
			continue
		}
		x.outvoted = true
		for _, h := range s.heard {
			if s.n[h.NodeID].has(r) {
				x.outvoted = false
			}
		}
	}
}

// rivalled reports whether another reign has begun that is not below p.
func (s *simState) rivalled(p Promise) bool {
	for _, o := range s.begun {
		if o.Epoch >= p.Epoch && o.ID != p.ID {
			return true
		}
	}
	return false
}
