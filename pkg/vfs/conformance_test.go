package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// disk is a file system and an empty directory in it.
type disk struct {
	vfs.FS
	dir string
}

func (d disk) path(elem ...string) string {
	return filepath.Join(append([]string{d.dir}, elem...)...)
}

func (d disk) open(t *testing.T, name string, flag int) vfs.File {
	t.Helper()
	f, err := d.OpenFile(d.path(name), flag, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// both runs a test on the real file system and on memfs: what holds on one must hold on the other.
func both(t *testing.T, test func(t *testing.T, d disk)) {
	t.Run("os", func(t *testing.T) { test(t, disk{vfs.OS(), t.TempDir()}) })
	t.Run("memfs", func(t *testing.T) {
		m := memfs.New()
		if err := m.MkdirAll("/d", 0o755); err != nil {
			t.Fatal(err)
		}
		test(t, disk{m, "/d"})
	})
}

const create = os.O_RDWR | os.O_CREATE

func contents(t *testing.T, f vfs.File) []byte {
	t.Helper()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil {
		t.Fatalf("read %d of %d: %v", n, size, err)
	}
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenFlags(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		if _, err := d.OpenFile(d.path("none"), os.O_RDWR, 0); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing file: %v", err)
		}
		if _, err := d.OpenFile(d.path("no", "dir"), create, 0o644); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing directory: %v", err)
		}
		if _, err := d.OpenFile(d.path("a"), create|os.O_APPEND, 0o644); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("append: %v", err)
		}
		f := d.open(t, "a", create)
		if _, err := f.WriteAt([]byte("abc"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := d.OpenFile(d.path("a"), create|os.O_EXCL, 0o644); !errors.Is(err, fs.ErrExist) {
			t.Errorf("exclusive: %v", err)
		}
		if got := contents(t, d.open(t, "a", os.O_RDONLY)); string(got) != "abc" {
			t.Errorf("got %q", got)
		}
		if got := contents(t, d.open(t, "a", create|os.O_TRUNC)); len(got) != 0 {
			t.Errorf("after O_TRUNC: %q", got)
		}
		if _, err := d.open(t, "a", os.O_RDONLY).WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EBADF) {
			t.Errorf("write to a file open for reading: %v", err)
		}
	})
}

func TestReadsEndAtTheLength(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		if _, err := f.WriteAt([]byte("0123456789"), 4090); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 8)
		if n, err := f.ReadAt(b, 4096); n != 4 || !errors.Is(err, io.EOF) || string(b[:4]) != "6789" {
			t.Errorf("across the end: %d %v %q", n, err, b[:n])
		}
		if n, err := f.ReadAt(b, 5000); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %d %v", n, err)
		}
		if n, err := f.ReadAt(nil, 5000); n != 0 || err != nil {
			t.Errorf("nothing: %d %v", n, err)
		}
		if _, err := f.ReadAt(b, -1); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("negative offset: %v", err)
		}
		if n, err := f.ReadAt(b, 4086); n != 8 || err != nil || string(b) != "\x00\x00\x00\x000123" {
			t.Errorf("the hole: %d %v %q", n, err, b)
		}
		if n, err := f.WriteAt(nil, 9000); n != 0 || err != nil {
			t.Errorf("writing nothing: %d %v", n, err)
		}
		if size, err := f.Size(); size != 4100 || err != nil {
			t.Errorf("size %d %v", size, err)
		}
	})
}

func TestWritevGathers(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		var bufs [][]byte
		var want []byte
		for i := range 2500 { // more than one system call takes
			b := bytes.Repeat([]byte{byte(i)}, i%7)
			bufs = append(bufs, b)
			want = append(want, b...)
		}
		n, err := f.WritevAt(bufs, 3)
		if n != len(want) || err != nil {
			t.Fatalf("%d of %d: %v", n, len(want), err)
		}
		if got := contents(t, f); !bytes.Equal(got[3:], want) {
			t.Error("other bytes")
		}
		if len(bufs) != 2500 || len(bufs[6]) != 6 {
			t.Error("the buffers were changed")
		}
		if n, err := f.WritevAt(nil, 3); n != 0 || err != nil {
			t.Errorf("nothing: %d %v", n, err)
		}
	})
}

func TestTruncate(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		_, err := f.WriteAt(bytes.Repeat([]byte{7}, 10000), 0)
		must(t, err)
		must(t, f.Truncate(5000))
		must(t, f.Truncate(9000))
		want := append(bytes.Repeat([]byte{7}, 5000), make([]byte, 4000)...)
		if !bytes.Equal(contents(t, f), want) {
			t.Error("what was cut came back")
		}
		if err := f.Truncate(-1); err == nil {
			t.Error("negative length")
		}
	})
}

func TestAllocateKeepsBytes(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		_, err := f.WriteAt([]byte("abc"), 5000)
		must(t, err)
		must(t, f.Allocate(100))
		if size, _ := f.Size(); size != 5003 {
			t.Errorf("a smaller reservation changed the length to %d", size)
		}
		must(t, f.Allocate(20000))
		b := contents(t, f)
		if len(b) != 20000 || string(b[5000:5003]) != "abc" || bytes.Count(b, []byte{0}) != 20000-3 {
			t.Errorf("%d bytes, %q", len(b), b[5000:5003])
		}
	})
}

func TestZero(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		want := bytes.Repeat([]byte{7}, 20000)
		_, err := f.WriteAt(want, 0)
		must(t, err)
		for _, r := range [][2]int64{{100, 50}, {4000, 9000}, {19990, 500}, {30000, 10}, {8192, 4096}, {5, 0}} {
			must(t, f.Zero(r[0], r[1]))
			if from, to := min(r[0], 20000), min(r[0]+r[1], 20000); from < to {
				clear(want[from:to])
			}
			if !bytes.Equal(contents(t, f), want) {
				t.Fatalf("after zero %v", r)
			}
		}
		if f.Zero(-1, 5) == nil {
			t.Error("negative offset")
		}
	})
}

func TestMappingAndFileShareMemory(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		_, err := f.WriteAt([]byte("before"), 4094)
		must(t, err)
		must(t, f.Allocate(10000))
		m, err := f.Map(10000, true)
		must(t, err)
		if got := m.Bytes(); len(got) != 10000 || string(got[4094:4100]) != "before" {
			t.Fatalf("%d bytes, %q", len(got), got[4094:4100])
		}
		copy(m.Bytes()[4000:], "stored")
		must(t, m.Populate(0, 20000))
		must(t, m.Populate(4100, 10))
		_, err = f.WriteAt([]byte("written"), 9000)
		must(t, err)
		must(t, f.Zero(4095, 2))
		second, err := f.Map(5000, false)
		must(t, err)
		if b := second.Bytes(); string(b[4000:4006]) != "stored" || string(b[4094:4100]) != "b\x00\x00ore" || len(b) != 5000 {
			t.Errorf("second mapping: %q %q", b[4000:4006], b[4094:4100])
		}
		if err := second.Populate(0, 1); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("populate for reading: %v", err)
		}
		if string(m.Bytes()[9000:9007]) != "written" {
			t.Error("a write is not seen in the mapping")
		}
		must(t, f.Sync())
		must(t, second.Close())
		must(t, m.Close())
		if err := m.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
		b := contents(t, f)
		if string(b[4000:4006]) != "stored" || string(b[9000:9007]) != "written" {
			t.Error("a store is not in the file")
		}
	})
}

func TestMapRefuses(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		must(t, f.Allocate(5000))
		for _, size := range []int64{0, -1, 5001} {
			if _, err := f.Map(size, false); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("map of %d of 5000 bytes: %v", size, err)
			}
		}
		if _, err := d.open(t, "a", os.O_RDONLY).Map(5000, true); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("writable map of a file open for reading: %v", err)
		}
	})
}

func TestDirectories(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		must(t, d.MkdirAll(d.path("x", "y"), 0o755))
		must(t, d.MkdirAll(d.path("x", "y"), 0o755))
		f := d.open(t, "x/b", create)
		_, err := f.WriteAt([]byte("12345"), 0)
		must(t, err)
		d.open(t, "x/a", create)
		infos, err := d.ReadDir(d.path("x"))
		must(t, err)
		var got []vfs.Info
		for _, i := range infos {
			if i.ModTime.IsZero() {
				t.Errorf("%s has no time", i.Name)
			}
			if i.Dir {
				i.Size = 0
			}
			got = append(got, vfs.Info{Name: i.Name, Size: i.Size, Dir: i.Dir})
		}
		want := []vfs.Info{{Name: "a"}, {Name: "b", Size: 5}, {Name: "y", Dir: true}}
		if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("got %+v", got)
		}
		must(t, d.SyncDir(d.path("x")))
		if err := d.Remove(d.path("x")); err == nil {
			t.Error("removed a directory that is not empty")
		}
		if err := d.MkdirAll(d.path("x", "a", "z"), 0o755); err == nil {
			t.Error("made a directory below a file")
		}
		must(t, d.Remove(d.path("x", "y")))
		must(t, d.RemoveAll(d.path("x")))
		must(t, d.RemoveAll(d.path("x")))
		for _, err := range []error{d.Remove(d.path("x")), d.SyncDir(d.path("x")), second(d.ReadDir(d.path("x"))), second(d.Stat(d.path("x")))} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("of what is gone: %v", err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestRename(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		must(t, d.MkdirAll(d.path("x"), 0o755))
		a, b := d.open(t, "a", create), d.open(t, "x/b", create)
		_, err := a.WriteAt([]byte("new"), 0)
		must(t, err)
		_, err = b.WriteAt([]byte("old"), 0)
		must(t, err)
		must(t, d.Rename(d.path("a"), d.path("x", "b")))
		if got := contents(t, d.open(t, "x/b", os.O_RDONLY)); string(got) != "new" {
			t.Errorf("got %q", got)
		}
		if got := contents(t, b); string(got) != "old" {
			t.Errorf("the replaced file, still open: %q", got)
		}
		if err := d.Rename(d.path("a"), d.path("c")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of what is gone: %v", err)
		}
		must(t, d.Rename(d.path("x"), d.path("z")))
		if got := contents(t, d.open(t, "z/b", os.O_RDONLY)); string(got) != "new" {
			t.Errorf("in the renamed directory: %q", got)
		}
		if err := d.Rename(d.path("z"), d.path("z", "in")); err == nil {
			t.Error("moved a directory into itself")
		}
	})
}

func TestLockExcludes(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		other := d.FS
		if d.dir != "/d" {
			other = vfs.OS() // another value, as another store in this process has
		}
		l, err := d.Lock(d.path("lock"))
		must(t, err)
		if _, err := other.Lock(d.path("lock")); !errors.Is(err, vfs.ErrLocked) {
			t.Fatalf("second lock: %v", err)
		}
		// Closing another descriptor of the file must not lose the lock, as it does with POSIX locks.
		f, err := d.OpenFile(d.path("lock"), os.O_RDWR, 0)
		must(t, err)
		must(t, f.Close())
		if _, err := other.Lock(d.path("lock")); !errors.Is(err, vfs.ErrLocked) {
			t.Fatalf("second lock after a close: %v", err)
		}
		must(t, l.Close())
		l, err = other.Lock(d.path("lock"))
		must(t, err)
		must(t, l.Close())
		if l.Close() == nil {
			t.Error("second close")
		}
	})
}

func TestSharedLocks(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		if _, err := d.LockShared(d.path("lock")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("of a file that is not there: %v", err)
		}
		l, err := d.Lock(d.path("lock"))
		must(t, err)
		if _, err := d.LockShared(d.path("lock")); !errors.Is(err, vfs.ErrLocked) {
			t.Fatalf("beside the exclusive one: %v", err)
		}
		must(t, l.Close())
		a, err := d.LockShared(d.path("lock"))
		must(t, err)
		b, err := d.LockShared(d.path("lock"))
		must(t, err)
		for _, shared := range []io.Closer{a, b} {
			if _, err := d.Lock(d.path("lock")); !errors.Is(err, vfs.ErrLocked) {
				t.Fatalf("the exclusive one beside a shared one: %v", err)
			}
			must(t, shared.Close())
		}
		l, err = d.Lock(d.path("lock"))
		must(t, err)
		must(t, l.Close())
	})
}

func TestAfterClose(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		must(t, f.Close())
		for name, err := range map[string]error{
			"read":     second(f.ReadAt(make([]byte, 1), 0)),
			"write":    second(f.WriteAt([]byte("x"), 0)),
			"writev":   second(f.WritevAt([][]byte{{1}}, 0)),
			"size":     second(f.Size()),
			"truncate": f.Truncate(1),
			"allocate": f.Allocate(1),
			"zero":     f.Zero(0, 1),
			"sync":     f.Sync(),
			"map":      second(f.Map(1, false)),
			"close":    f.Close(),
		} {
			if !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, ok := f.Fd(); ok {
			t.Error("a closed file has a descriptor")
		}
	})
}

func TestFreeSpace(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		if n, err := d.FreeSpace(d.dir); n <= 0 || err != nil {
			t.Errorf("%d %v", n, err)
		}
		if _, err := d.FreeSpace(d.path("none")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of what is not there: %v", err)
		}
	})
}

func TestDisjointUseInParallel(t *testing.T) {
	both(t, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		const part, parts = 3000, 16
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() {
				mine := bytes.Repeat([]byte{byte(i + 1)}, part)
				for range 20 {
					if _, err := f.WriteAt(mine, int64(i*part)); err != nil {
						t.Error(err)
					}
					if err := f.Sync(); err != nil {
						t.Error(err)
					}
					got := make([]byte, part)
					if _, err := f.ReadAt(got, int64(i*part)); err != nil || !bytes.Equal(got, mine) {
						t.Errorf("part %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestRandomOperationsAgree does the same thousand things to both and compares the bytes after each.
func TestRandomOperationsAgree(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	m := memfs.New()
	files := [2]vfs.File{disk{vfs.OS(), t.TempDir()}.open(t, "a", create), disk{m, "/"}.open(t, "a", create)}
	const space = 40000
	for step := range 1000 {
		off, n := rnd.Int64N(space), rnd.Int64N(9000)
		what, data := rnd.IntN(7), make([]byte, n)
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		var got [2][]byte
		for i, f := range files {
			var err error
			switch what {
			case 0:
				err = f.Truncate(off)
			case 1:
				err = f.Allocate(off)
			case 2:
				err = f.Zero(off, n)
			case 3:
				_, err = f.WritevAt([][]byte{data[:n/2], nil, data[n/2:]}, off)
			case 4:
				err = storeMapped(f, data, off)
			case 5:
				err = f.Sync()
			default:
				_, err = f.WriteAt(data, off)
			}
			must(t, err)
			got[i] = contents(t, f)
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Fatalf("step %d (kind %d, %d+%d): %d and %d bytes differ", step, what, off, n, len(got[0]), len(got[1]))
		}
		if step%50 == 0 {
			m = m.CrashClone(memfs.All)
			files[1] = disk{m, "/"}.open(t, "a", os.O_RDWR)
		}
	}
}

func storeMapped(f vfs.File, data []byte, off int64) error {
	if err := f.Allocate(off + int64(len(data))); err != nil || off+int64(len(data)) == 0 {
		return err
	}
	m, err := f.Map(off+int64(len(data)), true)
	if err != nil {
		return err
	}
	copy(m.Bytes()[off:], data)
	return m.Close()
}
