package epoch

import "slices"

// Own is what a slave asked with.
type Own struct {
	Lineage    Lineage
	End, First int64
	FileSize   int64 // 0: it has no files
	ComparedTo int64
	// Copying: the node is no slave but a starting master that fetches what a better-ranked log has more.
	Copying bool
	// Path of the previous upstream; a new one ends the links below.
	Path []int64
}

// Plan is what a slave does about a first answer, in the order of the fields.
type Plan struct {
	// Refused: nothing; Reason and Remedy say why. Compare: find out how far the logs are equal in [CompareFrom,
	// CompareTo), then ask again.
	Refused, Compare bool
	Reason, Remedy   string
	CompareFrom      int64
	CompareTo        int64
	// DropLinks: the links of the slaves below, before anything is changed.
	DropLinks bool
	// Keep: [KeepFrom, end) goes and nobody else may have it: keep it, synced, before the cut.
	Keep     bool
	KeepFrom int64
	// Cut: truncate the log to At. Reset: begin it anew at At.
	Cut, Reset bool
	At         int64
	// FileSize to adopt; 0: it stays.
	FileSize int64
	// Next is saved before the first byte is appended.
	Next Lineage
	// Want is the end at which the slave has caught up with an open master, and is whole; -1: it cannot here.
	Want int64
}

// CopyLineage returns what a starting master asks with when it copies a better-ranked log: epochs of which it has no bytes,
// and its own promises, do not bind a copy that only extends its log.
func CopyLineage(l Lineage, end int64) Lineage {
	l.Epochs = l.Epochs.withBytes(end)
	l.Promise, l.Candidate = Promise{}, Promise{}
	return l
}

// DecideAnswer checks a first answer against what the slave knows itself, so that a faulty upstream cannot make it cut more
// than the epochs ask for, and plans what to do.
func DecideAnswer(o Own, a FollowAnswer) Plan { return law(0).decideAnswer(o, a) }

func (w law) decideAnswer(o Own, a FollowAnswer) Plan {
	l := o.Lineage
	if o.Copying {
		l = CopyLineage(l, o.End)
	}
	if p, bad := w.untrusted(l, o, a); bad {
		return p
	}
	at, p := w.parting(l, o, a)
	if p.Refused || p.Compare {
		return p
	}
	p.Want = -1
	if a.Action == ActionTruncate {
		p.Cut, p.At = true, a.Offset
		p.Keep, p.KeepFrom = true, a.Offset
	}
	if a.Action == ActionReset {
		p.Reset, p.At = true, a.Offset
		p.KeepFrom = max(at, o.First)
		p.Keep = p.KeepFrom < o.End
	}
	if o.Copying && p.Keep {
		return Plan{Refused: true, Reason: ReasonLogDiverges, Remedy: "promote the node whose log is to be kept"}
	}
	if a.OpenMaster {
		p.Want = a.End
	}
	if o.FileSize != a.FileSize {
		p.FileSize = a.FileSize
	}
	p.Next = o.Lineage
	p.DropLinks = p.Cut || p.Reset || !slices.Equal(o.Lineage.Epochs, a.Epochs) || !slices.Equal(o.Path, a.Path)
	p.Next.Epochs, p.Next.Open = slices.Clone(a.Epochs), false // that reign is somebody else's
	if p.Cut || p.Reset {
		p.Next.Held = min(p.Next.Held, p.At)
	}
	p.Next.Promise = higher(p.Next.Promise, a.Epochs.Last())
	return p
}

func refused(reason, remedy string) Plan { return Plan{Refused: true, Reason: reason, Remedy: remedy} }

// untrusted handles refusals and answers that no upstream should have given.
func (w law) untrusted(l Lineage, o Own, a FollowAnswer) (Plan, bool) {
	switch a.Action {
	case ActionRefuse, ActionRevoke:
		return refused(a.Reason, a.Remedy), true
	case ActionStream, ActionTruncate, ActionReset, ActionCompare:
	default:
		return refused(ReasonBadAnswer, "the upstream's first answer decides nothing: run the same version on both nodes"), true
	}
	if a.Epochs.Check() != nil || a.First < 0 || a.End < a.First {
		return refused(ReasonBadAnswer, "the upstream's offsets or epochs contradict themselves: check its tandem/lineage file"), true
	}
	if a.FileSize <= 0 || o.FileSize != 0 && o.FileSize != a.FileSize {
		return refused(ReasonFileSize, "the upstream's log files have another size: rebuild this slave in an empty folder"), true
	}
	if known, last := l.Known(), a.Epochs.Last(); w.holds(ruleFence) && w.holds(ruleLowRef) &&
		(known.Epoch > last.Epoch || known.Epoch == last.Epoch && known.ID != last.ID) {
		return refused(ReasonStaleEpoch, "this node has promised a newer epoch than the upstream serves: follow the newer master, or promote again"), true
	}
	return Plan{}, false
}

// parting recomputes where the logs part. A tail that differs is the upstream's finding; it shows in COMPARE and in
// ComparedTo.
func (w law) parting(l Lineage, o Own, a FollowAnswer) (int64, Plan) {
	m := meet(a.Epochs, a.First, a.End, l.Epochs, o.First, o.End, TailUnknown, o.ComparedTo)
	if a.Action == ActionCompare {
		from := max(a.First, o.First)
		if o.ComparedTo != 0 || a.Offset <= from || a.Offset > m.at {
			return 0, refused(ReasonBadAnswer, "the logs were compared already: run tandemctl verify on both nodes, one of them has bad bytes")
		}
		return 0, Plan{Compare: true, CompareFrom: from, CompareTo: a.Offset}
	}
	act, off := m.act(a.First, o.First, o.End)
	if m.compare || act != a.Action || off != a.Offset {
		return 0, refused(ReasonBadAnswer, "the upstream asks for a cut that the epochs do not: run the same version on both nodes")
	}
	if m.at < o.End && m.at == a.End && !a.OpenMaster && w.holds(ruleChainAhead) && w.holds(ruleNotOpen) {
		return 0, refused(ReasonAhead, "this node is ahead of the slave that it is to follow: wait, or follow the master")
	}
	return m.at, Plan{}
}
