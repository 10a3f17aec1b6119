// Package commitlog is the log of one storage: RocketMQ's CommitLog with its MappedFileQueue, flush services, recovery and
// StoreCheckpoint, on the same files. FORMAT.md has the bytes.
//
//	Append (master) ──┐                     ┌──▶ Written  ──▶ sessions, flusher
//	                  ├─▶ lock: place, time,│
//	AppendRaw (slave)─┘   one copy; unlock ─┘    Run: flusher ──▶ Flushed ──▶ puts, reports
//	                                             Run: next file ahead, checkpoint
//	View, FileAt: leases on files                SetReadable ──▶ Readable ──▶ dispatch, readers
//	Truncate, Reset: marks closed with ErrTruncated, new ones made
//	Overwrite: rotten bytes replaced in place; nobody reads the file meanwhile
//
// A master copies records once, into pages that were filled with zeros before (SetAhead), or with sync flush writes them
// by pwrite. A slave gathers what it received into files that are allocated and not touched through a map. Whatever the way, a
// file has blocks for all its bytes before the first one is written: a full disk is vfs.ErrNoSpace and never a signal, and
// the log goes on by itself when there is space.
//
// What a crash leaves is a beginning of the log that holds all that Flushed had passed, and, when only the process ended,
// all that Written had. Open finds its end: see package recovery for what is rot and what is torn, package cut for cuts
// that a crash interrupted, package mend for repairs, package checkpoint for where to begin.
//
// Errors are survivable, and say so by leaving everything as it was, or they are the log's fault: a failed sync, a failed
// write, a failed cut. The first fault closes all marks with ErrFaulted, ends Run, and nothing is acknowledged or written
// any more; reading goes on. No sync is ever tried twice.
//
// What this package does not do: it knows no queues, no roles and no epochs, decides neither who may append nor what may
// be read, and checks records only when it opens a folder.
package commitlog
