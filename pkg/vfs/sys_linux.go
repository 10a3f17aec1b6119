package vfs

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxVec    = 1024      // IOV_MAX
	zeroChunk = 256 << 10 // bytes per write where the file system cannot zero a range itself
)

// pwritev writes bufs at off, in groups of maxVec, going on after short writes.
func pwritev(fd int, bufs [][]byte, off int64) (int, error) {
	total := 0
	for len(bufs) > 0 {
		group := bufs[:min(len(bufs), maxVec)]
		n, err := pwritevOnce(fd, group, off+int64(total))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return total, err
		}
		total += n
		for len(bufs) > 0 && n >= len(bufs[0]) {
			n -= len(bufs[0])
			bufs = bufs[1:]
		}
		if n == 0 {
			continue
		}
		m, err := pwriteAll(fd, bufs[0][n:], off+int64(total))
		total += m
		if err != nil {
			return total, err
		}
		bufs = bufs[1:]
	}
	return total, nil
}

// vectors are reused, so that a burst of many pieces allocates nothing.
var vectors = sync.Pool{New: func() any { return new([maxVec]unix.Iovec) }}

func pwritevOnce(fd int, bufs [][]byte, off int64) (int, error) {
	vec := vectors.Get().(*[maxVec]unix.Iovec) //nolint:errcheck // the pool has nothing else
	for i, b := range bufs {
		vec[i].Base = unsafe.SliceData(b)
		vec[i].SetLen(len(b))
	}
	// The offset is split into two longs; on 64 bits the second one is shifted out.
	n, _, errno := unix.Syscall6(unix.SYS_PWRITEV, uintptr(fd), uintptr(unsafe.Pointer(vec)), uintptr(len(bufs)), uintptr(off),
		uintptr(uint64(off)>>32), 0)
	clear(vec[:len(bufs)])
	vectors.Put(vec)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func pwriteAll(fd int, p []byte, off int64) (int, error) {
	total := 0
	for total < len(p) {
		n, err := unix.Pwrite(fd, p[total:], off+int64(total))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return total, err
		}
		if n == 0 {
			return total, io.ErrShortWrite
		}
		total += n
	}
	return total, nil
}

// allocate reserves [0, size). A file system without fallocate gets zeros written into the holes and behind the end.
func allocate(fd int, size int64) error {
	length, err := fileLength(fd)
	if err != nil || size <= 0 {
		return err
	}
	err = unix.Fallocate(fd, 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = fillHoles(fd, min(size, length))
		if err == nil && size > length {
			err = writeZeros(fd, length, size-length)
		}
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errors.Join(err, unix.Ftruncate(fd, length)) // gives back what did fit
	}
	return err
}

func fillHoles(fd int, size int64) error {
	for at := int64(0); at < size; {
		from, err := unix.Seek(fd, at, unix.SEEK_HOLE)
		if err != nil || from >= size {
			return err
		}
		to, err := unix.Seek(fd, from, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			to, err = size, nil
		}
		if err != nil {
			return err
		}
		at = min(to, size)
		if err := writeZeros(fd, from, at-from); err != nil {
			return err
		}
	}
	return nil
}

// zero clears what lies of [off, off+n) inside the file.
func zero(fd int, off, n int64) error {
	length, err := fileLength(fd)
	if err != nil {
		return err
	}
	if off < 0 || n < 0 {
		return unix.EINVAL
	}
	n = min(n, length-off)
	if n <= 0 {
		return nil
	}
	err = unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return writeZeros(fd, off, n)
	}
	return err
}

func writeZeros(fd int, off, n int64) error {
	zeros := make([]byte, min(n, zeroChunk))
	for n > 0 {
		m, err := pwriteAll(fd, zeros[:min(n, int64(len(zeros)))], off)
		if err != nil {
			return err
		}
		off += int64(m)
		n -= int64(m)
	}
	return nil
}

func fileLength(fd int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

// mmap refuses what lies behind the end of the file: touching it would be a SIGBUS.
func mmap(fd int, size int64, write bool) ([]byte, error) {
	length, err := fileLength(fd)
	if err != nil {
		return nil, err
	}
	if size <= 0 || size > length || int64(int(size)) != size {
		return nil, unix.EINVAL
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	return unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED)
}

// populate makes the pages of [off, off+n) present and writable.
func populate(mem []byte, off, n int64) error {
	if off < 0 || n < 0 {
		return unix.EINVAL
	}
	page := int64(os.Getpagesize())
	end := min(off+n, int64(len(mem)))
	off -= off % page
	if off >= end {
		return nil
	}
	part := mem[off:end]
	err := retry(func() error { return unix.Madvise(part, unix.MADV_POPULATE_WRITE) })
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	touch(part, page) // a kernel before 5.14
	return nil
}

// touch stores into each page without changing it, also while others store there.
func touch(mem []byte, page int64) {
	for at := int64(0); at+4 <= int64(len(mem)); at += page {
		atomic.AddInt32((*int32)(unsafe.Pointer(&mem[at])), 0) //nolint:gosec // mem starts at a page, so the word is aligned
	}
}
