package mappedfile_test

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// TestPages: stores that come fast find their pages ready, and slow ones do not have pages made dirty in front of them.
func TestPages(t *testing.T) {
	const large = 4 << 20
	page := os.Getpagesize()
	for name, c := range map[string]struct {
		pause int64 // between two pages, ms
		ready bool
	}{"fast": {0, true}, "slow": {60, false}} {
		t.Run(name, func(t *testing.T) {
			q := open(t, vfs.OS(), t.TempDir(), mappedfile.Options{FileSize: large, Mapped: true, Reserve: true})
			f, err := q.Create(0, nil)
			must(t, err)
			mem, err := f.Writable()
			must(t, err)
			var p mappedfile.Pages
			now, found := int64(1_700_000_000_000), 0
			for pos := 0; pos < large; pos += page {
				p.Use(f, int64(pos), int64(page), now)
				if pos > large/2 && present(t, mem[pos:]) {
					found++
				}
				mem[pos] = 1
				now += c.pause
			}
			if all := found == large/2/page-1; all != c.ready || !c.ready && found > 0 {
				t.Errorf("%d pages were ready", found)
			}
			must(t, q.Close())
		})
	}
}

// present reports whether this process has a page where b begins (proc_pid_pagemap(5)).
func present(t *testing.T, b []byte) bool {
	t.Helper()
	pagemap, err := os.Open("/proc/self/pagemap")
	must(t, err)
	defer pagemap.Close()
	var entry [8]byte
	_, err = pagemap.ReadAt(entry[:], int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))/uintptr(os.Getpagesize())*8))
	must(t, err)
	return binary.NativeEndian.Uint64(entry[:])>>63 == 1
}
