package epoch

// Farthest is how far a reign may lie above every epoch that a node knows of for it to be believed of a caller. Each attempt of a promotion takes
// one number, so that a node may miss four billion of them before it doubts a legal one.
const Farthest = 1 << 32

// maxEpoch bounds every number that is taken over from somewhere else: a candidate has to be able to go above all of them.
const maxEpoch = 1 << 62

// ReasonEpochTooFar is the reason where a caller names an epoch that no promotion can have led to. Believed, a few such calls would use up the numbers, and the group
// could never have a master again.
const ReasonEpochTooFar = "EPOCH_TOO_FAR"

// tooFar reports whether nobody who knows of epoch known believes in epoch e.
func tooFar(e, known int64) bool { return e > maxEpoch || e-known > Farthest }

// Top returns the highest number that the node, or one of those whom it has heard, knows of or has tried.
func Top(l Lineage, heard []Heard) int64 {
	top := max(l.Known().Epoch, l.Candidate.Epoch)
	for _, h := range heard {
		top = max(top, h.Known().Epoch)
	}
	return top
}
