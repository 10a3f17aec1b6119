package saved

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// name of the file below the folder of a storage.
const name = "tandem/lineage"

// File is the lineage file.
type File struct {
	fsys vfs.FS
	path string

	found, backup bool
	// The last content that is known to be durable, and whether the file still holds it: after a write that failed it may hold
	// either.
	last epoch.Lineage
	data []byte
	sure bool
}

// New makes a File of the storage in the folder root.
func New(fsys vfs.FS, root string) *File {
	return &File{fsys: fsys, path: filepath.Join(root, filepath.FromSlash(name))}
}

// Read returns the lineage on the disk, and makes its folder. found: there is one. backup: it is the older copy, as the newest
// cannot be read.
func (f *File) Read() (l epoch.Lineage, found, backup bool, err error) {
	if err := durable.MkdirAll(f.fsys, filepath.Dir(f.path)); err != nil {
		return l, false, false, fmt.Errorf("make folder of the lineage: %w", err)
	}
	return f.read()
}

func (f *File) read() (l epoch.Lineage, found, backup bool, err error) {
	data, source, err := durable.ReadChecked(f.fsys, f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, false, false, nil
	}
	if err == nil {
		err = l.UnmarshalText(data)
	} else if e := errdefs.As(err); e != nil && errors.Is(err, durable.ErrCorrupt) {
		err = e.WithRemedy("") // the one below is that of a lineage
	}
	if err != nil {
		return l, false, false, epoch.ErrBadLineage.With("file", name).Wrap(err).
			WithRemedy("restore the file, or start this node as a slave in an empty folder")
	}
	f.found, f.backup = true, source == durable.Backup
	f.last, f.data, f.sure = l, data, !f.backup
	return l, true, f.backup, nil
}

// Write makes next durable, and writes nothing where the file says the same. Where the disk is full it is also content with what
// the file says when that makes the next start only more careful.
func (f *File) Write(next epoch.Lineage) error {
	err := f.write(next)
	if errors.Is(err, vfs.ErrNoSpace) && f.found && !f.backup && epoch.Careful(f.last, next) {
		return nil
	}
	return err
}

func (f *File) write(next epoch.Lineage) error {
	data, err := next.MarshalText()
	if err != nil {
		return fmt.Errorf("encode lineage: %w", err)
	}
	if f.sure && bytes.Equal(data, f.data) {
		return nil
	}
	err = durable.WriteChecked(f.fsys, f.path, data)
	if err == nil {
		f.found, f.backup = true, false
		f.last, f.data, f.sure = next.Clone(), data, true
		return nil
	}
	f.sure = false
	return fmt.Errorf("save lineage: %w", err)
}

// Again reports whether the next start, if that is not a clean one, comes to what this one has come to without having saved it:
// err is that of a full disk, and the file is whole.
func (f *File) Again(err error) bool { return errors.Is(err, vfs.ErrNoSpace) && f.found && !f.backup }
