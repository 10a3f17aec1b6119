package peer

import (
	"math"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// decoder turns what another member sent into a message, or refuses it.
type decoder struct {
	group    string
	self     raft.NodeID
	known    func(raft.NodeID) bool // another member
	maxEntry int
}

// open checks the envelope and begins the message.
func (d *decoder) open(t raft.MessageType, e *ledgerv1.Envelope) (raft.Message, error) {
	m := raft.Message{Type: t, From: raft.NodeID(e.GetFrom()), To: raft.NodeID(e.GetTo()), Term: raft.Term(e.GetTerm()), Learner: e.GetLearner()}
	switch {
	case e.GetGroup() != d.group:
		return m, ErrGroup.With("got", e.GetGroup()).With("want", d.group)
	case !d.known(m.From):
		return m, ErrUnknownPeer.With("from", m.From)
	case m.To != d.self:
		return m, ErrTarget.With("to", m.To).With("self", d.self)
	case m.Term < 0 || m.Term > math.MaxInt64/2:
		return m, ErrBadMessage.WithField("envelope.term").With("term", m.Term)
	}
	return m, nil
}

// place takes index and term of an entry.
func (d *decoder) place(m *raft.Message, index, term int64) error {
	m.Index, m.LogTerm = raft.Index(index), raft.Term(term)
	switch {
	case m.Index < raft.NoIndex || m.Index == math.MaxInt64:
		return ErrBadMessage.WithField("index").With("index", index)
	case m.LogTerm < raft.NoTerm || m.LogTerm > m.Term && m.Type != raft.Vote && m.Type != raft.PreVote && !m.Learner:
		return ErrBadMessage.WithField("log_term").With("log_term", term).With("term", m.Term)
	}
	return nil
}

// ends takes the sender's end and commit index.
func (d *decoder) ends(m *raft.Message, end, commit int64) error {
	m.End, m.Commit = raft.Index(end), raft.Index(commit)
	switch {
	case m.End < raft.NoIndex:
		return ErrBadMessage.WithField("end").With("end", end)
	case m.Commit < raft.NoIndex:
		return ErrBadMessage.WithField("commit").With("commit", commit)
	}
	return nil
}

func (d *decoder) refused(m *raft.Message, r ledgerv1.Reason) error {
	if r < 0 || r >= ledgerv1.Reason(raft.NumReasons) {
		return ErrBadMessage.WithField("refused").With("refused", int32(r))
	}
	m.Refused = raft.Reason(r) //nolint:gosec // bounded above
	return nil
}

func (d *decoder) push(r *ledgerv1.PushRequest) (raft.Message, error) {
	switch p := r.GetPush().(type) {
	case *ledgerv1.PushRequest_Compare:
		return d.compare(p.Compare)
	case *ledgerv1.PushRequest_Truncate:
		return d.truncate(p.Truncate)
	case *ledgerv1.PushRequest_Append:
		return d.append(p.Append)
	case *ledgerv1.PushRequest_Commit:
		return d.commit(p.Commit)
	default:
		return raft.Message{}, ErrBadMessage.WithField("push").WithMsg("the message holds no push")
	}
}

func (d *decoder) compare(r *ledgerv1.CompareRequest) (raft.Message, error) {
	m, err := d.open(raft.Compare, r.GetEnvelope())
	m.Seq = r.GetSeq()
	if err == nil {
		err = d.place(&m, r.GetIndex(), r.GetLogTerm())
	}
	return m, err
}

func (d *decoder) truncate(r *ledgerv1.TruncateRequest) (raft.Message, error) {
	m, err := d.open(raft.Truncate, r.GetEnvelope())
	m.Seq, m.Nonce, m.Reset = r.GetSeq(), r.GetNonce(), r.GetReset_()
	if err == nil {
		err = d.place(&m, r.GetIndex(), r.GetLogTerm())
	}
	return m, err
}

func (d *decoder) commit(r *ledgerv1.CommitRequest) (raft.Message, error) {
	m, err := d.open(raft.Commit, r.GetEnvelope())
	m.Seq = r.GetSeq()
	if err == nil {
		err = d.place(&m, r.GetIndex(), r.GetLogTerm())
	}
	if err == nil {
		err = d.ends(&m, 0, r.GetCommit())
	}
	return m, err
}

// append takes a batch over; the bytes belong to its entries from then on.
func (d *decoder) append(r *ledgerv1.PushServiceAppendRequest) (raft.Message, error) {
	m, err := d.open(raft.Append, r.GetEnvelope())
	m.Seq = r.GetSeq()
	if err == nil {
		err = d.place(&m, r.GetIndex(), r.GetLogTerm())
	}
	if err == nil {
		err = d.ends(&m, 0, r.GetCommit())
	}
	if err == nil {
		m.Entries, err = entry.Split(nil, r.GetEntries())
	}
	if err != nil || len(m.Entries) == 0 {
		return m, err
	}
	first, last := &m.Entries[0], &m.Entries[len(m.Entries)-1]
	switch {
	case first.Index != m.Index+1:
		return m, ErrBadBatch.WithField("entries.index").With("index", first.Index).With("want", m.Index+1)
	case first.Term < m.LogTerm || last.Term > m.Term:
		return m, ErrBadBatch.WithField("entries.term").With("first", first.Term).With("last", last.Term).With("log_term", m.LogTerm).With("term", m.Term)
	}
	for i := range m.Entries {
		if m.Entries[i].Size > d.maxEntry {
			return m, ErrBadBatch.WithField("entries.size").With("index", m.Entries[i].Index).With("size", m.Entries[i].Size).With("limit", d.maxEntry).
				WithRemedy("give this node data files as large as the others': mappedFileSizeForEntryData, with an empty folder")
		}
	}
	return m, nil
}

func (d *decoder) pushAnswer(t raft.MessageType, r *ledgerv1.PushAnswer) (raft.Message, error) {
	m, err := d.open(t, r.GetEnvelope())
	m.Seq, m.Nonce = r.GetSeq(), r.GetNonce()
	if err == nil {
		err = d.place(&m, r.GetIndex(), r.GetLogTerm())
	}
	if err == nil {
		err = d.ends(&m, r.GetEnd(), r.GetCommit())
	}
	if err == nil {
		err = d.refused(&m, r.GetRefused())
	}
	return m, err
}

func (d *decoder) pushResponse(r *ledgerv1.PushResponse) (raft.Message, error) {
	switch a := r.GetAnswer().(type) {
	case *ledgerv1.PushResponse_Compare:
		return d.pushAnswer(raft.CompareAnswer, a.Compare.GetAnswer())
	case *ledgerv1.PushResponse_Truncate:
		return d.pushAnswer(raft.TruncateAnswer, a.Truncate.GetAnswer())
	case *ledgerv1.PushResponse_Append:
		return d.pushAnswer(raft.AppendAnswer, a.Append.GetAnswer())
	case *ledgerv1.PushResponse_Commit:
		return d.pushAnswer(raft.CommitAnswer, a.Commit.GetAnswer())
	default:
		return raft.Message{}, ErrBadMessage.WithField("answer").WithMsg("the message holds no answer")
	}
}

func (d *decoder) vote(r *ledgerv1.VoteRequest) (raft.Message, error) {
	m, err := d.open(raft.Vote, r.GetEnvelope())
	m.Force = r.GetForce()
	if err == nil {
		err = d.place(&m, r.GetLastIndex(), r.GetLastTerm())
	}
	return m, err
}

func (d *decoder) preVote(r *ledgerv1.PreVoteRequest) (raft.Message, error) {
	m, err := d.open(raft.PreVote, r.GetEnvelope())
	if err == nil {
		err = d.place(&m, r.GetLastIndex(), r.GetLastTerm())
	}
	return m, err
}

// voteAnswer is for the answers to Vote and PreVote.
func (d *decoder) voteAnswer(t raft.MessageType, e *ledgerv1.Envelope, refused ledgerv1.Reason) (raft.Message, error) {
	m, err := d.open(t, e)
	if err == nil {
		err = d.refused(&m, refused)
	}
	return m, err
}

func (d *decoder) heartbeat(r *ledgerv1.HeartbeatRequest) (raft.Message, error) {
	m, err := d.open(raft.Heartbeat, r.GetEnvelope())
	m.Round, m.Sent = r.GetRound(), raft.Ticks(r.GetSent())
	return m, err
}

func (d *decoder) heartbeatAnswer(r *ledgerv1.HeartbeatResponse) (raft.Message, error) {
	m, err := d.voteAnswer(raft.HeartbeatAnswer, r.GetEnvelope(), r.GetRefused())
	m.Round, m.Sent, m.Silence = r.GetRound(), raft.Ticks(r.GetSent()), raft.Ticks(r.GetSilence())
	if err == nil && m.Silence < 0 {
		err = ErrBadMessage.WithField("silence").With("silence", r.GetSilence())
	}
	if err == nil {
		err = d.ends(&m, r.GetEnd(), r.GetCommit())
	}
	return m, err
}

func (d *decoder) readIndex(r *ledgerv1.ReadIndexRequest) (raft.Message, error) {
	m, err := d.open(raft.ReadIndex, r.GetEnvelope())
	m.ReadID, m.Nonce = r.GetReadId(), r.GetNonce()
	return m, err
}

func (d *decoder) readIndexAnswer(r *ledgerv1.ReadIndexResponse) (raft.Message, error) {
	m, err := d.voteAnswer(raft.ReadIndexAnswer, r.GetEnvelope(), r.GetRefused())
	m.ReadID, m.Nonce = r.GetReadId(), r.GetNonce()
	if err == nil {
		err = d.place(&m, r.GetIndex(), 0)
	}
	return m, err
}

func (d *decoder) rejoin(r *ledgerv1.RejoinRequest) (raft.Message, error) {
	m, err := d.open(raft.Rejoin, r.GetEnvelope())
	m.Nonce = r.GetNonce()
	return m, err
}

func (d *decoder) rejoinAnswer(r *ledgerv1.RejoinResponse) (raft.Message, error) {
	m, err := d.open(raft.RejoinAnswer, r.GetEnvelope())
	m.Nonce, m.Leads = r.GetNonce(), r.GetLeads()
	if err == nil {
		err = d.ends(&m, r.GetEnd(), 0)
	}
	return m, err
}

func (d *decoder) takeLeadership(r *ledgerv1.TakeLeadershipRequest) (raft.Message, error) {
	return d.open(raft.TakeLeadership, r.GetEnvelope())
}
