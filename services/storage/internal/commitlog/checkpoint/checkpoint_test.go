package checkpoint_test

import (
	"os"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
)

func open(t *testing.T, fsys vfs.FS) *checkpoint.File {
	t.Helper()
	c, err := checkpoint.Open(fsys, "/checkpoint", time.UnixMilli(1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWitness: what Tandem noted does not count once a broker has written its own times.
func TestWitness(t *testing.T) {
	fsys := memfs.New()
	c := open(t, fsys)
	if _, ours := c.Flushed(); ours {
		t.Error("a new file says that something was flushed")
	}
	c.SetFlushed(4711, 900)
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	left := fsys.CrashClone(memfs.OnlySynced)
	if n, ours := open(t, left).Flushed(); n != 4711 || !ours {
		t.Errorf("flushed %d, ours %v", n, ours)
	}
	for _, pos := range []int64{7, 4064, 4079, 4087, 4091} {
		f := left.CrashClone(memfs.All)
		h, err := f.OpenFile("/checkpoint", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt([]byte{0x55}, pos); err != nil {
			t.Fatal(err)
		}
		if _, ours := open(t, f).Flushed(); ours {
			t.Errorf("byte %d changed, still ours", pos)
		}
	}
}

// TestEachWriteFails: the next one makes up for it, and an unchanged file is not written.
func TestEachWriteFails(t *testing.T) {
	for _, fail := range []memfs.Action{memfs.FailBefore(nil), memfs.FailAfter(nil), memfs.FailBefore(vfs.ErrNoSpace)} {
		fsys := memfs.New()
		c := open(t, fsys)
		c.Set(checkpoint.Logics, 77)
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindWrite {
				return fail
			}
			return memfs.Proceed
		})
		if err := c.Write(); err == nil {
			t.Error("written although the disk failed")
		}
		fsys.SetHook(nil)
		if err := c.Write(); err != nil {
			t.Error(err)
		}
		ops := fsys.Ops()
		if err := c.Write(); err != nil || fsys.Ops() != ops {
			t.Errorf("written again, %v", err)
		}
		if n := open(t, fsys.CrashClone(memfs.OnlySynced)).Get(checkpoint.Logics); n != 77 {
			t.Errorf("logics %d", n)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFullDisk: the file is made when there is space.
func TestFullDisk(t *testing.T) {
	fsys := memfs.New()
	fsys.SetQuota(1)
	c := open(t, fsys)
	c.Set(checkpoint.Index, 5)
	if err := c.Write(); err == nil {
		t.Error("written to a full disk")
	}
	fsys.SetQuota(0)
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	if n := open(t, fsys.CrashClone(memfs.OnlySynced)).Get(checkpoint.Index); n != 5 {
		t.Errorf("index %d", n)
	}
}
