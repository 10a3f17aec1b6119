package consensus

// Fault is one rule that a test switches off.
type Fault struct {
	Name  string
	Plant func(*Core)
}

// Faults lists them, each as somebody has built it: in DLedger, or in another implementation of Raft.
func Faults() []Fault {
	set := func(name string, of func(*faults) *bool) Fault {
		return Fault{Name: name, Plant: func(c *Core) { *of(&c.faults) = true }}
	}
	return []Fault{
		set("vote not durable", func(f *faults) *bool { return &f.voteNotDurable }),
		set("vote forgotten when a leader is learned", func(f *faults) *bool { return &f.forgetVote }),
		set("vote for a shorter log", func(f *faults) *bool { return &f.voteShortLog }),
		set("late grant counted", func(f *faults) *bool { return &f.lateGrant }),
		set("old-term entries committed by counting", func(f *faults) *bool { return &f.oldTermCommit }),
		set("no no-op", func(f *faults) *bool { return &f.noOpSkipped }),
		set("truncate whatever is ordered", func(f *faults) *bool { return &f.truncateAny }),
		set("commit index beyond what matches", func(f *faults) *bool { return &f.commitUnverified }),
		set("repeated append truncates", func(f *faults) *bool { return &f.repeatTruncates }),
		set("lease kept after the quorum is lost", func(f *faults) *bool { return &f.leaseForever }),
		set("lease kept in a transfer", func(f *faults) *bool { return &f.leaseInTransfer }),
		set("lease longer than another's silence", func(f *faults) *bool { return &f.silenceUntold }),
		set("vote at once after a start", func(f *faults) *bool { return &f.voteAfterStart }),
		set("vote under another's lease", func(f *faults) *bool { return &f.deafToLease }),
		set("ack before the sync", func(f *faults) *bool { return &f.ackBeforeSync }),
		set("wiped node votes", func(f *faults) *bool { return &f.wipedVotes }),
		set("wiped node is counted", func(f *faults) *bool { return &f.learnerCounts }),
		set("hint taken for a match", func(f *faults) *bool { return &f.hintUnverified }),
		set("term falls with a cut", func(f *faults) *bool { return &f.termFalls }),
		set("read without a quorum", func(f *faults) *bool { return &f.readUnconfirmed }),
	}
}
