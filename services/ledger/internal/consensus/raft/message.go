package raft

// MessageType names a message. The four pushes and their answers keep DLedger's names.
type MessageType uint8

// Messages. "echo" fields come back unchanged in the answer.
const (
	Compare         MessageType = iota + 1 // Index, LogTerm: do you hold this entry?; Seq echo
	CompareAnswer                          // Index, LogTerm: my nearest entry not above; End; Nonce: this life of the node
	Truncate                               // Index, LogTerm: the last entry to keep; Reset: begin anew behind it; Nonce of the answer it rests on; Seq echo
	TruncateAnswer                         // Index, End
	Append                                 // Index, LogTerm: the entry before; Count, Bytes (out), Entries (in); Commit; Seq echo
	AppendAnswer                           // Index: my log equals yours up to it, durably; End, Commit. Refused: Index, LogTerm as in CompareAnswer
	Commit                                 // an Append without entries; moves only the commit index
	CommitAnswer                           // as AppendAnswer
	Heartbeat                              // Round, Sent echo
	HeartbeatAnswer                        // End, Commit, Silence
	PreVote                                // Term: the one asked for; Index, LogTerm: the log's end
	PreVoteAnswer                          // granted: Term as asked for; Refused: the voter's Term
	Vote                                   // Index, LogTerm: the log's end; Force: the leader wants it
	VoteAnswer                             //
	TakeLeadership                         // from the leader to the one that shall follow it
	ReadIndex                              // ReadID, Nonce echo
	ReadIndexAnswer                        // Index, or Refused
	Rejoin                                 // Nonce echo: tell me your term, and your end if you lead
	RejoinAnswer                           // Term, Leads, End
	lastType
)

var typeNames = [...]string{
	"?", "COMPARE", "COMPARE_ANSWER", "TRUNCATE", "TRUNCATE_ANSWER", "APPEND", "APPEND_ANSWER", "COMMIT", "COMMIT_ANSWER", "HEARTBEAT",
	"HEARTBEAT_ANSWER", "PRE_VOTE", "PRE_VOTE_ANSWER", "VOTE", "VOTE_ANSWER", "TAKE_LEADERSHIP", "READ_INDEX", "READ_INDEX_ANSWER", "REJOIN",
	"REJOIN_ANSWER", "?",
}

func (t MessageType) String() string { return typeNames[min(int(t), len(typeNames)-1)] }

// Message is what members say to each other. Which fields count is said at the types.
type Message struct {
	Type     MessageType
	From, To NodeID
	Term     Term // of the sender

	Index   Index
	LogTerm Term
	Commit  Index
	End     Index // last entry of the sender

	Count   int     // Append, outgoing: entries Index+1 to Index+Count, which the driver adds from its log
	Bytes   int64   // Append, outgoing: what they take
	Entries []Entry // Append, incoming

	Seq   uint64
	Round uint64
	Sent  Ticks // on the leader's clock
	// Silence is for how long after the heartbeat the sender hears no other candidate.
	Silence Ticks
	Nonce   uint64
	ReadID  uint64

	Refused Reason
	Force   bool
	Reset   bool
	Leads   bool
	Learner bool // answers: the sender is no voter yet, so that nothing it says may be counted
}

// Valid says that t is one of the types above.
func (t MessageType) Valid() bool { return t > 0 && t < lastType }

// answers holds the answer's type of every request that has one.
var answers = [lastType]MessageType{
	Compare: CompareAnswer, Truncate: TruncateAnswer, Append: AppendAnswer, Commit: CommitAnswer, Heartbeat: HeartbeatAnswer,
	PreVote: PreVoteAnswer, Vote: VoteAnswer, ReadIndex: ReadIndexAnswer, Rejoin: RejoinAnswer,
}

// Answer returns the type of the answer to t, 0 for none.
func (t MessageType) Answer() MessageType { return answers[t] }

// FromLeader says that only a leader of m.Term sends m.
func (m *Message) FromLeader() bool {
	switch m.Type {
	case Compare, Truncate, Append, Commit, Heartbeat, TakeLeadership:
		return true
	default:
		return false
	}
}
