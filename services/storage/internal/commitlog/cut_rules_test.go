package commitlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
)

func TestTruncateBounds(t *testing.T) {
	fsys, l, _, _ := prepared(t)
	defer closeLog(t, l, true)
	end := l.End()
	for _, to := range []int64{-1, end + 1} {
		mustIs(t, l.Truncate(to), commitlog.ErrOutOfRange)
	}
	written := l.Written()
	ops := fsys.Ops()
	if err := l.Truncate(end); err != nil || l.Written() != written || fsys.Ops() != ops {
		t.Errorf("a cut of nothing: %v", err)
	}
	mustIs(t, l.Reset(fileSize+1), commitlog.ErrOutOfRange)
	mustIs(t, l.Reset(-fileSize), commitlog.ErrOutOfRange)
	if l.End() != end {
		t.Errorf("end %d", l.End())
	}
}

// TestRollbackBounds: what does not fit is refused, what grew since is not cut unseen.
func TestRollbackBounds(t *testing.T) {
	fsys, l, full, ends := prepared(t)
	defer closeLog(t, l, true)
	to := ends[len(ends)-3]
	size := int64(len(full)) - to
	_, err := l.Rollback(to, 1, size-1)
	mustIs(t, err, commitlog.ErrRollbackFull)
	k, err := l.Rollback(to, 1, size)
	if err != nil || k.Bytes != size || !k.Whole {
		t.Fatalf("%+v %v", k, err)
	}
	put(t, l, sized(1, 300))
	mustIs(t, l.Truncate(to), commitlog.ErrNotKept)
	if k, err = l.Rollback(to, 1, 2*size+300); err != nil {
		t.Fatal(err)
	}
	if err := l.Truncate(to); err != nil {
		t.Fatal(err)
	}
	put(t, l, sized(2, 300))
	_, err = l.Rollback(to, 2, 2*size+300)
	mustIs(t, err, commitlog.ErrRollbackFull) // the two ranges kept before count
	all, err := commitlog.ListRollbacks(fsys, root)
	if err != nil || len(all) != 2 || all[1].Bytes != size+300 || all[1].Name != k.Name {
		t.Errorf("%+v %v", all, err)
	}
	none, err := l.Rollback(l.End(), 3, 0)
	if err != nil || none.Bytes != 0 {
		t.Errorf("nothing to keep: %+v %v", none, err)
	}
}

// TestAKeptRangeBelongsToOneTry: a cut that had no room is given up, and the node opens with what it has. It may cut a half record then.
func TestAKeptRangeBelongsToOneTry(t *testing.T) {
	fsys, l, full, ends := prepared(t)
	defer closeLog(t, l, true)
	if _, err := l.Rollback(ends[len(ends)-3], 1, int64(len(full))); err != nil {
		t.Fatal(err)
	}
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() && strings.Contains(op.Name, "tandem/cut") {
			return memfs.FailBefore(vfs.ErrNoSpace)
		}
		return memfs.Proceed
	})
	mustIs(t, l.Truncate(ends[len(ends)-3]), vfs.ErrNoSpace)
	fsys.SetHook(nil)
	if err := l.Truncate(ends[len(ends)-2]); err != nil || l.End() != ends[len(ends)-2] {
		t.Errorf("end %d: %v", l.End(), err)
	}
}

// TestCutWaitsForReaders: a view stays what it was until it is released, and one that is never released stops the cut and
// not the log.
func TestCutWaitsForReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, full, _ := prepared(t)
		view, release, err := l.View(fileSize+100, 500)
		if err != nil {
			t.Fatal(err)
		}
		mustIs(t, l.Truncate(fileSize+50), mappedfile.ErrBusy)
		if l.End() != int64(len(full)) || l.Err() != nil || l.Written().Err() != nil {
			t.Fatal("the log was cut")
		}
		if !bytes.Equal(contents(t, l), full) {
			t.Fatal("other bytes after a cut that gave up")
		}
		done := make(chan error, 1)
		go func() { done <- l.Truncate(fileSize + 50) }()
		synctest.Wait()
		if !bytes.Equal(view, full[fileSize+100:fileSize+600]) {
			t.Error("the view has changed under its reader")
		}
		if _, r, err := l.View(fileSize, 10); !errors.Is(err, commitlog.ErrCutting) {
			r()
			t.Errorf("a new view while the cut waits: %v", err)
		}
		if b, r, err := l.View(10, 10); err != nil || len(b) != 10 {
			t.Errorf("a view before the cut: %v", err)
		} else {
			r()
		}
		release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		_, r, err := l.View(fileSize+100, 10)
		r()
		mustIs(t, err, commitlog.ErrOutOfRange)
		closeLog(t, l, true)
	})
}

func TestDropBefore(t *testing.T) {
	fsys, l, full, _ := prepared(t)
	first, err := l.DropBefore(3*fileSize - 1)
	if err != nil || first != 2*fileSize || l.FirstOffset() != first {
		t.Fatalf("first %d, %v", first, err)
	}
	_, r, err := l.View(2*fileSize-1, 1)
	r()
	mustIs(t, err, commitlog.ErrOutOfRange)
	if !bytes.Equal(contents(t, l), full[first:]) {
		t.Error("other bytes")
	}
	mustIs(t, l.Truncate(first-1), commitlog.ErrOutOfRange)
	l2, rec := open(t, cut(fsys), options())
	if rec.FirstOffset != first || rec.End != int64(len(full)) {
		t.Errorf("%+v", *rec)
	}
	closeLog(t, l2, true)
	if first, err = l.DropBefore(noLimit); err != nil || first+fileSize < l.End() {
		t.Errorf("first %d of %d, %v", first, l.End(), err)
	}
	closeLog(t, l, true)
}

// TestAdopt: only an empty log takes another file size, and keeps it.
func TestAdopt(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	put(t, l, sized(0, 300))
	mustIs(t, l.Adopt(2*fileSize), mappedfile.ErrSize)
	if err := l.Adopt(fileSize); err != nil {
		t.Error(err)
	}
	if err := l.Reset(5 * fileSize); err != nil {
		t.Fatal(err)
	}
	if err := l.Adopt(3 * fileSize); err != nil {
		t.Fatal(err)
	}
	if err := l.Reset(6 * fileSize); err != nil {
		t.Fatal(err)
	}
	if n, err := l.AppendRaw(6*fileSize, [][]byte{make([]byte, 2*fileSize)}); err != nil || n != 2*fileSize {
		t.Errorf("%d, %v", n, err)
	}
	closeLog(t, l, true)
	o := options()
	_, _, err := commitlog.Open(fsys, root, o)
	mustIs(t, err, mappedfile.ErrSize)
	o.FileSize = 0
	l, _ = open(t, fsys, o)
	if l.FileSize() != 3*fileSize || l.FirstOffset() != 6*fileSize {
		t.Errorf("file size %d, first %d", l.FileSize(), l.FirstOffset())
	}
	closeLog(t, l, true)
}

// TestFlushedFollowsACut is C12: the flushed position goes back with the log, and a later flush covers new bytes.
func TestFlushedFollowsACut(t *testing.T) {
	fsys, l, _, ends := prepared(t)
	o := syncOptions()
	to := ends[3]
	if err := l.Truncate(to); err != nil {
		t.Fatal(err)
	}
	a := put(t, l, sized(7, 444))
	if f := l.Flushed().Load(); f != to {
		t.Errorf("flushed %d before the flush", f)
	}
	flushNow(t, l)
	l2, r := open(t, cut(fsys), o)
	if r.End != a.Next {
		t.Errorf("end %d, want %d", r.End, a.Next)
	}
	closeLog(t, l2, true)
	closeLog(t, l, true)
}

// TestDamagedNote: a note that cannot be read is not guessed at.
func TestDamagedNote(t *testing.T) {
	fsys, _ := stopped(t, 10, true)
	must(t, fsys.MkdirAll(root+"/tandem", 0o755))
	f, err := fsys.OpenFile(root+"/tandem/cut", 0x42, 0o644)
	must(t, err)
	_, err = f.WriteAt([]byte("tandem1 00000000 3\n{}\n"), 0)
	must(t, err)
	must(t, f.Close())
	_, _, err = commitlog.Open(fsys, root, options())
	mustIs(t, err, durable.ErrCorrupt)
}

// TestCutsWhileRunning cuts and appends under a running group commit: who waited for bytes that went is told.
func TestCutsWhileRunning(t *testing.T) {
	o := syncOptions()
	o.Ahead = true
	fsys := memfs.New()
	l, _ := open(t, fsys, o)
	stop := run(t, l)
	for round := range 20 {
		ends := fill(t, l, 20)
		mark := l.Flushed()
		waiter := make(chan error, 1)
		go func() { waiter <- mark.Wait(t.Context(), ends[19]+1) }()
		must(t, l.Flushed().Wait(t.Context(), ends[19]))
		to := ends[round%19]
		must(t, l.Truncate(to))
		mustIs(t, <-waiter, watermark.ErrTruncated)
		if l.End() != to || l.Flushed().Load() != to {
			t.Fatalf("end %d, flushed %d, want %d", l.End(), l.Flushed().Load(), to)
		}
	}
	must(t, stop())
	end := l.End()
	closeLog(t, l, false)
	l, r := open(t, cut(fsys), o)
	if r.End != end || r.CutBytes != 0 || len(r.Rot) != 0 {
		t.Errorf("recovered %+v, want the end %d", *r, end)
	}
	closeLog(t, l, true)
}

// TestARangeIsKeptTwice: a node whose disk an old copy has replaced is cut where it was cut before, for the same master. What
// was kept first stays, whatever becomes of the second.
func TestARangeIsKeptTwice(t *testing.T) {
	for name, to := range map[string]func(ends []int64) int64{
		"in one file":   func(ends []int64) int64 { return ends[len(ends)-3] },
		"several files": func(ends []int64) int64 { return wholeBelow(ends, 2*fileSize-1) },
		"whole files":   func([]int64) int64 { return 2 * fileSize },
	} {
		t.Run(name, func(t *testing.T) {
			b := newCutBase(t)
			to := to(b.ends)
			fsys, l := b.open(t)
			defer closeLog(t, l, true)
			for i, op := range []memfs.Kind{0, memfs.KindMkdir, memfs.KindCreate, memfs.KindWrite, memfs.KindSync, memfs.KindSyncDir} {
				again := slices.Clone(b.full[to:])
				if i > 0 {
					again[len(again)-1] ^= byte(i) // the same records but for a byte of the last body
				}
				for l.End() < int64(len(b.full)) {
					if _, err := l.AppendRaw(l.End(), [][]byte{again[l.End()-to:]}); err != nil {
						t.Fatal(err)
					}
				}
				before := keptBytes(t, fsys)
				fsys.SetHook(func(o memfs.Op) memfs.Action {
					if i > 0 && o.Kind == op && strings.Contains(o.Name, "rollback") {
						return memfs.FailBefore(vfs.ErrNoSpace)
					}
					return memfs.Proceed
				})
				_, err := l.Rollback(to, 7, noLimit)
				fsys.SetHook(nil)
				if err != nil && !maps.Equal(keptBytes(t, fsys), before) {
					t.Errorf("a failed keep (%v) left %d files of %d", op, len(keptBytes(t, fsys)), len(before))
				}
				k, err := l.Rollback(to, 7, noLimit)
				if err == nil {
					err = l.Truncate(to)
				}
				if err != nil {
					t.Fatal(err)
				}
				after := keptBytes(t, fsys)
				for file, b := range before {
					if after[file] != b {
						t.Errorf("%s was kept and has changed", file)
					}
				}
				var got string
				for _, file := range slices.Sorted(maps.Keys(after)) {
					if strings.HasPrefix(file, k.Name+"/") {
						got += after[file]
					}
				}
				if got != string(again) {
					t.Errorf("%s holds other bytes than were cut", k.Name)
				}
			}
			all, err := commitlog.ListRollbacks(fsys, root)
			if err != nil || len(all) != 6 || all[1].Name != all[0].Name+"-2" || !all[1].Whole || all[1].From != to || all[1].Epoch != 7 {
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
}

// TestAKeepGoesOn: what a crash in front of the cut, or a cut that was given up, has left of a copy is no range of its own.
func TestAKeepGoesOn(t *testing.T) {
	b := newCutBase(t)
	to := b.ends[len(b.ends)-3]
	for name, left := range map[string][]byte{
		"nothing": nil, "a half": b.full[to : to+100], "all": b.full[to:], "other bytes": b.full[to-1 : to+99], "more": append(slices.Clone(b.full[to:]), 0),
	} {
		fsys, l := b.open(t)
		dir := filepath.Join(root, commitlog.RollbackDir, fmt.Sprintf("%d-%d-7", to, len(b.full)))
		file := filepath.Join(dir, mappedfile.Name(to))
		if err := durable.MkdirAll(fsys, dir); err != nil {
			t.Fatal(err)
		}
		if left != nil {
			f, err := fsys.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
			if err == nil {
				_, err = f.WriteAt(left, 0)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := 1
		if !bytes.HasPrefix(b.full[to:], left) {
			want = 2
		}
		for range 2 { // the second time after a try of this process
			if _, err := l.Rollback(to, 7, noLimit); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Truncate(to); err != nil {
			t.Fatal(err)
		}
		all, err := commitlog.ListRollbacks(fsys, root)
		last := keptBytes(t, fsys)[all[len(all)-1].Name+"/"+mappedfile.Name(to)]
		if err != nil || len(all) != want || last != string(b.full[to:]) || want == 2 && string(readFile(t, fsys, file)) != string(left) {
			t.Errorf("%s was left: %+v, %v, %d bytes", name, all, err, len(last))
		}
		closeLog(t, l, true)
	}
}

// keptBytes is what lies in the folders of kept ranges, by folder/file.
func keptBytes(t *testing.T, fsys *memfs.FS) map[string]string {
	t.Helper()
	m := map[string]string{}
	all, err := commitlog.ListRollbacks(fsys, root)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		dir := filepath.Join(root, commitlog.RollbackDir, k.Name)
		infos, err := fsys.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			m[k.Name+"/"+info.Name] = string(readFile(t, fsys, filepath.Join(dir, info.Name)))
		}
	}
	return m
}
