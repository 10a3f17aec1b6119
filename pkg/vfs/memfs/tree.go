package memfs

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs"
)

// node is a *dir or a *file.
type node interface{ info(name string) vfs.Info }

// dir is guarded by FS.mu.
type dir struct {
	entries map[string]node
	durable map[string]node
	touched map[string]struct{} // names whose entry differs from the durable one, or did
	mod     time.Time
}

func newDir() *dir {
	return &dir{entries: map[string]node{}, durable: map[string]node{}, touched: map[string]struct{}{}, mod: time.Now()}
}

func (d *dir) info(name string) vfs.Info { return vfs.Info{Name: name, Dir: true, ModTime: d.mod} }

// set gives name to n; nil takes the name away.
func (d *dir) set(name string, n node) {
	if n == nil {
		delete(d.entries, name)
	} else {
		d.entries[name] = n
	}
	d.touched[name] = struct{}{}
	d.mod = time.Now()
}

func (d *dir) sync() {
	for name := range d.touched {
		if n, ok := d.entries[name]; ok {
			d.durable[name] = n
		} else {
			delete(d.durable, name)
		}
	}
	clear(d.touched)
}

// split returns the elements of name below the root.
func split(name string) []string {
	name = filepath.Clean("/" + name)
	if name == "/" {
		return nil
	}
	return strings.Split(name[1:], "/")
}

// walk finds a node. f.mu is held.
func (f *FS) walk(elems []string) (node, error) {
	var n node = f.root
	for _, e := range elems {
		d, ok := n.(*dir)
		if !ok {
			return nil, syscall.ENOTDIR
		}
		if n, ok = d.entries[e]; !ok {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

// parent finds the directory of name, which need not exist itself, and the last element. f.mu is held.
func (f *FS) parent(name string) (*dir, string, error) {
	elems := split(name)
	if len(elems) == 0 {
		return nil, "", syscall.EBUSY // the root has no name
	}
	last := len(elems) - 1
	n, err := f.walk(elems[:last])
	if err != nil {
		return nil, "", err
	}
	d, ok := n.(*dir)
	if !ok {
		return nil, "", syscall.ENOTDIR
	}
	return d, elems[last], nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

const openFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_CREATE | os.O_EXCL | os.O_TRUNC

// OpenFile implements vfs.FS. Creating a file is a KindCreate; cutting an existing one by O_TRUNC is a KindTruncate,
// everything else a KindOpen.
func (f *FS) OpenFile(name string, flag int, _ fs.FileMode) (vfs.File, error) {
	if flag&^openFlags != 0 {
		return nil, pathError("open", name, syscall.EINVAL)
	}
	f.mu.RLock()
	_, err := f.walk(split(name))
	f.mu.RUnlock()
	op := Op{Kind: KindOpen, Name: name}
	switch {
	case err != nil && flag&os.O_CREATE != 0:
		op.Kind = KindCreate
	case err == nil && flag&os.O_TRUNC != 0:
		op.Kind = KindTruncate
	}
	act, err := f.begin(op)
	if err != nil {
		return nil, err
	}
	h, err := f.open(name, flag)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if err := act.end(nil); err != nil {
		return nil, joinClose(err, h)
	}
	return h, nil
}

func joinClose(err error, c io.Closer) error {
	if cerr := c.Close(); cerr != nil {
		return cerr
	}
	return err
}

func (f *FS) open(name string, flag int) (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mode := flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	write := mode != os.O_RDONLY
	file, err := f.find(name, flag)
	if err != nil {
		return nil, err
	}
	if flag&os.O_TRUNC != 0 {
		if err := file.truncate(f, 0); err != nil {
			return nil, err
		}
	}
	file.opens++
	return &handle{fs: f, file: file, name: name, read: mode != os.O_WRONLY, write: write}, nil
}

// find returns the file called name, a new one where flag says so. f.mu is held for writing.
func (f *FS) find(name string, flag int) (*file, error) {
	d, base, err := f.parent(name)
	if err != nil {
		return nil, err
	}
	switch n := d.entries[base].(type) {
	case *file:
		if flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0 {
			return nil, syscall.EEXIST
		}
		return n, nil
	case *dir:
		return nil, syscall.EISDIR
	}
	if flag&os.O_CREATE == 0 {
		return nil, syscall.ENOENT
	}
	file := newFile()
	file.links = 1
	d.set(base, file)
	return file, nil
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(name string, _ fs.FileMode) error {
	if info, err := f.Stat(name); err == nil && info.Dir {
		return nil
	}
	act, err := f.begin(Op{Kind: KindMkdir, Name: name})
	if err != nil {
		return err
	}
	return act.end(pathError("mkdir", name, f.mkdirAll(split(name))))
}

func (f *FS) mkdirAll(elems []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.root
	for _, e := range elems {
		switch n := d.entries[e].(type) {
		case *file:
			return syscall.ENOTDIR
		case *dir:
			d = n
		default:
			next := newDir()
			d.set(e, next)
			d = next
		}
	}
	return nil
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(name string) ([]vfs.Info, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.walk(split(name))
	if err != nil {
		return nil, pathError("open", name, err)
	}
	d, ok := n.(*dir)
	if !ok {
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	infos := make([]vfs.Info, 0, len(d.entries))
	for _, base := range slices.Sorted(maps.Keys(d.entries)) {
		infos = append(infos, d.entries[base].info(base))
	}
	return infos, nil
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (vfs.Info, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.walk(split(name))
	if err != nil {
		return vfs.Info{}, pathError("stat", name, err)
	}
	return n.info(filepath.Base(name)), nil
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error {
	act, err := f.begin(Op{Kind: KindRename, Name: oldName, To: newName})
	if err != nil {
		return err
	}
	err = f.rename(oldName, newName)
	if err != nil {
		err = &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	return act.end(err)
}

func (f *FS) rename(oldName, newName string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, oldBase, err := f.parent(oldName)
	if err != nil {
		return err
	}
	to, newBase, err := f.parent(newName)
	if err != nil {
		return err
	}
	n, there := from.entries[oldBase], to.entries[newBase]
	if n == nil {
		return syscall.ENOENT
	}
	if n == there {
		return nil
	}
	if strings.HasPrefix(strings.Join(split(newName), "/")+"/", strings.Join(split(oldName), "/")+"/") {
		return syscall.EINVAL // into itself
	}
	if there != nil {
		if err := replaceable(n, there); err != nil {
			return err
		}
		f.unlink(there)
	}
	from.set(oldBase, nil)
	to.set(newBase, n)
	return nil
}

func replaceable(n, there node) error {
	_, isDir := n.(*dir)
	d, overDir := there.(*dir)
	switch {
	case overDir && !isDir:
		return syscall.EEXIST
	case !overDir && isDir:
		return syscall.ENOTDIR
	case overDir && len(d.entries) > 0:
		return syscall.ENOTEMPTY
	}
	return nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error { return f.remove(name, false) }

// RemoveAll implements vfs.FS. It is one operation.
func (f *FS) RemoveAll(name string) error { return f.remove(name, true) }

func (f *FS) remove(name string, all bool) error {
	if _, err := f.Stat(name); err != nil && all {
		return nil
	}
	act, err := f.begin(Op{Kind: KindRemove, Name: name})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, err := f.parent(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n, ok := d.entries[base]
	if !ok {
		return pathError("remove", name, syscall.ENOENT)
	}
	if sub, isDir := n.(*dir); isDir && !all && len(sub.entries) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	f.unlink(n)
	d.set(base, nil)
	return act.end(nil)
}

// unlink gives back the blocks of what lost its name. f.mu is held for writing.
func (f *FS) unlink(n node) {
	switch n := n.(type) {
	case *file:
		n.links--
		f.reap(n)
	case *dir:
		for _, sub := range n.entries {
			f.unlink(sub)
		}
	}
}

// reap frees the blocks of a file that has neither a name nor an open handle. f.mu is held for writing.
func (f *FS) reap(n *file) {
	if n.links == 0 && n.opens == 0 {
		f.release(n.live.reserved.count())
	}
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	act, err := f.begin(Op{Kind: KindSyncDir, Name: name})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.walk(split(name))
	if err != nil {
		return pathError("open", name, err)
	}
	d, ok := n.(*dir)
	if !ok {
		return pathError("sync", name, syscall.ENOTDIR)
	}
	d.sync()
	return act.end(nil)
}

// FreeSpace implements vfs.FS; without a quota it is 1 TiB.
func (f *FS) FreeSpace(name string) (int64, error) {
	if _, err := f.Stat(name); err != nil {
		return 0, err
	}
	if quota := f.quota.Load(); quota > 0 {
		return max(0, quota-f.used.Load()), nil
	}
	return 1 << 40, nil
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) { return f.lock(name, os.O_RDWR|os.O_CREATE, false) }

// LockShared implements vfs.FS.
func (f *FS) LockShared(name string) (io.Closer, error) { return f.lock(name, os.O_RDONLY, true) }

const exclusive = -1 // in FS.locked; others have the number of shared locks

func (f *FS) lock(name string, flag int, shared bool) (io.Closer, error) {
	h, err := f.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	file := h.(*handle).file //nolint:errcheck,forcetypeassert // OpenFile of this FS
	f.mu.Lock()
	taken := f.locked[file] == exclusive || f.locked[file] > 0 && !shared
	if !taken && shared {
		f.locked[file]++
	} else if !taken {
		f.locked[file] = exclusive
	}
	f.mu.Unlock()
	if taken {
		return nil, joinClose(vfs.ErrLocked.With("file", name), h)
	}
	return &lock{fs: f, file: file, handle: h}, nil
}

type lock struct {
	fs     *FS
	file   *file
	handle io.Closer
	closed atomic.Bool
}

func (l *lock) Close() error {
	if l.closed.Swap(true) {
		return fs.ErrClosed
	}
	l.fs.mu.Lock()
	if l.fs.locked[l.file]--; l.fs.locked[l.file] <= 0 {
		delete(l.fs.locked, l.file)
	}
	l.fs.mu.Unlock()
	return l.handle.Close()
}
