package mappedfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs"
)

// shut is the bit of File.state that refuses new leases; the bits below count those that are out.
const shut = int64(1) << 62

// chunk is how many bytes are looked at in one piece.
const chunk = 4 << 10

// File is one file of a Queue. Reads and writes at disjoint positions may run concurrently; a position counts from the
// start of the file.
type File struct {
	name     string
	start    int64
	size     int64
	file     vfs.File
	read     vfs.Mapping // nil when not mapped
	write    vfs.Mapping // nil until Writable
	mem      []byte
	release  func() // Release, made once
	reserved atomic.Bool

	state atomic.Int64
	idle  chan struct{} // capacity 1: told when the last lease of a shut file ends
}

func newFile(name string, start, size int64, f vfs.File) *File {
	file := &File{name: name, start: start, size: size, file: f, idle: make(chan struct{}, 1)}
	file.release = file.Release
	return file
}

// openFile opens the existing file at start.
func openFile(fsys vfs.FS, name string, start, size int64, mapped bool) (*File, error) {
	h, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	f := newFile(name, start, size, h)
	if mapped {
		if err := f.mapForReading(); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	return f, nil
}

// mapForReading takes the writable mapping where there is one, so that readers do not fault in pages a second time.
func (f *File) mapForReading() error {
	if f.write != nil {
		f.mem = f.write.Bytes()
		return nil
	}
	m, err := f.file.Map(f.size, false)
	if err != nil {
		return fmt.Errorf("map file: %w", err)
	}
	f.read, f.mem = m, m.Bytes()
	return nil
}

// Start returns the offset of the first byte, End that behind the last one.
func (f *File) Start() int64 { return f.start }

// End returns the offset behind the last byte.
func (f *File) End() int64 { return f.start + f.size }

// Acquire takes a lease; false: the file is being cut, removed or closed.
func (f *File) Acquire() bool {
	if f.state.Add(1)&shut != 0 {
		f.Release()
		return false
	}
	return true
}

// Release ends a lease.
func (f *File) Release() {
	if f.state.Add(-1) == shut {
		select {
		case f.idle <- struct{}{}:
		default:
		}
	}
}

// ReleaseFunc returns Release as a value that costs no allocation.
func (f *File) ReleaseFunc() func() { return f.release }

// Drain refuses new leases and waits until those that are out have ended, at most for grace: then it lets leases through
// again and returns ErrBusy.
func (f *File) Drain(grace time.Duration) error {
	if f.state.Or(shut)&^shut == 0 {
		return nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for f.state.Load() != shut {
		select {
		case <-f.idle:
		case <-timer.C:
			leases := f.state.And(^shut) &^ shut
			return ErrBusy.With("file", Name(f.start)).With("leases", leases).With("waited", grace)
		}
	}
	return nil
}

// Admit lets leases through again after a Drain.
func (f *File) Admit() { f.state.And(^shut) }

// Bytes is the mapped file for reading, nil when the queue is not mapped. Hold a lease while touching it.
func (f *File) Bytes() []byte { return f.mem }

// Writable returns the mapped file for stores, which Bytes shows at once. It reserves the file first: vfs.ErrNoSpace when
// it does not fit on the disk. Only the owner calls it, and uses the memory until the file is removed or closed.
func (f *File) Writable() ([]byte, error) {
	if f.write != nil {
		return f.write.Bytes(), nil
	}
	if err := f.Reserve(); err != nil {
		return nil, err
	}
	m, err := f.file.Map(f.size, true)
	if err != nil {
		return nil, fmt.Errorf("map file for writing: %w", err)
	}
	f.write = m
	return m.Bytes(), nil
}

// ReadAt reads at a position, without the mapping.
func (f *File) ReadAt(p []byte, pos int64) (int, error) {
	n, err := f.file.ReadAt(p, pos)
	return n, err
}

// WriteAt writes p at a position, without the mapping, which shows it at once.
func (f *File) WriteAt(p []byte, pos int64) (int, error) {
	if pos < 0 || pos+int64(len(p)) > f.size {
		return 0, f.outside(pos, int64(len(p)))
	}
	n, err := f.file.WriteAt(p, pos)
	return n, err
}

// WritevAt writes bufs side by side from a position.
func (f *File) WritevAt(bufs [][]byte, pos int64) (int, error) {
	total := int64(0)
	for _, b := range bufs {
		total += int64(len(b))
	}
	if pos < 0 || pos+total > f.size {
		return 0, f.outside(pos, total)
	}
	n, err := f.file.WritevAt(bufs, pos)
	return n, err
}

func (f *File) outside(pos, n int64) error {
	return fmt.Errorf("write %s: bytes [%d, %d) are outside of the file of %d", Name(f.start), pos, pos+n, f.size)
}

// Reserve allocates all blocks of the file, once; vfs.ErrNoSpace when they do not fit. A store into a mapping that was not
// reserved kills the process when the disk is full.
func (f *File) Reserve() error {
	if f.reserved.Load() {
		return nil
	}
	if err := f.file.Allocate(f.size); err != nil {
		return fmt.Errorf("reserve file: %w", err)
	}
	f.reserved.Store(true)
	return nil
}

// Zero makes [pos, pos+n) read as zeros. It works on a full disk too: what holds other bytes than zeros has its blocks.
func (f *File) Zero(pos, n int64) error {
	err := f.file.Zero(pos, n)
	if errors.Is(err, vfs.ErrNoSpace) {
		err = f.overwrite(pos, n)
	}
	if err != nil {
		return fmt.Errorf("zero file: %w", err)
	}
	return nil
}

// overwrite writes zeros where there are other bytes.
func (f *File) overwrite(pos, n int64) error {
	buf, zeros := make([]byte, chunk), make([]byte, chunk)
	for end := pos + n; pos < end; {
		part := buf[:min(chunk-pos%chunk, end-pos)]
		m, err := f.file.ReadAt(part, pos)
		if m < len(part) {
			return err
		}
		if !bytes.Equal(part, zeros[:m]) {
			if _, err := f.file.WriteAt(zeros[:m], pos); err != nil {
				return err
			}
		}
		pos += int64(m)
	}
	return nil
}

// Sync makes everything written to the file durable. After an error the file must not be trusted: ErrSync.
func (f *File) Sync() error {
	if err := f.file.Sync(); err != nil {
		return ErrSync.With("file", Name(f.start)).Wrap(err)
	}
	return nil
}

// Fd returns the descriptor for sendfile, to be used under a lease; false where there is none.
func (f *File) Fd() (uintptr, bool) { return f.file.Fd() }

// close waits for the leases and releases memory and descriptor. On ErrBusy both stay.
func (f *File) close(grace time.Duration) error {
	if err := f.Drain(grace); err != nil {
		return err
	}
	var errs []error
	for _, m := range []vfs.Mapping{f.read, f.write} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	f.read, f.write, f.mem = nil, nil, nil
	errs = append(errs, f.file.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close file: %w", err)
	}
	return nil
}
