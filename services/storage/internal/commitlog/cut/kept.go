package cut

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

const (
	// Dir is the folder of kept ranges below that of the store.
	Dir       = "rollback"
	copyPiece = 1 << 20
)

// Kept is a range of a log that was cut, kept in rollback/<Name>: files named by the offset of their first byte.
type Kept struct {
	Name  string
	From  int64
	To    int64
	Epoch int64 // of the master that had the range cut
	Bytes int64 // on disk
	// Whole: all bytes of the range are there. A crash between Keep and the cut leaves a part, and the log whole.
	Whole bool
}

// NewKept names the range [from, to).
func NewKept(from, to, epoch int64) Kept {
	return Kept{Name: fmt.Sprintf("%d-%d-%d", from, to, epoch), From: from, To: to, Epoch: epoch, Bytes: to - from, Whole: true}
}

// ErrFull says that what a cut would take away does not fit into the space for it. Nothing was cut.
var ErrFull = errdefs.New(errdefs.ResourceExhausted, "ROLLBACK_FULL", "the bytes to be cut do not fit into the rollback folder").
	WithRemedy("look at the kept ranges and remove old ones, or raise ha.rollbackKeep")

// Room returns ErrFull when k and all other kept ranges together take more than limit bytes.
func Room(fsys vfs.FS, root string, k Kept, limit int64) error {
	all, err := List(fsys, root)
	if err != nil {
		return err
	}
	have := int64(0)
	for _, old := range all {
		if old.Name != k.Name {
			have += old.Bytes
		}
	}
	if have+k.Bytes > limit {
		return ErrFull.With("need", k.Bytes).With("kept", have).With("limit", limit)
	}
	return nil
}

// Keep copies, durably, what Apply cannot move into the range's folder: the part of a file whose beginning stays.
func Keep(fsys vfs.FS, root string, q *mappedfile.Queue, k Kept) error {
	dir := filepath.Join(root, Dir, k.Name)
	if err := copyPart(fsys, dir, q, k); err != nil {
		return fmt.Errorf("keep [%d, %d): %w", k.From, k.To, errors.Join(err, fsys.RemoveAll(dir)))
	}
	return nil
}

func copyPart(fsys vfs.FS, dir string, q *mappedfile.Queue, k Kept) error {
	if err := durable.MkdirAll(fsys, dir); err != nil {
		return err
	}
	f := q.Find(k.From)
	if f == nil || f.Start() == k.From {
		return nil
	}
	out, err := fsys.OpenFile(filepath.Join(dir, mappedfile.Name(k.From)), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = copyRange(out, f, k.From-f.Start(), min(k.To, f.End())-f.Start())
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

func copyRange(out vfs.File, f *mappedfile.File, from, to int64) error {
	buf := make([]byte, min(copyPiece, to-from))
	for pos := from; pos < to; {
		part := buf[:min(int64(len(buf)), to-pos)]
		n, err := f.ReadAt(part, pos)
		if n < len(part) {
			return err
		}
		if _, err := out.WriteAt(part, pos-from); err != nil {
			return err
		}
		pos += int64(n)
	}
	return nil
}

// moveAway renames the files that go whole into the rollback folder, the last one first, and then, when no crash can
// bring it back to the log, cuts the last to what was in use.
func moveAway(fsys vfs.FS, dir string, q *mappedfile.Queue, c Cut) error {
	if err := q.RemoveFrom(c.End, nil); err != nil { // made ahead: nothing in them
		return err
	}
	err := q.RemoveFrom(c.KeepFrom, func(_ *mappedfile.File, path string) error {
		if err := fsys.Rename(path, filepath.Join(dir, filepath.Base(path))); err != nil {
			return err
		}
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
		// A crash may have left both names to one file; a rename between them does nothing.
		if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	last := c.End - 1
	last -= last % q.FileSize()
	if last < c.KeepFrom {
		return nil // a part, copied to the byte
	}
	if err := shorten(fsys, filepath.Join(dir, mappedfile.Name(last)), c.End-last); err != nil {
		return fmt.Errorf("cut kept file: %w", err)
	}
	return nil
}

func shorten(fsys vfs.FS, name string, size int64) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// List lists what was kept in the folder of a storage, by name.
func List(fsys vfs.FS, root string) ([]Kept, error) {
	infos, err := fsys.ReadDir(filepath.Join(root, Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list rollbacks: %w", err)
	}
	var all []Kept
	for _, info := range infos {
		k, ok := parseKept(info.Name)
		if !ok || !info.Dir {
			continue
		}
		if err := k.measure(fsys, root); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

func parseKept(name string) (Kept, bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 3 {
		return Kept{}, false
	}
	var n [3]int64
	for i, p := range parts {
		v, err := strconv.ParseInt(p, 10, 64)
		if err != nil {
			return Kept{}, false
		}
		n[i] = v
	}
	return Kept{Name: name, From: n[0], To: n[1], Epoch: n[2]}, n[0] < n[1]
}

// measure counts the bytes on disk and finds out whether the files join to the range.
func (k *Kept) measure(fsys vfs.FS, root string) error {
	infos, err := fsys.ReadDir(filepath.Join(root, Dir, k.Name))
	if err != nil {
		return fmt.Errorf("list rollback: %w", err)
	}
	at := k.From
	for _, info := range infos {
		k.Bytes += info.Size
		if start, ok := mappedfile.ParseName(info.Name); ok && start <= at {
			at = max(at, start+info.Size)
		}
	}
	k.Whole = at >= k.To
	return nil
}
