// Package vfs is the seam between Tandem and the file system: what a store needs of a disk and nothing else.
//
// OS is the real thing, for Linux. Package memfs has one on the heap for tests: it keeps what a power cut would keep and
// fails where it is told to. One conformance test runs on both.
//
//	commitlog, mappedfile, durable ...
//	            │ vfs.FS, vfs.File, vfs.Mapping
//	     ┌──────┴───────┐
//	vfs.OS()        memfs.New()
//	fallocate,      pages on the heap,
//	mmap, pwritev   crash clones, hooks, quota
//
// What is durable when: bytes and length of a file after File.Sync, the name of a file or directory after SyncDir of the
// directory that it is in. Nothing else is, whatever the disk may have done in the meantime.
//
// A full disk or an exhausted quota is ErrNoSpace wherever blocks are asked for. Stores into a mapping ask for none as
// long as Allocate reserved them before, so they cannot become a SIGBUS.
//
// Lock is the lock of RocketMQ's StoreUtil and MessageStore (FileChannel.tryLock of byte 0): a Java broker and Tandem
// exclude each other, and so do two stores in one process.
//
// What this package does not do: it has no buffers, no retries of failed I/O and no notion of what is in the files.
package vfs
