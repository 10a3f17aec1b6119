package cut

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// Kept is a range of a log that was cut, kept in rollback/<Name>: files named by the offset of their first byte. Two ranges of
// the same bounds and epoch have two names.
type Kept struct {
	Name  string
	From  int64
	To    int64
	Epoch int64 // of the master that had the range cut
	Bytes int64 // on disk
	// Whole: all bytes of the range are there. A crash between Keep and the cut leaves a part, and the log whole.
	Whole bool

	again bool  // its folder is there, with the beginning of the copy
	have  int64 // bytes of that
}

// NewKept gives the range [from, to) of q a name that nothing was kept under: an old copy of a disk can bring a range back that
// was cut once. What a cut that did not come about has left is no range of its own: the copy goes on there.
func NewKept(fsys vfs.FS, root string, q *mappedfile.Queue, from, to, epoch int64) (Kept, error) {
	k := Kept{From: from, To: to, Epoch: epoch, Bytes: to - from, Whole: true}
	base := fmt.Sprintf("%d-%d-%d", from, to, epoch)
	for try := 1; from < to; try++ {
		if k.Name = base; try > 1 {
			k.Name = fmt.Sprintf("%s-%d", base, try)
		}
		info, err := fsys.Stat(k.dir(root))
		if errors.Is(err, fs.ErrNotExist) {
			return k, nil
		}
		if err == nil && info.Dir {
			k.again, err = k.begun(fsys, root, q)
		}
		if err != nil {
			return Kept{}, fmt.Errorf("name kept range: %w", err)
		}
		if k.again {
			return k, nil
		}
	}
	return k, nil // there is nothing to keep
}

func (k *Kept) dir(root string) string { return filepath.Join(root, Dir, k.Name) }

// part returns the file of q whose beginning stays, and the range of it that must be copied; nil: none.
func (k *Kept) part(q *mappedfile.Queue) (f *mappedfile.File, from, to int64) {
	if f = q.Find(k.From); f == nil || f.Start() == k.From {
		return nil, 0, 0
	}
	return f, k.From - f.Start(), min(k.To, f.End()) - f.Start()
}

// begun reports whether the folder of k holds nothing but the beginning of what Keep copies; k.have is its length then.
func (k *Kept) begun(fsys vfs.FS, root string, q *mappedfile.Queue) (bool, error) {
	infos, err := fsys.ReadDir(k.dir(root))
	if err != nil || len(infos) == 0 {
		return err == nil, err
	}
	f, from, to := k.part(q)
	if f == nil || len(infos) > 1 || infos[0].Name != mappedfile.Name(k.From) || infos[0].Size > to-from {
		return false, nil
	}
	in, err := fsys.OpenFile(filepath.Join(k.dir(root), infos[0].Name), os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	same, err := sameBytes(in, f, from, infos[0].Size)
	if same {
		k.have = infos[0].Size
	}
	return same, errors.Join(err, in.Close())
}

// sameBytes reports whether the first n bytes of in are those of f at from.
func sameBytes(in io.ReaderAt, f *mappedfile.File, from, n int64) (bool, error) {
	a, b := make([]byte, min(copyPiece, n)), make([]byte, min(copyPiece, n))
	for pos := int64(0); pos < n; {
		m := min(int64(len(a)), n-pos)
		if got, err := in.ReadAt(a[:m], pos); int64(got) < m {
			return false, err
		}
		if got, err := f.ReadAt(b[:m], from+pos); int64(got) < m {
			return false, err
		}
		if !bytes.Equal(a[:m], b[:m]) {
			return false, nil
		}
		pos += m
	}
	return true, nil
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

// Keep copies, durably, what Apply cannot move into the range's folder: the part of a file whose beginning stays. When it fails
// it removes the folder that it made.
func Keep(fsys vfs.FS, root string, q *mappedfile.Queue, k Kept) error {
	err := k.copyPart(fsys, root, q)
	if err == nil {
		return nil
	}
	if !k.again {
		err = errors.Join(err, fsys.RemoveAll(k.dir(root)))
	}
	return fmt.Errorf("keep [%d, %d): %w", k.From, k.To, err)
}

func (k *Kept) copyPart(fsys vfs.FS, root string, q *mappedfile.Queue) error {
	dir := k.dir(root)
	if err := durable.MkdirAll(fsys, dir); err != nil {
		return err
	}
	f, from, to := k.part(q)
	if f == nil {
		return nil
	}
	out, err := fsys.OpenFile(filepath.Join(dir, mappedfile.Name(k.From)), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	err = copyRange(out, k.have, f, from+k.have, to)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// copyRange copies [from, to) of f to out at offset at.
func copyRange(out vfs.File, at int64, f *mappedfile.File, from, to int64) error {
	buf := make([]byte, min(copyPiece, to-from))
	for pos := from; pos < to; {
		part := buf[:min(int64(len(buf)), to-pos)]
		n, err := f.ReadAt(part, pos)
		if n < len(part) {
			return err
		}
		if _, err := out.WriteAt(part, at+pos-from); err != nil {
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
	if len(parts) != 3 && len(parts) != 4 {
		return Kept{}, false
	}
	n := [4]int64{3: 2} // from, to, epoch, and which of that name
	for i, p := range parts {
		v, err := strconv.ParseInt(p, 10, 64)
		if err != nil {
			return Kept{}, false
		}
		n[i] = v
	}
	return Kept{Name: name, From: n[0], To: n[1], Epoch: n[2]}, n[0] < n[1] && n[3] > 1
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
