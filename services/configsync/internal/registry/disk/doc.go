// Package disk keeps one table on the disk: RocketMQ's JSON file, its backup, and the journal of what has changed since.
// FORMAT.md has the bytes of the journal's records.
//
//	Record ──▶ journal segment n          Due ─▶ Begin: segment n+1, whose base is t
//	                                              WriteTemp: t as JSON, synced (changes are recorded meanwhile)
//	                                              End: file ─▶ backup, temporary ─▶ file, folder synced, old segments go
//
// Each segment begins with the version and sum of the table that it goes on from, and with the epochs that JSON has no
// place for. Open takes the file, finds the segment that begins with its content, and all that follows; from the backup the same
// way. Whatever the crash, the result is what the last Record, or the one that was under way, left. A file that fits no
// segment was written by another program: it is believed, its offsets get the epochs that are known, and records that it
// cannot know are set aside under another name.
//
// A file that cannot be read is never overwritten before its table is whole again; it is kept as .broken then.
package disk
