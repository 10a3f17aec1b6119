package entrylog

import (
	"cmp"
	"errors"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
)

// SaveHard makes what the node promises durable, and writes currterm for DLedger. After an error nothing may be promised,
// and the old state or the new one is on the disk; all but vfs.ErrNoSpace end the log.
func (l *Log) SaveHard(h raft.HardState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.begin(); err != nil {
		return err
	}
	return l.survive(l.saveHard(h))
}

func (l *Log) saveHard(h raft.HardState) error {
	if err := meta.WriteHard(l.fsys, l.root, h); err != nil {
		return err
	}
	l.hard = h
	return meta.WriteTerm(l.fsys, l.root, meta.Term{Term: h.Term, Vote: h.Vote})
}

// Bootstrap makes an empty node, on an operator's order, a voter of a new group; ErrNotEmpty for any other.
func (l *Log) Bootstrap() error {
	l.mu.Lock()
	fresh := l.hard == raft.HardState{} && l.end.Index == raft.NoIndex
	l.mu.Unlock()
	if !fresh {
		return ErrNotEmpty.With("last", l.Last())
	}
	return l.SaveHard(raft.Bootstrap())
}

// survive ends the log for every error but a full disk.
func (l *Log) survive(err error) error {
	if err == nil || errors.Is(err, vfs.ErrNoSpace) {
		return err
	}
	return l.fail(err)
}

// begin notes, before the first change, who has the log; mu is held. What was found in a folder from DLedger becomes
// Tandem's. In Tandem's own a vote that Open took is gone for good before the note goes by which it was judged.
func (l *Log) begin() error {
	if l.inUse {
		return nil
	}
	k := l.known
	k.Open, k.Owner = &meta.Session{BootID: l.o.BootID, Async: l.o.Async}, cmp.Or(l.o.Owner, k.Owner)
	log, hard := func() error { return l.saveLog(k) }, func() error { return l.survive(l.saveHard(l.hard)) }
	first, then := log, hard
	if l.found {
		first, then = hard, log
	}
	err := first()
	if err == nil {
		err = then()
	}
	l.inUse = err == nil
	return err
}

func (l *Log) saveLog(k meta.Log) error {
	if err := meta.WriteLog(l.fsys, l.root, k); err != nil {
		return l.survive(err)
	}
	l.known = k
	return nil
}

// Committed returns the commit index that was told last, at least that of the base.
func (l *Log) Committed() raft.Index {
	l.commitMu.Lock()
	defer l.commitMu.Unlock()
	return l.committed
}

func (l *Log) setCommitted(i raft.Index) raft.Index {
	l.commitMu.Lock()
	defer l.commitMu.Unlock()
	l.committed = max(l.committed, i)
	return l.committed
}

// Checkpoint makes the index durable and notes how far the log is whole, so that the next Open need not read it, and the
// commit index, also for DLedger. Call it every few seconds; it may run beside Append. vfs.ErrNoSpace leaves all as it was.
func (l *Log) Checkpoint(committed raft.Index) error {
	committed = l.setCommitted(committed)
	l.keepMu.Lock()
	defer l.keepMu.Unlock()
	if l.o.Async {
		if err := l.Sync(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	err := l.usable()
	k, mark, used := l.known, l.synced, l.inUse
	l.mu.Unlock()
	committed = min(committed, mark.Index)
	if err != nil || !used || k.Mark == mark && k.Committed == committed {
		return err
	}
	return l.checkpoint(k, mark, committed)
}

// checkpoint saves k with a new mark and commit index; keepMu is held.
func (l *Log) checkpoint(k meta.Log, mark meta.Point, committed raft.Index) error {
	if err := l.idx.SyncRange((int64(k.Mark.Index)+1)*entry.UnitSize, (int64(mark.Index)+1)*entry.UnitSize); err != nil {
		return l.fail(err)
	}
	k.Mark, k.Committed = mark, committed
	if err := meta.WriteLog(l.fsys, l.root, k); err != nil {
		return l.survive(err)
	}
	l.mu.Lock()
	l.known = k
	l.mu.Unlock()
	return l.survive(meta.WriteCheckpoint(l.fsys, l.root, meta.Checkpoint{Committed: committed, End: mark.Index}))
}

// Close makes everything durable, leaves the folder as DLedger would, and releases it. A log that failed is only released:
// the next Open recovers it, and where acknowledged entries may be gone takes the vote.
func (l *Log) Close() error {
	if l.closed.Load() {
		return ErrClosed
	}
	err := l.finish()
	l.closed.Store(true)
	return errors.Join(err, l.data.Close(), l.idx.Close(), l.lock.Close())
}

func (l *Log) finish() error {
	l.keepMu.Lock()
	defer l.keepMu.Unlock()
	if l.Err() != nil && l.inUse && l.o.Async {
		meta.Distrust(l.fsys, l.root, l.known)
	}
	if l.Err() != nil || !l.inUse {
		return nil
	}
	if err := l.Sync(); err != nil {
		return err
	}
	if err := l.dropAhead(); err != nil {
		return err
	}
	k := l.known
	k.Open = nil
	return l.checkpoint(k, l.synced, min(l.Committed(), l.synced.Index))
}

// dropAhead removes the files that were made for entries which never came.
func (l *Log) dropAhead() error {
	err := dropFrom(l.data, l.end.Pos)
	if err == nil {
		err = dropFrom(l.idx, (int64(l.end.Index)+1)*entry.UnitSize)
	}
	return err
}

// dropFrom removes the files that begin at or behind offset, a negative one meaning all.
func dropFrom(q *mappedfile.Queue, offset int64) error {
	if last := q.Last(); last == nil || last.Start() < offset {
		return nil
	}
	return q.RemoveFrom(max(0, offset), nil)
}
