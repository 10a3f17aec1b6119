package role_test

import (
	"errors"
	"os"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

const lineageName = "root/tandem/lineage"

func newFS() *memfs.FS { return memfs.New() }

func lineageOf(t *testing.T, fs *memfs.FS) (l epoch.Lineage) {
	t.Helper()
	data, _, err := durable.ReadChecked(fs, lineageName)
	if err == nil {
		err = l.UnmarshalText(data)
	}
	if err != nil {
		t.Error(err)
	}
	return l
}

// breakDisk has every change fail from now on.
func breakDisk(n *node) {
	n.fs.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() {
			return memfs.FailBefore(errors.New("disk on fire"))
		}
		return memfs.Action{}
	})
}

// damage spoils the lineage; its backup stays.
func damage(t *testing.T, fs *memfs.FS) {
	t.Helper()
	f, err := fs.OpenFile(lineageName, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 30); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func writeLineage(fs *memfs.FS, l epoch.Lineage) error {
	data, err := l.MarshalText()
	if err != nil {
		return err
	}
	return durable.WriteChecked(fs, lineageName, data)
}
