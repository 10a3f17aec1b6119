// Package journal keeps records of changes durable between two writings of a file: an Append returns when its record is
// synced. FORMAT.md has the bytes.
//
// A journal is a row of segments, each a file of its own. One begins with a base, which says what content its records
// follow, so that the reader finds the place from which to go on: behind the file as it stands, or behind its backup.
//
//	file written ──▶ Rotate(base) ──▶ Append, Append, ... ──▶ file written again ──▶ Rotate ──▶ Drop what nobody needs
//
// Open reads all there is. A record that is not whole at the end of a segment is what a crash left of a write that nobody
// was told had been done: it is cut off. One with a whole record behind it is rot: Damaged.
//
// An Append or Rotate that fails has left the journal as it was, or, where that cannot be made sure, and after a failed sync,
// the error is ErrFault and the journal takes nothing any more.
//
// What this package does not do: it does not know what the records say, and is for one goroutine at a time.
package journal
