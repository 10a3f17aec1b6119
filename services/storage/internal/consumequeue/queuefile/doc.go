// Package queuefile keeps the files of many queues: rows of sparse files of one length, written and read by pwrite and
// pread through a bounded number of descriptors. It knows bytes, not units.
//
//	Row   [ 00..0 | 00..100 | 00..200 ]   contiguous; the next file is made when its first byte comes
//	       ^ Lo                        ^ Hi
//	Pool  the most recently used files stay open, at most a limit of them besides those in use
//
// A file is made at its full length. What is cut off is written over with zeros where it is not zero, and never by
// shortening a file, so that holes stay holes and every length stays right.
//
// Open files are shared. ReadAt may be called at any time by anybody; all other methods of a Row belong to its writer.
//
// What this package does not do: it decides nothing about what is in the files, and syncs only when it is told to.
package queuefile
