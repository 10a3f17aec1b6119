// Package epoch is the lineage of a storage's log: who wrote which part of it, who has promised what to whom, where two
// logs part, and who may be master. Every decision about these is a pure function of what its caller has read; the
// package touches no disk, network, clock or lock, so that a simulation can walk the code that runs.
//
// An epoch is one reign of a master over the log: a number, the offset at which it began and a random id. A log's list of
// epochs says where its bytes come from:
//
//	list    (1, 0, #a)          (2, 700, #b)     (4, 900, #c)
//	log     |---- epoch 1 ------|--- epoch 2 ----|-- epoch 4 --- end
//	        0                   700              900
//
// Two histories agree as far as their entries are equal in all three parts, and part at the nearer end of the last common
// epoch (Part). History that RocketMQ wrote is epoch 0, is in no list and has no identity: it is compared by checksums
// (Compare). A log's rank is the highest epoch whose start it has reached, then its length (Rank).
//
//	         hears N - required whole nodes, none above,
//	         the best-ranked log its own
//	starting ────────────────────────────────────────────▶ open master
//	   ▲  │                                                   │
//	   │  │ hears of, or is asked to promise, a newer epoch   │ the same
//	   │  ▼                                                   ▼
//	   └─ promoted ◀──────────────── slave ◀──────────────────┘ demoted
//
// The deciding functions: DecideOpen (may this node be master), DecideDrain (does it hand over), DecidePromise (may that one),
// DecideFollow (the upstream's side of a Follow), DecideAnswer (the slave's), DecideEmptyFollow (who has forgotten what it
// promised), Outranked, and Readable. What they return is data: the durable Lineage that has to be saved first, and what to do
// after that.
//
// Numbers of epochs grow by one with each attempt of a promotion. One that lies farther than Farthest above all that a node and those whom it asks
// know of is not believed: it would be the last one.
//
// In RocketMQ's controller mode EpochFileCache and its findConsistentPoint stand in this place, SyncStateSet and the
// controller in that of promises.
//
// What this package does not do: it saves nothing (package role owns the file), knows no addresses and starts nothing.
package epoch
