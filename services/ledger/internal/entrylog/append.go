package entrylog

import (
	"errors"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
)

// Append writes entries behind the last one and stamps their payloads, which a no-op does not need. Readers see them when
// it returns; they are durable after Sync. Errors: vfs.ErrNoSpace, and the log goes on once there is space; ErrOrder,
// ErrPayload, ErrTooLarge; ErrFaulted; ErrClosed. After any of them nothing of the batch is in the log. It allocates
// nothing once it has seen as large a batch.
func (l *Log) Append(entries []raft.Entry) error {
	if len(entries) == 0 {
		return l.usable()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.check(entries); err != nil {
		return err
	}
	if err := l.begin(); err != nil {
		return err
	}
	at, err := l.place(entries)
	if err != nil {
		return err
	}
	if err := l.write(entries, at); err != nil {
		return err
	}
	l.last.Store(int64(l.end.Index))
	return nil
}

// check refuses what cannot stand in the log.
func (l *Log) check(entries []raft.Entry) error {
	index, term := l.end.Index, l.end.Term
	limit := min(int64(l.o.MaxEntry), l.data.FileSize()-entry.BlankSize)
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Index != index+1 || e.Term < term:
			return ErrOrder.With("index", e.Index).With("term", e.Term).With("last", index).With("last_term", term)
		case int64(e.Size) > limit:
			return ErrTooLarge.With("size", e.Size).With("limit", limit)
		case e.Kind == raft.NoOp && e.Size != entry.HeaderSize, e.Kind != raft.NoOp && (e.Size != len(e.Payload) || e.Size < entry.HeaderSize):
			return ErrPayload.With("index", e.Index).With("size", e.Size).With("payload", len(e.Payload))
		}
		index, term = e.Index, e.Term
	}
	return nil
}

// origin returns the offset at which the next entry can come to stand. An empty log behind a reset begins where the
// leader's does, if its files could begin there too.
func (l *Log) origin(e *raft.Entry) int64 {
	if l.end.Pos >= 0 {
		return l.end.Pos
	}
	if len(e.Payload) >= entry.HeaderSize {
		h, err := entry.ReadHeader(e.Payload)
		if err == nil && h.Pos < maxOffset && h.Pos%l.data.FileSize() == 0 {
			return h.Pos
		}
	}
	return 0
}

// place makes the files that the entries need, before anything is written, and returns where the first one goes if it
// fits into its file.
func (l *Log) place(entries []raft.Entry) (int64, error) {
	start := l.origin(&entries[0])
	if f := l.data.First(); l.end.Pos < 0 && f != nil {
		start = f.Start() // made by a batch that did not come to stand
	}
	at, size := start, l.data.FileSize()
	if err := l.ensure(l.data, at); err != nil {
		return 0, err
	}
	for i := range entries {
		n := int64(entries[i].Size)
		if rest := size - at%size; n+entry.BlankSize > rest {
			at += rest
			if err := l.ensure(l.data, at); err != nil {
				return 0, err
			}
		}
		at += n
	}
	return start, l.ensureUnits(entries[0].Index, len(entries))
}

func (l *Log) ensureUnits(first raft.Index, n int) error {
	size := l.idx.FileSize()
	from, to := int64(first)*entry.UnitSize, (int64(first)+int64(n))*entry.UnitSize
	for at := from - from%size; at < to; at += size {
		if err := l.ensure(l.idx, at); err != nil {
			return err
		}
	}
	return nil
}

// ensure makes sure that the file that holds offset is there and has its blocks.
func (l *Log) ensure(q *mappedfile.Queue, offset int64) error {
	if f := q.Find(offset); f != nil {
		return f.Reserve()
	}
	_, err := q.Create(offset-offset%q.FileSize(), nil)
	if errors.Is(err, mappedfile.ErrSync) {
		return l.fail(err)
	}
	return err
}

// Reserve makes sure that entries of bytes together will find space: vfs.ErrNoSpace when they would not. It makes the next
// files where they will be needed.
func (l *Log) Reserve(entries int, bytes int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.begin(); err != nil {
		return err
	}
	if entries == 0 || l.end.Pos < 0 { // where a log begins after a reset is not known before its first entry
		return nil
	}
	// Of two neighbouring files one entry does not fit into, the entries fill at least one.
	size := l.data.FileSize()
	for at, to := l.end.Pos, l.end.Pos+2*bytes+slack; at < to; at += size - at%size {
		if err := l.ensure(l.data, at); err != nil {
			return err
		}
	}
	return l.ensureUnits(l.end.Index+1, entries)
}

// write puts the entries down, the first at offset at, and moves the end.
func (l *Log) write(entries []raft.Entry, at int64) error {
	before := l.end
	synced := l.synced.Index == l.end.Index
	next := meta.Point{Index: before.Index, Term: before.Term, Pos: at}
	l.units = l.units[:0]
	l.grow(entries)
	for len(entries) > 0 {
		n, pos, err := l.writeFile(entries, next.Pos, synced)
		if err != nil {
			return l.undo(before, at, err)
		}
		if n > 0 {
			next.Index, next.Term = entries[n-1].Index, entries[n-1].Term
		}
		next.Pos, entries = pos, entries[n:]
		synced = false // a record that closes a file is not durable yet, even where no entry went before it
	}
	if err := l.writeUnits(before.Index+1, l.units); err != nil {
		return l.undo(before, at, err)
	}
	if before.Pos < 0 {
		l.synced.Pos = at
	}
	l.end = next
	return nil
}

// grow makes room for the headers of what has no payload of its own.
func (l *Log) grow(entries []raft.Entry) {
	noOps := 0
	for i := range entries {
		if entries[i].Kind == raft.NoOp {
			noOps++
		}
	}
	for len(l.noOps) < noOps {
		l.noOps = append(l.noOps, [entry.HeaderSize]byte{})
	}
	if len(l.blanks) == 0 {
		l.blanks = make([][entry.BlankSize]byte, 1)
	}
}

// writeFile writes the entries that fit behind offset at into its file, closes the file when there are more, and returns
// how many it took and where the next one goes.
func (l *Log) writeFile(entries []raft.Entry, at int64, synced bool) (n int, next int64, err error) {
	f := l.data.Find(at)
	l.pieces = l.pieces[:0]
	next = at
	noOps := 0
	for ; n < len(entries); n++ {
		e := &entries[n]
		if next+int64(e.Size)+entry.BlankSize > f.End() {
			break
		}
		b := e.Payload
		if e.Kind == raft.NoOp {
			b = l.noOps[noOps][:]
			noOps++
			entry.PutNoOp(b)
		}
		entry.Stamp(b, e.Index, e.Term, next, synced && n == 0)
		l.pieces = append(l.pieces, b)
		l.units = entry.AppendUnit(l.units, entry.Unit{Pos: next, Size: e.Size, Index: e.Index, Term: e.Term})
		next += int64(e.Size)
	}
	if n < len(entries) {
		entry.PutBlank(l.blanks[0][:], f.End()-next)
		l.pieces = append(l.pieces, l.blanks[0][:])
	}
	if len(l.pieces) == 1 {
		_, err = f.WriteAt(l.pieces[0], at-f.Start())
	} else {
		_, err = f.WritevAt(l.pieces, at-f.Start())
	}
	clear(l.pieces)
	if n < len(entries) {
		next = f.End()
	}
	return n, next, err
}

// writeUnits writes units side by side, from that of entry first on.
func (l *Log) writeUnits(first raft.Index, units []byte) error {
	at := int64(first) * entry.UnitSize
	for len(units) > 0 {
		f := l.idx.Find(at)
		n := min(int64(len(units)), f.End()-at)
		if _, err := f.WriteAt(units[:n], at-f.Start()); err != nil {
			return err
		}
		units = units[n:]
		at += n
	}
	return nil
}

// undo judges a failed write into reserved blocks: a full disk is survived if what was written can be wiped.
func (l *Log) undo(before meta.Point, at int64, cause error) error {
	if !errors.Is(cause, vfs.ErrNoSpace) {
		return l.fail(cause)
	}
	if err := l.wipe(before.Index, at); err != nil {
		return l.fail(errors.Join(cause, err))
	}
	return cause
}

// wipe zeroes what stands behind entry last, which ends at pos.
func (l *Log) wipe(last raft.Index, pos int64) error {
	err := zeroBehind(l.data, pos)
	return errors.Join(err, zeroBehind(l.idx, (int64(last)+1)*entry.UnitSize))
}

func zeroBehind(q *mappedfile.Queue, offset int64) error {
	for _, f := range q.Files() {
		if from := max(offset, f.Start()); from < f.End() {
			if err := f.Zero(from-f.Start(), f.End()-from); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sync makes all that was appended before it durable. A failed sync ends the log.
func (l *Log) Sync() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	from, to := l.synced, l.end
	err := l.usable()
	l.mu.Unlock()
	if err != nil || to.Index == from.Index {
		return err
	}
	if err := l.data.SyncRange(from.Pos, to.Pos); err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	l.synced = to
	l.mu.Unlock()
	return nil
}
