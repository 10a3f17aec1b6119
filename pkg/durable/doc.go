// Package durable writes small files so that a crash at any moment leaves the old content or the new one.
//
// WriteFile is for formats that are not ours (RocketMQ's abort, checkpoint copies and JSON): temporary file, fdatasync,
// rename, sync of the directory. WriteChecked puts a line with a checksum before the data, see FORMAT.md, and keeps what
// the file held before as a backup; ReadChecked says which of the two it had to take.
//
//	WriteChecked:  main ──copy──▶ main.bak     data ──▶ main.tmp ──rename──▶ main ──▶ SyncDir
//	ReadChecked:   main whole: Main │ main broken or gone, backup whole: Backup │ none whole: ErrCorrupt
//
// When a function returns nil, its change is durable. When it returns an error, the old or the new content is there. Lock is
// RocketMQ's `lock` file; MkdirAll makes directories whose names are durable too. RocketMQ has the first part in
// MixAll.string2File and ConfigManager, without the syncs.
//
// What this package does not do: it keeps nothing in memory, and two writers of one name must be kept apart by their
// owner.
package durable
