package commitlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
)

// crash is what a crash left, and what it must have left.
type crash struct {
	fsys    *memfs.FS
	keep    string
	op      memfs.Op
	least   int64 // the recovered log holds at least this much
	written int64
}

// crashes takes clones before each operation.
type crashes struct {
	all []crash
	l   *commitlog.Log
}

func (c *crashes) hook(fsys *memfs.FS) func(memfs.Op) memfs.Action {
	return func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() && c.l != nil {
			c.take(fsys, op)
		}
		return memfs.Proceed
	}
}

func (c *crashes) take(fsys *memfs.FS, op memfs.Op) {
	written, flushed := c.l.End(), c.l.Flushed().Load()
	c.all = append(c.all,
		crash{killed(fsys), "all", op, written, written},
		crash{cut(fsys), "synced", op, flushed, written})
	for seed := range uint32(2) {
		c.all = append(c.all, crash{fsys.CrashClone(memfs.Torn(seed + uint32(op.Seq)*7)), "torn", op, flushed, written})
	}
}

// wholeBelow returns the last of ends that is at most n: a log recovers to a record's end.
func wholeBelow(ends []int64, n int64) int64 {
	i, found := slices.BinarySearch(ends, n)
	if found {
		return n
	}
	if i == 0 {
		return 0
	}
	return ends[i-1]
}

// verify opens what a crash left: the log is the beginning of full and long enough; then it takes a record, and a second
// crash loses nothing and brings nothing back.
func (c crash) verify(t *testing.T, o commitlog.Options, full []byte, ends []int64) {
	t.Helper()
	where := fmt.Sprintf("%s before op %d (%s %s)", c.keep, c.op.Seq, c.op.Kind, filepath.Base(c.op.Name))
	if c.keep != "all" {
		o.BootID = "boot-2"
	}
	l, r := open(t, c.fsys, o)
	defer func() { _ = l.Close(false) }()
	least := wholeBelow(ends, c.least)
	if r.End < least || r.End > int64(len(full)) || r.End > c.written && c.keep == "synced" {
		t.Fatalf("%s: end %d, want %d to %d", where, r.End, least, c.written)
	}
	if r.Lost != 0 {
		t.Fatalf("%s: lost %d", where, r.Lost)
	}
	if len(r.Rot) != 0 {
		t.Fatalf("%s: rot %v", where, r.Rot)
	}
	if got := contents(t, l); !bytes.Equal(got, full[:r.End]) {
		t.Fatalf("%s: other bytes", where)
	}
	a := put(t, l, sized(99, 333))
	flushNow(t, l)
	again := cut(c.fsys)
	l2, r2 := open(t, again, o)
	defer func() { _ = l2.Close(false) }()
	if r2.End != a.Next || r2.CutBytes != 0 {
		t.Fatalf("%s: end %d (%d cut) after a second crash, want %d", where, r2.End, r2.CutBytes, a.Next)
	}
}

// TestCrashWhileAppending crashes a master and a slave before each of their operations.
func TestCrashWhileAppending(t *testing.T) {
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		for _, raw := range []bool{false, true} {
			t.Run(fmt.Sprintf("sync flush %v, slave %v", o.SyncFlush, raw), func(t *testing.T) {
				full, ends := sample(t, 80)
				fsys := memfs.New()
				c := &crashes{}
				fsys.SetHook(c.hook(fsys))
				c.l, _ = open(t, fsys, o)
				load(t, c.l, raw, full)
				c.take(fsys, memfs.Op{})
				fsys.SetHook(nil)
				if !bytes.Equal(contents(t, c.l), full) {
					t.Fatal("the log is not the sample")
				}
				for _, cr := range c.all {
					cr.verify(t, o, full, ends)
				}
				t.Logf("%d crashes", len(c.all))
			})
		}
	}
}

// sample makes a log of several files and returns its bytes and the end of each record, blank ones too.
func sample(t *testing.T, n int) ([]byte, []int64) {
	t.Helper()
	l, _ := open(t, memfs.New(), options())
	defer closeLog(t, l, true)
	var ends []int64
	for i := range n {
		a := put(t, l, samplePut(i))
		if a.Offset%fileSize == 0 {
			ends = append(ends, a.Offset)
		}
		ends = append(ends, a.Next)
	}
	return contents(t, l), ends
}

func samplePut(i int) []byte { return sized(i, 200+i*37%700) }

// load writes the sample, as a master or as a slave, and flushes now and then.
func load(t *testing.T, l *commitlog.Log, raw bool, full []byte) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := 0; l.End() < int64(len(full)); i++ {
		if raw {
			rest := full[l.End():]
			rest = rest[:min(len(rest), 1+rnd.IntN(3000))]
			cutAt := rnd.IntN(len(rest) + 1)
			if _, err := l.AppendRaw(l.End(), [][]byte{rest[:cutAt], rest[cutAt:]}); err != nil {
				t.Fatal(err)
			}
		} else {
			put(t, l, samplePut(i))
		}
		if rnd.IntN(5) == 0 {
			flushNow(t, l)
		}
	}
}

// TestEachStepFails lets each operation of a master's life fail once, undone and done: what was reported durable is there
// after any crash, and nothing is acknowledged after a failed sync.
func TestEachStepFails(t *testing.T) {
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		for _, action := range []memfs.Action{memfs.FailBefore(nil), memfs.FailAfter(nil)} {
			total := failAt(t, o, 0, action)
			if total < 20 {
				t.Fatalf("only %d operations", total)
			}
			for k := 1; k <= total; k++ {
				failAt(t, o, k, action)
			}
		}
	}
}

// failAt runs a small life, fails its k-th operation and returns how many there were.
func failAt(t *testing.T, o commitlog.Options, k int, action memfs.Action) int {
	t.Helper()
	fsys := memfs.New()
	var failed memfs.Op
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if k > 0 && op.Seq == k {
			failed = op
			return action
		}
		return memfs.Proceed
	})
	l, _, err := commitlog.Open(fsys, root, o)
	if err == nil {
		for i := range 40 {
			fault := l.Err()
			if _, err := appendOne(l, samplePut(i)); fault != nil && !errors.Is(err, commitlog.ErrFaulted) {
				t.Fatalf("op %d: appended after the fault: %v", k, err)
			}
			if i%5 != 4 {
				continue
			}
			before := l.Flushed().Load()
			n, err := l.FlushNow(t.Context())
			if err == nil && (fault != nil || n < l.End()) || err != nil && l.Flushed().Load() != before && l.End()/fileSize == before/fileSize {
				t.Fatalf("op %d: flushed %d of %d, was %d: %v", k, n, l.End(), before, err)
			}
		}
		// A handle keeps the name that its file was made under.
		if failed.Kind == memfs.KindSync && filepath.Base(failed.Name) == "commitlog.new" && l.Err() == nil {
			t.Fatalf("op %d: a failed sync of %s is no fault", k, failed.Name)
		}
		checkAfterFailure(t, l, fsys, o, failed)
		_ = l.Close(true)
	}
	ops := fsys.Ops()
	// What failed is over: the folder opens and takes records.
	fsys.SetHook(nil)
	l, _ = open(t, killed(fsys), o)
	put(t, l, samplePut(0))
	closeLog(t, l, true)
	return ops
}

// checkAfterFailure crashes l in both ways: what comes back is the beginning of the log, with all that was durable.
func checkAfterFailure(t *testing.T, l *commitlog.Log, fsys *memfs.FS, o commitlog.Options, failed memfs.Op) {
	t.Helper()
	full, flushed := contents(t, l), l.Flushed().Load()
	for _, left := range []*memfs.FS{killed(fsys), cut(fsys)} {
		l2, r := open(t, left, o)
		got := contents(t, l2)
		n := min(len(got), len(full))
		if r.End < flushed || !bytes.Equal(got[:n], full[:n]) || len(r.Rot) != 0 {
			t.Fatalf("op %d (%s %s): recovered %+v, flushed %d", failed.Seq, failed.Kind, failed.Name, *r, flushed)
		}
		closeLog(t, l2, true)
	}
}
