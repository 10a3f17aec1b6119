package node

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// pendingReads are the reads whose index is not confirmed yet. All that came in one round share one question.
type pendingReads struct {
	last    uint64
	waiting map[uint64]*readGroup
}

type readGroup struct {
	at    raft.Ticks
	calls []*call
}

// read asks the core for a confirmed index for all reads of the round.
func (n *Node) read(now raft.Ticks, calls []*call) {
	n.reads.last++
	if r := n.core.Read(now, n.reads.last); r != raft.OK {
		err := refusal(r, n.Soft().Leader)
		for _, c := range calls {
			c.done <- err
		}
		return
	}
	n.reads.waiting[n.reads.last] = &readGroup{at: now, calls: calls}
}

// confirmed answers the reads of one question.
func (n *Node) confirmed(id uint64, index raft.Index, why raft.Reason) {
	g := n.reads.waiting[id]
	if g == nil {
		return // twice, or too late
	}
	delete(n.reads.waiting, id)
	var err error
	if why != raft.OK {
		err = refusal(why, n.Soft().Leader)
	}
	for _, c := range g.calls {
		c.index = index
		c.done <- err
	}
}

// expire ends the reads whose answer does not come.
func (n *Node) expire(now raft.Ticks) {
	for id, g := range n.reads.waiting {
		if now-g.at >= raft.Ticks(n.o.ReadTimeout.Milliseconds()) {
			delete(n.reads.waiting, id)
			g.end(ErrReadLost)
		}
	}
}

func (g *readGroup) end(err error) {
	for _, c := range g.calls {
		c.done <- err
	}
}
