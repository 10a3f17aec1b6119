package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFlags are the flags that OpenFile takes.
const openFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_CREATE | os.O_EXCL | os.O_TRUNC

// OS returns the file system of the machine.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if flag&^openFlags != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EINVAL}
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, classify(name, err)
	}
	return &osFile{f: f, fd: int(f.Fd())}, nil
}

func (osFS) MkdirAll(dir string, perm fs.FileMode) error {
	return classify(dir, os.MkdirAll(dir, perm))
}

func (o osFS) ReadDir(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, classify(dir, err)
	}
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		info, err := o.Stat(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since, or a link to nowhere
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, classify(name, err)
	}
	info := Info{Name: filepath.Base(name), Size: st.Size(), Dir: st.IsDir(), ModTime: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		info.ID = sys.Ino
	}
	return info, nil
}

func (osFS) Rename(oldName, newName string) error {
	return classify(newName, os.Rename(oldName, newName))
}

func (osFS) Remove(name string) error { return classify(name, os.Remove(name)) }

func (osFS) RemoveAll(name string) error { return classify(name, os.RemoveAll(name)) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return classify(dir, err)
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) {
		err = nil // a file system whose directories need no sync
	}
	return classify(dir, errors.Join(err, d.Close()))
}

// Lock uses a lock of the open file description: it conflicts with the POSIX locks of a Java process and with the locks
// of other descriptions in this one, and survives that somebody closes another descriptor of the file.
func (osFS) Lock(name string) (io.Closer, error) {
	return lock(name, os.O_RDWR|os.O_CREATE, unix.F_WRLCK)
}

func (osFS) LockShared(name string) (io.Closer, error) {
	return lock(name, os.O_RDONLY, unix.F_RDLCK)
}

func lock(name string, flag int, kind int16) (io.Closer, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, classify(name, err)
	}
	err = retry(func() error {
		return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: 0, Len: 1})
	})
	if err == nil {
		return f, nil
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = ErrLocked.With("file", name).WithRemedy("stop the process that uses the folder, which `fuser %s` names, or choose another folder", name)
	} else {
		err = classify(name, &fs.PathError{Op: "lock", Path: name, Err: err})
	}
	return nil, errors.Join(err, f.Close())
}

func (osFS) FreeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil //nolint:gosec // blocks times their size is below 2^63
}

// osFile keeps raw system calls and Close apart: a descriptor that is closed too early may already be another file.
type osFile struct {
	f  *os.File
	mu sync.RWMutex // held for reading while fd is used, for writing by Close
	fd int          // -1 once closed
}

// do runs one system call on the descriptor.
func (o *osFile) do(op string, call func(fd int) error) error {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.fd < 0 {
		return &fs.PathError{Op: op, Path: o.f.Name(), Err: fs.ErrClosed}
	}
	if err := retry(func() error { return call(o.fd) }); err != nil {
		return classify(o.f.Name(), &fs.PathError{Op: op, Path: o.f.Name(), Err: err})
	}
	return nil
}

func (o *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.f.ReadAt(p, off)
	return n, err //nolint:wrapcheck // a PathError, or io.EOF as it is
}

func (o *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	return n, classify(o.f.Name(), err)
}

func (o *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.fd < 0 {
		return 0, &fs.PathError{Op: "pwritev", Path: o.f.Name(), Err: fs.ErrClosed}
	}
	n, err := pwritev(o.fd, bufs, off)
	if err != nil {
		err = classify(o.f.Name(), &fs.PathError{Op: "pwritev", Path: o.f.Name(), Err: err})
	}
	return n, err
}

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, classify(o.f.Name(), err)
	}
	return st.Size(), nil
}

func (o *osFile) Truncate(size int64) error { return classify(o.f.Name(), o.f.Truncate(size)) }

func (o *osFile) Allocate(size int64) error {
	return o.do("fallocate", func(fd int) error { return allocate(fd, size) })
}

func (o *osFile) Zero(off, n int64) error {
	return o.do("zero", func(fd int) error { return zero(fd, off, n) })
}

func (o *osFile) Sync() error { return o.do("fdatasync", unix.Fdatasync) }

func (o *osFile) Map(size int64, write bool) (Mapping, error) {
	m := &osMapping{name: o.f.Name(), write: write}
	err := o.do("mmap", func(fd int) error {
		var err error
		m.mem, err = mmap(fd, size, write)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (o *osFile) Fd() (uintptr, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.fd < 0 {
		return 0, false
	}
	return uintptr(o.fd), true
}

func (o *osFile) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fd = -1
	return classify(o.f.Name(), o.f.Close())
}

// osMapping is closed by its owner, who knows that nobody uses the bytes any more.
type osMapping struct {
	name  string
	write bool
	mem   []byte // nil once closed
}

func (m *osMapping) Bytes() []byte { return m.mem }

func (m *osMapping) Populate(off, n int64) error {
	if m.mem == nil {
		return &fs.PathError{Op: "populate", Path: m.name, Err: fs.ErrClosed}
	}
	if !m.write {
		return &fs.PathError{Op: "populate", Path: m.name, Err: unix.EACCES}
	}
	if err := populate(m.mem, off, n); err != nil {
		return classify(m.name, &fs.PathError{Op: "populate", Path: m.name, Err: err})
	}
	return nil
}

func (m *osMapping) Close() error {
	if m.mem == nil {
		return &fs.PathError{Op: "munmap", Path: m.name, Err: fs.ErrClosed}
	}
	mem := m.mem
	m.mem = nil
	if err := unix.Munmap(mem); err != nil {
		return &fs.PathError{Op: "munmap", Path: m.name, Err: err}
	}
	return nil
}

// classify makes ErrNoSpace of a full disk or quota; nil stays nil.
func classify(name string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return ErrNoSpace.With("file", name).Wrap(err).WithRemedy("free space on the disk, or raise the quota")
	}
	return err
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
