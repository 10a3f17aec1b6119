package entrylog_test

import (
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
)

// TestALostVoteStaysLost: a start that takes the vote from a node, as its machine went down with entries that were acknowledged
// from the page cache, is killed at each of its steps. No later start gives the vote back.
func TestALostVoteStaysLost(t *testing.T) {
	o := options()
	o.Async = true
	fsys := memfs.New()
	l, _ := open(t, fsys, o)
	if err := l.SaveHard(raft.HardState{Term: 4, Vote: "n1", Voter: true}); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, made(0, 10, 4))
	down := powerCut(fsys)
	closeLog(t, l)

	o.BootID = "boot-2"
	var left []*memfs.FS
	down.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() {
			left = append(left, killed(down), powerCut(down))
		}
		return memfs.Proceed
	})
	l, r := open(t, down, o)
	if r.Voter || len(left) < 4 {
		t.Fatalf("%+v, crashed %d times", r, len(left))
	}
	closeLog(t, l)
	for i, fsys := range left {
		l, r := open(t, fsys, o)
		if r.Voter || r.Term != 4 {
			t.Errorf("crash %d: the node votes again, though its log has %d entries of 10: %+v", i, r.Last+1, r.HardState)
		}
		closeLog(t, l)
	}
}

// TestAPromiseThatAFailedSyncLeft: a vote whose folder could not be synced was promised to nobody. The next process finds it, and may
// say it again: then it is on the disk.
func TestAPromiseThatAFailedSyncLeft(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	if err := l.SaveHard(raft.HardState{Term: 4, Voter: true}); err != nil {
		t.Fatal(err)
	}
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindSyncDir {
			return memfs.FailBefore(nil)
		}
		return memfs.Proceed
	})
	wantErr(t, l.SaveHard(raft.HardState{Term: 5, Vote: "n1", Voter: true}), entrylog.ErrFaulted)
	fsys.SetHook(nil)
	closeLog(t, l)
	l, found := open(t, fsys, options())
	l2, after := open(t, powerCut(fsys), options())
	if after.HardState != found.HardState {
		t.Errorf("the node may have said %+v, after a loss of power it knows of %+v", found.HardState, after.HardState)
	}
	closeLog(t, l2)
	closeLog(t, l)
}

// TestAsyncLosesItsVoteWithTheDisk: a failed sync may have taken with it what was acknowledged before it was durable.
func TestAsyncLosesItsVoteWithTheDisk(t *testing.T) {
	for _, async := range []bool{false, true} {
		o := options()
		o.Async = async
		fsys := memfs.New()
		l, _ := open(t, fsys, o)
		if err := l.SaveHard(raft.HardState{Term: 4, Voter: true}); err != nil {
			t.Fatal(err)
		}
		appendTo(t, l, made(0, 10, 4))
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindSync {
				fsys.SetHook(nil)
				return memfs.FailBefore(nil)
			}
			return memfs.Proceed
		})
		wantErr(t, l.Sync(), entrylog.ErrFaulted)
		closeLog(t, l)
		l, r := open(t, fsys, o)
		if r.Voter == async || r.Term != 4 || r.Clean {
			t.Errorf("async %v: %+v", async, r)
		}
		closeLog(t, l)
	}
}

// TestWhatAFailedSyncLeft: after a failed sync the kernel calls pages clean that are not on the disk, so that a sync of the next
// process says nothing of them. What that process finds, and answers for, is durable all the same.
func TestWhatAFailedSyncLeft(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	appendTo(t, l, made(0, 10, 1))
	sync(t, l)
	appendTo(t, l, made(10, 20, 1))
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindSync {
			return memfs.FailBefore(nil)
		}
		return memfs.Proceed
	})
	wantErr(t, l.Sync(), entrylog.ErrFaulted)
	fsys.SetHook(nil)
	closeLog(t, l)

	l, r := open(t, fsys, options())
	promised := r.Last
	if err := l.Checkpoint(promised); err != nil {
		t.Fatal(err)
	}
	l2, r := open(t, powerCut(fsys), options())
	if r.Last != promised {
		t.Errorf("the start found entries up to %d, after a loss of power they end at %d", promised, r.Last)
	}
	checkStart(t, l2, r)
	closeLog(t, l2)
	closeLog(t, l)
}
