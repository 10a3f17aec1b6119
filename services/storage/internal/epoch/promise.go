package epoch

// PromiseRequest asks a peer to follow nothing older than Reign; with epoch 0 it only asks for the peer's lineage.
type PromiseRequest struct {
	Cluster, BrokerName string
	NodeID              int64
	Reign               Promise
}

// Heard is what a peer tells of itself.
type Heard struct {
	NodeID  int64
	Epochs  List
	Promise Promise
	// End and First of its log, bytes.
	End, First int64
	Whole      bool
	// Promised: this call's promise is on the peer's disk. False when a newer one stands, or with epoch 0.
	Promised   bool
	OpenMaster bool
	HAAddress  string
	FileSize   int64
	Empty      bool
}

// Known returns the newest reign that the peer holds or has promised.
func (h Heard) Known() Promise { return higher(h.Epochs.Last(), h.Promise) }

// Check returns ErrBadList when the epochs contradict themselves or are beyond all bounds.
func (h Heard) Check() error {
	if h.Promise.Epoch < 0 || h.Promise.Epoch > maxEpoch {
		return ErrBadList.With("promise", h.Promise.Epoch)
	}
	return h.Epochs.Check()
}

// PromiseDecision is what a node does about a PromiseRequest: save Next, then step down or drop the links, then answer.
type PromiseDecision struct {
	Promised bool
	Next     Lineage
	// Changed: Next has to be saved.
	Changed bool
	// StepDown: the node was a master, open or not; its waiting puts end.
	StepDown bool
	// DropLinks: to its upstream and to its slaves.
	DropLinks bool
	// TooFar: nothing was promised, as nobody who was heard knows of an epoch near this one.
	TooFar bool
}

// DecidePromise promises whatever is newer than all that the node has promised, held or been a candidate for, and again what
// it has promised before. What lies too far above that it believes only where one of heard, which may be nil, knows of it.
func DecidePromise(l Lineage, p Promise, heard []Heard) PromiseDecision {
	return law(0).decidePromise(l, p, heard)
}

func (w law) decidePromise(l Lineage, p Promise, heard []Heard) PromiseDecision {
	d := PromiseDecision{Next: l}
	if p.Epoch <= 0 || p.ID == 0 {
		return d
	}
	if d.TooFar = tooFar(p.Epoch, Top(l, heard)); d.TooFar {
		return d
	}
	if w.holds(ruleFence) && w.holds(ruleMaxE) {
		if l.Promise == p && l.Role == RoleSlave {
			d.Promised, d.DropLinks = true, l.Epochs.Last() != p
			return d
		}
		if p.Epoch <= higher(l.Known(), l.Candidate).Epoch {
			return d
		}
	}
	d.Promised, d.Changed, d.StepDown = true, true, l.Role.Master()
	if d.StepDown {
		d.Next = SteppedDown(d.Next)
	}
	if w.holds(ruleFence) {
		d.Next.Promise, d.Next.Candidate = p, Promise{}
		d.DropLinks = true
	}
	return d
}

// EmptyDecision says whether a node that has promised nothing may follow, and what it promises before it does.
type EmptyDecision struct {
	Follow bool
	Next   Lineage
	// Changed: Next has to be saved first.
	Changed bool
	// Missing is how many more peers it has to hear.
	Missing int
}

// DecideEmptyFollow holds back a node without a promise, which may be one that has lost its disk, until it has heard enough
// peers to learn what it may have promised: min(required + 1, n - 1) of them, n being the size of the set.
func DecideEmptyFollow(l Lineage, heard []Heard, n, required int) EmptyDecision {
	return law(0).decideEmptyFollow(l, heard, n, required)
}

func (w law) decideEmptyFollow(l Lineage, heard []Heard, n, required int) EmptyDecision {
	d := EmptyDecision{Follow: true, Next: l}
	if l.Promise.Epoch > 0 || !w.holds(ruleEmpty) {
		return d
	}
	if need := min(required+1, n-1); len(heard) < need {
		d.Follow, d.Missing = false, need-len(heard)
		return d
	}
	for _, h := range heard {
		d.Next.Promise = higher(d.Next.Promise, h.Known())
	}
	d.Changed = d.Next.Promise != l.Promise
	return d
}
