// Package repair replaces damaged stretches of a log by the bytes of another node that has the same history.
//
//	scrub ─▶ [from, to) of a bad record ──┐      or a range that an operator names, widened to whole records
//	                                      ▼
//	  ask the source: its epochs, end, file size      ── parts in front of `to`?          HISTORY_DIFFERS
//	  checksums of what stands before and behind      ── differ?                          HISTORY_DIFFERS
//	  fetch a piece of whole records                  ── not sound, not at their place?   SOURCE_DAMAGED
//	  its checksum, asked for apart                   ── differs?                         SOURCE_CHANGED
//	  commitlog.Overwrite: the old bytes kept, the new ones durable ─▶ dispatch.Mend: units ─▶ flush
//
// Pieces are done one by one, each for good; a refusal leaves the rest of its range as it is and goes on with the next range.
// The histories agree by their epochs; where both are RocketMQ's (epoch 0, without a name) the equal bytes around the damage,
// up to 1 MiB on each side, are what says so. Units are mended from the node's own log; a unit that points to no record is only
// told.
//
// One scrub or repair runs at a time.
//
// What this package does not do: it judges no source to be right where both hold sound records that differ (an operator does, by
// naming the range), and moves no end of any log.
package repair
