package cut

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// Cut is one truncation or reset of a log; offsets in bytes. FORMAT.md has its file.
type Cut struct {
	To    int64 `json:"to"`    // the new end
	Reset bool  `json:"reset"` // nothing before To stays either: To is a multiple of the file size
	End   int64 `json:"end"`   // the old end
	// Keep is the rollback folder that takes the files from KeepFrom on; empty: they are removed.
	Keep     string `json:"keep,omitempty"`
	KeepFrom int64  `json:"keep_from,omitempty"`
}

func noteFile(root string) string { return filepath.Join(root, "tandem", "cut") }

// Announce writes c down in the folder of a storage. When the error is vfs.ErrNoSpace no note is there; after any other it
// may be, and the next start may carry it out.
func Announce(fsys vfs.FS, root string, c Cut) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode cut: %w", err)
	}
	name := noteFile(root)
	err = durable.MkdirAll(fsys, filepath.Dir(name))
	if err == nil {
		err = durable.WriteChecked(fsys, name, data)
	}
	if errors.Is(err, vfs.ErrNoSpace) {
		if werr := Withdraw(fsys, root); werr != nil {
			return fmt.Errorf("announce cut: %w", werr)
		}
	}
	if err != nil {
		return fmt.Errorf("announce cut: %w", err)
	}
	return nil
}

// Withdraw removes the note, durably.
func Withdraw(fsys vfs.FS, root string) error {
	name := noteFile(root)
	err := fsys.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = fsys.SyncDir(filepath.Dir(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove note of a cut: %w", err)
	}
	return nil
}

// Pending returns the cut that a crash interrupted, nil when there is none.
func Pending(fsys vfs.FS, root string) (*Cut, error) {
	data, _, err := durable.ReadChecked(fsys, noteFile(root))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no cut, no error
	}
	if err != nil {
		return nil, fmt.Errorf("read note of a cut: %w", err)
	}
	var c Cut
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, durable.ErrCorrupt.With("file", "tandem/cut").Wrap(err)
	}
	return &c, nil
}

// Apply carries c out. It may be repeated after a crash at any point of it, and is durable when it returns.
func Apply(fsys vfs.FS, root string, q *mappedfile.Queue, c Cut) error {
	if c.Keep != "" {
		if err := moveAway(fsys, filepath.Join(root, Dir, c.Keep), q, c); err != nil {
			return err
		}
	}
	from := c.To
	if c.Reset {
		from = 0
	}
	err := q.RemoveFrom(from, nil)
	switch {
	case err != nil:
	case !c.Reset:
		err = q.Cut(c.To)
	case c.To > 0:
		// An empty file says where the log begins.
		if _, err = q.Create(c.To, nil); errors.Is(err, vfs.ErrNoSpace) {
			_, err = q.CreateSparse(c.To)
		}
	}
	if err != nil {
		return fmt.Errorf("cut log at %d: %w", c.To, err)
	}
	return nil
}
