// Package consumequeue keeps, for every queue of every topic, the list of its messages: one unit of 20 bytes each, byte
// for byte as RocketMQ's ConsumeQueue writes it (FORMAT.md).
//
// The queues are a function of the log. The dispatcher is the only writer: it reads the log in order, calls Gather for
// every message and Commit after every stretch, by which the units become visible to readers and each queue's mark
// grows. The last units of a queue are in memory, visible or not, until there is a chunk of them, Flush comes or too many
// queues wait so: a commit costs no write. What a crash loses of them the log has.
//
//	                Gather               Commit              Flush
//	record of log ---------> [ gathered ] ------> [ visible ] -----> [ durable, and in the summary tandem/queues ]
//	                             |                    |
//	                             | a repeat: nothing  +--> Grown() of the queue
//	                             | a gap: read the log again from the end of the queue's last unit; when the log does
//	                             |        not have it either, blank units take its place
//
// The summary names an offset of the log and how long each queue is when the log is read up to there. It is written
// when all that it says is durable. Open believes exactly that: what a queue has beyond it is written anew as the log is
// read on, and what is left over then is zeroed (Settle). A queue that is shorter than the summary says is mended by
// going back in the log to where it ends. Without a summary, as in a folder that RocketMQ wrote, the log is read from its
// first offset once; the bytes stay as they are, as they would be written the same.
//
// Files and descriptors are the business of queuefile, the summary's text that of summary.
//
// A failed fsync is fatal; a full disk is not: what is gathered is taken back when it cannot be written, and can be tried
// again; what is visible stays so, in memory.
//
// RocketMQ's names: ConsumeQueue, ConsumeQueueStore, FlushConsumeQueueService, fillPreBlank, truncateDirtyLogicFiles,
// correctMinOffset. Where it differs on purpose: a gap is never closed by moving units forward, a blank unit never counts
// as a position in the log, an empty file is not a unit, and the summary replaces the highest offset of all queues, which
// says nothing about the others.
//
// What this package does not do: it reads no records, knows no tags and no transactions, does not delete what retention
// has outlived, and has neither ConsumeQueueExt nor BatchConsumeQueue.
package consumequeue
