// Package dispatch follows the log's Readable mark and builds what is derived from the log: the consume queues.
//
//	log ~> Readable                    Gather            Commit
//	  [ whole | whole | half.. ] ---- per message ---> ---- per stretch ---> queues ~> Dispatched
//	                    ^ stops here until Readable passes the record's end
//
// It never looks beyond Readable, and a record is dispatched only when all of it lies below: frames cut records anywhere.
// The rules are RocketMQ's: a unit for messages without a transaction and for commits, none for prepared and rollback
// records; the tags code is the hash of TAGS, or in the schedule topic the time when the message is due; a blank record
// leads to the next file.
//
// Records are checked here, with their checksums and their own offset, not when they arrive. A bad one with a sound one
// behind it is rot: it is reported once, counted and passed over, and the log is left as it is. A bad one with nothing
// sound behind it stops the dispatcher there until there is.
//
// The start is what Queues.Resume says. A queue that turns out to be short makes the dispatcher go back in the log to
// where the queue ends; queues pass over what they have. After a cut of the log its owner calls Truncated, or Reset,
// before anything is appended.
//
// A full disk is waited out by Run; every other error of the queues ends it.
//
// RocketMQ's names: ReputMessageService, CommitLogDispatcherBuildConsumeQueue, DispatchRequest,
// CommitLog#checkMessageAndReturnSize, rollNextFile.
//
// What this package does not do: it holds no files, builds no key index, delivers no delayed messages, and does not
// unpack inner batches or multi-dispatch (LMQ) queues.
package dispatch
