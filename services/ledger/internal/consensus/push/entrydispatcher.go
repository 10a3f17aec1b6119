package push

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// Due puts what is due to the follower into v.Out. Call it whenever anything may have changed.
func (d *Dispatcher) Due(v *View) {
	if d.State == Appending && len(d.inflight) > 0 && v.Now-d.inflight[0].sent >= v.Limits.Retry {
		v.Retries++
		d.compare(v.Log.End()) // one small question instead of the whole pipeline again: the follower may be gone
	}
	if d.State == Appending && d.Next-1 < v.Log.Base.Index || d.State == Truncating && d.probe.Index < v.Log.Base.Index {
		d.compare(v.Log.End()) // purged in the meantime
	}
	switch d.State {
	case Comparing, Truncating:
		d.ask(v)
		if v.CommitUnverified {
			d.pushCommit(v)
		}
	default:
		d.pushEntries(v)
		d.pushCommit(v)
	}
}

// ask sends the one COMPARE or TRUNCATE that is out at a time.
func (d *Dispatcher) ask(v *View) {
	if d.asked && v.Now-d.askedAt < v.Limits.Retry {
		return
	}
	if d.asked {
		v.Retries++
	}
	d.asked, d.askedAt = true, v.Now
	m := raft.Message{Type: raft.Compare, Index: d.probe.Index, LogTerm: d.probe.Term, Seq: d.Seq}
	if d.State == Truncating {
		m.Type, m.Reset, m.Nonce = raft.Truncate, d.reset, d.nonce
	}
	v.send(d.ID, m)
}

// pushEntries fills the pipeline up to its quotas.
func (d *Dispatcher) pushEntries(v *View) {
	for d.Next <= v.Log.Last && len(d.inflight) < v.Limits.MaxInflightBatches {
		entries := v.Limits.MaxInflightEntries - int(d.InflightEntries)
		bytes := v.Limits.MaxInflightBytes - d.InflightBytes
		if entries <= 0 || bytes <= 0 {
			return
		}
		n, size := v.extent(d.Next, min(entries, v.Limits.MaxBatchEntries), min(bytes, v.Limits.MaxBatchBytes))
		if n <= 0 {
			return // the log cannot read it now; the next Ready asks again
		}
		last := d.Next + raft.Index(n) - 1
		before, _ := v.Log.Term(d.Next - 1)
		commit := min(v.Committed, last)
		v.send(d.ID, raft.Message{
			Type: raft.Append, Index: d.Next - 1, LogTerm: before, Count: n, Bytes: size, Commit: commit, Seq: d.Seq,
		})
		d.inflight = append(d.inflight, batch{last: last, entries: raft.Index(n), bytes: size, sent: v.Now})
		d.InflightEntries += raft.Index(n)
		d.InflightBytes += size
		d.Next = last + 1
		d.commitSent, d.commitAt = max(d.commitSent, commit), v.Now
	}
}

// extent measures the next batch, from the log or from what is about to be saved.
func (v *View) extent(first raft.Index, maxEntries int, maxBytes int64) (count int, bytes int64) {
	if first <= v.Stable {
		return v.Store.Extent(first, v.Stable, maxEntries, maxBytes)
	}
	for i := first - v.Stable - 1; i < raft.Index(len(v.Pending)) && count < maxEntries; i++ {
		size := int64(v.Pending[i].Size)
		if count > 0 && bytes+size > maxBytes {
			break
		}
		count++
		bytes += size
	}
	return count, bytes
}

// pushCommit tells a follower how far it may publish, when no Append did.
func (d *Dispatcher) pushCommit(v *View) {
	want := min(v.Committed, d.Match)
	if v.CommitUnverified {
		want = v.Committed
	}
	if d.Commit >= want || d.commitSent >= want && v.Now-d.commitAt < v.Limits.Retry {
		return
	}
	t, ok := v.Log.Term(d.Match)
	if !ok {
		return
	}
	v.send(d.ID, raft.Message{Type: raft.Commit, Index: d.Match, LogTerm: t, Commit: want, Seq: d.Seq})
	d.commitSent, d.commitAt = want, v.Now
}

// Answered takes the answer to a push.
func (d *Dispatcher) Answered(v *View, m *raft.Message) raft.Reason {
	if m.Seq > d.Seq || m.Refused == raft.OK && m.Type != raft.CompareAnswer && m.Index > v.Log.Last {
		return raft.BadMessage
	}
	d.hear(v, m)
	d.answeredAt = v.Now
	d.Commit = max(d.Commit, m.Commit)
	return d.onPushAnswer(v, m)
}

func (d *Dispatcher) hear(v *View, m *raft.Message) {
	d.Learner = m.Learner
	if !d.Learner {
		d.Heard = v.Now
	}
}

// HeartbeatAnswered takes the answer to a heartbeat, which also tells when a follower lost what it had.
func (d *Dispatcher) HeartbeatAnswered(v *View, m *raft.Message) {
	d.hear(v, m)
	if !d.Learner {
		d.Round = max(d.Round, m.Round)
		short := v.Silence - max(0, m.Silence) // who is silent for less grants less
		if v.SilenceUntold {
			short = 0
		}
		d.Lease = max(d.Lease, m.Sent-max(0, short))
	}
	if m.Sent <= d.answeredAt {
		return // it may have been on its way while the follower's log grew
	}
	d.Commit = m.Commit
	if d.State == Appending && len(d.inflight) == 0 && m.End < d.Match {
		d.compare(v.Log.End()) // it lost what it had
	}
}

func (d *Dispatcher) onPushAnswer(v *View, m *raft.Message) raft.Reason {
	current := m.Seq == d.Seq
	if m.Refused != raft.OK {
		d.Refused = m.Refused
	}
	switch {
	case m.Refused == raft.OK && (m.Type == raft.AppendAnswer || m.Type == raft.CommitAnswer):
		d.ack(m.Index) // true for the whole term, however late it comes
	case !current:
		return raft.StaleAnswer
	case m.Refused == raft.OK && m.Type == raft.TruncateAnswer:
		d.enter(Appending)
		d.Next = m.Index + 1
		d.Match = m.Index
		d.ack(m.Index)
	case m.Refused == raft.OK || m.Refused == raft.Gap || m.Refused == raft.Conflict || m.Refused == raft.TruncateStale:
		if r := d.locate(v, m); r != raft.OK {
			return r
		}
	default: // refused for a reason that asking again at once would not change
		d.compare(v.Log.End())
		d.asked, d.askedAt = true, v.Now
		return raft.OK
	}
	return raft.OK
}

// locate brings COMPARE one step on: the follower's entry at m.Index has m.LogTerm. Each answer skips a whole term of one
// side, so that the common entry is found in O(terms).
func (d *Dispatcher) locate(v *View, m *raft.Message) raft.Reason {
	hint := raft.Mark{Index: m.Index, Term: m.LogTerm}
	d.nonce = m.Nonce
	switch {
	case v.Log.Has(hint) || v.HintUnverified && hint.Index <= v.Log.Last:
		d.common(hint, m.End)
	case hint.Index <= m.Commit && hint.Index >= v.Log.Base.Index: // a committed entry that this leader does not have
		d.compare(v.Log.End())
		d.asked, d.askedAt = true, v.Now
		return raft.CommittedConflict
	case hint.Index <= v.Log.Base.Index:
		d.enter(Truncating)
		d.probe, d.reset = v.Log.Base, true
	default:
		d.compare(v.Log.Floor(hint))
	}
	return raft.OK
}

// common begins to append behind the last common entry, after a TRUNCATE where the follower has more.
func (d *Dispatcher) common(at raft.Mark, end raft.Index) {
	d.enter(Appending)
	d.Match, d.Next = at.Index, at.Index+1
	d.ack(at.Index)
	if end > at.Index {
		d.enter(Truncating)
		d.probe = at
	}
}
