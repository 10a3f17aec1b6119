package vfs

import (
	"io"
	"io/fs"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Errors of every FS. Others are those of package io/fs (ErrNotExist, ErrExist, ErrPermission).
var (
	// ErrNoSpace: the disk, the quota or the inodes are used up. Nothing that was reported done is touched.
	ErrNoSpace = errdefs.New(errdefs.ResourceExhausted, "DISK_FULL", "no space left on the disk")
	// ErrLocked: another process, or another FS value in this one, holds the lock.
	ErrLocked = errdefs.New(errdefs.FailedPrecondition, "FOLDER_LOCKED", "the folder is in use by another process")
)

// FS is the seam between Tandem and a file system. All methods may be called concurrently. Names are paths as package
// os takes them; errors name the operation and the path.
type FS interface {
	// OpenFile opens name as os.OpenFile does (flags O_RDONLY, O_RDWR, O_CREATE, O_EXCL, O_TRUNC).
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	MkdirAll(dir string, perm fs.FileMode) error
	// ReadDir lists dir in the order of the names.
	ReadDir(dir string) ([]Info, error)
	Stat(name string) (Info, error)
	// Rename replaces newName; it is durable only after SyncDir of both directories.
	Rename(oldName, newName string) error
	// Remove deletes a file or an empty directory; durable only after SyncDir.
	Remove(name string) error
	RemoveAll(name string) error
	// SyncDir makes the entries of dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on byte 0 of name, which it creates; ErrLocked when somebody has it. Close of the
	// result releases it; the end of the process does too.
	Lock(name string) (io.Closer, error)
	// LockShared takes a shared lock on byte 0 of name, which must exist and is not changed: nobody gets the exclusive one
	// while it is held. ErrLocked when somebody has that.
	LockShared(name string) (io.Closer, error)
	// FreeSpace returns the bytes that an unprivileged process can still write below dir.
	FreeSpace(dir string) (int64, error)
}

// Info describes one directory entry.
type Info struct {
	Name    string // last element
	Size    int64
	Dir     bool
	ModTime time.Time
	// ID tells a file from another that had its name before: the inode; 0 where there is none.
	ID uint64
}

// File is an open file. Reads and writes at disjoint offsets may run concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	// WritevAt writes bufs one behind the other at off with as few system calls as possible. It does not change bufs.
	WritevAt(bufs [][]byte, off int64) (int, error)
	// Size returns the length in bytes.
	Size() (int64, error)
	// Truncate sets the length; what is new reads as zeros and is not reserved.
	Truncate(size int64) error
	// Allocate reserves blocks for bytes [0, size) and raises the length to size where it is smaller; bytes that exist
	// stay. ErrNoSpace, and nothing reserved for good, when they do not fit.
	Allocate(size int64) error
	// Zero makes bytes [off, off+n) read as zeros while their blocks stay reserved.
	Zero(off, n int64) error
	// Sync makes data and length durable (fdatasync), also what was stored through a mapping of this file. A failed
	// Sync must never be retried: the pages may be gone.
	Sync() error
	// Map maps bytes [0, size), shared, and writable where write is set. Map only what Allocate has reserved, or a full
	// disk is a SIGBUS instead of an error.
	Map(size int64, write bool) (Mapping, error)
	// Fd returns the descriptor for sendfile; false where there is none.
	Fd() (uintptr, bool)
	Close() error
}

// Mapping is a mapped file.
type Mapping interface {
	// Bytes is the mapped memory; it must not be touched after Close. Concurrent access needs the caller's order.
	Bytes() []byte
	// Populate touches the pages of [off, off+n) for writing, so that the first store there does not fault.
	Populate(off, n int64) error
	Close() error
}
