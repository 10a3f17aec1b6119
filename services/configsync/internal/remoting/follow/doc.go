// Package follow keeps a Tandem slave's tables as a Java master's are: RocketMQ's SlaveSynchronize, with the merge rules of package
// table.
//
//	Follow ─▶ may it? ─▶ 21 ─▶ 43 ─▶ 45 ─▶ 201 ─▶ Interval       each: whole answer ─▶ decoded ─▶ registry.FollowJava
//	   ▲                  │ refused, late, cut, garbage, too large, empty: counted by reason, the table stays as it was
//	   └──── backoff ◀────┘ and the next kind is asked for all the same
//
// A Java master has nothing but the whole table to give, and its versions are equal or different, never greater. Its consumer and
// delay offsets that are lower than the own ones are counted, shown by Diff (Pull) and taken only with TakeLower.
//
// Permit says whether a Java master may be followed now. ErrReign from it ends Follow: the log has had a Tandem master since, and a
// Java one knows nothing of what happened under it.
//
// What this package does not do: it does not look for the master, and takes no part of a table.
package follow
