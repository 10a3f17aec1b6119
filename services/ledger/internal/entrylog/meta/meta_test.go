package meta_test

import (
	"errors"
	"os"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
)

const root = "/n0"

func folder(t testing.TB) vfs.FS {
	t.Helper()
	fsys := memfs.New()
	if err := durable.MkdirAll(fsys, root+"/"+meta.Dir); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func write(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	if err := durable.WriteFile(fsys, root+"/"+name, data); err != nil {
		t.Fatal(err)
	}
}

// TestJavaFilesHaveJavasBytes writes what DLedger wrote into the golden store.
func TestJavaFilesHaveJavasBytes(t *testing.T) {
	fsys := folder(t)
	if err := meta.WriteTerm(fsys, root, meta.Term{Term: 2, Vote: "n0"}); err != nil {
		t.Fatal(err)
	}
	if err := meta.WriteCheckpoint(fsys, root, meta.Checkpoint{Committed: 599, End: 600}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"currterm": "voteLeader=n0\ncurrTerm=2\n", "checkpoint": "committedIndex=599\nendIndex=600\n"} {
		if got, err := durable.ReadFile(fsys, root+"/"+name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if term, ok, err := meta.ReadTerm(fsys, root); err != nil || !ok || term != (meta.Term{Term: 2, Vote: "n0"}) {
		t.Error(term, ok, err)
	}
	if c, ok, err := meta.ReadCheckpoint(fsys, root); err != nil || !ok || c != (meta.Checkpoint{Committed: 599, End: 600}) {
		t.Error(c, ok, err)
	}
}

func TestJavaFilesAreReadAsProperties(t *testing.T) {
	for text, want := range map[string]struct {
		term meta.Term
		ok   bool
	}{
		"voteLeader=\ncurrTerm=7\n":                            {meta.Term{Term: 7}, true},
		"# a comment\r\n\r\ncurrTerm = 7\r\nvoteLeader : n1\n": {meta.Term{Term: 7, Vote: "n1"}, true},
		"currTerm=7":                       {meta.Term{Term: 7}, true},
		"currTerm=-1":                      {meta.Term{}, false},
		"currTerm=":                        {meta.Term{}, false},
		"currTerm":                         {meta.Term{}, false},
		"voteLeader=n1":                    {meta.Term{}, false},
		"":                                 {meta.Term{}, false},
		"\x00\x00\x00":                     {meta.Term{}, false},
		"currTerm=99999999999999999999999": {meta.Term{}, false},
	} {
		fsys := folder(t)
		write(t, fsys, meta.TermFile, []byte(text))
		if term, ok, err := meta.ReadTerm(fsys, root); err != nil || ok != want.ok || ok && term != want.term {
			t.Errorf("%q: %+v, %v, %v", text, term, ok, err)
		}
	}
	fsys := folder(t)
	if _, ok, err := meta.ReadTerm(fsys, root); ok || err != nil {
		t.Error(ok, err)
	}
	write(t, fsys, meta.TermFile, make([]byte, 1<<20))
	if _, ok, err := meta.ReadTerm(fsys, root); ok || err != nil {
		t.Error(ok, err)
	}
	if err := fsys.MkdirAll(root+"/"+meta.CheckpointFile, os.ModePerm); err != nil {
		t.Fatal(err)
	}
	if _, _, err := meta.ReadCheckpoint(fsys, root); err == nil {
		t.Error("a folder is read as a checkpoint")
	}
}

// TestWhatContradictsItselfIsBroken has files whose checksum is right.
func TestWhatContradictsItselfIsBroken(t *testing.T) {
	fsys := folder(t)
	for _, h := range []raft.HardState{{Term: -1}, {Term: 1, Vote: "n1"}} {
		if err := meta.WriteHard(fsys, root, h); err != nil {
			t.Fatal(err)
		}
		if _, _, err := meta.ReadHard(fsys, root); err == nil {
			t.Errorf("%+v is taken", h)
		}
	}
	l := meta.Fresh()
	l.Base.Index = 5
	if err := meta.WriteLog(fsys, root, l); err != nil {
		t.Fatal(err)
	}
	if _, _, err := meta.ReadLog(fsys, root); err == nil {
		t.Error("a mark before the base is taken")
	}
}

func FuzzJavaFiles(f *testing.F) {
	f.Add([]byte("voteLeader=n0\ncurrTerm=2\n"))
	f.Add([]byte("committedIndex=599\nendIndex=599\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := folder(t)
		write(t, fsys, meta.TermFile, data)
		write(t, fsys, meta.CheckpointFile, data)
		term, ok, err := meta.ReadTerm(fsys, root)
		if err != nil || ok && term.Term < 0 {
			t.Fatal(term, err)
		}
		if _, _, err := meta.ReadCheckpoint(fsys, root); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAPromiseIsNotRestored: whatever is left of the files of what a node has promised, the remedy is an empty node. A copy of them may be
// of before the last vote.
func TestAPromiseIsNotRestored(t *testing.T) {
	read := map[string]func(vfs.FS) error{
		"tandem/hard": func(fsys vfs.FS) error { _, _, err := meta.ReadHard(fsys, root); return err },
		"tandem/log":  func(fsys vfs.FS) error { _, _, err := meta.ReadLog(fsys, root); return err },
	}
	for name, read := range read {
		for _, broken := range [][]string{{name}, {name, name + ".bak"}} {
			fsys := folder(t)
			for term := range raft.Term(2) { // the second one keeps the first as .bak
				if err := meta.WriteHard(fsys, root, raft.HardState{Term: term, Voter: true}); err != nil {
					t.Fatal(err)
				}
				if err := meta.WriteLog(fsys, root, meta.Log{Mark: meta.Point{Index: raft.Index(term)}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range broken {
				write(t, fsys, name, []byte("rubbish"))
			}
			if err := read(fsys); !errors.Is(err, durable.ErrCorrupt) || errdefs.As(err).Remedy != meta.Remedy || errdefs.As(err).Meta["file"] != name {
				t.Errorf("%v broken: %v", broken, err)
			}
		}
	}
}
