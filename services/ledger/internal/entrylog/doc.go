// Package entrylog is the log of one ledger node: DLedger's DLedgerMmapFileStore on the same files, with what it promises
// kept. FORMAT.md has the bytes.
//
//	                 node (one goroutine)                                    peers, readers (any)
//	SaveHard ─▶ Cut ─▶ Append ──────▶ Sync ─▶ Checkpoint            View, Extent: leases on files
//	   │         │       │ one pwritev │ fdatasync  │ every few s
//	   ▼         ▼       ▼ a batch     ▼            ▼
//	tandem/hard  note,  data/ index/  data/       index/ synced, tandem/log, checkpoint
//	currterm     zeros
//
// Payloads are whole entries: entry.New makes them of a client's body, entry.Split finds them in what a leader sent, and
// Append stamps index, term, place and checksums into them, so that they go to the disk, and from there by View to the
// wire, without a copy.
//
// What is durable when: SaveHard, Cut and Purge on return; entries after Sync. The index is not synced with them: it is made
// again from the entries at Open. A write that follows a sync says so in its first entry, so that Open can tell an entry
// torn by a crash, which it cuts, from one that rotted after it was acknowledged, for which it refuses to start. What is
// behind the end is always zeros: what was cut stays cut.
//
// A full disk is vfs.ErrNoSpace before anything was touched, and the log goes on once there is space; Reserve asks before a
// batch is promised to anyone. Any other failed write and every failed sync is the log's end (ErrFaulted): nothing more is
// written, no sync is tried twice, reading goes on.
//
// Append, Cut, Purge, Reserve and SaveHard have one caller. Sync and Checkpoint may run beside them; reading may run beside
// everything.
//
// What this package does not do: it takes no decisions of Raft's; it knows neither clients nor the wire.
package entrylog
