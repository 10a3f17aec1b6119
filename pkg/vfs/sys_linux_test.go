package vfs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestWithoutFallocate covers what a file system without fallocate gets.
func TestWithoutFallocate(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	want := make([]byte, 3<<20)
	for _, at := range []int{0, 1 << 20, 3<<20 - 4096} {
		copy(want[at:], bytes.Repeat([]byte{5}, 4096))
		if _, err := f.WriteAt(want[at:at+4096], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	before := blocks(t, fd)
	if err := fillHoles(fd, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := blocks(t, fd); got < 2<<20 || got <= before {
		t.Errorf("%d bytes reserved, before %d", got, before)
	}
	if err := fillHoles(fd, 3<<20); err != nil {
		t.Fatal(err)
	}
	if err := writeZeros(fd, 1<<20, 700<<10); err != nil {
		t.Fatal(err)
	}
	clear(want[1<<20 : 1<<20+700<<10])
	got := make([]byte, 3<<20)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes: %v", err)
	}
}

func blocks(t *testing.T, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestTouch is the way of kernels before 5.14: nothing may change, a last part of a page included.
func TestTouch(t *testing.T) {
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	mem[0], mem[page+1], mem[2*page] = 1, 2, 3
	for _, n := range []int{3 * page, 2*page + 4, 2*page + 1, 0} {
		touch(mem[:n], int64(page))
	}
	if mem[0] != 1 || mem[page+1] != 2 || mem[2*page] != 3 {
		t.Error("touching changed bytes")
	}
	vec := make([]byte, 3)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, ptr(mem), uintptr(len(mem)), ptr(vec)); errno != 0 {
		t.Fatal(errno)
	}
	if vec[0]&vec[1]&vec[2]&1 == 0 {
		t.Errorf("pages not present: %v", vec)
	}
}

func ptr(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
