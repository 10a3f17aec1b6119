package raft

// Reason says why something was refused; nothing was changed when one other than OK is returned. It is no error, since each
// caller has its own way to say it to whom it serves.
type Reason uint8

// Reasons.
const (
	OK                Reason = iota
	BadMessage               // unknown type, or a number that cannot be
	UnknownPeer              // the sender is no member, or claims to be this node
	WrongTarget              // meant for another node
	OldTerm                  // the sender's term is over
	OtherLeader              // two leaders in one term; alarm
	NotLeader                // only a leader can
	NoLeader                 // no leader is known
	StaleAnswer              // belongs to an exchange that is over
	BadBatch                 // indexes with a gap, terms that fall or lie above the sender's, sizes out of bounds
	Gap                      // the entry before is not there yet
	Conflict                 // another entry stands in its place
	CommittedConflict        // another entry stands in its place, and is committed; alarm
	TruncateCommitted        // the cut would take committed entries; alarm
	TruncateStale            // the cut would take entries known to be the leader's
	CommitBeyondEnd          // committed more than this node can have
	Overload                 // more unsaved bytes than allowed; the push is repeated
	LeaderAlive              // no vote: a leader was heard of within the election timeout
	AlreadyVoted             // no vote: another has it, or the term has its leader
	ShortLog                 // no vote: the candidate's log is older
	NotVoter                 // not before this node has caught up
	BadProposal              // no entries, a size out of bounds, or a kind that clients may not write
	PendingFull              // too much uncommitted; DLedger's LEADER_PENDING_FULL
	Transferring             // leadership is being handed over; DLedger's LEADER_TRANSFERRING
	TransferLag              // the target is too far behind, silent, or no voter
	ReadsFull                // too many reads wait
	PurgeUncommitted         // only committed entries may be purged
	NumReasons
)

var reasonTexts = [...]string{
	"ok", "message malformed", "sender is not a member", "message is for another node", "term is over", "two leaders in one term",
	"not the leader", "no leader known", "answer is out of date", "batch malformed", "entry before is missing", "entries differ",
	"committed entries differ", "cut below the commit index", "cut is out of date", "commit index beyond the end", "too many unsaved bytes",
	"a leader is alive", "vote is given", "log is older", "node has not caught up yet", "proposal malformed", "too many uncommitted entries",
	"leadership is being transferred", "target cannot take over now", "too many reads wait", "purge beyond the commit index", "?",
}

func (r Reason) String() string { return reasonTexts[min(int(r), len(reasonTexts)-1)] }
