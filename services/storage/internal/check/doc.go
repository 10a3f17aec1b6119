// Package check looks at a log and its queues and tells what is wrong with them; it changes nothing.
//
//	package folder: a store that nobody uses ──┐
//	Scrubber: a log in use, at a bounded rate ─┴─▶ Records ─▶ Finding, Finding, ... Result
//
//	  record ─▶ record ─▶ ? ─▶ record      the next sound record is searched for; what lies between is damage
//	    │         │             │
//	  unit k    unit k+1      unit k+3     each record is held against the unit with its queue offset, and
//	                 unit k+2 ─▶ ?         a unit that no record has met against the log
//
// A record is sound when its lengths agree, body CRC and `__CRC32#` (where it has one) are right, and its own PHYSICALOFFSET is
// its place: the rules of message.Check. A stretch without a sound record at its start is damage when there is a sound one behind
// it, or when the log is known to be longer; else it is what a crash left of a write, and the next start cuts it.
//
// Memory is bounded by the longest record and by some KB a queue. What the page cache holds is not read from the disk again.
//
// What this package does not do: it repairs nothing (package repair), opens no files (package folder does), looks into neither key index nor ConsumeQueueExt, and
// does not see a flipped bit in a record without `__CRC32#` outside of its body, lengths, magic and offset: comparing with a
// replica does.
package check
