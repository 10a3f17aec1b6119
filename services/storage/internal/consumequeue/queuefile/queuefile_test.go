package queuefile

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPoolUnderLoad(t *testing.T) {
	const rows, limit, users = 20, 4, 6
	p := NewPool(memfs.New(), limit)
	all := make([]Row, rows)
	for i := range all {
		all[i] = NewRow(p, filepath.Join("/q", string(rune('a'+i)), "0"), 64)
		check(t, all[i].WriteAt(bytes.Repeat([]byte{byte(i)}, 200), 0))
	}
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(u), 0))
			var b [8]byte
			for range 3000 {
				i := rnd.IntN(rows)
				if err := all[i].ReadAt(b[:], 8*rnd.Int64N(25)); err != nil || b[3] != byte(i) {
					t.Errorf("row %d: %v, %v", i, b, err)
				}
			}
		})
	}
	wg.Wait()
	if n := p.Count(); n != limit {
		t.Errorf("%d files are open, the limit is %d", n, limit)
	}
	check(t, p.Close())
	if err := all[0].ReadAt(make([]byte, 8), 0); !errors.Is(err, ErrClosed) || p.Count() != 0 {
		t.Errorf("after close: %v, %d open", err, p.Count())
	}
}

func TestShorten(t *testing.T) {
	full := bytes.Repeat([]byte{7}, 250)
	for pos := int64(10); pos <= 250; pos += 10 {
		fsys := memfs.New()
		p := NewPool(fsys, 4)
		r := NewRow(p, "/q/T/0", 100)
		check(t, r.WriteAt(full, 0))
		changed, err := r.Shorten(pos)
		check(t, err)
		if changed != (pos%100 != 0 && pos < 250) {
			t.Errorf("at %d: changed %v", pos, changed)
		}
		if want := (pos + 99) / 100 * 100; r.Files != (Run{0, want}) {
			t.Errorf("at %d: files %v", pos, r.Files)
		}
		for at := int64(0); at < r.Files.Hi; at += 10 {
			b := make([]byte, 10)
			check(t, r.ReadAt(b, at))
			if (b[0] == 7) != (at < pos) {
				t.Errorf("cut at %d: byte %d is %d", pos, at, b[0])
			}
		}
		infos, err := fsys.ReadDir("/q/T/0")
		if check(t, err); int64(len(infos)) != r.Files.Hi/100 {
			t.Errorf("at %d: %d files", pos, len(infos))
		}
		check(t, p.Close())
	}
}

func TestTheFirstFileStaysWhenItIsCutAtItsStart(t *testing.T) {
	p := NewPool(memfs.New(), 4)
	r := NewRow(p, "/q/T/0", 100)
	check(t, r.WriteAt(bytes.Repeat([]byte{7}, 250), 300))
	changed, err := r.Shorten(300)
	if check(t, err); !changed || r.Files != (Run{300, 400}) {
		t.Errorf("changed %v, files %v", changed, r.Files)
	}
	check(t, p.Close())
}

func TestAdoptKeepsTheRunThatLeadsThere(t *testing.T) {
	for start, want := range map[int64]Run{0: {0, 200}, 100: {0, 200}, 200: {0, 200}, 300: {300, 400}, 400: {300, 400}, 500: {500, 500}} {
		fsys := memfs.New()
		p := NewPool(fsys, 4)
		r := NewRow(p, "/q/T/0", 100)
		check(t, fsys.MkdirAll("/q/T/0", 0o755))
		for _, at := range []int64{0, 100, 300} {
			f, err := fsys.OpenFile(filepath.Join("/q/T/0", mappedfile.Name(at)), os.O_RDWR|os.O_CREATE, 0o644)
			check(t, err)
			check(t, f.Close())
			check(t, r.Add(at, 0))
		}
		check(t, r.Adopt(start))
		infos, err := fsys.ReadDir("/q/T/0")
		check(t, err)
		if r.Files != want || int64(len(infos)) != (want.Hi-want.Lo)/100 {
			t.Errorf("from %d: files %v, want %v; %d on disk", start, r.Files, want, len(infos))
		}
		for _, i := range infos {
			if i.Size != 100 {
				t.Errorf("%s has %d bytes", i.Name, i.Size)
			}
		}
		check(t, p.Close())
	}
}

func TestHolesStayHoles(t *testing.T) {
	const size = 6_000_000
	name := filepath.Join(t.TempDir(), "file")
	f, err := vfs.OS().OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	check(t, err)
	check(t, f.Truncate(size))
	for _, at := range []int64{100, 40_000, 5_000_001} {
		_, err := f.WriteAt([]byte{1}, at)
		check(t, err)
	}
	changed, err := zeroBehind(f, 101, size)
	if check(t, err); !changed {
		t.Error("nothing changed")
	}
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	if check(t, err); b[100] != 1 || bytes.Count(b, []byte{0}) != size-1 {
		t.Errorf("%d bytes are not zero", size-bytes.Count(b, []byte{0}))
	}
	if changed, err = zeroBehind(f, 101, size); changed || err != nil {
		t.Errorf("again: %v, %v", changed, err)
	}
	check(t, f.Close())
	info, err := os.Stat(name)
	check(t, err)
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > 1<<20 {
		t.Errorf("the file takes %d bytes of the disk", st.Blocks*512)
	}
}
