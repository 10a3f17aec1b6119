package entrylog_test

import (
	"bytes"
	"errors"
	"runtime"
	gosync "sync"
	"sync/atomic"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// TestT12_DiskFullAndBack fills the disk: nothing of a refused batch is in the log, reading and restarting work, and after
// space was made the log goes on by itself.
func TestT12_DiskFullAndBack(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	if err := l.SaveHard(raft.HardState{Term: 1, Vote: "n0", Voter: true}); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, made(0, 10, 1))
	fsys.SetQuota(fsys.Used() + 2*dataSize)
	var full error
	for full == nil {
		batch := made(l.Last()+1, 30, 1)
		before := l.Last()
		if full = l.Append(batch); full != nil && l.Last() != before {
			t.Fatalf("refused, but the log goes to %d", l.Last())
		}
	}
	wantErr(t, full, vfs.ErrNoSpace)
	wantErr(t, l.Reserve(1000, 3*dataSize), vfs.ErrNoSpace)
	if err := errors.Join(l.Sync(), l.Err()); err != nil {
		t.Fatal(err)
	}
	want := contents(t, l)
	fsys.SetQuota(1) // nothing more at all
	left := killed(fsys)
	l2, r := open(t, left, options())
	if err := same(contents(t, l2), want); err != nil || !r.Voter {
		t.Fatalf("restarted on a full disk: %v, %+v", err, r)
	}
	wantErr(t, l2.Append(made(l2.Last()+1, 30, 1)), vfs.ErrNoSpace)
	left.SetQuota(0)
	appendTo(t, l2, made(l2.Last()+1, 30, 1))
	closeLog(t, l2)
	fsys.SetQuota(0)
	if err := l.Reserve(1000, 3*dataSize); err != nil {
		t.Fatal(err)
	}
	more := made(l.Last()+1, 60, 1)
	appendTo(t, l, more)
	if err := same(contents(t, l), append(want, more...)); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	l, r = open(t, fsys, options())
	if r.CutBytes || r.Last != raft.Index(len(want)+59) {
		t.Errorf("%+v", r)
	}
	closeLog(t, l)
}

// TestReservedSpaceIsEnough: after Reserve a batch of those entries and bytes finds its place whatever the sizes are.
func TestReservedSpaceIsEnough(t *testing.T) {
	for _, size := range []int{49, 100, 1000, 2700, 4000, 4090, dataSize/2 - 4, dataSize - 9, dataSize - 8} {
		for _, n := range []int{1, 2, 5, 17} {
			fsys := memfs.New()
			l, _ := open(t, fsys, options())
			appendTo(t, l, made(0, 12, 1))
			var batch []raft.Entry
			for i := range n {
				p := entry.New(0, bytes.Repeat([]byte("x"), size-entry.HeaderSize))
				batch = append(batch, raft.Entry{Index: raft.Index(12 + i), Term: 1, Size: size, Payload: p})
			}
			if err := l.Reserve(n, int64(n*size)); err != nil {
				t.Fatal(err)
			}
			fsys.SetQuota(fsys.Used())
			if err := l.Append(batch); err != nil {
				t.Fatalf("%d entries of %d bytes: %v", n, size, err)
			}
			fsys.SetQuota(0)
			closeLog(t, l)
			l, r := open(t, fsys, options())
			checkStart(t, l, r)
			closeLog(t, l)
		}
	}
}

func TestWhatDoesNotFollowIsRefused(t *testing.T) {
	l, _ := open(t, memfs.New(), options())
	appendTo(t, l, made(0, 10, 3))
	large := entry.New(0, make([]byte, dataSize-7-entry.HeaderSize))
	short := made(10, 1, 3)
	short[0].Size--
	fat := noOp(10, 3)
	fat[0].Size++
	for name, c := range map[string]struct {
		batch []raft.Entry
		err   error
	}{
		"gap":      {made(11, 1, 3), entrylog.ErrOrder},
		"repeated": {made(9, 1, 3), entrylog.ErrOrder},
		"old term": {made(10, 1, 2), entrylog.ErrOrder},
		"hole":     {append(made(10, 1, 3), made(12, 1, 3)...), entrylog.ErrOrder},
		"large":    {[]raft.Entry{{Index: 10, Term: 3, Size: len(large), Payload: large}}, entrylog.ErrTooLarge},
		"short":    {short, entrylog.ErrPayload},
		"no-op":    {fat, entrylog.ErrPayload},
	} {
		if err := l.Append(c.batch); !errors.Is(err, c.err) || l.Last() != 9 {
			t.Errorf("%s: %v, last %d", name, err, l.Last())
		}
	}
	if err := l.Checkpoint(7); err != nil {
		t.Fatal(err)
	}
	wantErr(t, l.Cut(cutTo(6, 3)), entrylog.ErrCommitted)
	wantErr(t, l.Cut(cutTo(10, 3)), entrylog.ErrOutOfRange)
	wantErr(t, l.Purge(raft.Mark{Index: 9, Term: 3}), entrylog.ErrOutOfRange) // not durable
	sync(t, l)
	wantErr(t, l.Purge(raft.Mark{Index: 8, Term: 2}), entrylog.ErrOrder)
	for _, i := range []raft.Index{-1, 10} {
		_, _, _, err := l.View(i, 1, 1)
		wantErr(t, err, entrylog.ErrOutOfRange)
	}
	if l.Err() != nil || l.Last() != 9 {
		t.Fatal(l.Err())
	}
	appendTo(t, l, made(10, 1, 3))
	closeLog(t, l)
	wantErr(t, l.Append(made(11, 1, 3)), entrylog.ErrClosed)
	_, _, _, err := l.View(1, 1, 1)
	wantErr(t, err, entrylog.ErrClosed)
	for _, o := range []entrylog.Options{{DataFileSize: 100}, {IndexFileSize: 4097}, {MaxEntry: 48}, {MaxEntry: 4<<20 + 1}} {
		if _, _, err := entrylog.Open(memfs.New(), root, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestT23_CutEntriesStayCut: the old leader's entries are gone for good once another leader's are in their place.
func TestT23_CutEntriesStayCut(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	appendTo(t, l, made(0, 100, 1))
	sync(t, l)
	if err := errors.Join(l.Checkpoint(40), l.SaveHard(raft.HardState{Term: 2, Voter: true}), l.Cut(cutTo(41, 1))); err != nil {
		t.Fatal(err)
	}
	for _, left := range []*memfs.FS{powerCut(fsys), killed(fsys)} {
		l, r := open(t, left, options())
		if r.Last != 41 || r.Committed != 40 {
			t.Errorf("%+v", r)
		}
		appendTo(t, l, made(42, 1, 2))
		closeLog(t, l)
		l, r = open(t, left, options())
		if r.Last != 42 || r.Runs[1] != (raft.Run{First: 42, Term: 2}) {
			t.Errorf("%+v", r)
		}
		closeLog(t, l)
	}
	closeLog(t, l)
}

// TestAsyncLosesItsVoteWithTheMachine: what was acknowledged before it was durable may be gone, but only when the machine
// went down, not the process.
func TestAsyncLosesItsVoteWithTheMachine(t *testing.T) {
	o := options()
	hard := raft.HardState{Term: 4, Vote: "n1", Voter: true}
	for _, c := range []struct {
		boot  string
		clean bool
		sync  bool
		voter bool
	}{{boot, false, false, true}, {"boot-2", false, false, false}, {"", false, false, false}, {"boot-2", true, false, true}, {"boot-2", false, true, true}} {
		o.Async = !c.sync
		fsys := memfs.New()
		l, _ := open(t, fsys, o)
		if err := l.SaveHard(hard); err != nil {
			t.Fatal(err)
		}
		appendTo(t, l, made(0, 10, 4))
		left := killed(fsys)
		closeLog(t, l)
		if c.clean {
			left = fsys
		}
		o2 := o
		o2.BootID = c.boot
		for range 2 { // also at the start after that
			l, r := open(t, left, o2)
			if r.Voter != c.voter || r.Term != 4 || (r.Vote == "n1") != c.voter {
				t.Errorf("%+v: %+v", c, r)
			}
			closeLog(t, l)
		}
	}
}

// TestOpenMakesDurableWhatItFound: the node will answer for it, though the process before had not synced it.
func TestOpenMakesDurableWhatItFound(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	appendTo(t, l, made(0, 30, 1))
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindWritev {
			return memfs.FailBefore(nil)
		}
		return memfs.Proceed
	})
	wantErr(t, l.Append(made(30, 2, 1)), entrylog.ErrFaulted)
	fsys.SetHook(nil)
	closeLog(t, l) // as a process that ends: nothing is synced
	l, _ = open(t, fsys, options())
	l2, r := open(t, powerCut(fsys), options())
	if r.Last != 29 {
		t.Errorf("%d entries are durable", r.Last+1)
	}
	closeLog(t, l2)
	closeLog(t, l)
}

// TestSyncPromisesWhatWasThere: entries that are appended while a sync runs are not counted as durable.
func TestSyncPromisesWhatWasThere(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	appendTo(t, l, made(0, 5, 1))
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindSync && l.Last() == 4 {
			appendTo(t, l, made(5, 5, 1))
		}
		return memfs.Proceed
	})
	sync(t, l)
	if l.Synced() != 4 || l.Last() != 9 {
		t.Errorf("synced %d of %d", l.Synced(), l.Last())
	}
	closeLog(t, l)
}

// TestFailedSyncIsTheEnd: it is never tried again, and reading goes on.
func TestFailedSyncIsTheEnd(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	appendTo(t, l, made(0, 5, 1))
	syncs := 0
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindSync {
			syncs++
			return memfs.FailBefore(nil)
		}
		return memfs.Proceed
	})
	wantErr(t, l.Sync(), entrylog.ErrFaulted)
	for _, err := range []error{l.Sync(), l.Append(made(5, 1, 1)), l.Checkpoint(1), l.Cut(cutTo(2, 1)), l.SaveHard(raft.HardState{Term: 2})} {
		wantErr(t, err, entrylog.ErrFaulted)
	}
	if syncs != 1 || len(contents(t, l)) != 5 || l.Synced() != raft.NoIndex {
		t.Errorf("%d syncs, %d entries, synced %d", syncs, len(contents(t, l)), l.Synced())
	}
	closeLog(t, l)
}

// TestReadersBesideTheWriter reads all the time while entries are appended, cut, purged and synced.
func TestReadersBesideTheWriter(t *testing.T) {
	l, _ := open(t, memfs.New(), options())
	var stop atomic.Bool
	var wg gosync.WaitGroup
	var reads atomic.Int64
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				for i := l.First(); i <= l.Last(); i += 7 {
					b, n, release, err := l.View(i, 20, 4096)
					if errors.Is(err, entrylog.ErrOutOfRange) || errors.Is(err, entrylog.ErrCutting) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					if part, err := entry.Split(nil, b); err != nil || len(part) != n || part[0].Index != i {
						t.Errorf("%d entries of %d from %d: %v", len(part), n, i, err)
					}
					release()
					l.Extent(i, l.Last(), 50, 5000)
					reads.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			if err := errors.Join(l.Sync(), l.Checkpoint(l.First())); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	term := raft.Term(1)
	for round := range 60 {
		for range 5 {
			appendTo(t, l, made(l.Last()+1, 20, term))
		}
		sync(t, l)
		if round%3 == 1 {
			last := l.Last() - 30
			if err := l.Cut(cutTo(last, term)); err != nil {
				t.Fatal(err)
			}
			term++
		}
		if round%10 == 9 {
			i := l.First() + 200
			b, _, release, err := l.View(i, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			h, _ := entry.Read(b)
			release()
			if err := l.Purge(raft.Mark{Index: i, Term: h.Term}); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	if reads.Load() == 0 {
		t.Error("nobody read anything")
	}
	closeLog(t, l)
}

// TestHotPathAllocatesNothing appends, syncs, measures and reads.
func TestHotPathAllocatesNothing(t *testing.T) {
	o := options()
	o.DataFileSize, o.IndexFileSize = 16<<20, 1<<20
	l, _, err := entrylog.Open(vfs.OS(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	batch := made(0, 10, 1)
	next := raft.Index(0)
	if n := testing.AllocsPerRun(200, func() {
		for i := range batch {
			batch[i].Index = next
			next++
		}
		appendTo(t, l, batch)
		sync(t, l)
	}); n != 0 {
		t.Errorf("append: %v allocations", n)
	}
	if n := testing.AllocsPerRun(200, func() {
		n, size := l.Extent(100, l.Last(), 64, 10_000)
		b, m, release, err := l.View(100, n, size)
		if err != nil || m != n || int64(len(b)) != size {
			t.Fatal(m, err)
		}
		release()
	}); n != 0 {
		t.Errorf("read: %v allocations", n)
	}
	closeLog(t, l)
}
