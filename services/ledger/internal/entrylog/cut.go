package entrylog

import (
	"errors"
	"fmt"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
)

// Cut drops all entries behind c.Last, or with Reset all there are: the log then goes on behind {c.Last, c.Term}. It is
// noted before the first byte goes, so that a crash leaves the old log or, after the next Open, the cut one; it is durable
// on return. Errors: ErrOutOfRange, ErrCommitted and vfs.ErrNoSpace change nothing, all others end the log.
func (l *Log) Cut(c consensus.Cut) error {
	l.keepMu.Lock()
	defer l.keepMu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	cut := meta.Cut{Point: meta.Point{Index: c.Last, Term: c.Term, Pos: -1}, Reset: c.Reset}
	if committed := l.Committed(); c.Last < committed {
		return ErrCommitted.With("last", c.Last).With("committed", committed)
	}
	if !c.Reset {
		switch {
		case c.Last > l.end.Index || c.Last < l.known.Base.Index:
			return ErrOutOfRange.With("index", c.Last).With("first", l.known.Base.Index+1).With("last", l.end.Index)
		case c.Last == l.end.Index:
			return nil
		}
		var err error
		if cut.Point, err = l.point(c.Last); err != nil {
			return l.fail(err)
		}
	}
	if err := l.begin(); err != nil {
		return err
	}
	k := l.known
	k.Cut = &cut
	if err := l.saveLog(k); err != nil {
		if k, _, rerr := meta.ReadLog(l.fsys, l.root); rerr != nil || k.Cut != nil { // the next Open would cut what is appended now
			return l.fail(errors.Join(err, rerr))
		}
		return err
	}
	if err := l.cut(cut); err != nil {
		return l.fail(fmt.Errorf("cut log behind %d: %w", c.Last, err))
	}
	return nil
}

// point returns the place behind entry i.
func (l *Log) point(i raft.Index) (meta.Point, error) {
	if i == l.known.Base.Index {
		return l.known.Base, nil
	}
	h, err := l.header(i)
	return meta.Point{Index: h.Index, Term: h.Term, Pos: h.Pos + int64(h.Size)}, err
}

// cut carries out c, which was noted, and removes the note.
func (l *Log) cut(c meta.Cut) error {
	if c.Reset {
		l.first.Store(int64(c.Index) + 1)
	}
	l.last.Store(int64(c.Index))
	l.gen.Add(1)
	if err := apply(l.data, l.idx, c); err != nil {
		return err
	}
	l.known = settled(l.known)
	l.end = c.Point
	if l.synced.Index > c.Index || c.Reset {
		l.synced = c.Point
	}
	return meta.WriteLog(l.fsys, l.root, l.known)
}

// settled is k after its cut.
func settled(k meta.Log) meta.Log {
	c := k.Cut
	k.Cut = nil
	switch {
	case c == nil:
	case c.Reset:
		k.Base, k.Mark, k.Committed = c.Point, c.Point, c.Index
	default:
		if k.Mark.Index > c.Index {
			k.Mark = c.Point
		}
		k.Committed = min(k.Committed, c.Index)
	}
	return k
}

// apply carries c out. It may be repeated after a crash at any point of it, and is durable when it returns.
func apply(data, idx *mappedfile.Queue, c meta.Cut) error {
	if c.Reset || c.Pos < 0 {
		if err := data.RemoveFrom(0, nil); err != nil {
			return err
		}
	} else if err := data.Cut(c.Pos); err != nil {
		return err
	}
	if c.Reset {
		return idx.RemoveFrom(0, nil)
	}
	return idx.Cut((int64(c.Index) + 1) * entry.UnitSize)
}

// Purge forgets the entries up to base, which must be committed, and removes the files that hold no other. base, with its
// term, is durable before the first file goes. ErrBusy: somebody reads the files; they go at the next call or Open.
func (l *Log) Purge(base raft.Mark) error {
	l.keepMu.Lock()
	defer l.keepMu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	switch {
	case base.Index <= l.known.Base.Index:
		return l.drop()
	case base.Index > l.synced.Index:
		return ErrOutOfRange.With("index", base.Index).With("first", l.known.Base.Index+1).With("last", l.synced.Index)
	}
	p, err := l.point(base.Index)
	if err == nil && p.Term != base.Term {
		err = ErrOrder.With("index", base.Index).With("term", p.Term).With("want", base.Term)
	}
	if err != nil {
		return err
	}
	if err := l.begin(); err != nil {
		return err
	}
	k := l.known
	k.Base, k.Committed = p, max(k.Committed, p.Index)
	if k.Mark.Index < p.Index {
		if err := l.idx.SyncRange((int64(k.Mark.Index)+1)*entry.UnitSize, (int64(p.Index)+1)*entry.UnitSize); err != nil {
			return l.fail(err)
		}
		k.Mark = p
	}
	if err := l.saveLog(k); err != nil {
		return err
	}
	l.first.Store(int64(p.Index) + 1)
	return l.drop()
}

// drop removes the files before the base.
func (l *Log) drop() error {
	err := dropBefore(l.data, l.idx, l.known.Base)
	if err != nil && !errors.Is(err, mappedfile.ErrBusy) {
		return l.fail(err)
	}
	return err
}

func dropBefore(data, idx *mappedfile.Queue, base meta.Point) error {
	if base.Pos < 0 {
		return nil
	}
	_, err := data.DropBefore(base.Pos)
	if err == nil {
		_, err = idx.DropBefore((int64(base.Index) + 1) * entry.UnitSize)
	}
	return err
}
