package peer

import (
	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

func envelopeOf(group string, m *raft.Message) *ledgerv1.Envelope {
	return &ledgerv1.Envelope{Group: group, From: string(m.From), To: string(m.To), Term: int64(m.Term), Learner: m.Learner}
}

// pushOf makes the wire's form of a push; entries are those of an Append.
func pushOf(group string, m *raft.Message, entries []byte) *ledgerv1.PushRequest {
	env := envelopeOf(group, m)
	switch m.Type {
	case raft.Compare:
		return &ledgerv1.PushRequest{Push: &ledgerv1.PushRequest_Compare{Compare: &ledgerv1.CompareRequest{
			Envelope: env, Seq: m.Seq, Index: int64(m.Index), LogTerm: int64(m.LogTerm),
		}}}
	case raft.Truncate:
		return &ledgerv1.PushRequest{Push: &ledgerv1.PushRequest_Truncate{Truncate: &ledgerv1.TruncateRequest{
			Envelope: env, Seq: m.Seq, Index: int64(m.Index), LogTerm: int64(m.LogTerm), Reset_: m.Reset, Nonce: m.Nonce,
		}}}
	case raft.Append:
		return &ledgerv1.PushRequest{Push: &ledgerv1.PushRequest_Append{Append: &ledgerv1.PushServiceAppendRequest{
			Envelope: env, Seq: m.Seq, Index: int64(m.Index), LogTerm: int64(m.LogTerm), Commit: int64(m.Commit), Entries: entries,
		}}}
	default:
		return &ledgerv1.PushRequest{Push: &ledgerv1.PushRequest_Commit{Commit: &ledgerv1.CommitRequest{
			Envelope: env, Seq: m.Seq, Index: int64(m.Index), LogTerm: int64(m.LogTerm), Commit: int64(m.Commit),
		}}}
	}
}

func pushAnswerOf(group string, m *raft.Message) *ledgerv1.PushAnswer {
	return &ledgerv1.PushAnswer{
		Envelope: envelopeOf(group, m), Seq: m.Seq, Index: int64(m.Index), LogTerm: int64(m.LogTerm), End: int64(m.End),
		Commit: int64(m.Commit), Nonce: m.Nonce, Refused: ledgerv1.Reason(m.Refused),
	}
}

// pushResponseOf makes the wire's form of the answer to a push.
func pushResponseOf(group string, m *raft.Message) *ledgerv1.PushResponse {
	a := pushAnswerOf(group, m)
	switch m.Type {
	case raft.CompareAnswer:
		return &ledgerv1.PushResponse{Answer: &ledgerv1.PushResponse_Compare{Compare: &ledgerv1.CompareResponse{Answer: a}}}
	case raft.TruncateAnswer:
		return &ledgerv1.PushResponse{Answer: &ledgerv1.PushResponse_Truncate{Truncate: &ledgerv1.TruncateResponse{Answer: a}}}
	case raft.AppendAnswer:
		return &ledgerv1.PushResponse{Answer: &ledgerv1.PushResponse_Append{Append: &ledgerv1.PushServiceAppendResponse{Answer: a}}}
	default:
		return &ledgerv1.PushResponse{Answer: &ledgerv1.PushResponse_Commit{Commit: &ledgerv1.CommitResponse{Answer: a}}}
	}
}

func voteOf(group string, m *raft.Message) *ledgerv1.VoteRequest {
	return &ledgerv1.VoteRequest{Envelope: envelopeOf(group, m), LastIndex: int64(m.Index), LastTerm: int64(m.LogTerm), Force: m.Force}
}

func preVoteOf(group string, m *raft.Message) *ledgerv1.PreVoteRequest {
	return &ledgerv1.PreVoteRequest{Envelope: envelopeOf(group, m), LastIndex: int64(m.Index), LastTerm: int64(m.LogTerm)}
}

func heartbeatOf(group string, m *raft.Message) *ledgerv1.HeartbeatRequest {
	return &ledgerv1.HeartbeatRequest{Envelope: envelopeOf(group, m), Round: m.Round, Sent: int64(m.Sent)}
}

func heartbeatAnswerOf(group string, m *raft.Message) *ledgerv1.HeartbeatResponse {
	return &ledgerv1.HeartbeatResponse{
		Envelope: envelopeOf(group, m), Round: m.Round, Sent: int64(m.Sent), End: int64(m.End), Commit: int64(m.Commit),
		Refused: ledgerv1.Reason(m.Refused), Silence: int64(m.Silence),
	}
}

func readIndexOf(group string, m *raft.Message) *ledgerv1.ReadIndexRequest {
	return &ledgerv1.ReadIndexRequest{Envelope: envelopeOf(group, m), ReadId: m.ReadID, Nonce: m.Nonce}
}

func readIndexAnswerOf(group string, m *raft.Message) *ledgerv1.ReadIndexResponse {
	return &ledgerv1.ReadIndexResponse{
		Envelope: envelopeOf(group, m), ReadId: m.ReadID, Nonce: m.Nonce, Index: int64(m.Index), Refused: ledgerv1.Reason(m.Refused),
	}
}

func rejoinAnswerOf(group string, m *raft.Message) *ledgerv1.RejoinResponse {
	return &ledgerv1.RejoinResponse{Envelope: envelopeOf(group, m), Nonce: m.Nonce, Leads: m.Leads, End: int64(m.End)}
}
