package rollback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// ErrNoRange says that nothing of that name is kept.
var ErrNoRange = errdefs.New(errdefs.NotFound, "NO_SUCH_ROLLBACK", "no range of this name is kept").
	WithRemedy("list the kept ranges for their names")

// Ranges are the kept ranges of one storage. All methods may be called concurrently.
type Ranges struct {
	fs   vfs.FS
	root string
}

// New makes the Ranges below the folder of a storage.
func New(fsys vfs.FS, root string) *Ranges { return &Ranges{fs: fsys, root: root} }

// List lists them by name.
func (r *Ranges) List() ([]commitlog.Kept, error) {
	return commitlog.ListRollbacks(r.fs, r.root) //nolint:wrapcheck // says what it was about
}

// Visitor takes what is in a range, in the order of the log. Bytes and views are valid until it returns.
type Visitor interface {
	Record(offset int64, v *message.View) error
	// Gap is a stretch [from, to) without a whole record.
	Gap(from, to int64, reason string) error
}

// Records walks the records of a range.
func (r *Ranges) Records(ctx context.Context, name string, to Visitor) error {
	return r.each(name, func(start int64, b []byte) error { return records(ctx, start, b, to) })
}

// Bytes walks the bytes of a range in pieces of at most that size.
func (r *Ranges) Bytes(ctx context.Context, name string, piece int, to func(offset int64, b []byte) error) error {
	return r.each(name, func(start int64, b []byte) error {
		for len(b) > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n := min(piece, len(b))
			if err := to(start, b[:n]); err != nil {
				return err
			}
			start, b = start+int64(n), b[n:]
		}
		return nil
	})
}

// each calls f with the bytes of each file of a range, cut to the range.
func (r *Ranges) each(name string, f func(start int64, b []byte) error) error {
	all, err := r.List()
	if err != nil {
		return err
	}
	for _, k := range all {
		if k.Name == name {
			return r.files(k, f)
		}
	}
	return ErrNoRange.With("name", name)
}

func (r *Ranges) files(k commitlog.Kept, f func(start int64, b []byte) error) error {
	dir := filepath.Join(r.root, commitlog.RollbackDir, k.Name)
	infos, err := r.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read kept range: %w", err)
	}
	for _, info := range infos { // by name, which is the offset
		start, ok := mappedfile.ParseName(info.Name)
		if !ok || info.Size == 0 || start >= k.To {
			continue
		}
		if err := r.file(filepath.Join(dir, info.Name), min(info.Size, k.To-start), func(b []byte) error { return f(start, b) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *Ranges) file(name string, size int64, f func(b []byte) error) error {
	file, err := r.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open kept file: %w", err)
	}
	m, err := file.Map(size, false)
	if err != nil {
		return errors.Join(fmt.Errorf("map kept file: %w", err), file.Close())
	}
	err = f(m.Bytes())
	return errors.Join(err, m.Close(), file.Close())
}

// records walks b, which lies at offset start of the log.
func records(ctx context.Context, start int64, b []byte, to Visitor) error {
	var v message.View
	for done := 0; done < len(b); {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := start + int64(done)
		size, kind, bad := message.CheckView(b[done:], at, message.CheckOptions{CRC: true, Offset: true}, &v)
		switch {
		case bad == nil && kind == message.Record:
			if err := to.Record(at, &v); err != nil {
				return err
			}
		case bad == nil && kind == message.Blank:
		default:
			skip, ok := message.Next(b[done:], at)
			if !ok {
				skip = len(b) - done
			}
			if size = skip; bad == nil && !ok {
				return nil // nothing but zeros was written behind here
			}
			if err := to.Gap(at, at+int64(skip), reason(bad)); err != nil {
				return err
			}
		}
		done += size
	}
	return nil
}

func reason(bad error) string {
	if bad == nil {
		return "no record begins here"
	}
	return bad.Error()
}
