package entrylog

import (
	"encoding/binary"
	"sort"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

func nothing() {}

// View returns entries as they stand in the log, side by side and all in one file, from first on: at most count, together
// at most limit bytes, but always the first, if there is one. Each was checked. The bytes are valid, and must not be
// changed, until release is called, exactly once; hold them for moments only: a cut waits for it. Errors: ErrOutOfRange
// names first and last; ErrDamaged: the entry cannot be read; ErrCutting: look again. It allocates nothing unless it fails.
func (l *Log) View(first raft.Index, count int, limit int64) (b []byte, n int, release func(), err error) {
	for {
		gen := l.gen.Load()
		lo, hi := l.First(), l.Last()
		switch {
		case l.closed.Load():
			return nil, 0, nothing, ErrClosed
		case first < lo || first > hi:
			return nil, 0, nothing, ErrOutOfRange.With("index", first).With("first", lo).With("last", hi)
		case count <= 0:
			return nil, 0, nothing, nil
		}
		u, ok, err := l.unit(first)
		if err == nil && ok {
			b, n, release, err = l.view(u, min(int64(count), int64(hi-first)+1), limit)
		}
		if gen != l.gen.Load() { // cut in between: what was there may be zeros now
			if err == nil && ok {
				release()
			}
			continue
		}
		if err == nil && !ok {
			err = ErrDamaged.With("index", first).WithMsg("the index has no unit for the entry").WithRemedy("restart: the index is made again")
		}
		if err != nil {
			return nil, 0, nothing, err
		}
		return b, n, release, nil
	}
}

// view leases the file that holds the entry of u and checks what it hands out.
func (l *Log) view(u entry.Unit, count, limit int64) (b []byte, n int, release func(), err error) {
	f := l.data.Find(u.Pos)
	if f == nil || !f.Acquire() {
		return nil, 0, nil, ErrCutting.With("index", u.Index)
	}
	all := f.Bytes()[u.Pos-f.Start():]
	size := int64(0)
	for int64(n) < count {
		rest := all[size:]
		if n > 0 && (size >= limit || closes(rest)) {
			break
		}
		h, err := entry.Read(rest)
		if err == nil && (h.Index != u.Index+raft.Index(n) || h.Pos != u.Pos+size || n == 0 && (h.Term != u.Term || h.Size != u.Size)) {
			err = entry.ErrCorrupt.With("field", "index").With("got", h.Index)
		}
		if err != nil {
			f.Release()
			return nil, 0, nil, ErrDamaged.With("index", u.Index+raft.Index(n)).With("offset", u.Pos+size).Wrap(err)
		}
		if n > 0 && size+int64(h.Size) > limit {
			break
		}
		size += int64(h.Size)
		n++
	}
	return all[:size:size], n, f.ReleaseFunc(), nil
}

// closes reports whether no entry follows in the file.
func closes(rest []byte) bool {
	return len(rest) < entry.HeaderSize || binary.BigEndian.Uint32(rest) == 0xFFFFFFFF
}

// unit reads the unit of entry i; ok is false when it is not that of i.
func (l *Log) unit(i raft.Index) (u entry.Unit, ok bool, err error) {
	at := int64(i) * entry.UnitSize
	f := l.idx.Find(at)
	if f == nil || !f.Acquire() {
		return u, false, ErrCutting.With("index", i)
	}
	defer f.Release()
	u, ok = entry.ReadUnit(f.Bytes()[at-f.Start():])
	return u, ok && u.Index == i, nil
}

// Extent returns how many entries from first on, not beyond last, not more than maxEntries, stand in one file and take
// together at most maxBytes, and the bytes they take. The first is counted whatever its size. 0: they cannot be read now.
func (l *Log) Extent(first, last raft.Index, maxEntries int, maxBytes int64) (count int, bytes int64) {
	if first < l.First() || first > l.Last() || maxEntries <= 0 {
		return 0, 0
	}
	u, ok, err := l.unit(first)
	if err != nil || !ok {
		return 0, 0
	}
	size := l.data.FileSize()
	fileEnd := u.Pos - u.Pos%size + size
	n := min(int(min(last, l.Last())-first)+1, maxEntries)
	count = 1 + sort.Search(n-1, func(k int) bool {
		next, ok, err := l.unit(first + 1 + raft.Index(k))
		return err != nil || !ok || next.End() > fileEnd || next.End()-u.Pos > maxBytes
	})
	end, ok, err := l.unit(first + raft.Index(count) - 1)
	if err != nil || !ok {
		return 0, 0
	}
	return count, end.End() - u.Pos
}

// header reads and checks the header of entry i.
func (l *Log) header(i raft.Index) (entry.Header, error) {
	u, ok, err := l.unit(i)
	if err != nil {
		return entry.Header{}, err
	}
	var f *mappedfile.File
	if ok {
		f = l.data.Find(u.Pos)
	}
	if f == nil || !f.Acquire() {
		return entry.Header{}, ErrDamaged.With("index", i)
	}
	defer f.Release()
	h, err := entry.ReadHeader(f.Bytes()[u.Pos-f.Start():])
	if err == nil && entry.UnitOf(&h) != u {
		err = entry.ErrCorrupt.With("field", "index").With("got", h.Index)
	}
	if err != nil {
		return h, ErrDamaged.With("index", i).With("offset", u.Pos).Wrap(err)
	}
	return h, nil
}
