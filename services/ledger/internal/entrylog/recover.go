package entrylog

import (
	"errors"
	"fmt"
	"sort"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/recovery"
)

// recover finds the end of the log and the terms of its entries.
func (n *opening) recover() error {
	if err := n.findBase(); err != nil {
		return err
	}
	from, runs, ok := n.fromMark()
	if !ok {
		from, runs = n.known.Base, nil
	}
	if ok && n.endsAt(from) {
		n.end, n.r.Runs = from, runs
		return nil
	}
	if f := n.idx.First(); f != nil && f.Start() > int64(from.Index+1)*entry.UnitSize { // the first ones are gone
		if err := n.idx.RemoveFrom(0, nil); err != nil {
			return fmt.Errorf("clear index: %w", err)
		}
	}
	units := &unitWriter{Log: n.Log}
	res, err := recovery.Walk(n.data.Files(), from, units.visit)
	if err == nil {
		err = units.flush()
	}
	if err != nil {
		return fmt.Errorf("recover entries: %w", err)
	}
	n.r.Scanned, n.r.Torn, n.r.CutBytes, n.r.Rebuilt = res.Scanned, res.Torn, res.Behind, units.written
	if mark := n.known.Mark; res.End.Index < mark.Index {
		if !n.r.Java {
			return ErrDamaged.With("index", res.End.Index+1).With("offset", res.End.Pos).With("durable", mark.Index).Wrap(res.Torn)
		}
		n.known.Mark, n.dirty = res.End, true
	}
	if len(n.data.Files()) == 0 && res.End.Index == n.known.Base.Index && n.known.Base.Pos < 0 {
		res.End.Pos = -1
	}
	n.end = res.End
	n.r.Runs = joinRuns(runs, res.Runs)
	if err := n.clearBehind(res.Behind); err != nil {
		return err
	}
	return n.syncAll(from)
}

// endsAt reports whether the log was closed with its end at p, and nobody wrote to it since.
func (n *opening) endsAt(p meta.Point) bool {
	if n.known.Open != nil || !n.found {
		return false
	}
	f := n.data.Find(p.Pos)
	if f == nil {
		return n.data.Last() == nil || n.data.Last().End() == p.Pos
	}
	b := f.Bytes()[p.Pos-f.Start():]
	return entry.Used(b[:min(len(b), entry.HeaderSize)]) == 0 && f == n.data.Last()
}

// findBase sees that the files begin where the log does. A folder from which DLedger has removed files begins behind the
// first entry that is left: of the one before it no term is known.
func (n *opening) findBase() error {
	f := n.data.First()
	switch {
	case f == nil && n.known.Mark.Index > n.known.Base.Index:
		return ErrDamaged.With("index", n.known.Base.Index+1).With("missing", mappedfile.Name(max(0, n.known.Base.Pos)))
	case f == nil || f.Start() <= n.known.Base.Pos || n.known.Base.Pos < 0:
		return nil
	case n.found && !n.r.Java:
		return ErrDamaged.With("index", n.known.Base.Index+1).With("missing", mappedfile.Name(n.known.Base.Pos))
	}
	h, err := entry.Read(f.Bytes())
	if err == nil && (h.Pos != f.Start() || h.Index <= n.known.Base.Index) {
		err = entry.ErrCorrupt.With("field", "pos").With("index", h.Index)
	}
	if err != nil {
		return ErrDamaged.With("offset", f.Start()).Wrap(err)
	}
	n.known.Base = meta.Point{Index: h.Index, Term: h.Term, Pos: h.Pos + int64(h.Size)}
	n.known.Mark = n.known.Base
	n.known.Committed = max(n.known.Committed, h.Index)
	n.dirty = true
	return nil
}

// fromMark returns the place up to which the log need not be read, and the runs before it, found by halving; ok is false
// when the whole log must be.
func (n *opening) fromMark() (from meta.Point, runs []raft.Run, ok bool) {
	base, mark := n.known.Base, n.known.Mark
	if n.o.Verify || n.r.Java || mark.Index <= base.Index {
		return base, nil, false
	}
	if f := n.idx.First(); f == nil || f.Start() > (int64(base.Index)+1)*entry.UnitSize {
		return base, nil, false
	}
	h, err := n.header(mark.Index)
	if err != nil || h.Term != mark.Term || h.Pos+int64(h.Size) != mark.Pos {
		return base, nil, false
	}
	for i := base.Index + 1; i <= mark.Index; {
		h, err := n.header(i)
		if err != nil {
			return base, nil, false
		}
		runs = append(runs, raft.Run{First: i, Term: h.Term})
		bad := error(nil)
		i += raft.Index(sort.Search(int(mark.Index-i)+1, func(k int) bool {
			at, err := n.header(i + raft.Index(k))
			bad = errors.Join(bad, err)
			return at.Term > h.Term
		}))
		if bad != nil {
			return base, nil, false
		}
	}
	return mark, runs, true
}

// joinRuns puts the runs of two stretches of entries together.
func joinRuns(a, b []raft.Run) []raft.Run {
	if len(a) > 0 && len(b) > 0 && a[len(a)-1].Term == b[0].Term {
		b = b[1:]
	}
	return append(a, b...)
}

// clearBehind makes all behind the end zeros. It needs no note: what is half gone is as torn as it was.
func (n *opening) clearBehind(behind bool) error {
	if behind {
		if err := n.data.Cut(n.end.Pos); err != nil {
			return fmt.Errorf("clear torn entries: %w", err)
		}
	}
	at := (int64(n.end.Index) + 1) * entry.UnitSize
	for _, f := range n.idx.Files() {
		if from := max(at, f.Start()); from < f.End() && entry.Used(f.Bytes()[from-f.Start():]) > 0 {
			if err := n.idx.Cut(at); err != nil {
				return fmt.Errorf("clear index: %w", err)
			}
			return nil
		}
	}
	return nil
}

// syncAll makes durable what was read: the node will answer for it. What is behind the mark of somebody who did not close the
// log may be what a failed sync left.
func (n *opening) syncAll(from meta.Point) error {
	err := n.data.SyncRange(from.Pos, n.end.Pos)
	if err == nil {
		err = n.idx.SyncRange(int64(from.Index+1)*entry.UnitSize, int64(n.end.Index+1)*entry.UnitSize)
	}
	if err != nil || n.known.Open == nil {
		return err
	}
	mark := n.known.Mark
	if err := n.data.Renew(mark.Pos, n.end.Pos); err != nil {
		return err
	}
	return n.idx.Renew(int64(mark.Index+1)*entry.UnitSize, int64(n.end.Index+1)*entry.UnitSize)
}

// unitWriter puts right the units of the entries that are walked.
type unitWriter struct {
	*Log
	first   raft.Index // of those in buf
	buf     []byte
	want    []byte
	written int
}

const unitBatch = 64 << 10

func (w *unitWriter) visit(h *entry.Header) error {
	w.want = entry.AppendUnit(w.want[:0], entry.UnitOf(h))
	at := int64(h.Index) * entry.UnitSize
	if f := w.idx.Find(at); f != nil && string(f.Bytes()[at-f.Start():at-f.Start()+entry.UnitSize]) == string(w.want) {
		return nil
	}
	if next := w.first + raft.Index(len(w.buf)/entry.UnitSize); len(w.buf) > 0 && next != h.Index || len(w.buf) >= unitBatch {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.buf) == 0 {
		w.first = h.Index
	}
	w.buf = append(w.buf, w.want...)
	return nil
}

func (w *unitWriter) flush() error {
	n := len(w.buf) / entry.UnitSize
	if n == 0 {
		return nil
	}
	if err := w.ensureUnits(w.first, n); err != nil {
		return err
	}
	if err := w.writeUnits(w.first, w.buf); err != nil {
		return err
	}
	w.written += n
	w.buf = w.buf[:0]
	return nil
}
