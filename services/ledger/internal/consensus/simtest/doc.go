// Package simtest runs groups of consensus cores in one goroutine, under a seeded scheduler that loses, delays, repeats and
// reorders messages, cuts links one way, pauses nodes, crashes them with the loss of what was not synced, wipes their
// disks, lets syncs fail or take long, bends clocks, purges logs and moves leadership.
//
//	plan (from the seed) ──▶ world ──▶ node: inbox ─▶ core ─▶ Ready ─▶ write ─▶ send ─▶ sync ─▶ send ─▶ publish
//	                           ▲                                                  │
//	                           └──────────── network: late, twice, never ◀────────┘
//	after every step: check
//
// Checked after every step: one leader a term, one vote a term and node (over wipes too), entries of one (index, term) are
// one and follow one another alike, a new leader holds all that was committed, what was published never changes and is
// durable on a quorum, terms and commit indexes only grow, reads show all that was published before they began. At the
// end all faults stop, and the group must agree and go on.
//
// A run is a function of its Options: Run with the same ones gives the same result. Minimise drops what a failure does not
// need from its plan; the Failure prints how to replay it.
//
// What this package does not do: it proves nothing about files, gRPC or goroutines; node and entrylog have tests of
// their own.
package simtest
