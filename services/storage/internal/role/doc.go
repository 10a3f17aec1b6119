// Package role runs the decisions of package epoch: it owns the lineage file, makes a storage master or slave, answers its
// peers, and holds the link to the upstream. Nothing is decided here; everything that epoch decides is made durable, acted
// on, and only then answered.
//
//	         Promise, Follow (from peers)
//	                    │ ops, one at a time
//	                    ▼
//	┌──────────── the goroutine of Run ────────────┐      owns lineage, promise, links granted
//	│   starting ───────▶ reigning                 │
//	│      │  ▲              │                     │      one of the three works runs at a time, in a
//	│      ▼  │ Promote      ▼ Demote              │      goroutine of its own; what it wants changed
//	│   following ◀──────────┘                     │      it hands in as an op
//	└──────────────────────────────────────────────┘
//
// starting hears the peers, copies the best-ranked log, has a new epoch promised and opens. reigning moves Readable and looks
// every few seconds for a newer master. following finds the upstream, follows it (rollback kept and synced; checkpoint, then log
// cut and synced; list saved; append) and takes what it tells: Readable, revocation. A step-down is saved first, then links and
// waiting puts end (FLUSH_SLAVE_TIMEOUT), then it is answered.
//
// A work that has to end is cancelled and waited for inside the op that ends it, so that no append, cut or save of an old role
// can come behind a promise. Enter and Leave give store the same for its appends.
//
// Orders of an operator, Promote (package change) and Demote, are ops like those of peers. A promoted node is a starting master
// from the moment at which the order is durable. A planned change asks the open master to hold its puts back first: Drain is a
// call that stays open, so that a candidate that dies or gives up lets the puts in again by ending it.
//
// In RocketMQ this is ReplicasManager with AutoSwitchHAService; HAClient's loop of reconnects is here, its bytes are in package
// replication.
//
// What this package does not do: it moves no bytes of the log over the network, knows no gRPC, and cuts nothing that epoch
// did not ask for.
package role
