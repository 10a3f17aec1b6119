package consensus

import (
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Transfer hands leadership to another member (DLedger's LEADERSHIP_TRANSFER). It is refused at once when the target is
// more than MaxTransferLag entries behind, silent or no voter. Until it ends, by a new leader or after TransferTimeout,
// proposals are refused; SoftState.Transferee tells.
func (c *Core) Transfer(now raft.Ticks, to raft.NodeID) raft.Reason {
	c.clock(now)
	d := c.peer(to)
	switch {
	case c.role != Leader:
		return c.count(raft.NotLeader)
	case d == nil:
		return c.count(raft.UnknownPeer)
	case c.transferee != "":
		return c.count(raft.Transferring)
	case !c.canTakeOver(d):
		return c.count(raft.TransferLag)
	}
	c.transferee, c.transferAsked, c.transferEnds = to, false, c.now+c.cfg.TransferTimeout
	return raft.OK
}

func (c *Core) canTakeOver(d *member) bool {
	return !d.Learner && d.State == push.Appending && d.Heard > c.now-c.cfg.ElectionMin && c.log.Last-d.Match <= c.cfg.MaxTransferLag
}

// askTransferee tells the target to begin once it has everything.
func (c *Core) askTransferee(d *member) {
	if c.transferee != d.ID || c.transferAsked || d.State != push.Appending || d.Match < c.log.Last {
		return
	}
	c.transferAsked, c.leaseForfeit = true, !c.faults.leaseInTransfer
	c.send(d.ID, raft.Message{Type: raft.TakeLeadership})
}

func (c *Core) onTakeLeadership() raft.Reason {
	if !c.hard.Voter {
		return raft.NotVoter
	}
	c.campaign(true)
	return raft.OK
}

// preferBetter begins a transfer to the member of the highest priority above this node's that could take over. One that does
// not, for its disk may be full, is asked ever less often: each transfer costs proposals.
func (c *Core) preferBetter() {
	var best *member
	most := c.cfg.Priority[c.cfg.ID]
	for _, d := range c.peers {
		if p := c.cfg.Priority[d.ID]; p > most && c.canTakeOver(d) {
			best, most = d, p
		}
	}
	if best != nil {
		c.transferee, c.transferAsked, c.transferEnds = best.ID, false, c.now+c.cfg.TransferTimeout
		c.spurned, c.nextPriority = min(c.spurned+1, 6), c.transferEnds+c.cfg.PriorityInterval<<c.spurned
	}
}
