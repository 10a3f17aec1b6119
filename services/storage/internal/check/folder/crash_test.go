package folder_test

import (
	"os"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// told returns the findings about a file, or of bad records.
func told(found []check.Finding, file string) (about []check.Finding) {
	for _, f := range found {
		if f.File == file && (file != "" || f.Kind == check.BadRecord) {
			about = append(about, f)
		}
	}
	return about
}

// What a crash leaves and the next start puts right is a note. The same after a clean stop is damage.
func TestWhatACrashLeaves(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		spoil      func(t *testing.T, fsys *memfs.FS, end int64)
	}{
		{"a hole where nothing was durable yet", "", func(t *testing.T, fsys *memfs.FS, _ int64) {
			f, err := fsys.OpenFile("/s/commitlog/00000000000000016384", os.O_RDWR, 0)
			must(t, err)
			_, err = f.WriteAt(make([]byte, 1000), 2000)
			must(t, err)
			must(t, f.Close())
		}},
		{"slaves had more than the disk", "checkpoint", func(t *testing.T, fsys *memfs.FS, end int64) {
			c, err := checkpoint.Load(fsys, "/s/checkpoint")
			must(t, err)
			c.Set(checkpoint.Confirm, end+5000)
			must(t, c.Write())
		}},
	} {
		for _, clean := range []bool{false, true} {
			fsys, l := slave(t, all)
			end := l.End()
			left := fsys.CrashClone(memfs.All)
			if clean {
				must(t, l.Close(true))
				left = fsys
			}
			tc.spoil(t, left, end)
			r, found := inspect(t, left, "/s")
			if about := told(found, tc.file); len(about) != 1 || about[0].Note == clean || r.Damages > 0 != clean {
				t.Errorf("%s, clean stop %t: %+v", tc.name, clean, found)
			}
		}
	}
}

// The process ended between a cut and the lineage that knows of it: what is missing was kept. Without that it is damage.
func TestACutThatTheLineageDoesNotKnow(t *testing.T) {
	for _, keep := range []bool{true, false} {
		fsys, l := slave(t, all)
		end := l.End()
		lin := epoch.NewLineage(epoch.Boot{Role: epoch.RoleSlave, End: end})
		lin.Held = end
		data, err := lin.MarshalText()
		must(t, err)
		must(t, durable.MkdirAll(fsys, "/s/tandem"))
		must(t, durable.WriteChecked(fsys, "/s/tandem/lineage", data))
		if keep {
			_, err := l.Rollback(8<<10, 7, 1<<30)
			must(t, err)
		}
		must(t, l.Truncate(8<<10))
		r, found := inspect(t, fsys.CrashClone(memfs.All), "/s")
		if about := told(found, "tandem/lineage"); len(about) != 1 || about[0].Note != keep || r.Damages > 0 == keep {
			t.Errorf("kept %t: %+v", keep, found)
		}
	}
}

// A crash may leave queue files that are still empty, and no others.
func TestEmptyQueueFiles(t *testing.T) {
	fsys, l := slave(t, all)
	must(t, durable.MkdirAll(fsys, "/s/consumequeue/Topic/0"))
	f, err := fsys.OpenFile("/s/consumequeue/Topic/0/00000000000000000000", os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	must(t, f.Close())
	left := fsys.CrashClone(memfs.All)
	if r, found := inspect(t, left, "/s"); r.Damages > 0 || r.Queues != 1 {
		t.Errorf("%+v: %+v", r, found)
	}
	must(t, l.Close(false))
	l, _, err = commitlog.Open(left, "/s", commitlog.Options{})
	must(t, err)
	must(t, l.Close(true))
	if r, _ := inspect(t, left, "/s"); r.Damages == 0 {
		t.Errorf("an empty queue file after a clean stop is sound: %+v", r)
	}
}
