// Package push is the leader's side of replication: one Dispatcher per follower, DLedger's EntryDispatcher, as a pure state
// machine.
//
//	                                    hint: probe again, O(terms)
//	                                         ┌──┐
//	new leader, answer late, refused ─────▶ COMPARE ─── common entry is its end ──▶ APPEND (and COMMIT, when
//	                                         │                                      ▲    only the index moved)
//	                                         └─ it has more, or has nothing ─▶ TRUNCATE
//
// COMPARE asks for the leader's last entry; the answer names the follower's nearest, and each round skips a whole term of one
// side. TRUNCATE has the follower's own tail cut, or its log begun anew where the leader has purged what it lacks. APPEND
// streams batches under quotas of entries, bytes and batches in flight; what is not answered in time leads back to COMPARE. An
// ack counts for the whole term however late it comes, a refusal only for the exchange it belongs to (Seq).
//
// What this package does not do: it counts no quorum and moves no commit index; package consensus does, with what Acked says.
package push
