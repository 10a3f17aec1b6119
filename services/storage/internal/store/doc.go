// Package store holds the two rules of a storage: what a put means and what a get may show.
//
// The put rule (RocketMQ's DefaultMessageStore.asyncPutMessage, CommitLog.handleDiskFlushAndHA):
//
//	Begin:  open master? -> legal? -> enough slaves? -> encode -> Log.Append         the message exists from here on
//	Finish: wait Flushed (sync flush) -> wait Acked(k) (sync master)                 each with the put's deadline
//
// Both waits are on watermarks that rise on their own, so they stand one behind the other without a goroutine, a
// callback or a future. Passing the deadline is a status, not an error: the message is in the log.
//
// The get rule: readers see what lies wholly below Readable, by queue offset, filtered by tag.
//
// Queue offsets are given inside the append lock from one cursor per queue. Begin of a reign sets the cursors up from
// the queues and from the part of the log that is not dispatched yet, so no offset is given twice or left out.
//
// What this package does not do: it moves no watermark, knows no slave by name, builds no queue.
package store
