package saved

import (
	"errors"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

func lineage() epoch.Lineage {
	return epoch.Lineage{
		Role: epoch.RoleSyncMaster, Epochs: epoch.List{{Epoch: 1, Start: 0, ID: 1}}, Promise: epoch.Promise{Epoch: 1, ID: 1}, Open: true, Boot: "a", Held: 100,
	}
}

// opened is a File that has read what it wrote.
func opened(t *testing.T, fsys vfs.FS) *File {
	t.Helper()
	f := New(fsys, "root")
	if _, found, _, err := f.Read(); err != nil || found {
		t.Fatalf("a new folder has a lineage: %v, %v", found, err)
	}
	if err := f.Write(lineage()); err != nil {
		t.Fatal(err)
	}
	f = New(fsys, "root")
	if l, found, backup, err := f.Read(); err != nil || !found || backup || l.Held != 100 {
		t.Fatalf("read %+v %v %v %v", l, found, backup, err)
	}
	return f
}

func full(disk *memfs.FS, on bool) {
	if !on {
		disk.SetHook(nil)
		return
	}
	disk.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() {
			return memfs.FailBefore(vfs.ErrNoSpace)
		}
		return memfs.Proceed
	})
}

func TestTheSameIsNotWrittenAgain(t *testing.T) {
	disk := memfs.New()
	f := opened(t, disk)
	full(disk, true)
	if err := f.Write(lineage()); err != nil {
		t.Error(err)
	}
	next := epoch.SteppedDown(lineage())
	if err := f.Write(next); !errors.Is(err, vfs.ErrNoSpace) || !f.Again(err) {
		t.Errorf("a step-down that is not on the disk: %v", err)
	}
	full(disk, false)
	if err := f.Write(lineage()); err != nil {
		t.Fatal(err)
	}
	disk.SetHook(func(op memfs.Op) memfs.Action { // the name may be there, and whoever reads it later finds it
		if op.Kind == memfs.KindSyncDir {
			return memfs.FailAfter(errors.New("disk on fire"))
		}
		return memfs.Proceed
	})
	if err := f.Write(next); err == nil || f.Again(err) {
		t.Fatalf("error %v", err)
	}
	disk.SetHook(nil)
	if err := f.Write(lineage()); err != nil { // the file has the other one: it is written, though it is what was last known
		t.Fatal(err)
	}
	if l, _, _, err := New(disk, "root").Read(); err != nil || l.Role != epoch.RoleSyncMaster {
		t.Errorf("the disk has %+v, %v", l, err)
	}
}

func TestAFullDiskTakesNothingAway(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(l *epoch.Lineage)
		ok     bool
	}{
		"a higher end":           {func(l *epoch.Lineage) { l.Held = 200 }, true},
		"another boot":           {func(l *epoch.Lineage) { l.Boot = "b" }, true},
		"sync flush from now on": {func(l *epoch.Lineage) { l.SyncFlush = true }, true},
		"a lower end":            {func(l *epoch.Lineage) { l.Held = 50 }, false},
		"a promise":              {func(l *epoch.Lineage) { l.Promise.Epoch = 2 }, false},
		"a candidacy":            {func(l *epoch.Lineage) { l.Candidate = epoch.Promise{Epoch: 2, ID: 2} }, false},
		"an epoch":               {func(l *epoch.Lineage) { l.Epochs = append(l.Epochs, epoch.Entry{Epoch: 2, Start: 50, ID: 2}) }, false},
		"not whole":              {func(l *epoch.Lineage) { l.Unclean = true }, false},
		"not open":               {func(l *epoch.Lineage) { l.Open = false }, false},
		"another name":           {func(l *epoch.Lineage) { l.BrokerName = "b" }, true},
		"a slave":                {func(l *epoch.Lineage) { *l = epoch.SteppedDown(*l) }, false},
	} {
		disk := memfs.New()
		f := opened(t, disk)
		full(disk, true)
		next := lineage()
		tc.change(&next)
		if tc.ok && !epoch.Careful(lineage(), next) || epoch.Careful(epoch.Lineage{SyncFlush: true}, epoch.Lineage{}) {
			t.Errorf("%s: an async flush that the disk does not know of passes, or this does not", name)
		}
		if err := f.Write(next); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		full(disk, false)
		if err := f.Write(next); err != nil {
			t.Errorf("%s, with space: %v", name, err)
		}
		l, _, _, err := New(disk, "root").Read()
		if err != nil || l.Held != next.Held || l.Boot != next.Boot || l.SyncFlush != next.SyncFlush {
			t.Errorf("%s: the disk has %+v, %v", name, l, err)
		}
	}
}

// TestOneRemedy: where neither the file nor its backup can be read, only what helps a lineage is named.
func TestOneRemedy(t *testing.T) {
	disk := memfs.New()
	f := opened(t, disk)
	if err := f.Write(epoch.SteppedDown(lineage())); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"root/tandem/lineage", "root/tandem/lineage.bak"} {
		file, err := disk.OpenFile(name, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt([]byte("rotten"), 40); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, _, _, err := New(disk, "root").Read()
	if errdefs.ReasonOf(err) != epoch.ErrBadLineage.Reason || strings.Contains(err.Error(), "may be forgotten") || !strings.Contains(err.Error(), "empty folder") {
		t.Errorf("error %v", err)
	}
}
