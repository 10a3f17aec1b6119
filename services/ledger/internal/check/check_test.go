package check_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/check"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

const root = "/n"

// made is a folder with 50 entries of a node that was closed, or crashed after the last sync.
func made(t *testing.T, closed bool) *memfs.FS {
	t.Helper()
	fsys := memfs.New()
	l, _, err := entrylog.Open(fsys, root, entrylog.Options{DataFileSize: 4 << 10, IndexFileSize: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(l.Bootstrap(), l.SaveHard(raft.HardState{Term: 3, Vote: "n1", Voter: true}))
	for i := range raft.Index(50) {
		p := entry.New(0, make([]byte, 100))
		err = errors.Join(err, l.Append([]raft.Entry{{Index: i, Term: 3, Size: len(p), Payload: p}}))
	}
	err = errors.Join(err, l.Sync(), l.Checkpoint(40))
	if !closed {
		p := entry.New(0, make([]byte, 100))
		err = errors.Join(err, l.Append([]raft.Entry{{Index: 50, Term: 3, Size: len(p), Payload: p}}))
		fsys = fsys.CrashClone(memfs.OnlySynced)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func run(t *testing.T, fsys vfs.FS) (check.Report, string) {
	t.Helper()
	var text strings.Builder
	r, err := check.Folder(t.Context(), fsys, root, func(f check.Finding) error {
		if !f.Note {
			text.WriteString("DAMAGE ")
		}
		text.WriteString(f.Kind + ": " + f.Detail + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, text.String()
}

// flip changes one byte of a file.
func flip(t *testing.T, fsys vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fsys.OpenFile(root+"/"+name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	b[0] ^= 1
	if err == nil {
		_, err = f.WriteAt(b, at)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestSoundFolders(t *testing.T) {
	r, text := run(t, made(t, true))
	if r.Damages+r.Notes != 0 || r.First != 0 || r.Last != 49 || r.Entries != 50 || r.Sealed != 50 || r.Committed != 40 || r.Term != 3 || r.Vote != "n1" || !r.Voter {
		t.Errorf("%+v\n%s", r, text)
	}
	r, text = run(t, made(t, false))
	if r.Damages != 0 || r.Notes == 0 || r.Last < 49 || !strings.Contains(text, "not stopped cleanly") {
		t.Errorf("%+v\n%s", r, text)
	}
}

// TestDLedgerWentOn: entries of a higher term, promised in DLedger's own file, are no damage.
func TestDLedgerWentOn(t *testing.T) {
	fsys := made(t, true)
	before, err := read(fsys, "tandem/hard")
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := entrylog.Open(fsys, root, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := entry.New(0, make([]byte, 100))
	err = errors.Join(l.SaveHard(raft.HardState{Term: 5, Vote: "n2", Voter: true}), // in currterm too, as DLedger does
		l.Append([]raft.Entry{{Index: 50, Term: 5, Size: len(p), Payload: p}}), l.Sync(), l.Checkpoint(50), l.Close(),
		write(fsys, "tandem/hard", before))
	if err != nil {
		t.Fatal(err)
	}
	r, text := run(t, fsys)
	if r.Damages != 0 || r.Notes != 1 || r.Last != 50 || r.Term != 5 || r.Vote != "n2" || !strings.Contains(text, "DLedger has used the folder") {
		t.Errorf("%+v\n%s", r, text)
	}
}

func read(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(root+"/"+name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	data := make([]byte, size)
	if err == nil {
		_, err = f.ReadAt(data, 0)
	}
	return data, errors.Join(err, f.Close())
}

func write(fsys vfs.FS, name string, data []byte) error {
	f, err := fsys.OpenFile(root+"/"+name, os.O_RDWR|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}

func TestDamages(t *testing.T) {
	for name, tc := range map[string]struct {
		break1 func(t *testing.T, fsys vfs.FS)
		want   string
	}{
		"rot in a body":    {func(t *testing.T, fsys vfs.FS) { flip(t, fsys, "data/00000000000000000000", 500) }, "DAMAGE entry: "},
		"the last entry":   {func(t *testing.T, fsys vfs.FS) { flip(t, fsys, "data/00000000000000004096", 3300) }, "DAMAGE entry: "},
		"a unit":           {func(t *testing.T, fsys vfs.FS) { flip(t, fsys, "index/00000000000000000000", 43) }, "DAMAGE index: "},
		"a missing file":   {func(t *testing.T, fsys vfs.FS) { remove(t, fsys, "data/00000000000000000000") }, "DAMAGE entry: "},
		"the vote file":    {func(t *testing.T, fsys vfs.FS) { flip(t, fsys, "tandem/hard", 3) }, "DAMAGE state: "},
		"no vote file":     {func(t *testing.T, fsys vfs.FS) { remove(t, fsys, "tandem/hard", "tandem/hard.bak") }, "DAMAGE state: "},
		"no log file":      {func(t *testing.T, fsys vfs.FS) { remove(t, fsys, "tandem/log", "tandem/log.bak") }, "DAMAGE state: "},
		"an index is gone": {func(t *testing.T, fsys vfs.FS) { remove(t, fsys, "index/00000000000000000000") }, "DAMAGE index: "},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := made(t, true)
			tc.break1(t, fsys)
			if r, text := run(t, fsys); r.Damages == 0 || !strings.Contains(text, tc.want) {
				t.Errorf("%+v\n%s", r, text)
			}
		})
	}
}

func remove(t *testing.T, fsys vfs.FS, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := fsys.Remove(root + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFolderInUse is left alone, and one that is none is told.
func TestAFolderInUse(t *testing.T) {
	fsys := made(t, true)
	l, _, err := entrylog.Open(fsys, root, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := check.Folder(t.Context(), fsys, root, nil); !errors.Is(err, vfs.ErrLocked) {
		t.Error(err)
	}
	if _, err := check.Folder(t.Context(), memfs.New(), root, nil); !errors.Is(err, check.ErrNoFolder) {
		t.Error(err)
	}
}
