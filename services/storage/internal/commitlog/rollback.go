package commitlog

import (
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/cut"
)

// Kept is a range that was cut and kept.
type Kept = cut.Kept

// RollbackDir is the folder of kept ranges below that of a storage: each in a folder of its name, as files that are named by
// the offset of their first byte.
const RollbackDir = cut.Dir

// ListRollbacks lists what was kept in the folder of a storage, by name.
func ListRollbacks(fsys vfs.FS, root string) ([]Kept, error) {
	return cut.List(fsys, root)
}

// Rollback keeps [to, End) for the Truncate(to) or Reset that must follow before anything is appended: the part of the
// file that holds to is copied, durably; the cut then moves whole files instead of removing them. All kept ranges together
// may take keep bytes: else ErrRollbackFull, and nothing is changed. What was kept before stays as it is, also that of the same
// range and epoch.
func (l *Log) Rollback(to, epoch, keep int64) (Kept, error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.kept = nil
	if err := l.usable(); err != nil {
		return Kept{}, err
	}
	l.mu.Lock()
	first, end := l.FirstOffset(), l.end
	l.mu.Unlock()
	if to < first || to > end {
		return Kept{}, ErrOutOfRange.With("offset", to).With("first", first).With("end", end)
	}
	k, err := cut.NewKept(l.fsys, l.root, l.queue, to, end, epoch)
	if err != nil || to == end {
		return k, err
	}
	if err := cut.Room(l.fsys, l.root, k, keep); err != nil {
		return Kept{}, err
	}
	if err := l.flush(); err != nil {
		return Kept{}, err
	}
	if err := cut.Keep(l.fsys, l.root, l.queue, k); err != nil {
		return Kept{}, err
	}
	l.kept = &k
	return k, nil
}
