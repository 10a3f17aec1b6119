package consensus

import "github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"

// DLedger's QuorumAckChecker: what a quorum has. It has no futures to complete; who waits, waits for the commit index.

// quorum is the number of members that decide.
func (c *Core) quorum() int { return (len(c.peers)+1)/2 + 1 }

// quorumOf returns the highest number that a quorum has reached, this node with self and each peer with of.
func (c *Core) quorumOf(self int64, of func(*member) int64) int64 {
	var have [maxPeers]int64
	n := 0
	insert := func(v int64) {
		i := n
		for ; i > 0 && have[i-1] < v; i-- {
			have[i] = have[i-1]
		}
		have[i] = v
		n++
	}
	insert(self)
	for _, d := range c.peers {
		insert(of(d))
	}
	return have[c.quorum()-1]
}

// advanceCommit commits what a quorum holds durably, but counts only for entries of the leader's own term (Raft 5.4.2):
// an older one on a quorum may still be replaced. The no-op of becomeLeader sees to it that there is an own one.
func (c *Core) advanceCommit() {
	i := raft.Index(c.quorumOf(int64(c.out.stable), (*member).ackedAt))
	if i < c.termStart && !c.faults.oldTermCommit {
		return
	}
	c.committed = max(c.committed, i)
}

// startCount begins an election's count with this node's own vote.
func (c *Core) startCount() {
	for _, d := range c.peers {
		d.vote = voteOpen
	}
}

func (c *Core) countVote(m *raft.Message) {
	d := c.peer(m.From)
	if m.Refused == raft.OK {
		d.vote = voteGranted
	} else if d.vote == voteOpen {
		d.vote = voteRefused
	}
}

func (c *Core) granted() bool { return 1+c.votes(voteGranted) >= c.quorum() }

func (c *Core) lost() bool { return c.votes(voteRefused) > len(c.peers)+1-c.quorum() }

func (c *Core) votes(v vote) int {
	n := 0
	for _, d := range c.peers {
		if d.vote == v {
			n++
		}
	}
	return n
}
