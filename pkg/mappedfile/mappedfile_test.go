package mappedfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

const size = 8 << 10

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustIs(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// options are those of a log, and of sparse queue files.
func options(mapped bool) mappedfile.Options {
	o := mappedfile.Options{FileSize: size, Mapped: mapped, Reserve: mapped, Grace: time.Second}
	if mapped {
		o.Temp = "/q.new"
	}
	return o
}

func open(t testing.TB, fsys vfs.FS, dir string, o mappedfile.Options) *mappedfile.Queue {
	t.Helper()
	q, err := mappedfile.Open(fsys, dir, o)
	must(t, err)
	return q
}

// filled makes a queue of n files, each full of its own letter, synced.
func filled(t testing.TB, fsys vfs.FS, dir string, o mappedfile.Options, n int) *mappedfile.Queue {
	t.Helper()
	q := open(t, fsys, dir, o)
	for i := range n {
		f, err := q.Create(int64(i)*size, nil)
		must(t, err)
		_, err = f.WriteAt(letters(i), 0)
		must(t, err)
	}
	must(t, q.SyncRange(0, int64(n)*size))
	return q
}

func letters(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, size) }

func starts(q *mappedfile.Queue) []int64 {
	var all []int64
	for _, f := range q.Files() {
		all = append(all, f.Start())
	}
	return all
}

func content(t testing.TB, f *mappedfile.File) []byte {
	t.Helper()
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < size {
		t.Fatal(err)
	}
	if m := f.Bytes(); m != nil && !bytes.Equal(m, b) {
		t.Fatal("the mapping shows other bytes")
	}
	return b
}

func TestNames(t *testing.T) {
	if n := mappedfile.Name(1 << 30); n != "00000000001073741824" {
		t.Error(n)
	}
	for name, want := range map[string]int64{
		"00000000000000000000": 0, "00000000001073741824": 1 << 30, "09223372036854775807": 1<<63 - 1,
		"": -1, "0": -1, "0000000000000000000x": -1, "-0000000000000000001": -1, "+0000000000000000001": -1,
		"99999999999999999999": -1, "000000000000000000000": -1, "0x000000000000000010": -1, "0000_000000000000001": -1,
	} {
		if n, ok := mappedfile.ParseName(name); ok != (want >= 0) || ok && n != want {
			t.Errorf("%q is %d, %v", name, n, ok)
		}
	}
}

// TestLife walks through all that an owner does, on both file systems.
func TestLife(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"memfs": memfs.New(), "os": vfs.OS()} {
		for _, mapped := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, mapped %v", name, mapped), func(t *testing.T) {
				root := "/" + fmt.Sprint(mapped)
				if name == "os" {
					root = t.TempDir()
				}
				dir := filepath.Join(root, "a", "q")
				o := options(mapped)
				if mapped {
					must(t, fsys.MkdirAll(root, 0o755))
					o.Temp = filepath.Join(root, "q.new")
				}
				life(t, fsys, dir, o)
			})
		}
	}
}

func life(t *testing.T, fsys vfs.FS, dir string, o mappedfile.Options) {
	t.Helper()
	q := open(t, fsys, dir, o)
	if q.First() != nil || q.Last() != nil || q.Find(0) != nil {
		t.Error("a file in an empty queue")
	}
	must(t, q.Close())
	q = filled(t, fsys, dir, o, 4)
	for off, want := range map[int64]int64{-1: -1, 0: 0, size - 1: 0, size: size, 4*size - 1: 3 * size, 4 * size: -1} {
		if f := q.Find(off); (f != nil) != (want >= 0) || f != nil && f.Start() != want {
			t.Errorf("%d is in %v, want %d", off, f, want)
		}
	}
	if o.Mapped {
		mem, err := q.Last().Writable()
		must(t, err)
		copy(mem[10:], "stored")
		copy(mem[16:], "by map")
		if !bytes.Contains(content(t, q.Last()), []byte("storedby map")) {
			t.Error("a store through the map is not seen")
		}
	} else if q.First().Bytes() != nil {
		t.Error("mapped although not asked for")
	}
	for _, start := range []int64{0, 3 * size, 5 * size, 4*size + 1, -size} {
		_, err := q.Create(start, nil)
		mustIs(t, err, mappedfile.ErrMisplaced)
	}
	if _, err := q.First().WriteAt(make([]byte, 2), size-1); err == nil {
		t.Error("written across the end of a file")
	}
	if _, err := q.First().WritevAt([][]byte{make([]byte, 1), make([]byte, 1)}, size-1); err == nil {
		t.Error("written across the end of a file")
	}
	must(t, q.Cut(size+100))
	if got := content(t, q.Last()); !slices.Equal(starts(q), []int64{0, size}) || !bytes.Equal(got, append(letters(1)[:100], make([]byte, size-100)...)) {
		t.Errorf("files at %v after a cut", starts(q))
	}
	_, err := q.Create(2*size, nil)
	must(t, err)
	n, err := q.DropBefore(2*size - 1)
	if n != 1 || err != nil || !slices.Equal(starts(q), []int64{size, 2 * size}) {
		t.Errorf("%d dropped, files at %v, %v", n, starts(q), err)
	}
	if n, err = q.DropBefore(100 * size); n != 1 || err != nil || q.First() != q.Last() {
		t.Errorf("%d dropped, files at %v, %v", n, starts(q), err)
	}
	mustIs(t, q.SetFileSize(2*size), mappedfile.ErrSize)
	must(t, q.Close())
	o.FileSize = 0
	q = open(t, fsys, dir, o)
	if q.FileSize() != size || !slices.Equal(starts(q), []int64{2 * size}) {
		t.Errorf("file size %d, files at %v", q.FileSize(), starts(q))
	}
	must(t, q.RemoveFrom(0, nil))
	must(t, q.SetFileSize(2*size))
	f, err := q.Create(6*size, nil)
	must(t, err)
	if f.End() != 8*size {
		t.Errorf("end %d", f.End())
	}
	must(t, q.Close())
}

// TestBadFolders: each is an error that names what is wrong, and changes nothing.
func TestBadFolders(t *testing.T) {
	name := func(off int64) string { return "/q/" + mappedfile.Name(off) }
	resize := func(t *testing.T, fsys vfs.FS, name string, n int64) {
		t.Helper()
		f, err := fsys.OpenFile(name, os.O_RDWR, 0)
		must(t, err)
		must(t, f.Truncate(n))
		must(t, f.Close())
	}
	for _, tc := range []struct {
		what string
		do   func(t *testing.T, fsys vfs.FS)
		want error
		key  string
		val  string
	}{
		{
			"a gap", func(t *testing.T, fsys vfs.FS) { must(t, fsys.Remove(name(size))) },
			mappedfile.ErrGap, "missing", fmt.Sprint(size),
		},
		{
			"a short file", func(t *testing.T, fsys vfs.FS) { resize(t, fsys, name(size), 1) },
			mappedfile.ErrSize, "file", mappedfile.Name(size),
		},
		{
			"a short last file", func(t *testing.T, fsys vfs.FS) { resize(t, fsys, name(3*size), 1) },
			mappedfile.ErrSize, "file", mappedfile.Name(3 * size),
		},
		{
			"an empty file in the middle", func(t *testing.T, fsys vfs.FS) { resize(t, fsys, name(size), 0) },
			mappedfile.ErrSize, "size", "0",
		},
		{
			"a misplaced file", func(t *testing.T, fsys vfs.FS) { must(t, fsys.Rename(name(3*size), name(3*size+1))) },
			mappedfile.ErrMisplaced, "file", mappedfile.Name(3*size + 1),
		},
	} {
		t.Run(tc.what, func(t *testing.T) {
			fsys := memfs.New()
			must(t, filled(t, fsys, "/q", options(false), 4).Close())
			tc.do(t, fsys)
			ops := fsys.Ops()
			for _, configured := range []int64{0, size} {
				_, err := mappedfile.Open(fsys, "/q", mappedfile.Options{FileSize: configured})
				mustIs(t, err, tc.want)
				if e := errdefs.As(err); e.Meta[tc.key] != tc.val || e.Remedy == "" {
					t.Errorf("%v", err)
				}
			}
			if fsys.Ops() != ops {
				t.Error("the folder was changed")
			}
		})
	}
}

// TestOpenChangesNothing, save for the empty file of a broker that was killed while it made one; other names are listed.
func TestOpenChangesNothing(t *testing.T) {
	fsys := memfs.New()
	must(t, filled(t, fsys, "/q", options(true), 2).Close())
	touch := func(name string) {
		f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		must(t, err)
		must(t, f.Close())
	}
	must(t, fsys.MkdirAll("/q/"+mappedfile.Name(7*size), 0o755))
	touch("/q/readme")
	touch("/q/" + mappedfile.Name(2*size))
	touch("/q.new")
	for range 2 {
		q := open(t, fsys, "/q", options(true))
		if !slices.Equal(starts(q), []int64{0, size}) || !slices.Equal(q.Foreign(), []string{mappedfile.Name(7 * size), "readme"}) {
			t.Errorf("files at %v, foreign %v", starts(q), q.Foreign())
		}
		must(t, q.Close())
	}
	for _, gone := range []string{"/q/" + mappedfile.Name(2*size), "/q.new"} {
		if _, err := fsys.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there", gone)
		}
	}
}

// TestCrashWhileMaking: before each step of making a file the folder opens, with the file or without it, and after Create
// with it; a step that fails leaves nothing behind.
func TestCrashWhileMaking(t *testing.T) {
	base := memfs.New()
	must(t, filled(t, base, "/q", options(true), 1).Close())
	check := func(t *testing.T, fsys *memfs.FS, least int) {
		t.Helper()
		q := open(t, fsys, "/q", options(true))
		if n := len(q.Files()); n < least || n > 2 {
			t.Errorf("%d files", n)
		}
		if len(q.Files()) == 1 {
			_, err := q.Create(size, nil)
			must(t, err)
		}
		if !bytes.Equal(content(t, q.First()), letters(0)) || len(bytes.Trim(content(t, q.Last()), "\x00")) != 0 {
			t.Error("other bytes")
		}
		must(t, q.Close())
	}
	steps := 0
	for k := 0; k <= steps; k++ {
		for _, action := range []memfs.Action{memfs.FailBefore(nil), memfs.FailAfter(nil), memfs.FailBefore(vfs.ErrNoSpace)} {
			fsys := base.CrashClone(memfs.All)
			q := open(t, fsys, "/q", options(true))
			n := 0
			fsys.SetHook(func(op memfs.Op) memfs.Action {
				if !op.Kind.Mutates() {
					return memfs.Proceed
				}
				if n++; k == 0 {
					check(t, fsys.CrashClone(memfs.All), 1)
					check(t, fsys.CrashClone(memfs.OnlySynced), 1)
				}
				if n == k {
					return action
				}
				return memfs.Proceed
			})
			f, err := q.Create(size, func(f *mappedfile.File) error {
				_, err := f.Writable()
				return err
			})
			fsys.SetHook(nil)
			if (err == nil) != (k == 0 || k > n) {
				t.Errorf("step %d of %d: %v", k, n, err)
			}
			if err != nil {
				if f != nil || len(q.Files()) != 1 {
					t.Errorf("step %d: a file after %v", k, err)
				}
				check(t, fsys.CrashClone(memfs.OnlySynced), 1)
				if _, err = q.Create(size, nil); err != nil {
					t.Errorf("step %d, again: %v", k, err)
				}
			}
			check(t, fsys.CrashClone(memfs.OnlySynced), 2)
			if k == 0 {
				steps = n
			}
			must(t, q.Close())
		}
	}
	if steps < 4 {
		t.Errorf("only %d steps", steps)
	}
}

// TestFullDisk: nothing is left of a file that does not fit, and it can be made as soon as it does.
func TestFullDisk(t *testing.T) {
	fsys := memfs.New()
	fsys.SetQuota(3*size - 1)
	q := filled(t, fsys, "/q", options(true), 2)
	used := fsys.Used()
	_, err := q.Create(2*size, nil)
	mustIs(t, err, vfs.ErrNoSpace)
	if fsys.Used() != used || len(q.Files()) != 2 {
		t.Errorf("%d bytes used, %d before", fsys.Used(), used)
	}
	f, err := q.CreateSparse(2 * size)
	must(t, err)
	_, err = f.Writable()
	mustIs(t, err, vfs.ErrNoSpace)
	mustIs(t, f.Reserve(), vfs.ErrNoSpace)
	// The queue opens all the same, and may cut.
	must(t, q.Close())
	q = open(t, fsys, "/q", options(true))
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindZero {
			return memfs.FailBefore(vfs.ErrNoSpace)
		}
		return memfs.Proceed
	})
	must(t, q.Cut(size+5000))
	fsys.SetHook(nil)
	if got := content(t, q.Last()); !bytes.Equal(got, append(letters(1)[:5000], make([]byte, size-5000)...)) {
		t.Error("not zeroed on a full disk")
	}
	fsys.SetQuota(0)
	_, err = q.Create(2*size, nil)
	must(t, err)
	must(t, q.Close())
}

// TestLeases: what is being read is neither removed, nor cut, nor closed; a reader that stays is an error and no harm.
func TestLeases(t *testing.T) {
	for what, change := range map[string]func(q *mappedfile.Queue) error{
		"remove": func(q *mappedfile.Queue) error { return q.RemoveFrom(2*size, nil) },
		"cut":    func(q *mappedfile.Queue) error { return q.Cut(2*size + 1) },
		"drop": func(q *mappedfile.Queue) error {
			_, err := q.DropBefore(3 * size)
			return err
		},
		"close": func(q *mappedfile.Queue) error { return q.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := filled(t, memfs.New(), "/q", options(true), 4)
				f := q.Find(2 * size)
				for range 2 {
					if !f.Acquire() {
						t.Fatal("no lease")
					}
				}
				view := f.Bytes()
				began := time.Now()
				mustIs(t, change(q), mappedfile.ErrBusy)
				if d := time.Since(began); d != time.Second {
					t.Errorf("waited %v", d)
				}
				if !bytes.Equal(view, letters(2)) {
					t.Error("the bytes have changed under a lease")
				}
				if what == "close" {
					return
				}
				done := make(chan error, 1)
				go func() { done <- change(q) }()
				synctest.Wait()
				if f.Acquire() {
					t.Error("a new lease while the owner waits")
				}
				f.ReleaseFunc()()
				synctest.Wait()
				if len(done) != 0 || !bytes.Equal(view, letters(2)) {
					t.Error("the owner did not wait for the second lease")
				}
				f.Release()
				must(t, <-done)
				if f.Acquire() != (what == "cut") {
					t.Error("leases after the change")
				}
			})
		})
	}
}

// TestRemoveIsDurableAndInOrder: a crash in the middle leaves no gap, and none of the files when it has returned.
func TestRemoveIsDurableAndInOrder(t *testing.T) {
	fsys := memfs.New()
	q := filled(t, fsys, "/q", options(true), 4)
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() {
			for _, keep := range []memfs.Keep{memfs.All, memfs.OnlySynced} {
				q := open(t, fsys.CrashClone(keep), "/q", options(true))
				must(t, q.Close())
			}
		}
		return memfs.Proceed
	})
	var moved []int64
	must(t, fsys.MkdirAll("/away", 0o755))
	must(t, q.RemoveFrom(size, func(f *mappedfile.File, path string) error {
		moved = append(moved, f.Start())
		return fsys.Rename(path, "/away/"+filepath.Base(path))
	}))
	fsys.SetHook(nil)
	if !slices.Equal(moved, []int64{3 * size, 2 * size, size}) {
		t.Errorf("moved %v", moved)
	}
	q = open(t, fsys.CrashClone(memfs.OnlySynced), "/q", options(true))
	if !slices.Equal(starts(q), []int64{0}) {
		t.Errorf("files at %v", starts(q))
	}
}

// TestFailedSync is told apart from what may be tried again.
func TestFailedSync(t *testing.T) {
	for _, kind := range []memfs.Kind{memfs.KindSync, memfs.KindSyncDir} {
		for _, action := range []memfs.Action{memfs.FailBefore(nil), memfs.FailAfter(nil)} {
			fsys := memfs.New()
			q := filled(t, fsys, "/q", options(true), 2)
			fsys.SetHook(func(op memfs.Op) memfs.Action {
				if op.Kind == kind {
					return action
				}
				return memfs.Proceed
			})
			_, err := q.Create(2*size, nil)
			mustIs(t, err, mappedfile.ErrSync)
			if kind == memfs.KindSync {
				mustIs(t, q.SyncRange(0, 1), mappedfile.ErrSync)
				mustIs(t, q.Cut(size+1), mappedfile.ErrSync)
			} else {
				mustIs(t, q.RemoveFrom(size, nil), mappedfile.ErrSync)
			}
		}
	}
}

// TestRenew: what a failed sync left is durable only when it was written again, also by the next process.
func TestRenew(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		fsys := memfs.New()
		q := filled(t, fsys, "/q", options(mapped), 3)
		for i, f := range q.Files() {
			_, err := f.WriteAt(bytes.ToUpper(letters(i)), 0)
			must(t, err)
		}
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindSync {
				return memfs.FailBefore(nil)
			}
			return memfs.Proceed
		})
		for _, f := range q.Files() {
			mustIs(t, f.Sync(), mappedfile.ErrSync)
		}
		fsys.SetHook(nil)
		must(t, q.Close())
		q = open(t, fsys, "/q", options(mapped))
		must(t, q.SyncRange(0, 3*size))
		must(t, q.Renew(size+5000, 2*size+10))
		kept := open(t, fsys.CrashClone(memfs.OnlySynced), "/q", options(mapped))
		for at, want := range map[int64]string{0: "a", size: "b", size + 4096: "B", 2*size - 1: "B", 2 * size: "C", 2*size + 4096: "c"} {
			if got := content(t, kept.Find(at))[at%size]; string(got) != want {
				t.Errorf("mapped %v: %c at %d, want %s", mapped, got, at, want)
			}
		}
		must(t, kept.Close())
		must(t, q.Close())
	}
}

func TestLeasesAllocateNothing(t *testing.T) {
	q := filled(t, memfs.New(), "/q", options(true), 3)
	if allocs := testing.AllocsPerRun(100, func() {
		f := q.Find(size)
		if !f.Acquire() {
			t.Error("no lease")
		}
		f.ReleaseFunc()()
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
