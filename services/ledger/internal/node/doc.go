// Package node runs one member of a ledger's group: it drives a consensus.Core exactly as that package asks, between the
// peers, the clients and the log.
//
//	Deliver (peers) ─▶ inbox: control │ pushes │ calls ◀─ Propose, Read, Transfer, Purge, Status (clients)
//	                     │ all of it, then the clock
//	                     ▼
//	          Step … calls … Tick ─▶ Ready ─▶ SaveHard, Cut, Append ─▶ Send ─▶ Sync ─▶ Send promises ─▶ publish ─▶ Advance
//	                                                                                                    │
//	                     Committed ~> everybody      Epoch ~> who proposed in this leadership ◀─────────┘
//
// One goroutine, Run's, owns the core. What gathers while it works is the next round: one write and one sync for all of it,
// which is the group commit. With flush: sync entries are durable before this node says that it has them, to others or to
// its own quorum; a leader sends them to its followers before it syncs. With Async the page caches of a majority are enough,
// and a sync follows every FlushInterval.
//
// The inbox is bounded. Control messages (votes, heartbeats, answers) have a lane of their own, so that bulk cannot silence
// the node. A message that finds its lane full is dropped and counted: Raft repeats it. A call is refused with ErrBusy.
//
// A full disk is survived: proposals are refused with the log's error and pushes are dropped, as long as there is no space. A
// leader hands over to a member that has room then: it tries one after the other, with growing pauses, and who has none
// declines. If a write that cannot be refused meets the full disk, the node falls silent and tries again every RetryFull. Any
// other failed write or sync ends Run: no retry, no promise.
//
// DLedger has this in DLedgerServer, with futures and a thread for each of its parts.
//
// What this package does not do: it knows neither gRPC nor files. Transport and Log are package peer's and entrylog's.
package node
