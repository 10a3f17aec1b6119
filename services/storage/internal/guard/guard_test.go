package guard_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/guard"
)

func fail(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hold makes a folder with a log and a Guard of it.
func hold(t *testing.T) (*guard.Guard, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "store")
	g := guard.New(vfs.OS(), root)
	fail(t, durable.MkdirAll(g, filepath.Join(root, "commitlog")))
	l, err := durable.Lock(g, filepath.Join(root, "lock"))
	fail(t, err)
	t.Cleanup(func() { _ = l.Close() })
	fail(t, g.Hold())
	fail(t, durable.WriteFile(g, filepath.Join(root, "x"), []byte("1")))
	fail(t, g.MkdirAll(filepath.Join(root, "commitlog"), 0o755)) // a look
	return g, root
}

func TestWhatEndsIt(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, root string){
		"folder removed": func(t *testing.T, root string) { fail(t, os.RemoveAll(root)) },
		"folder emptied": func(t *testing.T, root string) {
			fail(t, errors.Join(os.Remove(filepath.Join(root, "lock")), os.RemoveAll(filepath.Join(root, "commitlog"))))
		},
		"log removed": func(t *testing.T, root string) { fail(t, os.RemoveAll(filepath.Join(root, "commitlog"))) },
		"another in its place": func(t *testing.T, root string) {
			fail(t, os.Rename(root, root+".old"))
			fail(t, os.MkdirAll(filepath.Join(root, "commitlog"), 0o755))
			fail(t, os.WriteFile(filepath.Join(root, "lock"), []byte("lock"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, root := hold(t)
			take(t, root)
			err := g.Run(t.Context())
			if !errors.Is(err, guard.ErrFolderGone) || errdefs.As(err).Meta["folder"] != root {
				t.Fatalf("ended with %v", err)
			}
			// Nothing is written any more, whatever is there now.
			fail(t, os.MkdirAll(root, 0o755))
			for what, err := range map[string]error{
				"write":  durable.WriteFile(g, filepath.Join(root, "x"), []byte("2")),
				"make":   durable.MkdirAll(g, filepath.Join(root, "commitlog", "y")),
				"rename": g.Rename(filepath.Join(root, "lock"), filepath.Join(root, "z")),
				"remove": g.Remove(filepath.Join(root, "lock")),
				"clear":  g.RemoveAll(root),
				"sync":   g.SyncDir(root),
			} {
				if !errors.Is(err, guard.ErrFolderGone) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := os.Stat(filepath.Join(root, "x")); err == nil && name != "log removed" && name != "folder emptied" {
				t.Error("wrote into another folder")
			}
		})
	}
}

// A write that misses the folder says so, before the next look.
func TestAWriteThatMissesTheFolder(t *testing.T) {
	t.Parallel()
	g, root := hold(t)
	fail(t, os.RemoveAll(root))
	err := durable.WriteFile(g, filepath.Join(root, "x"), []byte("2"))
	if !errors.Is(err, guard.ErrFolderGone) || !strings.Contains(err.Error(), root) {
		t.Errorf("got %v", err)
	}
}

func TestWhatDoesNotEndIt(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "store")
	g := guard.New(vfs.OS(), root)
	if err := g.Remove(filepath.Join(root, "x")); errors.Is(err, guard.ErrFolderGone) {
		t.Error("gone before it was there")
	}
	fail(t, durable.MkdirAll(g, root))
	fail(t, os.WriteFile(filepath.Join(root, "lock"), nil, 0o600))
	fail(t, g.Hold())
	if _, err := g.OpenFile(filepath.Join(root, "none", "x"), os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder of its own making: %v", err)
	}
	fail(t, g.MkdirAll(filepath.Join(root, "commitlog"), 0o755)) // with the first file
	fail(t, g.SyncDir(filepath.Join(root, "commitlog")))
}
