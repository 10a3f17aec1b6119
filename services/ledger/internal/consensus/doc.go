// Package consensus decides who leads a ledger and which of its entries are committed: Raft, in the rooms of DLedger.
//
// It is a pure state machine. Inputs are messages (Step), the passing of time (Tick) and a client's wishes (Propose, Read,
// Transfer, Purge), each with the moment on the caller's monotonic clock; the output is a Ready. It does no I/O, starts no
// goroutine, knows no clock and takes its randomness from Config.Random. Only sizes and terms of entries are kept, as runs of
// equal terms: payloads pass through.
//
//	              silence for ElectionMin..ElectionMax          a quorum would vote        a quorum votes
//	FOLLOWER ───────────────────────────────▶ PRE_CANDIDATE ────────────────▶ CANDIDATE ──────────────▶ LEADER
//	 ▲  │ TakeLeadership: at once, as CANDIDATE   │  no quorum, timeout          │ refused, timeout         │
//	 │  └─────────────────────────────────────────┼────────────▶─────────────────┘                          │
//	 └──── a leader of the term, a higher term ───┴─────────────────────────────── no quorum answers ◀──────┘
//
// A leader has one push.Dispatcher (EntryDispatcher) per follower; the words all speak are in package raft.
//
// # The driver
//
// One goroutine owns a Core and repeats:
//
//  1. Take what is in the inbox, then read the clock, then call Step, Tick, Propose and so on with it. The order matters: leases
//     rest on the clock being read after the input came. It must be monotonic and go on while the machine sleeps
//     (CLOCK_BOOTTIME); clocks may differ in rate by half of LeaseMargin / ElectionMin. Messages before ticks, so that a node
//     that was stopped hears what it missed before it judges that nobody spoke.
//  2. Call Ready.
//  3. Save: HardState, synced, for a log above its term is refused at start; then Cut, which must last; then write Entries.
//  4. Send Messages. They promise nothing, so followers work while this node syncs. An Append names its entries; what is sent
//     must be what the log holds now: a transport that reads later must notice a cut and drop the message.
//  5. Sync. A failed write or sync ends the node: no retry, no Advance.
//  6. Send Promises: votes, acks and all that rests on the term being saved. None may leave before step 5.
//  7. Publish Committed, Reads and Soft, log Alarms; on a change of Soft.Term or Role end the waits of the leadership that is over.
//  8. Call Advance, and go on with 2 until Empty.
//
// Messages may be lost, late, repeated and reordered. With flush: async step 5 is left out, and after the machine went down
// (not only the process) the node must be started with Voter false. At start the driver syncs what it found before New, for
// COMPARE will promise it; Committed above Last, falling terms and a peer list without the node are refused.
//
// # The rules
//
//	rule                                         Raft            DLedger (its section)             here
//	one vote a term, saved before it counts      5.2             not synced, errors dropped (11)   election.go; Promises
//	votes only for logs as new as one's own      5.4.1           handleVote                        upToDate
//	a leader commits by counting only own-term   5.4.2, fig. 8   any term, no no-op (6.4)          advanceCommit, becomeLeader
//	entries; a no-op opens each term
//	logs that share (index, term) share all      5.3             compares whole entries, one by    Lineage.Floor, push
//	before: found by term hints                                  one (6.2)
//	only TRUNCATE cuts, never what is committed, -               no guard (3), any sender (7)      onTruncate
//	nor what this term's leader is known to have
//	commit follows min(leader's, what matches)   5.3             capped to the end only (6.3)      commitTo
//	acks count for a term however late; refusals -               not fenced (11)                   Dispatcher.Seq
//	only for the exchange they answer
//	no push waits in a map: what does not fit is -               writeRequestMap (6.3)             nack
//	refused with the place where it would
//	pre-vote, no vote while a leader is alive    thesis 9.6      none                              preCampaign, leaderAlive
//	a leader without a quorum steps down         thesis 6.2      after 6 s                         tickLeader
//	reads by a round of heartbeats, or a lease   thesis 6.4      none: get answers anything (9)    readindex.go
//	transfer, with a limit to the lag            thesis 3.10     5.4                               transfer.go
//
// TakeLeadership may arrive late and breaks the silence leases rest on, so a leader that has sent it uses no lease for the rest
// of its term. A node owes silence for ElectionMin after its start too, for it may have promised it; its answers tell how long.
//
// # Wiped nodes
//
// A node without a hard state is no voter. Only Bootstrap, ordered by an operator, makes it one at once. Else it follows, and
// nothing it says is counted, since what its former life promised is unknown. Every Heartbeat it asks all members for their terms.
// Whoever may still hold a vote of that former life is a candidate of a term it tells; of any quorum that committed an entry with
// this node's help a member tells a term no lower than the entry's. So once all have answered and a leader of a term no lower than
// any of them tells its end, that leader holds all the former life helped to commit, and no live vote of it is of a higher term.
// When this log matches up to that end the node saves its vote for that leader and is a voter again. With more nodes wiped than a
// quorum can spare no leader is elected: the operator decides.
//
// # What this package does not do
//
// No change of members, no snapshots: a follower behind the leader's first entry begins anew at it (TRUNCATE with Reset). It does
// not check CRCs, groups or addresses, and does not know what clients are told. The simulation in simtest walks all of this.
package consensus
