// Package recovery finds the end of an entry log in its files: DLedgerMmapFileStore#recover, made stricter.
//
//	entry ─▶ entry ─▶ blank ─▶ next file ─▶ entry ─▶ ? ──┬─ an entry behind it proves that this one was durable: ErrDamaged
//	                                                     └─ none does: the end; what is behind it was being written
//
// An entry is taken when it stands where it says, follows the one before in index and term, and its checksums, if it has
// them, are right. What cannot be taken is either torn, by a crash in the middle of a write, and may go, or it is rot, and
// then a node that cuts it forgets what it has acknowledged. The two are told apart by the seal of later entries: one that
// was written after a sync says so, and all before it was on the disk. DLedger's own entries say nothing: for them any
// later one that could follow is proof. One of a lower term is not: DLedger leaves what it has truncated in the file.
//
// What this package does not do: it changes nothing, and knows no index and no other file.
package recovery
