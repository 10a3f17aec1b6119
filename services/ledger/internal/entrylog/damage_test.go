package entrylog_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// patch writes bytes into a file.
func patch(t testing.TB, fsys vfs.FS, name string, off int64, b []byte) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func dataFile(pos int64) string { return root + "/data/" + mappedfile.Name(pos-pos%dataSize) }

// places returns the offset of each entry.
func places(t testing.TB, l *entrylog.Log) []entry.Header {
	t.Helper()
	var all []entry.Header
	for i := l.First(); i <= l.Last(); i++ {
		b, _, release, err := l.View(i, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		h, err := entry.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		release()
		all = append(all, h)
	}
	return all
}

// synced makes a log of 60 entries in writes of ten, each synced, and leaves it by a crash.
func synced(t *testing.T) (*memfs.FS, []entry.Header) {
	t.Helper()
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	if err := l.SaveHard(raft.HardState{Term: 1, Vote: "n0", Voter: true}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		appendTo(t, l, made(raft.Index(10*i), 10, 1))
		sync(t, l)
	}
	at := places(t, l)
	left := killed(fsys)
	closeLog(t, l)
	return left, at
}

// TestTornTailIsCutRotIsNot zeroes and flips bytes of each entry: in the last write the log ends there, before it Open
// refuses, since a later write says that all before it was durable.
func TestTornTailIsCutRotIsNot(t *testing.T) {
	fsys, at := synced(t)
	for i, h := range at {
		for name, harm := range map[string][]byte{"header": {0, 0, 0, 0}, "length": nil, "last byte": {0xEE}, "all": make([]byte, h.Size)} {
			off := h.Pos % dataSize
			switch name {
			case "last byte":
				off += int64(h.Size) - 1
			case "length":
				off, harm = off+44, []byte{0, 0, 0x7f, 0}
			}
			left := killed(fsys)
			patch(t, left, dataFile(h.Pos), off, harm)
			l, r, err := entrylog.Open(left, root, options())
			if i < 50 {
				if !errors.Is(err, entrylog.ErrDamaged) || !strings.Contains(err.Error(), fmt.Sprintf("index=%d,", i)) {
					t.Fatalf("entry %d, %s: %v, want damage", i, name, err)
				}
				continue
			}
			if err != nil || r.Last != raft.Index(i-1) || !r.CutBytes && i < 59 || !r.Voter {
				t.Fatalf("entry %d, %s: %+v, %v", i, name, r, err)
			}
			appendTo(t, l, made(raft.Index(i), 1, 1))
			closeLog(t, l)
			l, r = open(t, left, options())
			if r.Last != raft.Index(i) {
				t.Fatalf("entry %d, %s: after a cut and an append: %+v", i, name, r)
			}
			closeLog(t, l)
		}
	}
}

// TestRotBehindTheCheckpointIsDamage: after a clean end, or behind a checkpoint, there is no torn tail.
func TestRotBehindTheCheckpointIsDamage(t *testing.T) {
	fsys, at := synced(t)
	l, _ := open(t, fsys, options())
	appendTo(t, l, made(60, 1, 1))
	closeLog(t, l)
	last := at[59]
	for _, index := range []int{0, 30, 59} {
		left := killed(fsys)
		h := at[index]
		patch(t, left, dataFile(h.Pos), h.Pos%dataSize+48, []byte{0xEE})
		o := options()
		o.Verify = true
		_, _, err := entrylog.Open(left, root, o)
		wantErr(t, err, entrylog.ErrDamaged)
		// Without Verify it is found when it is read.
		l, _ := open(t, left, options())
		_, _, _, err = l.View(raft.Index(index), 1, 1)
		wantErr(t, err, entrylog.ErrDamaged)
		if index > 0 {
			if _, n, release, err := l.View(0, 1, 1); err != nil || n != 1 {
				t.Fatal(n, err)
			} else {
				release()
			}
		}
		closeLog(t, l)
	}
	patch(t, fsys, dataFile(last.Pos+int64(last.Size)), (last.Pos+int64(last.Size))%dataSize, make([]byte, 48))
	_, _, err := entrylog.Open(fsys, root, options())
	wantErr(t, err, entrylog.ErrDamaged)
}

// TestT10_LeftOversAreNotEntries copies an older entry behind the end, and bytes that look like one.
func TestT10_LeftOversAreNotEntries(t *testing.T) {
	fsys, at := synced(t)
	end := at[59].Pos + int64(at[59].Size)
	file := readFile(t, fsys, dataFile(at[10].Pos))
	old := file[at[10].Pos%dataSize:][:at[10].Size]
	stale := entry.New(0, []byte("stale"))
	entry.Stamp(stale, 60, 0, end, true) // of a term that is over
	far := entry.New(0, []byte("far"))
	entry.Stamp(far, 60, 1, end+1, true) // from another place
	for name, b := range map[string][]byte{"entry 10": old, "stale": stale, "far": far, "half": stale[:40]} {
		left := killed(fsys)
		if end%dataSize+int64(len(b)) > dataSize {
			t.Fatal("no room in the sample")
		}
		patch(t, left, dataFile(end), end%dataSize, b)
		l, r := open(t, left, options())
		if r.Last != 59 || !r.CutBytes || r.Torn == nil {
			t.Errorf("%s: %+v", name, r)
		}
		closeLog(t, l)
	}
}

// TestT16_BrokenVoteFileStopsTheNode breaks tandem/hard and tandem/log in all ways.
func TestT16_BrokenVoteFileStopsTheNode(t *testing.T) {
	fsys, _ := synced(t)
	for _, name := range []string{"hard", "log"} {
		path := root + "/tandem/" + name
		whole := readFile(t, fsys, path)
		for i := range whole {
			left := killed(fsys)
			patch(t, left, path, int64(i), []byte{whole[i] ^ 4})
			_, _, err := entrylog.Open(left, root, options())
			if !errors.Is(err, durable.ErrCorrupt) {
				t.Fatalf("%s, byte %d: %v", name, i, err)
			}
		}
		left := killed(fsys) // only the backup is left
		if err := left.Remove(path); err != nil {
			t.Fatal(err)
		}
		_, _, err := entrylog.Open(left, root, options())
		wantErr(t, err, durable.ErrCorrupt)
		left.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindOpen && op.Name == path {
				return memfs.FailBefore(nil)
			}
			return memfs.Proceed
		})
		if _, _, err := entrylog.Open(left, root, options()); err == nil {
			t.Errorf("%s cannot be read, but the log opens", name)
		}
	}
	// Gone for good: the entries stay, the vote does not.
	for _, name := range []string{"hard", "hard.bak"} {
		if err := fsys.Remove(root + "/tandem/" + name); err != nil {
			t.Fatal(err)
		}
	}
	l, r := open(t, fsys, options())
	if r.Voter || r.Vote != "" || r.Term != 1 || r.Last != 59 || r.NoVote == "" {
		t.Errorf("without its vote file: %+v", r)
	}
	wantErr(t, l.Bootstrap(), entrylog.ErrNotEmpty)
	closeLog(t, l)
}

// TestIndexIsMadeAgain harms the index in all ways; the entries say what it must be.
func TestIndexIsMadeAgain(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	for i := range 30 {
		appendTo(t, l, made(raft.Index(10*i), 10, 1))
	}
	if err := l.Bootstrap(); !errors.Is(err, entrylog.ErrNotEmpty) {
		t.Error(err)
	}
	want := contents(t, l)
	closeLog(t, l)
	index := func(n int64) string { return root + "/index/" + mappedfile.Name(n*idxSize) }
	remove := func(f *memfs.FS, n int64) {
		if err := errors.Join(f.Remove(index(n)), f.SyncDir(root+"/index")); err != nil {
			t.Fatal(err)
		}
	}
	for name, harm := range map[string]func(*memfs.FS){
		"first file gone":  func(f *memfs.FS) { remove(f, 0) },
		"middle file gone": func(f *memfs.FS) { remove(f, 1) },
		"last file gone":   func(f *memfs.FS) { remove(f, 2) },
		"all gone":         func(f *memfs.FS) { remove(f, 0); remove(f, 1); remove(f, 2) },
		"last unit":        func(f *memfs.FS) { patch(t, f, index(2), (299-256)*32+7, []byte{9}) },
		"first unit":       func(f *memfs.FS) { patch(t, f, index(0), 7, []byte{9}) },
		"behind the end":   func(f *memfs.FS) { patch(t, f, index(2), (302-256)*32+7, []byte{9}) },
	} {
		left := killed(fsys)
		harm(left)
		o := options()
		o.Verify = name == "behind the end"
		l, r := open(t, left, o)
		if err := same(contents(t, l), want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkStart(t, l, r)
		closeLog(t, l)
		for n := range int64(3) {
			if string(readFile(t, left, index(n))) != string(readFile(t, fsys, index(n))) {
				t.Errorf("%s: index file %d differs", name, n)
			}
		}
	}
}

// javaStore opens a copy of the golden store that harm has changed.
func javaStore(t *testing.T, harm func(root string)) (*entrylog.Log, *entrylog.Recovery, error) {
	t.Helper()
	root := filepath.Join(testkit.Golden(t, golden), "dledger-n0")
	harm(root)
	return entrylog.Open(vfs.OS(), root, entrylog.Options{})
}

func rewrite(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStoresThatJavaMisreads are cases in which DLedger discards, resurrects or misreads entries.
func TestStoresThatJavaMisreads(t *testing.T) {
	data := func(root string, n int64) string { return filepath.Join(root, "data", mappedfile.Name(n*65536)) }
	flip := func(root string, n, at int64) {
		rewrite(t, data(root, n), func(b []byte) []byte { b[at] ^= 0x40; return b })
	}
	for _, c := range []struct {
		name  string
		harm  func(root string)
		err   error
		last  raft.Index
		voter bool
	}{
		{"untouched", func(string) {}, nil, 599, true},
		{"record 0", func(root string) { flip(root, 0, 3) }, entrylog.ErrDamaged, 0, false},
		{"first of the third file", func(root string) { flip(root, 2, 3) }, entrylog.ErrDamaged, 0, false},
		{"first of the last file", func(root string) { flip(root, 7, 3) }, entrylog.ErrDamaged, 0, false},
		{"file in the middle gone", func(root string) { _ = os.Remove(data(root, 3)) }, mappedfile.ErrGap, 0, false},
		{"last file gone", func(root string) { _ = os.Remove(data(root, 7)) }, nil, 589, false},
		{"short file", func(root string) { _ = os.Truncate(data(root, 7), 1000) }, mappedfile.ErrSize, 0, false},
		{"checkpoint gone", func(root string) { _ = os.Remove(root + "/checkpoint") }, nil, 599, true},
		{"checkpoint garbage", func(root string) { _ = os.WriteFile(root+"/checkpoint", []byte("\xffx=y"), 0o600) }, nil, 599, true},
		{"currterm gone", func(root string) { _ = os.Remove(root + "/currterm") }, nil, 599, false},
		{"currterm garbage", func(root string) { _ = os.WriteFile(root+"/currterm", []byte("currTerm=two"), 0o600) }, nil, 599, false},
		{"currterm behind the log", func(root string) { _ = os.WriteFile(root+"/currterm", []byte("voteLeader=n0\ncurrTerm=1\n"), 0o600) }, nil, 599, false},
	} {
		l, r, err := javaStore(t, c.harm)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
		if err != nil {
			continue
		}
		if r.Last != c.last || r.Voter != c.voter || r.Term != 2 && c.name != "last file gone" || r.Committed > r.Last {
			t.Errorf("%s: %+v", c.name, r)
		}
		checkStart(t, l, r)
		closeLog(t, l)
	}
}

// TestWhatJavaTruncatedDoesNotComeBack: DLedger leaves truncated entries in the file behind those it wrote in their place.
func TestWhatJavaTruncatedDoesNotComeBack(t *testing.T) {
	l, r, err := javaStore(t, func(root string) {
		name := filepath.Join(root, "data", mappedfile.Name(7*65536))
		rewrite(t, name, func(b []byte) []byte {
			// A leader of term 3 has put a short entry in the place of the file's first; those behind it are stale.
			h, err := entry.ReadHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			e := entry.New(0, []byte("new"))
			entry.Stamp(e, h.Index, 3, h.Pos, false)
			clear(e[36:44])
			copy(b, e)
			return b
		})
		_ = os.WriteFile(root+"/currterm", []byte("voteLeader=\ncurrTerm=3\n"), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Last >= 599 || r.Runs[len(r.Runs)-1].Term != 3 || !r.CutBytes {
		t.Fatalf("%+v", r)
	}
	checkStart(t, l, r)
	appendTo(t, l, made(r.Last+1, 1, 3))
	closeLog(t, l)
}

// TestJavaHasRemovedTheFirstFiles: the log begins behind the first entry that is left, whose term is known.
func TestJavaHasRemovedTheFirstFiles(t *testing.T) {
	l, r, err := javaStore(t, func(root string) {
		for n := range int64(3) {
			_ = os.Remove(filepath.Join(root, "data", mappedfile.Name(n*65536)))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b, n, release, err := l.View(l.First(), 1, 1)
	if err != nil || n != 1 {
		t.Fatal(err)
	}
	if pos := int64(binary.BigEndian.Uint64(b[24:])); pos <= 3*65536 || pos > 3*65536+2000 || r.Base.Term != 2 || !r.Voter {
		t.Errorf("first entry at %d, %+v", pos, r)
	}
	release()
	checkStart(t, l, r)
	closeLog(t, l)
}
