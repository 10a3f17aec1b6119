package epoch

// Progress is what an open master knows about its log. Offsets are in bytes.
type Progress struct {
	// Written and Flushed ends; Acked is the offset that Required slaves have confirmed.
	Written, Flushed, Acked int64
	// InSync counts the slaves in sync, Required those that a put needs.
	InSync, Required int
	// OwnStart is where the master's own epoch begins.
	OwnStart int64
	// Sync: a sync master. SyncFlush: every put is flushed. Refuse: ha.refuseWithoutReplicas.
	Sync, SyncFlush, Refuse bool
}

// Limit says which of a node's watermarks holds Readable back.
type Limit uint8

// Limits.
const (
	LimitWritten Limit = iota
	LimitFlushed
	LimitAcked
	// LimitInSync: nothing but more slaves in sync moves it.
	LimitInSync
)

// Readable returns how far readers may see on an open master, and what it waits for. The caller only ever raises its own
// watermark to it: where it is lower, as after slaves have returned, Readable stands still.
func Readable(p Progress) (int64, Limit) { return law(0).readable(p) }

func (w law) readable(p Progress) (int64, Limit) {
	n, by := p.Written, LimitWritten
	switch {
	case !p.Sync:
	case p.InSync >= p.Required:
		n, by = p.Acked, LimitAcked
		if n < p.OwnStart && w.holds(ruleOwnStart) {
			n = 0
		}
	case p.Refuse:
		return 0, LimitInSync
	}
	if p.SyncFlush && p.Flushed < n && w.holds(ruleFlushed) {
		n, by = p.Flushed, LimitFlushed
	}
	return n, by
}

// Outranked reports whether a peer knows of a reign above all that the node holds: an open master then steps down, as its
// puts can confirm nothing any more.
func Outranked(l Lineage, heard []Heard) bool {
	for _, h := range heard {
		if h.Known().Epoch > l.Known().Epoch {
			return true
		}
	}
	return false
}

// Contested reports whether a peer is open master of a reign with this node's number and another id, which only a forced
// opening can bring about: neither may go on.
func Contested(l Lineage, heard []Heard) bool {
	for _, h := range heard {
		if p, own := h.Known(), l.Known(); h.OpenMaster && p.Epoch == own.Epoch && p.ID != own.ID {
			return true
		}
	}
	return false
}
