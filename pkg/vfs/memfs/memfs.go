package memfs

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tandemlog/tandem/pkg/vfs"
)

// Kind is what an operation does.
type Kind uint8

// Kinds. Open, Map and Read change nothing: hooks see them, Ops does not count them.
const (
	KindOpen Kind = iota + 1
	KindMap
	KindRead
	KindCreate
	KindWrite
	KindWritev
	KindAllocate
	KindZero
	KindTruncate
	KindSync
	KindRename
	KindRemove
	KindSyncDir
	KindMkdir
)

var kindNames = [...]string{
	"none", "open", "map", "read", "create", "write", "writev", "allocate", "zero", "truncate", "sync", "rename",
	"remove", "syncdir", "mkdir",
}

// String returns the kind in one word.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}

// Mutates reports whether operations of the kind change the file system and are counted.
func (k Kind) Mutates() bool { return k >= KindCreate }

// Op is one operation.
type Op struct {
	Kind   Kind
	Name   string // as the caller gave it
	To     string // new name of a rename
	Off, N int64  // bytes; Allocate, Truncate and Map have their size in N
	Seq    int    // number of a mutating operation, from 1; 0 for others
}

// Action is a hook's decision.
type Action struct {
	err   error
	after bool
}

// Proceed lets the operation happen.
var Proceed = Action{}

// FailBefore makes the operation fail with err, not applied. A nil err is EIO.
func FailBefore(err error) Action { return Action{err: orEIO(err)} }

// FailAfter makes the operation fail with err although it was applied. A nil err is EIO.
func FailAfter(err error) Action { return Action{err: orEIO(err), after: true} }

func orEIO(err error) error {
	if err == nil {
		return syscall.EIO
	}
	return err
}

// FS implements vfs.FS. It must not be copied.
type FS struct {
	hook atomic.Pointer[func(Op) Action]
	ops  atomic.Int64

	quota atomic.Int64 // bytes; 0: none
	used  atomic.Int64 // bytes of reserved pages

	// mu is held for writing while names change and while a clone is made, for reading while a file's content does.
	mu     sync.RWMutex
	root   *dir
	locked map[*file]int // see exclusive
}

var _ vfs.FS = (*FS)(nil)

// New makes an empty file system whose only directory is "/". A relative name means the same as with a "/" before it.
func New() *FS { return &FS{root: newDir(), locked: map[*file]int{}} }

// SetHook installs the function that decides about each operation; nil removes it. It is called before the operation,
// outside all locks, by the goroutine that asks for it, so it may use f, CrashClone included.
func (f *FS) SetHook(hook func(op Op) Action) {
	if hook == nil {
		f.hook.Store(nil)
		return
	}
	f.hook.Store(&hook)
}

// SetQuota bounds the bytes that files may take up, in pages of 4 KiB; 0 means no bound. What is already there stays.
func (f *FS) SetQuota(bytes int64) { f.quota.Store(bytes) }

// Used returns the bytes that files take up.
func (f *FS) Used() int64 { return f.used.Load() }

// Ops returns the number of mutating operations that were begun: the crash points so far.
func (f *FS) Ops() int { return int(f.ops.Load()) }

// begin counts op and asks the hook. A non-nil error means: do not apply.
func (f *FS) begin(op Op) (Action, error) {
	if op.Kind.Mutates() {
		op.Seq = int(f.ops.Add(1))
	}
	hook := f.hook.Load()
	if hook == nil {
		return Proceed, nil
	}
	a := (*hook)(op)
	if a.err == nil {
		return Proceed, nil
	}
	a.err = &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: a.err}
	if a.after {
		return a, nil
	}
	return a, a.err
}

// end is the result of an applied operation.
func (a Action) end(err error) error {
	if err == nil && a.after {
		return a.err
	}
	return err
}

// charge takes pages from the quota, all or none.
func (f *FS) charge(pages int) bool {
	n := int64(pages) * pageSize
	for {
		used, quota := f.used.Load(), f.quota.Load()
		if n > 0 && quota > 0 && used+n > quota {
			return false
		}
		if f.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (f *FS) release(pages int) { f.used.Add(-int64(pages) * pageSize) }

func noSpace(op, name string) error {
	return vfs.ErrNoSpace.With("file", name).Wrap(&fs.PathError{Op: op, Path: name, Err: syscall.ENOSPC})
}
