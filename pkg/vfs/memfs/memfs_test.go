package memfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

const create = os.O_RDWR | os.O_CREATE

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, f *memfs.FS, name string, flag int) vfs.File {
	t.Helper()
	file, err := f.OpenFile(name, flag, 0o644)
	must(t, err)
	return file
}

func write(t testing.TB, f vfs.File, off int64, data string) {
	t.Helper()
	_, err := f.WriteAt([]byte(data), off)
	must(t, err)
}

// read returns the content of name, or "-" when there is no such file.
func read(t testing.TB, f *memfs.FS, name string) string {
	t.Helper()
	file, err := f.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	defer file.Close()
	size, err := file.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = file.ReadAt(b, 0)
	must(t, err)
	return string(b)
}

func TestOnlyWhatWasSyncedSurvivesAPowerCut(t *testing.T) {
	f := memfs.New()
	a := open(t, f, "a", create)
	write(t, a, 0, "one")
	check := func(step, lost, kept string) {
		t.Helper()
		if got := read(t, f.CrashClone(memfs.OnlySynced), "a"); got != lost {
			t.Errorf("%s: power cut leaves %q, want %q", step, got, lost)
		}
		if got := read(t, f.CrashClone(memfs.All), "a"); got != kept {
			t.Errorf("%s: process end leaves %q, want %q", step, got, kept)
		}
	}
	check("written", "-", "one")
	must(t, a.Sync())
	check("synced, the name is not", "-", "one")
	must(t, f.SyncDir("/"))
	check("name synced", "one", "one")
	write(t, a, 1, "hree")
	check("written over", "one", "ohree")
	must(t, a.Truncate(2))
	check("cut", "one", "oh")
	must(t, a.Sync())
	check("cut synced", "oh", "oh")
	must(t, a.Truncate(4))
	must(t, a.Sync())
	check("grown", "oh\x00\x00", "oh\x00\x00")
	must(t, f.Rename("a", "b"))
	check("renamed", "oh\x00\x00", "-")
	must(t, f.SyncDir("/"))
	check("renaming synced", "-", "-")
	must(t, f.Remove("b"))
	if got := read(t, f.CrashClone(memfs.OnlySynced), "b"); got != "oh\x00\x00" {
		t.Errorf("an unsynced removal: %q", got)
	}
	must(t, f.SyncDir("/"))
	if got := read(t, f.CrashClone(memfs.OnlySynced), "b"); got != "-" {
		t.Errorf("a synced removal: %q", got)
	}
}

func TestDirectoriesNeedASyncOfTheirParent(t *testing.T) {
	f := memfs.New()
	must(t, f.MkdirAll("/x/y", 0o755))
	a := open(t, f, "/x/y/a", create)
	write(t, a, 0, "a")
	must(t, a.Sync())
	for _, dir := range []string{"/x/y", "/x", "/"} {
		if got := read(t, f.CrashClone(memfs.OnlySynced), "/x/y/a"); got != "-" {
			t.Errorf("before the sync of %s: %q", dir, got)
		}
		must(t, f.SyncDir(dir))
	}
	if got := read(t, f.CrashClone(memfs.OnlySynced), "/x/y/a"); got != "a" {
		t.Errorf("after all: %q", got)
	}
}

func TestMappedStoresBecomeDurableAtSync(t *testing.T) {
	f := memfs.New()
	a := open(t, f, "a", create)
	must(t, a.Allocate(10000))
	must(t, f.SyncDir("/"))
	must(t, a.Sync())
	m, err := a.Map(10000, true)
	must(t, err)
	at := func(keep memfs.Keep) string { return read(t, f.CrashClone(keep), "a")[5000:5003] }
	copy(m.Bytes()[5000:], "abc")
	if lost, kept := at(memfs.OnlySynced), at(memfs.All); lost != "\x00\x00\x00" || kept != "abc" {
		t.Errorf("stored: %q %q", lost, kept)
	}
	must(t, a.Sync())
	copy(m.Bytes()[5001:], "X")
	if lost, kept := at(memfs.OnlySynced), at(memfs.All); lost != "abc" || kept != "aXc" {
		t.Errorf("stored again: %q %q", lost, kept)
	}
	b := m.Bytes()
	must(t, m.Close())
	if lost, kept := at(memfs.OnlySynced), at(memfs.All); lost != "abc" || kept != "aXc" {
		t.Errorf("unmapped: %q %q", lost, kept)
	}
	if b[5000] != 0xDB || b[0] != 0xDB {
		t.Error("memory of a closed mapping still shows the file")
	}
	must(t, a.Sync())
	if lost := at(memfs.OnlySynced); lost != "aXc" {
		t.Errorf("synced after unmapping: %q", lost)
	}
}

func TestClonesAreIndependent(t *testing.T) {
	f := memfs.New()
	a := open(t, f, "a", create)
	write(t, a, 0, "original")
	must(t, a.Sync())
	must(t, f.SyncDir("/"))
	clones := []*memfs.FS{f.CrashClone(memfs.OnlySynced), f.CrashClone(memfs.All), f.CrashClone(memfs.Torn(3))}
	clones = append(clones, clones[0].CrashClone(memfs.All))
	write(t, a, 0, "changed.")
	must(t, a.Sync())
	for i, c := range clones {
		if got := read(t, c, "a"); got != "original" {
			t.Errorf("clone %d saw a later change: %q", i, got)
		}
		g := open(t, c, "a", os.O_RDWR)
		m, err := g.Map(8, true)
		must(t, err)
		m.Bytes()[0] = byte('0' + i)
		write(t, g, 1, "mine")
		must(t, m.Close())
		must(t, c.Remove("a"))
	}
	if got := read(t, f, "a"); got != "changed." {
		t.Errorf("a clone changed the original: %q", got)
	}
}

func TestHooks(t *testing.T) {
	f := memfs.New()
	a := open(t, f, "a", create)
	must(t, a.Allocate(100))
	must(t, a.Sync())
	must(t, f.SyncDir("/"))
	boom := errors.New("boom")
	fail := func(kind memfs.Kind, act memfs.Action) {
		f.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == kind {
				return act
			}
			return memfs.Proceed
		})
	}
	for _, tc := range []struct {
		kind memfs.Kind
		do   func() error
		done func() bool
	}{
		{memfs.KindWrite, func() error { _, err := a.WriteAt([]byte("w"), 1); return err }, func() bool { return read(t, f, "a")[1] == 'w' }},
		{memfs.KindWritev, func() error { _, err := a.WritevAt([][]byte{{'v'}}, 2); return err }, func() bool { return read(t, f, "a")[2] == 'v' }},
		{memfs.KindAllocate, func() error { return a.Allocate(200) }, func() bool { return len(read(t, f, "a")) == 200 }},
		{memfs.KindZero, func() error { return a.Zero(1, 1) }, func() bool { return read(t, f, "a")[1] == 0 }},
		{memfs.KindTruncate, func() error { return a.Truncate(150) }, func() bool { return len(read(t, f, "a")) == 150 }},
		{memfs.KindCreate, func() error { _, err := f.OpenFile("b", create, 0); return err }, func() bool { return read(t, f, "b") == "" }},
		{memfs.KindMkdir, func() error { return f.MkdirAll("d", 0) }, func() bool { _, err := f.Stat("d"); return err == nil }},
		{memfs.KindRename, func() error { return f.Rename("b", "c") }, func() bool { return read(t, f, "c") == "" }},
		{memfs.KindSyncDir, func() error { return f.SyncDir("/") }, func() bool { return read(t, f.CrashClone(memfs.OnlySynced), "c") == "" }},
		{memfs.KindRemove, func() error { return f.Remove("c") }, func() bool { return read(t, f, "c") == "-" }},
	} {
		if tc.done() {
			t.Errorf("%v: done before it began", tc.kind)
		}
		fail(tc.kind, memfs.FailBefore(boom))
		if err := tc.do(); !errors.Is(err, boom) || tc.done() {
			t.Errorf("%v failing before: %v, applied %v", tc.kind, err, tc.done())
		}
		fail(tc.kind, memfs.FailAfter(boom))
		if err := tc.do(); !errors.Is(err, boom) || !tc.done() {
			t.Errorf("%v failing after: %v, applied %v", tc.kind, err, tc.done())
		}
		f.SetHook(nil)
	}
	fail(memfs.KindRead, memfs.FailBefore(nil))
	if _, err := a.ReadAt(make([]byte, 1), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %v", err)
	}
	fail(memfs.KindOpen, memfs.FailAfter(nil))
	if _, err := f.OpenFile("a", os.O_RDONLY, 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("open: %v", err)
	}
	fail(memfs.KindMap, memfs.FailBefore(nil))
	if _, err := a.Map(1, false); !errors.Is(err, syscall.EIO) {
		t.Errorf("map: %v", err)
	}
}

func TestOpsCountsWhatTheHookSees(t *testing.T) {
	f := memfs.New()
	var seen []memfs.Op
	f.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() && op.Seq != f.Ops() {
			t.Errorf("%v is number %d, Ops says %d", op.Kind, op.Seq, f.Ops())
		}
		seen = append(seen, op)
		return memfs.Proceed
	})
	a := open(t, f, "/a", create)
	write(t, a, 5, "abc")
	must(t, a.Sync())
	read(t, f, "/a")
	must(t, f.Rename("/a", "/b"))
	must(t, f.SyncDir("/"))
	want := []memfs.Op{
		{Kind: memfs.KindCreate, Name: "/a", Seq: 1},
		{Kind: memfs.KindWrite, Name: "/a", Off: 5, N: 3, Seq: 2},
		{Kind: memfs.KindSync, Name: "/a", Seq: 3},
		{Kind: memfs.KindOpen, Name: "/a"},
		{Kind: memfs.KindRead, Name: "/a", N: 8},
		{Kind: memfs.KindRename, Name: "/a", To: "/b", Seq: 4},
		{Kind: memfs.KindSyncDir, Name: "/", Seq: 5},
	}
	if !slices.Equal(seen, want) || f.Ops() != 5 {
		t.Errorf("%d operations\ngot  %+v\nwant %+v", f.Ops(), seen, want)
	}
}

// TestASyncThatFailedIsNotMadeGoodByAnother: Linux marks the pages clean, so the second one writes nothing of them.
func TestASyncThatFailedIsNotMadeGoodByAnother(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		f := memfs.New()
		a := open(t, f, "a", create)
		must(t, a.Allocate(3*4096))
		must(t, a.Sync())
		must(t, f.SyncDir("/"))
		store := func(off int64, s string) { write(t, a, off, s) }
		var m vfs.Mapping
		if mapped {
			var err error
			m, err = a.Map(3*4096, true)
			must(t, err)
			store = func(off int64, s string) { copy(m.Bytes()[off:], s) }
		}
		store(0, "lost")
		store(4096, "lost")
		f.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindSync {
				return memfs.FailBefore(nil)
			}
			return memfs.Proceed
		})
		if a.Sync() == nil {
			t.Error("the hook did not work")
		}
		f.SetHook(nil)
		store(4096, "LAST")
		store(8192, "more")
		must(t, a.Sync())
		if mapped {
			must(t, m.Close())
			must(t, a.Sync())
		}
		got := read(t, f.CrashClone(memfs.OnlySynced), "a")
		if got[:4] != "\x00\x00\x00\x00" || got[4096:4100] != "LAST" || got[8192:8196] != "more" {
			t.Errorf("mapped %v: %q %q %q", mapped, got[:4], got[4096:4100], got[8192:8196])
		}
		if now := read(t, f, "a"); now[:4] != "lost" {
			t.Errorf("mapped %v: the bytes are gone for readers too: %q", mapped, now[:4])
		}
		again, err := a.Map(3*4096, false) // as the next process does
		must(t, err)
		must(t, a.Sync())
		if got := read(t, f.CrashClone(memfs.OnlySynced), "a"); got[:4] != "\x00\x00\x00\x00" {
			t.Errorf("mapped %v: a look at the page made it durable: %q", mapped, got[:4])
		}
		write(t, a, 0, "lost")
		must(t, a.Sync())
		if got := read(t, f.CrashClone(memfs.OnlySynced), "a"); got[:4] != "lost" {
			t.Errorf("mapped %v: what was written again is not durable: %q", mapped, got[:4])
		}
		must(t, again.Close())
	}
}

func TestQuota(t *testing.T) {
	f := memfs.New()
	f.SetQuota(4 * 4096)
	a, b := open(t, f, "a", create), open(t, f, "b", create)
	must(t, a.Truncate(1<<30)) // a hole costs nothing
	write(t, a, 1<<29, "x")
	must(t, a.Allocate(2*4096))
	if n, err := b.WriteAt(make([]byte, 10000), 0); n != 4096 || !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("wrote %d: %v", n, err)
	}
	if err := b.Zero(0, 4096); err != nil {
		t.Errorf("zeroing what is reserved: %v", err)
	}
	if free, _ := f.FreeSpace("/"); free != 0 || f.Used() != 4*4096 {
		t.Errorf("free %d, used %d", free, f.Used())
	}
	must(t, f.Remove("b"))
	if f.Used() != 4*4096 {
		t.Error("an open file gave its blocks back")
	}
	must(t, b.Close())
	if f.Used() != 3*4096 {
		t.Errorf("used %d after the removal", f.Used())
	}
	if c := f.CrashClone(memfs.All); c.Used() != 3*4096 {
		t.Errorf("clone uses %d", c.Used())
	}
	must(t, a.Truncate(4096))
	if f.Used() != 4096 {
		t.Errorf("used %d after the cut", f.Used())
	}
	must(t, f.RemoveAll("/"+"a"))
	must(t, a.Close())
	if f.Used() != 0 {
		t.Errorf("used %d in the end", f.Used())
	}
}

func TestWhatADiskWouldForgive(t *testing.T) {
	f := memfs.New()
	a := open(t, f, "a", create)
	must(t, a.Truncate(8192))
	if _, err := a.Map(8192, true); err == nil {
		t.Error("a writable mapping of a hole")
	}
	m, err := a.Map(8192, false)
	must(t, err)
	if err := a.Truncate(100); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("cut below a mapping: %v", err)
	}
	must(t, m.Close())
	must(t, a.Truncate(100))
	if f.Used() != 0 {
		t.Errorf("reading through a mapping took %d bytes", f.Used())
	}
}

func TestTornKeepsPartsOfBoth(t *testing.T) {
	f := memfs.New()
	a := open(t, f, "a", create)
	const pages = 8
	old, now := bytes.Repeat([]byte{'o'}, pages*4096), bytes.Repeat([]byte{'n'}, pages*4096+100)
	write(t, a, 0, string(old))
	must(t, a.Sync())
	must(t, f.SyncDir("/"))
	write(t, a, 0, string(now))
	b := open(t, f, "b", create)
	write(t, b, 0, "b")
	var grown, named, mixed int
	for seed := range uint32(200) {
		c := f.CrashClone(memfs.Torn(seed))
		got := read(t, c, "a")
		if again := read(t, f.CrashClone(memfs.Torn(seed)), "a"); again != got {
			t.Fatalf("seed %d gives two results", seed)
		}
		for i := 0; i < len(got); i += 512 {
			s := got[i:min(i+512, len(got))]
			if n := bytes.Count([]byte(s), []byte{s[0]}); n != len(s) || (s[0] != 'o' && s[0] != 'n' && s[0] != 0) {
				t.Fatalf("seed %d: a torn sector at %d", seed, i)
			}
		}
		for p := range pages {
			if got[p*4096] != got[p*4096+4095] {
				mixed++
			}
		}
		if len(got) > len(old) {
			grown++
		}
		if read(t, c, "b") != "-" {
			named++
		}
	}
	if grown < 50 || grown > 150 || named < 50 || named > 150 || mixed < 400 || mixed > 1200 {
		t.Errorf("of 200: grown %d, named %d, mixed pages %d of %d", grown, named, mixed, 200*pages)
	}
}

// TestSyncBesideStores holds under the race detector: the flusher syncs while the appender stores.
func TestSyncBesideStores(t *testing.T) {
	f := memfs.New()
	a := open(t, f, "a", create)
	must(t, a.Allocate(16*4096))
	m, err := a.Map(16*4096, true)
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range m.Bytes() {
			m.Bytes()[i] = 1
		}
	})
	wg.Go(func() {
		for range 50 {
			if err := a.Sync(); err != nil {
				t.Error(err)
			}
			f.CrashClone(memfs.All)
			f.CrashClone(memfs.OnlySynced)
		}
	})
	wg.Wait()
	must(t, a.Sync())
	must(t, f.SyncDir("/"))
	if got := read(t, f.CrashClone(memfs.OnlySynced), "a"); bytes.Count([]byte(got), []byte{1}) != len(got) {
		t.Error("a store was lost")
	}
}

// TestCloneIsOneMoment: of two files that one writer changes in turn, no clone has the second change without the first.
func TestCloneIsOneMoment(t *testing.T) {
	f := memfs.New()
	a, b := open(t, f, "a", create), open(t, f, "b", create)
	write(t, a, 0, "\x00")
	write(t, b, 0, "\x00")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, file := range []vfs.File{a, b} {
				if _, err := file.WriteAt([]byte{byte(i)}, 0); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 500 {
		c := f.CrashClone(memfs.All)
		if d := read(t, c, "a")[0] - read(t, c, "b")[0]; d > 1 {
			t.Fatalf("apart by %d", d)
		}
	}
	close(stop)
	wg.Wait()
}

func BenchmarkCrashClone(b *testing.B) {
	f := memfs.New()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		file := open(b, f, name, create)
		must(b, file.Allocate(512<<10))
		_, err := file.WriteAt(make([]byte, 512<<10), 0)
		must(b, err)
		must(b, file.Sync())
	}
	must(b, f.SyncDir("/"))
	a := open(b, f, "a", os.O_RDWR)
	m, err := a.Map(512<<10, true)
	must(b, err)
	for i := 0; b.Loop(); i++ {
		m.Bytes()[i%(512<<10)]++
		f.CrashClone(memfs.All)
		f.CrashClone(memfs.OnlySynced)
	}
}
