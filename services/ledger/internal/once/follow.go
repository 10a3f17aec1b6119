package once

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// KeysFile is the name of the saved window below the folder of a node.
const KeysFile = "tandem/keys"

func (a *Appender) path() string { return filepath.Join(a.o.Root, filepath.FromSlash(KeysFile)) }

// load takes the saved window over if the log has the entry that it ends with. Else the window begins so far back that it
// is full when it has caught up with the commit index.
func (a *Appender) load(start consensus.Start) error {
	data, _, err := durable.ReadChecked(a.o.FS, a.path())
	if err == nil {
		err = a.window.decode(data)
	}
	far := max(start.Base.Index, start.Committed-raft.Index(a.o.Window))
	if err == nil && a.window.applied.Index > far && a.holds(start, a.window.applied) {
		a.window.pass(a.window.applied, nil) // the window may be smaller now
		a.saved = a.window.applied.Index
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if !errors.Is(err, durable.ErrCorrupt) && !errors.Is(err, errKeys) {
			return fmt.Errorf("read %s: %w", KeysFile, err)
		}
		a.o.Log.Warn("the saved keys cannot be used, they are read from the log again", slog.Any("error", err))
	}
	a.window.restart(raft.Mark{Index: far, Term: raft.NoTerm})
	a.saved = far
	return nil
}

// holds reports whether the log has the entry.
func (a *Appender) holds(start consensus.Start, m raft.Mark) bool {
	if m.Index > start.Last || m.Index < start.Base.Index {
		return false
	}
	lineage, ok := raft.NewLineage(start.Base, start.Runs, start.Last)
	return ok && lineage.Has(m)
}

// follow keeps the window up to what is committed.
func (a *Appender) follow(ctx context.Context) {
	for {
		mark, replaced := a.group.Committed()
		err := mark.Wait(ctx, a.applied.Load()+1)
		if err == nil {
			err = a.apply(ctx, raft.Index(mark.Load()))
			if err == nil {
				continue
			}
			if ctx.Err() == nil {
				a.o.Log.Error("keys cannot be read from the log, appends with a key are refused", slog.Any("error", err))
				a.mu.Lock()
				a.broken = err
				a.mu.Unlock()
				a.applied.Close(err)
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-replaced:
		}
	}
}

// followBytes is what is looked at under one lease.
const followBytes = 1 << 20

// retryCutting is the pause before a part of the log is looked at again that was being cut.
const retryCutting = 5 * time.Millisecond

// apply looks at the entries up to index to, which are committed.
func (a *Appender) apply(ctx context.Context, to raft.Index) error {
	for {
		next := raft.Index(a.applied.Load()) + 1
		if next > to {
			return nil
		}
		if first := a.log.First(); first > next { // the log was begun anew behind what the group had purged
			a.mu.Lock()
			a.window.restart(raft.Mark{Index: first - 1, Term: raft.NoTerm})
			a.mu.Unlock()
			a.applied.Advance(int64(first) - 1)
			continue
		}
		b, n, release, err := a.log.View(next, int(to-next)+1, followBytes)
		switch errdefs.ClassOf(err) {
		case errdefs.Unavailable, errdefs.OutOfRange: // it is being cut, or was in between
			timer := time.NewTimer(retryCutting)
			select {
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-timer.C:
			}
			continue
		default:
		}
		if err != nil {
			return err
		}
		err = a.pass(b)
		release()
		if err != nil {
			return err
		}
		a.applied.Advance(int64(next) + int64(n) - 1)
	}
}

// pass takes the keys of entries that stand side by side into the window.
func (a *Appender) pass(b []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(b) > 0 {
		h, err := entry.ReadHeader(b) // the log has checked the rest
		if err != nil {
			return err
		}
		m := raft.Mark{Index: h.Index, Term: h.Term}
		if c := Read(&h, b); c.Keyed {
			a.window.pass(m, &c.Key)
			delete(a.inflight, c.Key)
		} else {
			a.window.pass(m, nil)
		}
		b = b[h.Size:]
	}
	return nil
}

// keep saves the window now and then.
func (a *Appender) keep(ctx context.Context) error {
	tick := time.NewTicker(a.o.SaveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := a.save(); err != nil {
			return err
		}
	}
}

// save writes the window unless nothing is new; a full disk does no harm.
func (a *Appender) save() error {
	a.mu.Lock()
	applied := a.window.applied
	if applied.Index == a.saved || applied.Term == raft.NoTerm {
		a.mu.Unlock()
		return nil
	}
	data := a.window.encode()
	a.mu.Unlock()
	err := durable.WriteChecked(a.o.FS, a.path(), data)
	switch {
	case err == nil:
		a.mu.Lock()
		a.saved = applied.Index
		a.mu.Unlock()
		return nil
	case errors.Is(err, vfs.ErrNoSpace):
		return nil
	}
	return fmt.Errorf("save %s: %w", KeysFile, err)
}
