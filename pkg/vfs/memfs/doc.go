// Package memfs is a file system on the heap for tests: it knows what a power cut would leave, fails where it is told to,
// and is seen by the race detector, mapped bytes included.
//
// Every file has two contents, and every directory two lists of names: what is there, and what was made durable by
// File.Sync and FS.SyncDir. CrashClone makes an independent file system of one of them, sharing pages until they are
// written, so that thousands of clones of a few MiB are cheap:
//
//	         Write, Map, Rename ...              Sync, SyncDir
//	caller ────────────────────────▶ [ live ] ─────────────────▶ [ synced ]
//	                                    │                            │
//	                   CrashClone(All)  ▼        CrashClone(OnlySynced) ▼      Torn(seed): page by page one or the other
//
// A hook sees each operation before it happens and may clone, let it pass, fail it undone or fail it done. After a Sync
// that failed undone, the pages count as clean: a second Sync succeeds and saves nothing of them, as Linux does.
//
// It is stricter than a disk where strictness finds mistakes: a name is lost unless its directory was synced, also the
// names that MkdirAll made and also in "/" (durable.MkdirAll syncs them); a writable Map needs every page reserved by
// Allocate or written before; a Truncate below a mapping is refused; after the last unmapping the bytes are filled with
// 0xDB. The order of stores into a mapping is not kept against a CrashClone by another goroutine.
//
// What this package does not do: permissions, links, files opened for appending, directories removed while open.
package memfs
