package consensus

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// DLedger's EntryHandler: what a follower does with pushes. There is no map of parked requests: a push that does not fit
// is refused at once with the place where it would.

// onCompare answers with the nearest entry that may be common: at or before the one asked for, of no higher term, and
// never before the commit index.
func (c *Core) onCompare(m *raft.Message) raft.Reason {
	at := raft.Mark{Index: m.Index, Term: m.LogTerm}
	if c.log.Has(at) {
		c.matched = max(c.matched, at.Index)
	}
	near := c.nearest(at)
	c.answer(m, raft.Message{Index: near.Index, LogTerm: near.Term, End: c.log.Last, Commit: c.committed})
	return raft.OK
}

func (c *Core) nearest(at raft.Mark) raft.Mark {
	near := c.log.Floor(at)
	if near.Index < c.committed {
		t, _ := c.log.Term(c.committed)
		near = raft.Mark{Index: c.committed, Term: t}
	}
	return near
}

// nack refuses a push and tells the leader where to look.
func (c *Core) nack(m *raft.Message, at raft.Mark, r raft.Reason) raft.Reason {
	near := c.nearest(at)
	c.answer(m, raft.Message{Refused: r, Index: near.Index, LogTerm: near.Term, End: c.log.Last, Commit: c.committed})
	return r
}

// onTruncate cuts this node's own tail. It is the only push that removes anything, and it may be late or repeated: what
// the leader of this term is known to have stays, and so does what is committed. It must name this life of the node, whose
// answer to COMPARE it rests on.
func (c *Core) onTruncate(m *raft.Message) raft.Reason {
	at := raft.Mark{Index: m.Index, Term: m.LogTerm}
	end := c.log.End()
	switch {
	case m.Reset && !c.log.Has(at):
		if at.Index <= c.committed {
			return c.nack(m, end, raft.TruncateStale)
		}
		c.resetTo(at)
	case at.Index > end.Index:
		return c.nack(m, at, raft.Gap)
	case c.faults.truncateAny && !m.Reset:
		c.cutAfter(at.Index)
		c.committed, c.matched = min(c.committed, at.Index), min(c.matched, at.Index)
	case m.Nonce != c.incarnation || at.Index < c.matched:
		return c.nack(m, end, raft.TruncateStale)
	case at.Index < end.Index && end.Term == c.hard.Term:
		return c.nack(m, end, raft.TruncateStale) // only the leader writes entries of its term, and never replaces them
	case at.Index < c.committed:
		return c.nack(m, at, raft.TruncateCommitted)
	case !c.log.Has(at):
		return c.nack(m, at, raft.Conflict)
	case !m.Reset:
		c.cutAfter(at.Index)
	}
	c.matched = max(c.matched, at.Index)
	c.tryRejoin()
	c.answer(m, raft.Message{Index: at.Index, End: c.log.Last, Commit: c.committed})
	return raft.OK
}

// onAppend adds what is new of a batch. Known entries stay as they are, others in their place are refused.
func (c *Core) onAppend(m *raft.Message) raft.Reason {
	if c.out.bytes > c.cfg.MaxPendingBytes {
		return raft.Overload // not answered: the leader repeats it later
	}
	at := raft.Mark{Index: m.Index, Term: m.LogTerm}
	if r := c.verify(at); r != raft.OK {
		return c.nack(m, at, r)
	}
	known := 0
	for known < len(m.Entries) && m.Entries[known].Index <= c.log.Last {
		at = raft.Mark{Index: m.Entries[known].Index, Term: m.Entries[known].Term}
		if r := c.verify(at); r != raft.OK {
			return c.nack(m, at, r)
		}
		known++
	}
	for i := known; i < len(m.Entries); i++ {
		c.push(m.Entries[i])
	}
	last := m.Index + raft.Index(len(m.Entries))
	switch {
	case known > 0 && known < len(m.Entries):
		c.counters.Overlaps++
	case known > 0:
		c.counters.Repeated++
		if c.faults.repeatTruncates {
			c.cutAfter(last)
			c.matched, c.committed = min(c.matched, last), min(c.committed, last)
		}
	}
	if m.Commit > last {
		c.counters.Refused[raft.CommitBeyondEnd]++ // the entries are good, so only the excess is refused
	}
	c.accept(m, last, min(m.Commit, last))
	return raft.OK
}

// onCommit moves the commit index, as far as the leader's entry that comes with it proves.
func (c *Core) onCommit(m *raft.Message) raft.Reason {
	at := raft.Mark{Index: m.Index, Term: m.LogTerm}
	if c.faults.commitUnverified {
		c.accept(m, c.matched, m.Commit)
		return raft.OK
	}
	if r := c.verify(at); r != raft.OK {
		return c.nack(m, at, r)
	}
	if m.Commit > c.log.Last {
		return c.nack(m, at, raft.CommitBeyondEnd)
	}
	c.accept(m, at.Index, m.Commit)
	return raft.OK
}

// accept notes that the log equals the leader's up to last, and says so.
func (c *Core) accept(m *raft.Message, last, commit raft.Index) {
	c.matched = max(c.matched, last)
	c.commitTo(commit)
	c.tryRejoin()
	c.answer(m, raft.Message{Index: c.matched, End: c.log.Last, Commit: c.committed})
}

// verify says whether an entry of the leader's is here too. What was purged was committed and need not be looked at.
func (c *Core) verify(at raft.Mark) raft.Reason {
	switch {
	case at.Index > c.log.Last:
		return raft.Gap
	case at.Index < c.log.Base.Index || c.log.Has(at):
		return raft.OK
	case at.Index <= c.committed:
		return raft.CommittedConflict
	default:
		return raft.Conflict
	}
}
