// Package syncer is the asking side: it keeps a slave's tables as the master's are, and asks peers for a node that is about to lead.
//
//	Follow ─▶ find the master ─▶ session ─┬─▶ a watch stream a kind: each change within a second
//	   ▲      among the peers             └─▶ the round, every minute: one Check for all kinds, a Fetch for those that differ
//	   └── backoff with jitter ◀── NOT_MASTER, a lower reign, no answer
//
// Each kind is by itself: what keeps one from being taken keeps no other. A transfer counts only when it is whole, newer than
// what is here and of a reign that is not over; table.Follow merges it by the kind's rule, the registry saves and publishes it.
// Everything else is refused, counted by its reason, and leaves the table as it was. A refused kind is asked for again with
// backoff, the next time in whole where a delta did not fit.
//
// A round without change is one small request and one small answer. Nothing is asked of the master but what the slave lacks, and
// the master keeps nothing about it.
//
// RocketMQ's names: SlaveSynchronize#syncAll is the round, BrokerOuterAPI the calls; syncMetadataReverse is Pull.
//
// What this package does not do: it decides no merge, writes no file, and does not know why this node is a slave.
package syncer
