package epoch

import "fmt"

// Reasons why a node is not open. They appear in Status and in the errors of puts.
const (
	ReasonNotEnoughNodes = "NOT_ENOUGH_NODES"
	ReasonLogDiverges    = "LOG_DIVERGES"
	ReasonNotBest        = "NOT_BEST_RANKED"
	ReasonEpochConflict  = "EPOCH_CONFLICT"
	ReasonLogLost        = "LOG_LOST"
)

// OpenState is all that decides whether a node may be master.
type OpenState struct {
	Lineage Lineage
	// End and First of the log, and the length of its files, bytes.
	End, First, FileSize int64
	// Sync: a sync master is to open. N is the number of nodes in the set, itself included, Required the acks of a put.
	Sync        bool
	N, Required int
	// Clean: the last stop was clean and nothing has happened since.
	Clean bool
	// Promote: an operator asks for it; otherwise a master starts. Force: allowDataLoss.
	Promote, Force bool
	// Asked is the reign that Heard has been asked to promise; the zero value before that.
	Asked Promise
	Heard []Heard
	// Diverged: a copy was tried, and the best-ranked log does not extend this one.
	Diverged bool
	// Waited: ha.startWait is over. Only an async master opens with fewer nodes after it.
	Waited bool
}

// OpenAction is what the node does next.
type OpenAction uint8

// Actions.
const (
	// OpenWait: nothing now; Reason and Remedy say why. Ask again later.
	OpenWait OpenAction = iota
	// OpenContinue: go on with the last epoch of the list.
	OpenContinue
	// OpenAsk: save Reign as candidate, with a random id where it has none, then have every peer promise it and decide again.
	OpenAsk
	// OpenNow: close all links, save Opened, open.
	OpenNow
	// OpenCopy: follow Heard[From] to its end, then decide anew.
	OpenCopy
	// OpenStepDown: somebody else reigns or is about to: become a slave.
	OpenStepDown
)

// OpenDecision is the answer of DecideOpen.
type OpenDecision struct {
	Action         OpenAction
	From           int
	Reign          Promise // of OpenAsk, OpenNow and OpenContinue; of OpenStepDown the one that was heard of
	Reason, Remedy string
}

// DecideOpen decides whether a node may open as master, by one rule for a start and for a promotion. They differ in two
// things: a promotion does not yield to a newer reign, it outbids it; and it needs a log that ranks best from the outset.
func DecideOpen(s OpenState) OpenDecision { return law(0).decideOpen(s) }

func (w law) decideOpen(s OpenState) OpenDecision {
	l := s.Lineage
	if !s.Promote && s.Clean && l.Open && l.Whole() && len(l.Epochs) > 0 && l.Promise == l.Epochs.Last() {
		return OpenDecision{Action: OpenContinue, Reign: l.Promise}
	}
	if !s.Promote {
		if d, done := w.compareReigns(s); done {
			return d
		}
	}
	if d, done := w.compareLogs(s); done {
		return d
	}
	if d, done := lostLog(s); done {
		return d
	}
	if d, done := w.countNodes(s); done {
		return d
	}
	if s.Asked.Epoch > 0 {
		return OpenDecision{Action: OpenNow, Reign: s.Asked}
	}
	return OpenDecision{Action: OpenAsk, Reign: w.nextReign(s)}
}

// compareReigns looks for a newer reign, or for another one with the same number, among the peers.
func (w law) compareReigns(s OpenState) (OpenDecision, bool) {
	own := s.Lineage.Known()
	for _, h := range s.Heard {
		if k := h.Known(); k.Epoch > own.Epoch && k.ID != s.Lineage.Candidate.ID {
			return OpenDecision{Action: OpenStepDown, Reign: k}, true
		}
	}
	if s.Force {
		return OpenDecision{}, false
	}
	for _, h := range s.Heard {
		if k := h.Known(); k.Epoch > 0 && k.Epoch == own.Epoch && k.ID != own.ID {
			return OpenDecision{
				Action: OpenWait, Reason: ReasonEpochConflict,
				Remedy: fmt.Sprintf("node %d knows another epoch %d: promote the node whose log is to be kept", h.NodeID, k.Epoch),
			}, true
		}
	}
	return OpenDecision{}, false
}

// compareLogs looks for a log that ranks above the own one. A slave is not promoted over it; a master that is not open yet, be it
// that it starts or that its promotion has begun, fetches it.
func (w law) compareLogs(s OpenState) (OpenDecision, bool) {
	own := w.rank(s.Lineage.Epochs, s.End)
	best, from := own, -1
	for i, h := range s.Heard {
		if r := w.rank(h.Epochs, h.End); Less(best, r) && (s.Promote || w.holds(ruleStartOrder) || w.sameLast(s, h)) {
			best, from = r, i
		}
	}
	if from < 0 || s.Promote && s.Force {
		return OpenDecision{}, false
	}
	h := s.Heard[from]
	if s.Promote && !s.Lineage.Role.Master() {
		return OpenDecision{
			Action: OpenWait, Reason: ReasonNotBest,
			Remedy: fmt.Sprintf("promote node %d, whose log has reached epoch %d and offset %d, or force it", h.NodeID, best.Epoch, best.End),
		}, true
	}
	if at, _ := Part(h.Epochs, h.End, s.Lineage.Epochs, s.End); !s.Diverged && (at == s.End || s.End <= s.First) {
		return OpenDecision{Action: OpenCopy, From: from}, true
	}
	if s.Force {
		return OpenDecision{}, false
	}
	return Diverges(h.NodeID), true
}

// Diverges is the decision of a starting master whose log is no prefix of a better-ranked one.
func Diverges(nodeID int64) OpenDecision {
	return OpenDecision{
		Action: OpenWait, Reason: ReasonLogDiverges,
		Remedy: fmt.Sprintf("promote node %d, whose log ranks above this one and does not extend it. Only where this log is the one to keep: "+
			"`tandemctl promote NODE --force` with this one, or allowDataLoss, at the cost of what only the other has", nodeID),
	}
}

func (w law) sameLast(s OpenState, h Heard) bool { return h.Epochs.Last() == s.Lineage.Epochs.Last() }

// lostLog holds back a node that lacks a whole file or more of what was once durable in its log, as when its disk is not
// mounted, and whose peers cannot say that nobody has more: its slaves would be cut to what it has left. Less than that is
// the torn tail of a crash.
func lostLog(s OpenState) (OpenDecision, bool) {
	gone := s.Lineage.Held - s.End
	if gone <= 0 || s.End > s.First && gone < s.FileSize {
		return OpenDecision{}, false
	}
	if s.Force || s.N > 1 && (s.Sync || len(s.Heard) >= s.N-1) {
		return OpenDecision{}, false
	}
	return OpenDecision{
		Action: OpenWait, Reason: ReasonLogLost,
		Remedy: fmt.Sprintf("the log ends at %d and was durable up to %d: bring its files back; or start this node in an empty folder, as a slave "+
			"of a node that has them. Only where nobody has: allowDataLoss goes on without them, for good", s.End, s.Lineage.Held),
	}, true
}

// countNodes holds the node back until no acknowledged record can be missing from what it has heard.
func (w law) countNodes(s OpenState) (OpenDecision, bool) {
	heard, whole := 0, 0
	for _, h := range s.Heard {
		if s.Asked.Epoch > 0 && !h.Promised {
			continue
		}
		heard++
		if h.Whole {
			whole++
		}
	}
	if w.whole(s.Lineage) {
		whole++
	}
	need := max(1, s.N-s.Required)
	switch {
	case heard >= s.N-1, s.Force:
		return OpenDecision{}, false
	case !s.Sync:
		if s.Waited {
			return OpenDecision{}, false
		}
		need = s.N
	case whole >= need:
		return OpenDecision{}, false
	case s.Promote && !w.holds(ruleQuorum), !s.Promote && !w.holds(ruleOpenQuorum) && w.whole(s.Lineage):
		return OpenDecision{}, false
	}
	return OpenDecision{
		Action: OpenWait, Reason: ReasonNotEnoughNodes,
		Remedy: fmt.Sprintf("start the other nodes of ha.peers, or make them reachable: %d of %d answer, %d of these lack nothing; it takes all, or %d "+
			"that lack nothing. Only where the others are lost for good: `tandemctl promote NODE --force`, or allowDataLoss, at the cost of what only they have",
			heard+1, s.N, whole, need),
	}, true
}

// nextReign returns a number above all that was heard and tried. The id of a candidacy stays, so that it knows its own promises
// again; 0 means that it needs one.
func (w law) nextReign(s OpenState) Promise {
	c := s.Lineage.Candidate
	top := max(s.Lineage.Known().Epoch, c.Epoch)
	for _, h := range s.Heard {
		if w.holds(ruleMaxE) {
			top = max(top, h.Known().Epoch)
		}
	}
	return Promise{Epoch: top + 1, ID: c.ID}
}
