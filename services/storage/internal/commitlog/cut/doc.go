// Package cut takes bytes off a log's end so that a crash at any moment leaves the old log or the cut one, and keeps what it
// took.
//
//	Announce ──▶ tandem/cut ──▶ Apply: files behind the cut away or into rollback/<from>-<to>-<epoch>/,
//	                │                  the last one zeroed, all synced ──▶ Withdraw
//	                └── crash: Pending at the next start says what is left to do; Apply may be repeated
//
// Zeroing is what keeps cut records from coming back: RocketMQ's MappedFileQueue#truncateDirtyFiles moves positions in
// memory only, and its next start finds the records again.
//
// What this package does not do: it holds no locks and knows no marks, no readers and no checkpoint: the log does.
package cut
