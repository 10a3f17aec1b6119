package entrylog_test

import (
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
)

// TestWhatIsWrittenIsRead appends over many files of entries and of the index, closes cleanly and by a crash, and reads all.
func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, clean := range []bool{true, false} {
		fsys := memfs.New()
		l, r := open(t, fsys, options())
		if r.Last != raft.NoIndex || r.Voter || r.Clean {
			t.Fatalf("new folder: %+v", r)
		}
		var all []raft.Entry
		for term := raft.Term(1); term < 8; term++ {
			all = append(all, noOp(raft.Index(len(all)), term)...)
			appendTo(t, l, noOp(all[len(all)-1].Index, term))
			for range 5 {
				batch := made(raft.Index(len(all)), 1+len(all)%23, term)
				appendTo(t, l, batch)
				all = append(all, batch...)
				sync(t, l)
			}
		}
		if err := l.SaveHard(raft.HardState{Term: 9, Vote: "n1", Voter: true}); err != nil {
			t.Fatal(err)
		}
		if err := l.Checkpoint(raft.Index(len(all) - 3)); err != nil {
			t.Fatal(err)
		}
		if err := same(contents(t, l), all); err != nil {
			t.Fatal(err)
		}
		if clean {
			closeLog(t, l)
		} else {
			fsys = powerCut(fsys)
		}
		l, r = open(t, fsys, options())
		if err := same(contents(t, l), all); err != nil {
			t.Fatal(err)
		}
		checkStart(t, l, r)
		want := raft.HardState{Term: 9, Vote: "n1", Voter: true}
		if r.HardState != want || r.Committed != raft.Index(len(all)-3) || r.Clean != clean || r.Java || r.CutBytes {
			t.Fatalf("recovered %+v", r)
		}
		if r.Scanned != 0 || r.Rebuilt != 0 {
			t.Errorf("read %d bytes and wrote %d units behind the checkpoint", r.Scanned, r.Rebuilt)
		}
		closeLog(t, l)
	}
}

func TestExtentIsWhatViewGives(t *testing.T) {
	l, _ := open(t, memfs.New(), options())
	for i := range 20 {
		appendTo(t, l, made(raft.Index(10*i), 10, 1))
	}
	for first := raft.Index(0); first <= l.Last(); first++ {
		for _, limit := range []int64{1, 400, 2000, 1 << 20} {
			for _, most := range []int{1, 3, 1000} {
				count, bytes := l.Extent(first, l.Last(), most, limit)
				b, n, release, err := l.View(first, most, limit)
				if err != nil || n != count || int64(len(b)) != bytes || n == 0 {
					t.Fatalf("from %d, at most %d of %d bytes: extent %d, %d; view %d, %d, %v", first, most, limit, count, bytes, n, len(b), err)
				}
				release()
			}
		}
	}
	if n, _ := l.Extent(l.Last()+1, l.Last()+1, 1, 1); n != 0 {
		t.Error("extent beyond the end")
	}
	closeLog(t, l)
}

// TestT21_ResetAndPurge begins anew behind what the leader has purged, at its place, and purges in turn.
func TestT21_ResetAndPurge(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	appendTo(t, l, made(0, 50, 1))
	if err := l.Cut(consensus.Cut{Last: 499, Term: 7, Reset: true}); err != nil {
		t.Fatal(err)
	}
	if l.First() != 500 || l.Last() != 499 {
		t.Fatalf("%d to %d after a reset", l.First(), l.Last())
	}
	left := powerCut(fsys)
	l2, r := open(t, left, options())
	if r.Base != (raft.Mark{Index: 499, Term: 7}) || r.Last != 499 || r.Committed != 499 {
		t.Fatalf("after a reset: %+v", r.Start)
	}
	closeLog(t, l2)
	var all []raft.Entry
	for i := range 30 {
		batch := made(raft.Index(500+10*i), 10, raft.Term(7+i/10))
		appendTo(t, l, batch)
		all = append(all, batch...)
	}
	sync(t, l)
	if err := same(contents(t, l), all); err != nil {
		t.Fatal(err)
	}
	if err := l.Checkpoint(700); err != nil {
		t.Fatal(err)
	}
	if err := l.Purge(raft.Mark{Index: 612, Term: 8}); err != nil {
		t.Fatal(err)
	}
	for _, fsys := range []*memfs.FS{powerCut(fsys), killed(fsys)} {
		l, r := open(t, fsys, options())
		checkStart(t, l, r)
		if err := same(contents(t, l), all[113:]); err != nil {
			t.Fatal(err)
		}
		if r.Base != (raft.Mark{Index: 612, Term: 8}) {
			t.Fatalf("base %v", r.Base)
		}
		closeLog(t, l)
		l, r = open(t, fsys, options())
		checkStart(t, l, r)
		wantErr(t, l.Cut(cutTo(600, 7)), entrylog.ErrCommitted)
		if err := l.Cut(cutTo(750, 9)); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
	}
	closeLog(t, l)
}
