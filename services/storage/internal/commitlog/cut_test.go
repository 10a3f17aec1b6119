package commitlog_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
)

const noLimit = 1 << 40

// cutCase is one way to make a log shorter.
type cutCase struct {
	name  string
	to    func(ends []int64) int64
	reset bool
	keep  bool
}

func cutCases() []cutCase {
	at := func(n int64) func([]int64) int64 { return func([]int64) int64 { return n } }
	cases := []cutCase{
		{name: "inside the last file", to: func(ends []int64) int64 { return ends[len(ends)-3] }},
		{name: "at a file's start", to: at(2 * fileSize)},
		{name: "two files back", to: func(ends []int64) int64 { return wholeBelow(ends, 2*fileSize-1) }},
		{name: "to nothing", to: at(0)},
		{name: "reset to a later file", to: at(100 * fileSize), reset: true},
		{name: "reset to zero", to: at(0), reset: true},
	}
	for _, c := range cases[:len(cases):len(cases)] {
		c.keep = true
		c.name += ", kept"
		cases = append(cases, c)
	}
	return cases
}

// cutBase is a killed log, all durable, with a file ahead of it; cuts work on clones.
type cutBase struct {
	fsys *memfs.FS
	full []byte
	ends []int64
}

func newCutBase(t *testing.T) cutBase {
	t.Helper()
	full, ends := sample(t, 80)
	fsys := memfs.New()
	made := make(chan struct{})
	ahead := mappedfile.Name((int64(len(full))/fileSize + 1) * fileSize)
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindRename && filepath.Base(op.To) == ahead {
			close(made)
		}
		return memfs.Proceed
	})
	o := options()
	o.Ahead = true
	l, _ := open(t, fsys, o)
	stop := run(t, l)
	load(t, l, false, full)
	flushNow(t, l)
	<-made
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := int64(len(logFiles(t, fsys, root))); n != l.End()/fileSize+2 {
		t.Fatalf("%d files, none ahead", n)
	}
	closeLog(t, l, false)
	return cutBase{fsys, full, ends}
}

// open returns a log whose every byte is durable and Readable.
func (b cutBase) open(t *testing.T) (*memfs.FS, *commitlog.Log) {
	t.Helper()
	fsys := killed(b.fsys)
	l, _ := open(t, fsys, options())
	l.SetReadable(l.End())
	return fsys, l
}

func prepared(t *testing.T) (*memfs.FS, *commitlog.Log, []byte, []int64) {
	t.Helper()
	b := newCutBase(t)
	fsys, l := b.open(t)
	return fsys, l, b.full, b.ends
}

// do carries c out.
func (c cutCase) do(l *commitlog.Log, to int64) error {
	if c.keep {
		from := to
		if c.reset {
			from = l.FirstOffset() + fileSize/2
		}
		if _, err := l.Rollback(from, 7, noLimit); err != nil {
			return err
		}
	}
	if c.reset {
		return l.Reset(to)
	}
	return l.Truncate(to)
}

// TestT5_CutSurvivesACrash crashes before each step of each kind of cut: the end is the old or the new one, never more
// than the new one once the cut was reported done, no cut record comes back behind what is written afterwards, and what
// was to be kept is whole in the log or in the rollback folder.
func TestT5_CutSurvivesACrash(t *testing.T) {
	for _, c := range cutCases() {
		t.Run(c.name, func(t *testing.T) {
			fsys, l, full, ends := prepared(t)
			to := c.to(ends)
			var left []crash
			take := func(op memfs.Op) {
				left = append(left, crash{killed(fsys), "all", op, 0, 0}, crash{cut(fsys), "synced", op, 0, 0},
					crash{fsys.CrashClone(memfs.Torn(uint32(op.Seq))), "torn", op, 0, 0})
			}
			fsys.SetHook(func(op memfs.Op) memfs.Action {
				if op.Kind.Mutates() {
					take(op)
				}
				return memfs.Proceed
			})
			marks := []*watermark.Mark{l.Written(), l.Flushed(), l.Readable()}
			if err := c.do(l, to); err != nil {
				t.Fatal(err)
			}
			fsys.SetHook(nil)
			for i, old := range marks {
				mustIs(t, old.Err(), watermark.ErrTruncated)
				if now := []*watermark.Mark{l.Written(), l.Flushed(), l.Readable()}[i]; now.Load() != to || now.Err() != nil {
					t.Errorf("mark %d stands at %d, want %d", i, now.Load(), to)
				}
			}
			before := len(left)
			take(memfs.Op{})
			for i, cr := range left {
				c.verify(t, cr, full, ends, to, i >= before)
			}
			c.verifyLive(t, l, full, to)
			t.Logf("%d crashes", len(left))
		})
	}
}

// verify opens what a crash in the middle of a cut left.
func (c cutCase) verify(t *testing.T, cr crash, full []byte, ends []int64, to int64, done bool) {
	t.Helper()
	where := fmt.Sprintf("%s before op %d (%s %s)", cr.keep, cr.op.Seq, cr.op.Kind, filepath.Base(cr.op.Name))
	l, r, err := commitlog.Open(cr.fsys, root, options())
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	defer func() { _ = l.Close(false) }()
	if r.End != to && (done || r.End != int64(len(full))) {
		t.Fatalf("%s: end %d, want %d or before the end %d", where, r.End, to, len(full))
	}
	if r.CheckpointReadable > r.End || r.CutBytes != 0 || r.Lost != 0 || len(r.Rot) != 0 {
		t.Fatalf("%s: recovered %+v", where, *r)
	}
	if n := r.End; !c.reset && !bytes.Equal(contents(t, l), full[:n]) {
		t.Fatalf("%s: other bytes", where)
	}
	if c.keep && r.End == to && to != int64(len(full)) {
		c.verifyKept(t, cr.fsys, full, to)
	}
	if r.End != to { // the master tells again what to cut
		if err := c.do(l, to); err != nil {
			t.Fatalf("%s: again: %v", where, err)
		}
	}
	c.verifyLive(t, l, full, to)
	// Whatever is written now is all there is after it.
	a := put(t, l, sized(1000, 210))
	flushNow(t, l)
	l2, r2 := open(t, killed(cr.fsys), options())
	defer func() { _ = l2.Close(false) }()
	if r2.End != a.Next || r2.CutBytes != 0 {
		t.Fatalf("%s: end %d after another crash, want %d", where, r2.End, a.Next)
	}
}

func (c cutCase) verifyLive(t *testing.T, l *commitlog.Log, full []byte, to int64) {
	t.Helper()
	if l.End() != to || l.Readable().Load() > to || l.Flushed().Load() != to {
		t.Fatalf("end %d, readable %d, flushed %d, want %d", l.End(), l.Readable().Load(), l.Flushed().Load(), to)
	}
	if c.reset {
		if l.FirstOffset() != to {
			t.Fatalf("first offset %d, want %d", l.FirstOffset(), to)
		}
		return
	}
	if !bytes.Equal(contents(t, l), full[:to]) {
		t.Fatal("other bytes")
	}
}

func (c cutCase) verifyKept(t *testing.T, fsys vfs.FS, full []byte, to int64) {
	t.Helper()
	from := to
	if c.reset {
		from = fileSize / 2
	}
	all, err := commitlog.ListRollbacks(fsys, root)
	if err != nil || len(all) != 1 {
		t.Fatalf("kept %+v, %v", all, err)
	}
	k := all[0]
	if k.From != from || k.To != int64(len(full)) || k.Epoch != 7 || !k.Whole {
		t.Fatalf("kept %+v, want [%d, %d)", k, from, len(full))
	}
	dir := filepath.Join(root, "rollback", k.Name)
	infos, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	at := from
	for _, info := range infos {
		b := readFile(t, fsys, filepath.Join(dir, info.Name))
		if start, ok := mappedfile.ParseName(info.Name); !ok || start != at {
			t.Fatalf("%s does not follow %d", info.Name, at)
		}
		b = b[:min(int64(len(b)), int64(len(full))-at)]
		if !bytes.Equal(b, full[at:at+int64(len(b))]) {
			t.Fatalf("%s has other bytes", info.Name)
		}
		at += int64(len(b))
	}
	if at != int64(len(full)) {
		t.Fatalf("kept to %d of %d", at, len(full))
	}
}

// TestEachStepOfACutFails: the log says so, takes nothing more unless nothing had changed, and the next start ends it.
func TestEachStepOfACutFails(t *testing.T) {
	base := newCutBase(t)
	for _, c := range cutCases() {
		for _, action := range []memfs.Action{memfs.FailBefore(nil), memfs.FailAfter(nil), memfs.FailBefore(vfs.ErrNoSpace)} {
			steps := c.fail(t, base, 0, action)
			if steps < 5 {
				t.Fatalf("%s: only %d steps", c.name, steps)
			}
			for k := 1; k <= steps; k++ {
				c.fail(t, base, k, action)
			}
		}
	}
}

// fail lets the k-th step of c fail and returns how many there were.
func (c cutCase) fail(t *testing.T, base cutBase, k int, action memfs.Action) int {
	t.Helper()
	fsys, l := base.open(t)
	full, ends := base.full, base.ends
	to := c.to(ends)
	steps := 0
	var failed memfs.Op
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if !op.Kind.Mutates() {
			return memfs.Proceed
		}
		if steps++; steps == k {
			failed = op
			return action
		}
		return memfs.Proceed
	})
	err := c.do(l, to)
	fsys.SetHook(nil)
	where := fmt.Sprintf("%s, step %d (%s %s): %v", c.name, k, failed.Kind, failed.Name, err)
	switch {
	case err == nil:
		// Nothing failed, or the step was spared by another way to the same end.
		c.verifyLive(t, l, full, to)
	case l.Err() == nil:
		if l.End() != int64(len(full)) {
			t.Fatalf("%s: survived with the end %d", where, l.End())
		}
		put(t, l, sized(5, 300))
		flushNow(t, l)
		l2, r := open(t, cut(fsys), options())
		if r.End != l.End() {
			t.Fatalf("%s: end %d after a crash, was %d", where, r.End, l.End())
		}
		_ = l2.Close(false)
	default:
		mustIs(t, err, commitlog.ErrFaulted)
		mustIs(t, l.Written().Err(), commitlog.ErrFaulted)
		_, aerr := appendOne(l, sized(5, 300))
		mustIs(t, aerr, commitlog.ErrFaulted)
		for _, left := range []crash{{killed(fsys), "all", failed, 0, 0}, {cut(fsys), "synced", failed, 0, 0}} {
			c.verify(t, left, full, ends, to, false)
		}
	}
	_ = l.Close(false)
	return steps
}
