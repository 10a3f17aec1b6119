package mend

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// busyTry is how long one try to write waits for readers; other readers wait meanwhile.
const busyTry = 20 * time.Millisecond

// Mender replaces bytes in the files of one log. Its Wait may be called by anybody, the rest by one at a time.
type Mender struct {
	FS    vfs.FS
	Root  string        // folder of the storage
	Grace time.Duration // longest wait for readers
	Log   *slog.Logger

	writing sync.RWMutex // held while bytes are written
	writes  atomic.Int64 // odd while that is so
}

// Done says what Overwrite did.
type Done struct {
	Changed int64  // bytes that were others before; 0: nothing was written
	Kept    string // file below repair/ that holds what stood there
}

// Overwrite carries out r, in f: what stands there is kept, the note written, the bytes replaced while nobody reads the file, and
// synced, the note removed. All that is kept may take keep bytes. fatal: nobody knows what is on the disk. Else an error has changed
// nothing: ErrFull, vfs.ErrNoSpace, mappedfile.ErrBusy, or what the disk said to the copy.
func (m *Mender) Overwrite(f *mappedfile.File, r Repair, keep int64) (d Done, fatal bool, err error) {
	old := make([]byte, len(r.Data))
	if n, err := f.ReadAt(old, r.From-f.Start()); n < len(old) {
		return d, false, fmt.Errorf("read what is to be replaced: %w", err)
	}
	for i := range old {
		if r.Data[i] != old[i] {
			d.Changed++
		}
	}
	if d.Changed == 0 {
		return d, false, nil
	}
	if err := f.Reserve(); err != nil {
		return Done{}, false, err //nolint:wrapcheck // says what it did
	}
	kept, err := Keep(m.FS, m.Root, r.From, old, keep)
	if err != nil {
		return Done{}, false, err
	}
	d.Kept, r.Kept = kept.Name, kept.Name
	if err := Announce(m.FS, m.Root, r); err != nil {
		return Done{}, !errors.Is(err, vfs.ErrNoSpace), err
	}
	if fatal, err := m.write(f, r); err != nil {
		return Done{}, fatal, err
	}
	m.Log.Info("bytes of the log replaced", slog.Int64("from", r.From), slog.Int64("to", r.To),
		slog.Int64("changed", d.Changed), slog.String("kept_in", d.Kept))
	return d, false, nil
}

// write replaces the bytes of r, which was announced.
func (m *Mender) write(f *mappedfile.File, r Repair) (fatal bool, err error) {
	err = m.alone(f, func() error {
		_, err := f.WriteAt(r.Data, r.From-f.Start())
		return err //nolint:wrapcheck // says what it did
	})
	if errors.Is(err, mappedfile.ErrBusy) {
		if werr := Withdraw(m.FS, m.Root); werr != nil {
			return true, werr
		}
		return false, err
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = Withdraw(m.FS, m.Root)
	}
	return true, err
}

// alone calls write while nobody reads the file. Readers that come wait, as long as those that are there need no more than a
// moment; they are let through between tries, as they may hold views while they ask for more.
func (m *Mender) alone(f *mappedfile.File, write func() error) error {
	deadline := time.Now().Add(m.Grace)
	for {
		err := m.tryAlone(f, write)
		if !errors.Is(err, mappedfile.ErrBusy) || time.Now().After(deadline) {
			return err
		}
	}
}

func (m *Mender) tryAlone(f *mappedfile.File, write func() error) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.writes.Add(1)
	defer m.writes.Add(1)
	if err := f.Drain(min(busyTry, m.Grace)); err != nil {
		return err //nolint:wrapcheck // names the file
	}
	defer f.Admit()
	return write()
}

// Writes counts what Wait looks at.
func (m *Mender) Writes() int64 { return m.writes.Load() }

// Wait is for a reader that was refused a file: it waits for the end of a write that has been under way since Writes returned seen,
// and reports whether there was one.
func (m *Mender) Wait(seen int64) bool {
	if seen%2 == 0 && m.writes.Load() == seen {
		return false
	}
	m.writing.RLock()
	defer m.writing.RUnlock()
	return true
}

// Finish carries out a repair that a crash interrupted, unless somebody else has written there since.
func (m *Mender) Finish(q *mappedfile.Queue) error {
	r, err := Pending(m.FS, m.Root)
	if errors.Is(err, durable.ErrCorrupt) {
		m.Log.Error("note of a repair is broken and is dropped: check the log", "error", err)
		return Withdraw(m.FS, m.Root)
	}
	if err != nil || r == nil {
		return err
	}
	if f := q.Find(r.From); f != nil && r.To <= f.End() {
		have := make([]byte, len(r.Data))
		if n, err := f.ReadAt(have, r.From-f.Start()); n < len(have) {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		half, err := Half(m.FS, m.Root, *r, have, f.End())
		if err != nil {
			return err
		}
		if half {
			if _, err := f.WriteAt(r.Data, r.From-f.Start()); err != nil {
				return fmt.Errorf("finish repair: %w", err)
			}
			m.Log.Warn("interrupted repair finished", "from", r.From, "to", r.To)
		}
		if err := f.Sync(); err != nil {
			return err //nolint:wrapcheck // names the file
		}
	}
	return Withdraw(m.FS, m.Root)
}
