package node

import (
	"cmp"
	"slices"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

const (
	// leastRoom is what a node must have room for to take leadership over, bytes.
	leastRoom = 4 << 10
	// mostDoublings of RetryFull make the longest pause between two tries to hand leadership over.
	mostDoublings = 6
)

// room is what the node knows of the space on its disk, and what a leader without any does about it. It is Run's own.
type room struct {
	why  error // the last look for room failed; nil: it did not
	need int64 // what was looked for then

	refused bool       // a proposal was, since the last try to hand over
	handing bool       // leadership is being handed over for want of room
	tries   int        // without success since there was room
	next    raft.Ticks // no other try before
}

// reserve asks for room for entries and for all that the core has taken before them in this round.
func (n *Node) reserve(entries int, bytes int64) error {
	if entries == 0 {
		return nil
	}
	if err := n.look(entries, bytes); err != nil {
		n.noRoom.Add(1)
		return err
	}
	n.unsaved += entries
	n.bytes += bytes
	return nil
}

// look finds out whether there is room. That for less than what was refused does not count as an end of the want.
func (n *Node) look(entries int, bytes int64) error {
	err := n.log.Reserve(n.unsaved+entries, n.bytes+bytes)
	switch {
	case err != nil:
		n.room.why, n.room.need = err, max(n.room.need, bytes)
	case bytes >= n.room.need:
		n.room.why, n.room.need, n.room.tries, n.room.refused = nil, 0, 0, false
	}
	return err
}

// lookAgain is for who asks whether there is room by now, though nothing is to be written.
func (n *Node) lookAgain() error {
	if n.room.why != nil {
		_ = n.look(1, n.room.need) // noted
	}
	return n.room.why
}

// declines says that a message must not reach the core: who has no room for entries does not take leadership over. Who would
// have handed it over leads on when its time for that is over.
func (n *Node) declines(m *raft.Message) bool {
	return m.Type == raft.TakeLeadership && n.look(1, max(leastRoom, n.room.need)) != nil
}

// giveWay hands leadership over when proposals were refused for want of room: another member may have some. One without
// declines, so each is tried in turn, the one that has most first, with pauses that grow as long as nothing comes of it.
func (n *Node) giveWay(now raft.Ticks) {
	r := &n.room
	if !r.refused || r.handing || now < r.next {
		return
	}
	s := n.core.Status()
	if s.Role != consensus.Leader || s.Transferee != "" {
		return
	}
	r.refused = false
	r.next = now + raft.Ticks(n.o.RetryFull.Milliseconds())<<min(r.tries, mostDoublings)
	able := slices.DeleteFunc(s.Peers, func(p consensus.PeerStatus) bool {
		return p.Learner || p.State != push.Appending || p.Silent >= n.o.Core.ElectionMin || p.Lag > n.o.Core.MaxTransferLag
	})
	if len(able) == 0 {
		return
	}
	slices.SortStableFunc(able, func(a, b consensus.PeerStatus) int { return cmp.Compare(b.Match, a.Match) })
	r.handing = n.core.Transfer(now, able[r.tries%len(able)].ID) == raft.OK
	r.tries++
}

// gaveWay notes how a hand-over for want of room has ended.
func (n *Node) gaveWay(old, s consensus.SoftState) {
	if !n.room.handing || s.Role == consensus.Leader && s.Transferee != "" {
		return
	}
	n.room.handing = false
	if s.Term > old.Term { // else it leads on, or has lost its quorum
		n.gaveAway.Add(1)
		n.o.Log.Warn("leadership handed over: the disk is full", "to", string(old.Transferee), "error", n.room.why)
	}
}
