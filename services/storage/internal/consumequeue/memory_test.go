package consumequeue

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// gather takes units [from, to) of 100 bytes each into queue 0 of topic T, and commits.
func gather(t *testing.T, s *Set, from, to int64) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := s.Gather([]byte("T"), 0, i, 100*i, 100, 0)
		check(t, err)
	}
	check(t, s.Commit(100*to, 0))
}

// whole checks that readers see n units.
func whole(t *testing.T, q *Queue, n int64) {
	t.Helper()
	units := all(t, q)
	if int64(len(units)) != n {
		t.Errorf("%d units, want %d", len(units), n)
	}
	for i, u := range units {
		if u != (Unit{Offset: 100 * int64(i), Size: 100, TagsCode: 0}) {
			t.Errorf("unit %d is %v", i, u)
		}
	}
}

// TestACommitWritesWholeChunks: a burst costs no write, readers see it at once, and what a summary says is in the files.
func TestACommitWritesWholeChunks(t *testing.T) {
	const chunk = chunkSize / UnitSize
	fsys := newFS(t)
	s := open(t, fsys, Options{})
	writes := 0
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindWrite {
			writes++
		}
		return memfs.Proceed
	})
	for i := range int64(2*chunk + chunk/2) {
		gather(t, s, i, i+1)
		whole(t, s.Lookup("T", 0), i+1)
	}
	if writes != 2 {
		t.Errorf("%d writes for two and a half chunks", writes)
	}
	clone := fsys.CrashClone(memfs.All)
	q := open(t, clone, Options{})
	if from, err := q.Resume(0, 1<<20); err != nil || from != 0 || q.Lookup("T", 0) != nil {
		t.Errorf("without a summary: read from %d, %v", from, err)
	}
	check(t, q.Close())
	check(t, s.Flush())
	clone = fsys.CrashClone(memfs.OnlySynced)
	gather(t, s, 2*chunk+chunk/2, 3*chunk)
	check(t, s.Truncate(100*(2*chunk+chunk/2+3)))
	whole(t, s.Lookup("T", 0), 2*chunk+chunk/2+3)
	check(t, s.Close())
	s = open(t, clone, Options{})
	whole(t, s.Lookup("T", 0), 2*chunk+chunk/2)
	check(t, s.Close())
}

// TestAFlushOnAFullDiskKeepsUnits: what could not be written stays visible, and is written once there is space.
func TestAFlushOnAFullDiskKeepsUnits(t *testing.T) {
	fsys := newFS(t)
	s := open(t, fsys, Options{FileSize: 100})
	gather(t, s, 0, 12)
	writes := 0
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind != memfs.KindWrite {
			return memfs.Proceed
		}
		if writes++; writes == 1 {
			return memfs.Proceed // the first file takes its part
		}
		return memfs.FailBefore(vfs.ErrNoSpace)
	})
	for range 2 {
		if err := s.Flush(); !errors.Is(err, vfs.ErrNoSpace) {
			t.Errorf("flush on a full disk: %v", err)
		}
		whole(t, s.Lookup("T", 0), 12)
	}
	gather(t, s, 12, 14)
	fsys.SetHook(nil)
	check(t, s.Flush())
	clone := fsys.CrashClone(memfs.OnlySynced)
	check(t, s.Close())
	s = open(t, clone, Options{})
	whole(t, s.Lookup("T", 0), 14)
	check(t, s.Close())
}

// TestTheMemoryForUnitsIsBounded: more queues than may wait in memory go to disk with the commit, or the commit fails.
func TestTheMemoryForUnitsIsBounded(t *testing.T) {
	fsys := newFS(t)
	s := open(t, fsys, Options{FileSize: UnitSize})
	for i := range maxHeld {
		_, err := s.Gather([]byte(fmt.Sprint("T", i)), 0, 0, 0, 100, 0)
		check(t, err)
	}
	check(t, s.Commit(100, 0))
	_, err := s.Gather([]byte("U"), 0, 0, 100, 100, 0)
	check(t, err)
	fsys.SetHook(failing(memfs.KindWrite))
	if err := s.Commit(200, 0); !errors.Is(err, vfs.ErrNoSpace) || s.Lookup("U", 0).Max() != 0 || s.Dispatched() != 100 {
		t.Errorf("one queue too many on a full disk: %v", err)
	}
	fsys.SetHook(nil)
	_, err = s.Gather([]byte("U"), 0, 0, 100, 100, 0)
	check(t, err)
	check(t, s.Commit(200, 0))
	if len(s.held) != 0 {
		t.Errorf("%d queues wait in memory", len(s.held))
	}
	if u := all(t, s.Lookup("T7", 0)); len(u) != 1 || u[0].Size != 100 {
		t.Errorf("units %v", u)
	}
	check(t, s.Close())
}
