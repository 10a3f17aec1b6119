package commitlog_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/mend"
)

// rotten makes a log of some files whose i-th record has a flipped bit, and returns the right bytes.
func rotten(t *testing.T, i int) (fsys *memfs.FS, want []byte, from, to int64) {
	t.Helper()
	fsys = memfs.New()
	l, _ := open(t, fsys, options())
	ends := fill(t, l, 60)
	want = contents(t, l)
	closeLog(t, l, true)
	from, to = ends[i-1], ends[i]
	patch(t, fsys, from+95, []byte{want[from+95] ^ 1})
	return fsys, want, from, to
}

func TestOverwriteReplacesBytesInPlace(t *testing.T) {
	fsys, want, from, to := rotten(t, 20)
	l, r := open(t, fsys, options())
	if len(r.Rot) > 0 {
		t.Logf("rot seen at open: %v", r.Rot)
	}
	flipped := slices.Clone(read(t, l, from, to))
	did, err := l.Overwrite(from, want[from:to], 1<<20)
	if err != nil || did.Changed != 1 || did.Kept == "" {
		t.Fatalf("%+v, %v", did, err)
	}
	if !bytes.Equal(contents(t, l), want) {
		t.Error("the log is not what it was")
	}
	if old := readFile(t, fsys, filepath.Join(root, "repair", did.Kept)); !bytes.Equal(old, flipped) {
		t.Error("what stood there was not kept")
	}
	if did, err := l.Overwrite(from, want[from:to], 0); err != nil || did != (mend.Done{}) {
		t.Errorf("of the same bytes: %+v, %v", did, err)
	}
	if p, err := mend.Pending(fsys, root); p != nil || err != nil {
		t.Errorf("a note is left: %v, %v", p, err)
	}
	put(t, l, record(1, 10)) // the log goes on
	closeLog(t, l, true)
}

func TestOverwriteRefusesBeforeItChangesAnything(t *testing.T) {
	fsys, want, from, to := rotten(t, 20)
	l, _ := open(t, fsys, options())
	before := contents(t, l)
	fileEnd := from - from%fileSize + fileSize
	for name, try := range map[string]func() error{
		"outside":  func() error { _, err := l.Overwrite(l.End()-5, make([]byte, 6), 1<<20); return err },
		"in front": func() error { _, err := l.Overwrite(-1, make([]byte, 6), 1<<20); return err },
		"over a file's end": func() error {
			_, err := l.Overwrite(fileEnd-5, make([]byte, 10), 1<<20)
			return err
		},
	} {
		if err := try(); !errors.Is(err, commitlog.ErrOutOfRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Overwrite(from, want[from:to], 10); !errors.Is(err, mend.ErrFull) {
		t.Errorf("without room for the old bytes: %v", err)
	}
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindWrite && filepath.Dir(op.Name) == filepath.Join(root, "tandem") {
			return memfs.FailBefore(vfs.ErrNoSpace)
		}
		return memfs.Proceed
	})
	if _, err := l.Overwrite(from, want[from:to], 1<<20); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("on a full disk: %v", err)
	}
	fsys.SetHook(nil)
	_, release, err := l.View(from, 1) // a reader that does not let go
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Overwrite(from, want[from:to], 1<<20); err == nil || l.Err() != nil {
		t.Errorf("under a reader's hands: %v, %v", err, l.Err())
	}
	release()
	if !bytes.Equal(contents(t, l), before) {
		t.Error("bytes have changed")
	}
	if _, err := l.Overwrite(from, want[from:to], 1<<20); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	closeLog(t, l, true)
}

// A crash at any step of a repair leaves a log that is, after the next start, the old or the new one.
func TestOverwriteSurvivesACrashAtEachStep(t *testing.T) {
	fsys, want, from, to := rotten(t, 20)
	l, _ := open(t, fsys, options())
	before := contents(t, l)
	var clones []*memfs.FS
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() {
			clones = append(clones, killed(fsys), cut(fsys), fsys.CrashClone(memfs.Torn(uint32(op.Seq))))
		}
		return memfs.Proceed
	})
	if _, err := l.Overwrite(from, want[from:to], 1<<20); err != nil {
		t.Fatal(err)
	}
	fsys.SetHook(nil)
	closeLog(t, l, true)
	news := 0
	for i, c := range clones {
		again, r := open(t, c, options())
		switch got := contents(t, again); {
		case bytes.Equal(got, want):
			news++
			if len(r.Rot) != 0 {
				t.Errorf("clone %d: rot %v", i, r.Rot)
			}
		case !bytes.Equal(got, before):
			t.Errorf("clone %d: neither the old nor the new bytes", i)
		}
		if p, err := mend.Pending(c, root); p != nil || err != nil {
			t.Errorf("clone %d: a note is left: %v, %v", i, p, err)
		}
		closeLog(t, again, true)
	}
	if news == 0 || news == len(clones) {
		t.Errorf("%d of %d clones have the new bytes", news, len(clones))
	}
}

// Each step fails once: before the first byte of the log is touched nothing is lost, afterwards the log is at fault and the next
// start finishes the repair.
func TestOverwriteFaults(t *testing.T) {
	for step := 0; ; step++ {
		fsys, want, from, to := rotten(t, 20)
		l, _ := open(t, fsys, options())
		before := contents(t, l)
		n, hit := 0, memfs.Op{}
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if !op.Kind.Mutates() {
				return memfs.Proceed
			}
			if n++; n-1 == step {
				hit = op
				return memfs.FailBefore(syscall.EIO)
			}
			return memfs.Proceed
		})
		_, err := l.Overwrite(from, want[from:to], 1<<20)
		fsys.SetHook(nil)
		if hit.Kind == 0 {
			if err != nil {
				t.Errorf("nothing failed, and: %v", err)
			}
			closeLog(t, l, true)
			return
		}
		if err == nil {
			t.Errorf("step %d: %v %s failed unseen", step, hit.Kind, hit.Name)
		}
		_ = l.Close(err == nil)
		again, _ := open(t, killed(fsys), options())
		if got := contents(t, again); !bytes.Equal(got, before) && !bytes.Equal(got, want) {
			t.Errorf("step %d (%v %s): neither the old nor the new bytes", step, hit.Kind, hit.Name)
		}
		closeLog(t, again, true)
	}
}

// Readers and writers go on meanwhile; a reader sees old or new bytes, never a half.
func TestOverwriteBesideReaders(t *testing.T) {
	fsys, want, from, to := rotten(t, 3)
	o := options()
	o.Grace = 10 * time.Second
	l, _ := open(t, fsys, o)
	old := slices.Clone(read(t, l, from, to))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				b, release, err := l.View(from, int(to-from))
				if err != nil {
					t.Errorf("view: %v", err)
					return
				}
				if !bytes.Equal(b, old) && !bytes.Equal(b, want[from:to]) {
					t.Error("half a repair was seen")
				}
				release()
			}
		})
	}
	for i := range 20 {
		data := want[from:to]
		if i%2 == 1 {
			data = old
		}
		if _, err := l.Overwrite(from, data, 1<<30); err != nil {
			t.Fatal(err)
		}
		put(t, l, record(i, 100))
	}
	cancel()
	wg.Wait()
	closeLog(t, l, true)
}

func TestRepairNotes(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	fill(t, l, 10)
	want := contents(t, l)
	closeLog(t, l, true)

	// What somebody else has written since is left alone.
	if err := mend.Announce(fsys, root, mend.Repair{From: 200, To: 205, Kept: "200-205-0", Data: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(testkit.ModuleRoot(t), "services/storage/internal/commitlog/FORMAT.md"))
	if err != nil {
		t.Fatal(err)
	}
	if note := readFile(t, fsys, filepath.Join(root, mend.Note)); !bytes.Contains(text, note) {
		t.Errorf("FORMAT.md lacks\n%s", note)
	}
	if _, err := mend.Keep(fsys, root, 200, []byte("other"), 1000); err != nil {
		t.Fatal(err)
	}
	l, _ = open(t, fsys, options())
	if !bytes.Equal(contents(t, l), want) {
		t.Error("a stale repair was carried out")
	}
	closeLog(t, l, true)

	// A broken note is dropped.
	if err := durable.WriteFile(fsys, filepath.Join(root, mend.Note), []byte("tandem1 00000000 3\nabc")); err != nil {
		t.Fatal(err)
	}
	l, _ = open(t, fsys, options())
	closeLog(t, l, true)
	if _, err := fsys.Stat(filepath.Join(root, mend.Note)); err == nil {
		t.Error("a broken note stays")
	}
	for range 2 {
		if _, err := mend.Keep(fsys, root, 200, []byte("again"), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := mend.List(fsys, root); err != nil || len(all) != 3 || all[2].Name != "200-205-2" {
		t.Errorf("kept: %v, %v", all, err)
	}
}
