// Package registry owns the current tables: RocketMQ's ConfigManager and its four children, in one folder with the same
// files.
//
//	change ──▶ queue ──▶ next Table ──▶ journal record, synced ──▶ published ~> Changes(kind)
//	commit ──▶ gathered ──(CommitInterval, or who waits)──▶ one change for all
//	Run: every SaveInterval  topics.json, consumerOffset.json, delayOffset.json, subscriptionGroup.json  where changed
//
// Save, then publish: what Snapshot shows, and with it what slaves and watchers get, survives a crash. Whoever waits for a
// change gets its answer after the sync; many changes that wait at the same time share one. Offset commits are the
// exception: without wait they are answered when gathered, seen by Offset at once, and saved a moment later; a crash may lose
// the last CommitInterval of them, and a full disk delays them. Those that it delays beyond the end of the reign are saved
// later, without a version of their own.
//
// # Files
//
// The JSON files are written by temporary file, sync, rename and sync of the folder; the one before stays as .bak. The
// journal lies below tandem/ (disk/FORMAT.md) and reaches back to the backup: a broken file costs nothing as long as its backup and the
// journal are there. Load takes the file, or the backup where that is empty, half, garbage, gone or unreadable, and what the
// journal has behind it. A file that another program wrote since is believed, with the epochs that the journal knows.
// Where neither copy can be read the kind is not whole: Whole says so, nothing can be changed and nobody is served until a
// whole table came from a peer. JSON of an unknown shape is an error of Open: a newer version wrote it, and nothing is touched.
//
// # Errors
//
// A full disk, or a write that failed and was undone, is an error of the change, and nothing has changed. A failed sync is
// ErrFaulted: Run returns it, nothing is saved any more, reading goes on.
//
// What this package does not do: it does not know who leads, who may do what, or where a queue ends; package table has
// the rules of merging, package journal the records.
package registry
