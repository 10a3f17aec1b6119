// Package storage asks the node's storage: whether it is master and in which reign (Link), where its queues begin and end, and
// which message of a queue was stored when (Queues).
//
// There is one promotion, that of the storage: the tables' master is where the log's master is. Link watches the storage's status;
// its role counts until the storage has been silent for a while, so that a restart of the storage is no change of role.
//
//	heard: open master ──▶ Master, reign, where the reign began
//	heard: anything else ─▶ slave, with the reason
//	silent for Timeout ───▶ slave, STORAGE_UNREACHABLE
//
// Queues keeps what it has heard of queue ends: a commit at or below a known end costs no call. Ends only grow within a reign; Forget
// drops them at its end.
//
// RocketMQ has broker and config in one process; this is the seam that replaces it.
//
// What this package does not do: it decides nothing, and writes nothing to the storage.
package storage
