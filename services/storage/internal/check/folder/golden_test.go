package folder_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/check/folder"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

const delayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// inspect checks a folder and returns what was found.
func inspect(t testing.TB, fsys vfs.FS, root string) (folder.Report, []check.Finding) {
	t.Helper()
	levels, err := message.ParseDelayLevels(delayLevels)
	if err != nil {
		t.Fatal(err)
	}
	var found []check.Finding
	r, err := folder.Check(t.Context(), fsys, root, folder.Options{
		Levels: levels, Now: time.Now(), Emit: func(f check.Finding) error { found = append(found, f); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, found
}

// RocketMQ's own folders are clean, and are left as they are.
func TestRocketMQsFoldersAreClean(t *testing.T) {
	for _, name := range []string{"rocketmq-5.3.3", "rocketmq-4.9.7", "rocketmq-5.3.3-crash"} {
		golden := testkit.Golden(t, name)
		for _, store := range []string{"master", "slave"} {
			root := filepath.Join(golden, store)
			if _, err := os.Stat(root); err != nil {
				continue
			}
			t.Run(name+"/"+store, func(t *testing.T) {
				before := tree(t, root)
				r, found := inspect(t, vfs.OS(), root)
				t.Logf("%+v", r)
				for _, f := range found {
					if !f.Note {
						t.Errorf("damage: %+v", f)
					} else {
						t.Logf("note: %+v", f)
					}
				}
				if r.Records == 0 || r.Queues == 0 || r.Clean && r.Units == 0 {
					t.Error("nothing was checked")
				}
				if after := tree(t, root); len(after) != len(before) {
					t.Errorf("%d files, were %d", len(after), len(before))
				} else {
					for name, b := range before {
						if after[name] != b {
							t.Errorf("%s has changed", name)
						}
					}
				}
			})
		}
	}
}

// tree returns all files with their contents and times.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = info.ModTime().String() + string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
