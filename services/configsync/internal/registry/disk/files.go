package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/journal"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Errors of the disk; a failed sync is journal.ErrFault.
var (
	// ErrBroken: neither copy of a table could be read, or its journal has a hole.
	ErrBroken = errdefs.New(errdefs.DataLoss, "TABLE_BROKEN", "the table on the disk is not whole").
			WithRemedy("let this node follow one that has the table, or import it")
	// ErrShape: a file that a newer version may have written.
	ErrShape = errdefs.New(errdefs.FailedPrecondition, "FILE_OF_UNKNOWN_SHAPE", "the file is JSON, but not a table of the known shape").
			WithRemedy("start the version that wrote it, or move the file away and let this node follow one that has the table")
)

// OwnDir is the folder of what RocketMQ does not have, below that of the JSON files.
const OwnDir = "tandem"

// Disk keeps one kind. All methods but WriteTemp need the caller to let one goroutine in at a time.
type Disk struct {
	fsys vfs.FS
	dir  string
	kind entry.Kind

	journal *journal.Journal
	saved   *table.Table // in the JSON file; nil: something else
	good    bool         // the JSON file is there and can be read: it may become the backup
	segment int64        // the first segment behind the JSON file; 0: none yet
	backup  int64        // the first one behind the backup; 0: there is no backup
	begun   *table.Table // with which the segment that is written begins
	number  int64        // of that segment
}

// Size returns the bytes of the journal that lie behind the file.
func (d *Disk) Size() int64 { return d.journal.Size() }

// Close ends it; what is durable stays.
func (d *Disk) Close() error { return d.journal.Close() }

// Record makes what leads from start to next durable; whole: next does not lead on from what is on the disk.
func (d *Disk) Record(start, next *table.Table, whole bool) error {
	delta, ok := next.Since(start.Version())
	if !ok || whole || next.Version() == start.Version() {
		delta = next.Full()
	}
	if !d.journal.Open() {
		if err := d.Begin(start); err != nil {
			return err
		}
	}
	return d.journal.Append(appendDelta(nil, delta))
}

// Due reports whether t is not what the JSON file has.
func (d *Disk) Due(t *table.Table) bool {
	return d.saved == nil || d.saved.Version() != t.Version() || d.saved.Sum() != t.Sum()
}

// Begin begins the segment that goes on behind a file with t. Between it and End changes may be recorded.
func (d *Disk) Begin(t *table.Table) error {
	if d.begun == t {
		return nil
	}
	number, err := d.journal.Rotate(appendBase(nil, t))
	if err != nil {
		return err
	}
	d.begun, d.number = t, number
	if d.segment == 0 {
		d.segment = number
	}
	return nil
}

// WriteTemp writes the file under its temporary name, durably.
func (d *Disk) WriteTemp(data []byte) error {
	tmp := d.path(".tmp")
	f, err := d.fsys.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return fmt.Errorf("write table: %w", errors.Join(err, f.Close(), d.fsys.Remove(tmp)))
	}
	if err := f.Sync(); err != nil {
		return journal.ErrFault.With("file", d.kind.File()).Wrap(errors.Join(err, f.Close()))
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (d *Disk) path(suffix string) string { return filepath.Join(d.dir, d.kind.File()+suffix) }

// End puts the temporary file, which has t, in the place of the file, and that in the place of its backup. Between the two
// renames only the backup is there: the journal leads on from it.
func (d *Disk) End(t *table.Table) error {
	file := d.path("")
	if d.good {
		// A file that is gone was renamed by a try that was told it had failed.
		if err := d.fsys.Rename(file, file+backupSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replace table: %w", err)
		}
		d.good = false
		d.backup = d.segment
	} else if err := d.fsys.Rename(file, file+".broken"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace table: %w", err)
	}
	d.saved = nil
	if err := d.fsys.Rename(file+".tmp", file); err != nil {
		return fmt.Errorf("replace table: %w", err)
	}
	if err := d.fsys.SyncDir(d.dir); err != nil {
		return journal.ErrFault.With("file", d.kind.File()).Wrap(err)
	}
	d.good, d.saved, d.segment = true, t, d.number
	keep := d.segment
	if d.backup > 0 {
		keep = d.backup
	}
	return d.journal.Drop(keep)
}
