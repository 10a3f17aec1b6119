package consensus

import (
	"math"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Core is one member's state machine: what DLedger spreads over MemberState, DLedgerLeaderElector and DLedgerEntryPusher.
// It is not safe for concurrent use: one goroutine owns it and drives it as doc.go says.
type Core struct {
	cfg   Config
	store push.Log

	memberState
	election
	reads
	rejoin
	peers []*member // the others, in the order of Config.Peers

	now         raft.Ticks
	incarnation uint64 // tells answers to this life of the node from answers to an earlier one

	view     push.View
	out      output
	alarms   []Alarm
	counters Counters
	faults   faults
	busy     bool // between Ready and Advance
}

// output gathers what the next Ready carries.
type output struct {
	hardDirty bool
	cut       *Cut
	pending   []raft.Entry // not on disk yet; the first is stable+1
	bytes     int64        // what they take
	stable    raft.Index   // last entry on disk
	messages  []raft.Message
	promises  []raft.Message
	reads     []ReadState
	published raft.Index
	soft      SoftState
	hardCopy  raft.HardState
	softCopy  SoftState
}

// faults break one rule each. Only this package's tests can set them, to prove that the simulation notices.
type faults struct {
	voteNotDurable, forgetVote, voteShortLog, lateGrant, oldTermCommit, truncateAny, commitUnverified, repeatTruncates   bool
	leaseForever, leaseInTransfer, voteAfterStart, ackBeforeSync, wipedVotes, learnerCounts, hintUnverified, noOpSkipped bool
	termFalls, readUnconfirmed, deafToLease, silenceUntold                                                               bool
}

// New makes the core of a node that found s on its disk, at the moment now. It begins as a follower that owes silence for
// ElectionMin, as it may have promised it before it stopped.
func New(cfg Config, s Start, store push.Log, now raft.Ticks) (*Core, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	log, ok := raft.NewLineage(s.Base, s.Runs, s.Last)
	if !ok || s.Term < 0 || s.Committed < raft.NoIndex || s.Committed > s.Last || log.End().Term > s.Term && s.Voter {
		return nil, ErrStart
	}
	c := &Core{cfg: cfg, store: store, now: now, incarnation: cfg.Random.Uint64()}
	c.memberState = memberState{hard: s.HardState, log: log, committed: max(s.Committed, s.Base.Index)}
	c.hard.Term = max(s.Term, log.End().Term) // a wiped hard state beside a log
	c.matched = raft.NoIndex
	c.out.stable, c.out.published = s.Last, raft.NoIndex
	for _, id := range cfg.Peers {
		if id != cfg.ID {
			c.peers = append(c.peers, &member{Dispatcher: push.Dispatcher{ID: id, Match: raft.NoIndex, Acked: raft.NoIndex}})
		}
	}
	c.rejoin = rejoin{leaderTerm: raft.NoTerm, target: raft.NoIndex}
	c.heard = now
	c.resetElection()
	return c, nil
}

// Step takes a message in. now must have been read after the message arrived. A message that is refused changed nothing,
// except that a higher term is always taken over.
func (c *Core) Step(now raft.Ticks, m raft.Message) raft.Reason {
	c.clock(now)
	r := c.step(&m)
	if r != raft.OK {
		c.refuse(r, &m)
	}
	return r
}

func (c *Core) step(m *raft.Message) raft.Reason {
	if r := c.admit(m); r != raft.OK {
		return r
	}
	switch m.Type {
	case raft.PreVote:
		return c.onPreVote(m)
	case raft.PreVoteAnswer:
		return c.onPreVoteAnswer(m)
	case raft.Vote:
		return c.onVote(m)
	case raft.Rejoin:
		return c.onRejoin(m)
	case raft.RejoinAnswer:
		return c.onRejoinAnswer(m)
	case raft.ReadIndexAnswer:
		return c.onReadIndexAnswer(m)
	default:
	}
	higher := m.Term > c.hard.Term
	if r := c.meetTerm(m); r != raft.OK {
		return r
	}
	switch m.Type {
	case raft.Compare:
		return c.onCompare(m)
	case raft.Truncate:
		return c.onTruncate(m)
	case raft.Append:
		return c.onAppend(m)
	case raft.Commit:
		return c.onCommit(m)
	case raft.Heartbeat:
		c.answer(m, raft.Message{End: c.log.Last, Commit: c.committed, Silence: c.cfg.ElectionMin})
		return raft.OK
	case raft.TakeLeadership:
		return c.onTakeLeadership()
	case raft.VoteAnswer:
		return c.onVoteAnswer(m)
	case raft.ReadIndex:
		return c.onReadIndex(m)
	default:
		if higher { // the news was the term
			return raft.OK
		}
		return c.onAnswer(m)
	}
}

// admit refuses what cannot be right whatever the state. No term is taken from such a message.
func (c *Core) admit(m *raft.Message) raft.Reason {
	switch {
	case !m.Type.Valid():
		return raft.BadMessage
	case m.To != c.cfg.ID:
		return raft.WrongTarget
	case c.peer(m.From) == nil:
		return raft.UnknownPeer
	case m.Term < 0 || m.Term > math.MaxInt64/2 || m.Index < raft.NoIndex || m.LogTerm < raft.NoTerm || m.Commit < raft.NoIndex || m.End < raft.NoIndex:
		return raft.BadMessage
	case m.LogTerm > m.Term && m.Type != raft.Vote && m.Type != raft.PreVote && !m.Learner:
		return raft.BadMessage
	case m.Type == raft.Append:
		return c.admitBatch(m)
	}
	return raft.OK
}

func (c *Core) admitBatch(m *raft.Message) raft.Reason {
	term := m.LogTerm
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Index != m.Index+1+raft.Index(i) || e.Term < term || e.Term > m.Term || e.Size <= 0 || e.Size > c.cfg.MaxEntryBytes {
			return raft.BadBatch
		}
		term = e.Term
	}
	return raft.OK
}

// Tick lets time pass. Call it a few times per Heartbeat.
func (c *Core) Tick(now raft.Ticks) {
	c.clock(now)
	switch {
	case c.role == Leader:
		c.tickLeader()
	case !c.hard.Voter:
		c.tickRejoin()
	case c.now >= c.deadline:
		c.preCampaign()
	}
}

// Propose appends a client's entries to a leader's log: all or none. Index and Term of the entries are filled in; the
// result names the first. They are committed when Committed reaches them while this leadership lasts; after its end their
// fate is unknown.
func (c *Core) Propose(now raft.Ticks, batch []raft.Entry) (raft.Mark, raft.Reason) {
	c.clock(now)
	bytes := int64(0)
	for i := range batch {
		if batch[i].Size <= 0 || batch[i].Size > c.cfg.MaxEntryBytes || batch[i].Kind != raft.Normal {
			return raft.Mark{}, c.count(raft.BadProposal)
		}
		bytes += int64(batch[i].Size)
	}
	switch {
	case c.role != Leader:
		return raft.Mark{}, c.count(raft.NotLeader)
	case len(batch) == 0:
		return raft.Mark{}, c.count(raft.BadProposal)
	case c.transferee != "":
		return raft.Mark{}, c.count(raft.Transferring)
	case c.log.Last-c.committed+raft.Index(len(batch)) > c.cfg.MaxUncommitted || c.out.bytes > 0 && c.out.bytes+bytes > c.cfg.MaxPendingBytes:
		return raft.Mark{}, c.count(raft.PendingFull)
	}
	first := raft.Mark{Index: c.log.Last + 1, Term: c.hard.Term}
	for i := range batch {
		batch[i].Index, batch[i].Term = c.log.Last+1, c.hard.Term
		c.push(batch[i])
	}
	return first, raft.OK
}

// Purge tells that the entry log will drop all entries up to i, which must be committed. The term of entry i must be saved
// with the purge: it is the Base of the next Start.
func (c *Core) Purge(now raft.Ticks, i raft.Index) (base raft.Mark, why raft.Reason) {
	c.clock(now)
	if i > c.committed || i > c.out.stable {
		return c.log.Base, c.count(raft.PurgeUncommitted)
	}
	if i > c.log.Base.Index {
		c.log.Purge(i)
	}
	return c.log.Base, raft.OK
}

// Ready hands out the work that has gathered. Nothing but Advance may be called until it is done. Call it after every
// batch of inputs, ticks too: retries and batches are made here.
func (c *Core) Ready() Ready {
	c.clock(c.now)
	if c.role == Leader {
		c.serveReads()
		c.dispatch()
	}
	o := &c.out
	r := Ready{
		Cut: o.cut, Entries: o.pending, Messages: o.messages, Promises: o.promises, Committed: c.committed, Reads: o.reads, Alarms: c.alarms,
	}
	if o.hardDirty {
		o.hardCopy = c.hard
		r.HardState = &o.hardCopy
	}
	if s := c.soft(); s != o.soft {
		o.soft, o.softCopy = s, s
		r.Soft = &o.softCopy
	}
	c.breakDurability(&r)
	c.busy = true
	return r
}

// Empty says that a Ready asks for nothing. Advance must be called all the same.
func (c *Core) Empty(r *Ready) bool {
	return r.HardState == nil && r.Cut == nil && r.Soft == nil && len(r.Entries)+len(r.Messages)+len(r.Promises)+len(r.Reads)+len(r.Alarms) == 0 &&
		r.Committed == c.out.published
}

// Advance says that the last Ready was done: saved, sent and published.
func (c *Core) Advance() {
	if !c.busy {
		panic("consensus: Advance without Ready: the driver's order is broken and promises may be false")
	}
	c.busy = false
	o := &c.out
	o.hardDirty, o.cut, o.bytes = false, nil, 0
	o.stable, o.published = c.log.Last, c.committed
	clear(o.pending) // lets the payloads go
	clear(o.messages)
	clear(o.promises)
	o.pending, o.messages, o.promises, o.reads = o.pending[:0], o.messages[:0], o.promises[:0], o.reads[:0]
	c.alarms = c.alarms[:0]
	if c.role == Leader {
		c.advanceCommit()
	}
}

// clock moves the node's time, never back.
func (c *Core) clock(now raft.Ticks) {
	if c.busy {
		panic("consensus: input between Ready and Advance: the driver's order is broken and promises may be false")
	}
	c.now = max(c.now, now)
}

func (c *Core) count(r raft.Reason) raft.Reason {
	c.counters.Refused[r]++
	return r
}

func (c *Core) peer(id raft.NodeID) *member {
	for _, d := range c.peers {
		if d.ID == id {
			return d
		}
	}
	return nil
}

// send puts a leader's message out at once: it promises nothing that is not on disk already.
func (c *Core) send(to raft.NodeID, m raft.Message) {
	m.From, m.To, m.Term = c.cfg.ID, to, c.hard.Term
	c.out.messages = append(c.out.messages, m)
}

// promise puts a message out that may leave only when all that came before it is on disk.
func (c *Core) promise(to raft.NodeID, m raft.Message) {
	m.From, m.To, m.Learner = c.cfg.ID, to, !c.hard.Voter && !c.faults.learnerCounts && !c.faults.wipedVotes
	if m.Term == 0 {
		m.Term = c.hard.Term
	}
	if n := len(c.out.promises); n > 0 && m.Type == raft.AppendAnswer && m.Refused == raft.OK {
		if p := &c.out.promises[n-1]; p.Type == m.Type && p.To == to && p.Term == m.Term && p.Refused == raft.OK {
			*p = m // acks are cumulative
			return
		}
	}
	c.out.promises = append(c.out.promises, m)
}

// answer answers q with a.
func (c *Core) answer(q *raft.Message, a raft.Message) {
	a.Type, a.Seq, a.Round, a.Sent, a.Nonce, a.ReadID = q.Type.Answer(), q.Seq, q.Round, q.Sent, q.Nonce, q.ReadID
	switch q.Type {
	case raft.Compare, raft.Truncate, raft.Append, raft.Commit:
		a.Nonce = c.incarnation
	default:
	}
	c.promise(q.From, a)
}

// breakDurability is where the tests' faults of saving and sending live.
func (c *Core) breakDurability(r *Ready) {
	if c.faults.voteNotDurable && r.HardState != nil {
		r.HardState.Vote = ""
	}
	if c.faults.ackBeforeSync {
		r.Messages = append(r.Messages, r.Promises...)
		r.Promises = nil
	}
}
