package guard

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// every is the pause between two looks.
const every = 2 * time.Second

// ErrFolderGone says that the folder is not the one that was opened. Metadata: folder, missing.
var ErrFolderGone = errdefs.New(errdefs.DataLoss, "FOLDER_GONE", "the folder of this storage was removed or replaced while it ran").
	WithRemedy("find out by whom; bring the folder back and start again. Where it is lost: start this node as a slave in an empty folder, " +
		"and if it was the master, promote another node first")

// Guard is a file system with one folder in it that has to stay.
type Guard struct {
	vfs.FS
	root string
	lock atomic.Uint64 // id of the lock file
	held atomic.Bool
	log  atomic.Bool // the folder of the log was there: it comes with its first file
	gone atomic.Pointer[errdefs.Error]
}

// New makes a Guard of the folder root, which need not exist yet.
func New(fsys vfs.FS, root string) *Guard { return &Guard{FS: fsys, root: root} }

func (g *Guard) lockFile() string { return filepath.Join(g.root, "lock") }

// Hold begins the watch: the folder is open and its lock file locked.
func (g *Guard) Hold() error {
	info, err := g.Stat(g.lockFile())
	if err != nil {
		return err //nolint:wrapcheck // a PathError
	}
	g.lock.Store(info.ID)
	g.held.Store(true)
	return nil
}

// Run looks until ctx ends, or returns ErrFolderGone.
func (g *Guard) Run(ctx context.Context) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		if err := g.look(); err != nil {
			return err
		}
	}
}

// look returns ErrFolderGone when the folder is gone. A folder that cannot be looked at is not gone: whoever uses it will tell.
func (g *Guard) look() error {
	if e := g.gone.Load(); e != nil {
		return e
	}
	if !g.held.Load() {
		return nil
	}
	logDir := filepath.Join(g.root, "commitlog")
	for _, name := range []string{g.root, g.lockFile(), logDir} {
		info, err := g.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && (name != logDir || g.log.Load()):
		case err == nil && name == g.lockFile() && info.ID != g.lock.Load():
		case err == nil && name == logDir:
			g.log.Store(true)
			continue
		default:
			continue
		}
		g.gone.CompareAndSwap(nil, ErrFolderGone.With("folder", absolute(g.root)).With("missing", filepath.Base(name)))
		return g.gone.Load()
	}
	return nil
}

func absolute(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}

// after looks for the reason of an error that a missing folder may be.
func (g *Guard) after(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if gone := g.look(); gone != nil {
			return gone
		}
	}
	return err
}

// Err is ErrFolderGone once that was noticed.
func (g *Guard) Err() error {
	if e := g.gone.Load(); e != nil {
		return e
	}
	return nil
}

// OpenFile implements vfs.FS.
func (g *Guard) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if err := g.Err(); err != nil {
		return nil, err
	}
	f, err := g.FS.OpenFile(name, flag, perm)
	if flag&os.O_CREATE != 0 {
		err = g.after(err)
	}
	return f, err
}

// MkdirAll implements vfs.FS.
func (g *Guard) MkdirAll(dir string, perm fs.FileMode) error {
	if err := g.look(); err != nil { // it would make the folder anew
		return err
	}
	return g.FS.MkdirAll(dir, perm) //nolint:wrapcheck // a PathError
}

// Rename implements vfs.FS.
func (g *Guard) Rename(oldName, newName string) error {
	if err := g.Err(); err != nil {
		return err
	}
	return g.after(g.FS.Rename(oldName, newName))
}

// Remove implements vfs.FS.
func (g *Guard) Remove(name string) error {
	if err := g.Err(); err != nil {
		return err
	}
	return g.FS.Remove(name) //nolint:wrapcheck // a PathError
}

// RemoveAll implements vfs.FS.
func (g *Guard) RemoveAll(name string) error {
	if err := g.Err(); err != nil {
		return err
	}
	return g.FS.RemoveAll(name) //nolint:wrapcheck // a PathError
}

// SyncDir implements vfs.FS.
func (g *Guard) SyncDir(dir string) error {
	if err := g.Err(); err != nil {
		return err
	}
	return g.after(g.FS.SyncDir(dir))
}

// Lock implements vfs.FS.
func (g *Guard) Lock(name string) (io.Closer, error) {
	if err := g.Err(); err != nil {
		return nil, err
	}
	return g.FS.Lock(name) //nolint:wrapcheck // says what it did
}
