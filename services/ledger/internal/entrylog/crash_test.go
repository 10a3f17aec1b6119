package entrylog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
)

// state is what a log must hold.
type state struct {
	base raft.Mark
	all  []raft.Entry
	sure int // of them that are durable
	hard raft.HardState
}

// step is one call, and what it makes of the state.
type step struct {
	name string
	do   func(*entrylog.Log) error
	then func(state) state
}

func appendStep(first raft.Index, n int, term raft.Term) step {
	batch := made(first, n, term)
	if n == 0 {
		batch = noOp(first, term)
	}
	return step{
		fmt.Sprintf("append %d", first),
		func(l *entrylog.Log) error { return l.Append(batch) },
		func(s state) state { s.all = append(slices.Clip(s.all), batch...); return s },
	}
}

func syncStep() step {
	return step{"sync", (*entrylog.Log).Sync, func(s state) state { s.sure = len(s.all); return s }}
}

func hardStep(h raft.HardState) step {
	return step{"hard", func(l *entrylog.Log) error { return l.SaveHard(h) }, func(s state) state { s.hard = h; return s }}
}

func checkpointStep(i raft.Index) step {
	return step{"checkpoint", func(l *entrylog.Log) error { return l.Checkpoint(i) }, func(s state) state { return s }}
}

func cutStep(last raft.Index, term raft.Term) step {
	return step{
		fmt.Sprintf("cut %d", last),
		func(l *entrylog.Log) error { return l.Cut(cutTo(last, term)) },
		func(s state) state {
			s.all = s.all[:last-s.base.Index]
			s.sure = min(s.sure, len(s.all))
			return s
		},
	}
}

func resetStep(base raft.Mark) step {
	return step{
		"reset",
		func(l *entrylog.Log) error {
			return l.Cut(consensus.Cut{Last: base.Index, Term: base.Term, Reset: true})
		},
		func(s state) state { s.base, s.all, s.sure = base, nil, 0; return s },
	}
}

func purgeStep(base raft.Mark) step {
	return step{
		"purge",
		func(l *entrylog.Log) error { return l.Purge(base) },
		func(s state) state {
			n := int(base.Index - s.base.Index)
			s.base, s.all, s.sure = base, s.all[n:], s.sure-n
			return s
		},
	}
}

// life is a log's life with all that changes files.
func life() []step {
	return []step{
		hardStep(raft.HardState{Term: 1, Vote: "n1", Voter: true}),
		appendStep(0, 0, 1), syncStep(), appendStep(1, 20, 1), appendStep(21, 9, 1), syncStep(), checkpointStep(20),
		appendStep(30, 40, 1), syncStep(), appendStep(70, 30, 1),
		hardStep(raft.HardState{Term: 4, Voter: true}),
		cutStep(89, 1), appendStep(90, 0, 4), appendStep(91, 5, 4), syncStep(), // within a file
		cutStep(40, 1), hardStep(raft.HardState{Term: 5, Voter: true}), appendStep(41, 30, 5), syncStep(), checkpointStep(50), // files back
		appendStep(71, 100, 5), syncStep(), purgeStep(raft.Mark{Index: 45, Term: 5}), appendStep(171, 1, 5), cutStep(140, 5),
		hardStep(raft.HardState{Term: 6, Voter: true}),
		appendStep(141, 3, 6), syncStep(), checkpointStep(143),
		resetStep(raft.Mark{Index: 300, Term: 6}), appendStep(301, 50, 6), syncStep(), checkpointStep(310), appendStep(351, 20, 6),
	}
}

// crash is what a crash left, and what was going on.
type crash struct {
	fsys          *memfs.FS
	keep          string
	op            memfs.Op
	step          string
	before, after state
}

// verify opens what a crash left: it is the log before or after the call that was going on, with all that was durable.
func (c crash) verify(t *testing.T) {
	t.Helper()
	where := fmt.Sprintf("%s, %s before op %d (%s %s)", c.step, c.keep, c.op.Seq, c.op.Kind, filepath.Base(c.op.Name))
	l, r, err := entrylog.Open(c.fsys, root, options())
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	checkStart(t, l, r)
	if err := errors.Join(c.allows(l, r, c.before), c.allows(l, r, c.after)); err != nil && c.allows(l, r, c.before) != nil && c.allows(l, r, c.after) != nil {
		t.Fatalf("%s: %d to %d: %v", where, l.First(), l.Last(), err)
	}
	if r.HardState != c.before.hard && r.HardState != c.after.hard {
		t.Fatalf("%s: hard state %+v, was %+v, then %+v", where, r.HardState, c.before.hard, c.after.hard)
	}
	all := append(contents(t, l), made(l.Last()+1, 3, 9)...)
	if err := errors.Join(l.SaveHard(raft.HardState{Term: 9, Voter: true}), l.Append(all[len(all)-3:]), l.Sync()); err != nil {
		t.Fatalf("%s: go on: %v", where, err)
	}
	l2, r2, err := entrylog.Open(powerCut(c.fsys), root, options())
	if err != nil {
		t.Fatalf("%s: second crash: %v", where, err)
	}
	if err := same(contents(t, l2), all); err != nil || r2.CutBytes {
		t.Fatalf("%s: after a second crash: %v, %+v", where, err, r2)
	}
	closeLog(t, l2)
	closeLog(t, l)
}

// allows says why the log is not what s may have become.
func (c crash) allows(l *entrylog.Log, r *entrylog.Recovery, s state) error {
	n := int(l.Last() - s.base.Index)
	least := s.sure
	if c.keep == "killed" {
		least = len(c.before.all)
		if c.before.base == c.after.base {
			least = min(least, len(s.all))
		} else {
			least = s.sure
		}
	}
	switch {
	case r.Base != s.base:
		return fmt.Errorf("base %v, want %v", r.Base, s.base)
	case n < least || n > len(s.all):
		return fmt.Errorf("%d entries, want %d to %d", n, least, len(s.all))
	}
	got := contentsOf(l)
	if len(got) != n {
		return fmt.Errorf("%d entries can be read of %d", len(got), n)
	}
	return same(got, s.all[:n])
}

func contentsOf(l *entrylog.Log) []raft.Entry { return contents(panics{}, l) }

// live runs the steps and crashes before each operation and at the end.
func live(t *testing.T, steps []step) []crash {
	t.Helper()
	fsys := memfs.New()
	var all []crash
	s := state{base: raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}}
	now, next := "open", s
	take := func(op memfs.Op) {
		all = append(all, crash{killed(fsys), "killed", op, now, s, next}, crash{powerCut(fsys), "cut", op, now, s, next})
		for i := range uint32(3) {
			all = append(all, crash{fsys.CrashClone(memfs.Torn(i + uint32(op.Seq)*3)), "torn", op, now, s, next})
		}
	}
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() {
			take(op)
		}
		return memfs.Proceed
	})
	l, _ := open(t, fsys, options())
	for _, step := range steps {
		now, next = step.name, step.then(s)
		if err := step.do(l); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		s = next
		if err := same(contents(t, l), s.all); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	now, next.sure = "close", len(next.all)
	closeLog(t, l)
	s = next
	take(memfs.Op{})
	fsys.SetHook(nil)
	return all
}

// TestCrashAtEveryStep crashes a log before each of its operations, in five ways, and opens what is left.
func TestCrashAtEveryStep(t *testing.T) {
	all := live(t, life())
	for _, c := range all {
		c.verify(t)
	}
	t.Logf("%d crashes", len(all))
}

// TestCrashWhileRecovering crashes Open itself, where it finishes a cut or clears torn entries.
func TestCrashWhileRecovering(t *testing.T) {
	steps := []step{
		hardStep(raft.HardState{Term: 1, Vote: "n1", Voter: true}), appendStep(0, 60, 1), syncStep(), appendStep(60, 20, 1),
		cutStep(30, 1), appendStep(31, 40, 1),
	}
	n := 0
	for i, c := range live(t, steps) {
		if i%11 != 0 { // neighbours differ little
			continue
		}
		fsys := c.fsys
		var again []crash
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind.Mutates() {
				again = append(again, crash{killed(fsys), "torn", op, c.step + ", opened", c.before, c.after},
					crash{fsys.CrashClone(memfs.Torn(uint32(op.Seq))), "torn", op, c.step + ", opened", c.before, c.after})
			}
			return memfs.Proceed
		})
		_, _, err := entrylog.Open(fsys, root, options())
		fsys.SetHook(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range again {
			a.verify(t)
		}
		n += len(again)
	}
	t.Logf("%d crashes", n)
}

// TestEachStepFails lets each operation fail, undone and done: what was reported durable is there after any crash, and
// after a fault nothing more is taken.
func TestEachStepFails(t *testing.T) {
	for _, action := range []memfs.Action{memfs.FailBefore(nil), memfs.FailAfter(nil), memfs.FailBefore(vfs.ErrNoSpace), memfs.FailAfter(vfs.ErrNoSpace)} {
		total := failAt(t, 0, action)
		if total < 100 {
			t.Fatalf("only %d operations", total)
		}
		for k := 1; k <= total; k++ {
			failAt(t, k, action)
		}
	}
}

// failAt fails the k-th operation of a life, tries the failed call once more, and returns how many operations there were.
func failAt(t *testing.T, k int, action memfs.Action) int {
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
	l, _, err := entrylog.Open(fsys, root, options())
	if err != nil {
		return fsys.Ops()
	}
	s := state{base: raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}}
	for _, step := range life() {
		next := step.then(s)
		err := step.do(l)
		if err != nil && l.Err() == nil {
			err = step.do(l)
		}
		if err != nil {
			fault := l.Err()
			wantErr(t, fault, entrylog.ErrFaulted)
			wantErr(t, l.Append(made(l.Last()+1, 1, 9)), entrylog.ErrFaulted)
			for keep, left := range map[string]*memfs.FS{"cut": powerCut(fsys), "torn": killed(fsys)} {
				left.SetHook(nil)
				crash{left, keep, failed, step.name + " failed", s, next}.verify(t)
			}
			_ = l.Close()
			return fsys.Ops()
		}
		s = next
	}
	if err := l.Close(); err == nil {
		s.sure = len(s.all)
	}
	crash{powerCut(fsys), "cut", failed, "end", s, s}.verify(t)
	return fsys.Ops()
}
