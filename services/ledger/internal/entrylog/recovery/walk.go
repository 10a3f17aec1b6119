package recovery

import (
	"bytes"
	"errors"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
)

// ErrDamaged says that an entry that was durable cannot be read any more, or is gone; `index` is the first such one. Cutting
// the log there would forget what this node has acknowledged.
var ErrDamaged = errdefs.New(errdefs.DataLoss, "LOG_DAMAGED", "the log is damaged in its middle").
	WithRemedy("move the node's folder away and start it empty: it copies the log from the group and votes again when it has caught up")

// Result is what Walk found.
type Result struct {
	End     meta.Point // behind the last entry
	Runs    []raft.Run // of the entries that were walked
	Behind  bool       // bytes other than zeros stand behind End
	Scanned int64      // bytes
	Torn    error      // why the entry at End was not taken; nil: there is none
}

// Walk goes from entry to entry, from the point on, and calls visit for each. The error is ErrDamaged,
// entry.ErrUnsupported or that of visit.
func Walk(files []*mappedfile.File, from meta.Point, visit func(*entry.Header) error) (Result, error) {
	w := walk{files: files, Result: Result{End: from}}
	if from.Pos < 0 {
		w.End.Pos = 0
		if len(files) > 0 {
			w.End.Pos = files[0].Start()
		}
	}
	for {
		f, rest := w.rest(w.End.Pos)
		if f == nil {
			return w.Result, nil
		}
		h, err := entry.Read(rest)
		if err == nil {
			err = w.misplaced(&h, len(rest))
		}
		switch {
		case err == nil:
			if err := visit(&h); err != nil {
				return w.Result, err
			}
			w.take(&h)
		case entry.IsBlank(rest):
			w.Scanned += f.End() - w.End.Pos
			w.End.Pos = f.End()
		case errors.Is(err, entry.ErrUnsupported):
			return w.Result, err
		default:
			return w.Result, w.judge(err)
		}
	}
}

type walk struct {
	Result
	files []*mappedfile.File
}

// rest returns the file that holds pos and its bytes from there on.
func (w *walk) rest(pos int64) (*mappedfile.File, []byte) {
	for i := len(w.files) - 1; i >= 0; i-- {
		if f := w.files[i]; pos >= f.Start() && pos < f.End() {
			return f, f.Bytes()[pos-f.Start():]
		}
	}
	return nil, nil
}

// misplaced says why a sound entry is not the next one.
func (w *walk) misplaced(h *entry.Header, room int) error {
	field := ""
	switch {
	case h.Pos != w.End.Pos:
		field = "pos"
	case h.Index != w.End.Index+1:
		field = "index"
	case h.Term < w.End.Term:
		field = "term"
	case h.Size+entry.BlankSize > room:
		field = "size"
	default:
		return nil
	}
	return entry.ErrCorrupt.With("field", field).With("index", h.Index).With("term", h.Term).With("pos", h.Pos)
}

func (w *walk) take(h *entry.Header) {
	if n := len(w.Runs); n == 0 || w.Runs[n-1].Term != h.Term {
		w.Runs = append(w.Runs, raft.Run{First: h.Index, Term: h.Term})
	}
	w.End = meta.Point{Index: h.Index, Term: h.Term, Pos: h.Pos + int64(h.Size)}
	w.Scanned += int64(h.Size)
}

// judge decides what it means that there is no entry at End.
func (w *walk) judge(cause error) error {
	from := w.End.Pos
	for _, f := range w.files {
		if f.End() <= from {
			continue
		}
		begin := max(from, f.Start())
		b := f.Bytes()[begin-f.Start():]
		used := entry.Used(b)
		if used == 0 {
			continue
		}
		if !w.Behind {
			w.Behind, w.Torn = true, cause
		}
		if h, ok := w.successor(b, used, begin); ok {
			return ErrDamaged.With("index", w.End.Index+1).With("offset", w.End.Pos).With("sound_index", h.Index).
				With("sound_offset", h.Pos).Wrap(cause)
		}
	}
	return nil
}

// magic is how every entry begins.
func magic() []byte { return []byte{0, 0, 0, 1} }

// successor looks in the first used bytes of b, which stands at offset start, for an entry that proves that there was one
// at End.
func (w *walk) successor(b []byte, used int, start int64) (entry.Header, bool) {
	for at := 0; at < used; at++ {
		n := bytes.Index(b[at:used], magic())
		if n < 0 {
			break
		}
		at += n
		h, err := entry.ReadHeader(b[at:])
		if err != nil || h.Pos != start+int64(at) || h.Index <= w.End.Index || h.Index == w.End.Index+1 && h.Pos == w.End.Pos || h.Term < w.End.Term || h.Sealed && !h.Synced {
			continue
		}
		if _, err := entry.Read(b[at:]); err == nil {
			return h, true
		}
	}
	return entry.Header{}, false
}
