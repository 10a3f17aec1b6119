package commitlog_test

import (
	"bytes"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
)

// quota has room for two or three files of the log and the small files.
const quota = 5*fileSize - 1

// untilFull appends until the disk is full and checks that the failing call has changed nothing.
func untilFull(t *testing.T, l *commitlog.Log, write func(i int) error) {
	t.Helper()
	for i := range 1000 {
		end, before := l.End(), contents(t, l)
		err := write(i)
		if err == nil {
			continue
		}
		mustIs(t, err, vfs.ErrNoSpace)
		if l.Err() != nil || l.End() < end {
			t.Fatalf("end %d, was %d, fault %v", l.End(), end, l.Err())
		}
		if got := contents(t, l); !bytes.Equal(got[:len(before)], before) {
			t.Fatal("the failed call has changed the log")
		}
		return
	}
	t.Fatal("never full")
}

// TestT12_DiskFull fills the disk, as a master and as a slave: an error before anything is touched, a start on the full
// disk that serves reads, and writes again as soon as there is space.
func TestT12_DiskFull(t *testing.T) {
	full, _ := sample(t, 80)
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		for name, write := range map[string]func(l *commitlog.Log) func(int) error{
			"master": func(l *commitlog.Log) func(int) error {
				return func(i int) error {
					_, err := appendOne(l, samplePut(i))
					return err
				}
			},
			"slave": func(l *commitlog.Log) func(int) error {
				return func(int) error {
					end := l.End()
					n, err := l.AppendRaw(end, [][]byte{full[end : end+400]})
					if l.End() != end+int64(n) {
						t.Errorf("%d bytes from %d to %d", n, end, l.End())
					}
					return err
				}
			},
		} {
			t.Run(name, func(t *testing.T) {
				fsys := memfs.New()
				fsys.SetQuota(quota)
				l, _ := open(t, fsys, o)
				untilFull(t, l, write(l))
				end := l.End()
				if end < fileSize {
					t.Fatalf("full at %d", end)
				}
				flushNow(t, l)

				// Again after a restart, which may only read.
				left := killed(fsys)
				left.SetQuota(left.Used())
				l2, r := open(t, left, o)
				if r.End > end || len(contents(t, l2)) == 0 {
					t.Errorf("%+v", *r)
				}
				mustIs(t, write(l2)(0), vfs.ErrNoSpace)
				left.SetQuota(0)
				end2 := l2.End()
				must(t, write(l2)(0))
				closeLog(t, l2, true)

				fsys.SetQuota(0)
				for i := range 30 {
					must(t, write(l)(i))
				}
				flushNow(t, l)
				l3, r := open(t, cut(fsys), o)
				if len(r.Rot) != 0 || r.End < l.End()-1000 || end2 > l.End() {
					t.Errorf("recovered %+v, the end was %d", *r, l.End())
				}
				closeLog(t, l3, true)
				closeLog(t, l, true)
			})
		}
	}
}

// TestT12_FullFromTheStart opens a folder in which not even the abort file fits.
func TestT12_FullFromTheStart(t *testing.T) {
	fsys, ends := stopped(t, 100, true)
	fsys.SetQuota(fsys.Used())
	l, r := open(t, fsys, options())
	if r.End != ends[99] || len(contents(t, l)) != int(r.End) {
		t.Errorf("%+v", *r)
	}
	_, err := appendOne(l, record(0, 10))
	mustIs(t, err, vfs.ErrNoSpace)
	if _, err := fsys.Stat(root + "/abort"); err == nil {
		t.Error("there is an abort file")
	}
	fsys.SetQuota(0)
	put(t, l, record(0, 10))
	if _, err := fsys.Stat(root + "/abort"); err != nil {
		t.Error("a log that is written to has no abort file")
	}
	closeLog(t, l, true)
}

// TestT12_TornTailOnAFullDisk: what has to be wiped has its blocks.
func TestT12_TornTailOnAFullDisk(t *testing.T) {
	fsys, ends := stopped(t, 100, false)
	patch(t, fsys, ends[99]-20, make([]byte, 20))
	fsys.SetQuota(fsys.Used())
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindZero {
			return memfs.FailBefore(vfs.ErrNoSpace)
		}
		return memfs.Proceed
	})
	l, r := open(t, fsys, options())
	if r.End != ends[98] || r.CutBytes == 0 {
		t.Errorf("%+v", *r)
	}
	closeLog(t, l, true)
	if !allZero(tailBytes(t, fsys, ends[98])) {
		t.Error("the torn record is still there")
	}
}

// TestSparseFile: a folder from elsewhere may have a last file with holes; it is allocated before the first store.
func TestSparseFile(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	must(t, l.Reset(3*fileSize))
	closeLog(t, l, true)
	name := root + "/commitlog/00000000000000024576"
	must(t, fsys.Remove(name))
	f, err := fsys.OpenFile(name, 0x42, 0o644)
	must(t, err)
	must(t, f.Truncate(fileSize))
	must(t, f.Sync())
	must(t, f.Close())
	must(t, fsys.SyncDir(root+"/commitlog"))
	fsys.SetQuota(fsys.Used() + fileSize/2)
	l, r := open(t, fsys, options())
	if r.End != 3*fileSize {
		t.Errorf("%+v", *r)
	}
	_, err = appendOne(l, record(0, 10))
	mustIs(t, err, vfs.ErrNoSpace)
	fsys.SetQuota(0)
	put(t, l, record(0, 10))
	closeLog(t, l, true)
}

// TestWhatAFailedSyncLeft: the kernel calls pages clean that a failed sync has not brought to the disk, and a sync of the next
// process says nothing of them. What that process calls flushed is on the disk all the same.
func TestWhatAFailedSyncLeft(t *testing.T) {
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		fsys := memfs.New()
		l, _ := open(t, fsys, o)
		put(t, l, sized(0, 300))
		flushNow(t, l)
		ends := fill(t, l, 40)
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindSync {
				return memfs.FailBefore(nil)
			}
			return memfs.Proceed
		})
		_, err := l.FlushNow(t.Context())
		mustIs(t, err, commitlog.ErrFaulted)
		fsys.SetHook(nil)
		closeLog(t, l, true)

		l, r := open(t, fsys, o)
		if r.End != ends[len(ends)-1] || l.Flushed().Load() != r.End {
			t.Fatalf("recovered %+v, flushed %d of %d", *r, l.Flushed().Load(), ends[len(ends)-1])
		}
		l2, after := open(t, cut(fsys), o)
		if after.End != r.End || !bytes.Equal(contents(t, l2), contents(t, l)) {
			t.Errorf("%d bytes were said to be flushed, and are not there after a loss of power: %+v", r.End, *after)
		}
		closeLog(t, l2, false)
		closeLog(t, l, false)
	}
}
