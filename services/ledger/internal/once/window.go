package once

import (
	"encoding/binary"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// window knows the keys of the committed entries behind start, up to applied: at most size entries.
type window struct {
	size    raft.Index
	start   raft.Index
	applied raft.Mark
	at      map[Key]raft.Index
	queue   []known // by index; those before head are gone
	head    int
}

type known struct {
	key   Key
	index raft.Index
}

func newWindow(size int) *window {
	w := &window{size: raft.Index(size)}
	w.restart(raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm})
	return w
}

// restart forgets everything: the window begins behind m.
func (w *window) restart(m raft.Mark) {
	w.start, w.applied = m.Index, m
	w.at, w.queue, w.head = map[Key]raft.Index{}, nil, 0
}

// pass notes that the next entry was looked at; key is nil where it has none.
func (w *window) pass(m raft.Mark, key *Key) {
	w.applied = m
	if key != nil {
		w.add(known{*key, m.Index})
	}
	w.start = max(w.start, m.Index-w.size)
	for w.head < len(w.queue) && w.queue[w.head].index <= w.start {
		k := w.queue[w.head]
		if w.at[k.key] == k.index {
			delete(w.at, k.key)
		}
		w.head++
	}
	if w.head > len(w.queue)/2 {
		w.queue = w.queue[:copy(w.queue, w.queue[w.head:])]
		w.head = 0
	}
}

func (w *window) add(k known) {
	w.at[k.key] = k.index
	w.queue = append(w.queue, k)
}

const (
	keysMagic  = "TDMKEYS1"
	keysHeader = 36
	keySize    = 32
)

var errKeys = errdefs.New(errdefs.DataLoss, "KEYS_CORRUPT", "the file of keys is not what was written")

// encode makes the content of tandem/keys.
func (w *window) encode() []byte {
	live := w.queue[w.head:]
	b := make([]byte, 0, keysHeader+len(live)*keySize)
	b = append(b, keysMagic...)
	for _, n := range []int64{int64(w.start), int64(w.applied.Index), int64(w.applied.Term)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // the format's own type
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(live))) //nolint:gosec // bounded by the window
	for i := range live {
		b = append(b, live[i].key.Client[:]...)
		b = binary.BigEndian.AppendUint64(b, live[i].key.Sequence)
		b = binary.BigEndian.AppendUint64(b, uint64(live[i].index))
	}
	return b
}

// decode takes over the content of tandem/keys; after an error the window is as it was.
func (w *window) decode(b []byte) error {
	if len(b) < keysHeader || string(b[:8]) != keysMagic {
		return errKeys.With("field", "magic")
	}
	n := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) } //nolint:gosec // the format's own type
	start, applied := raft.Index(n(8)), raft.Mark{Index: raft.Index(n(16)), Term: raft.Term(n(24))}
	count := int(binary.BigEndian.Uint32(b[32:]))
	switch {
	case start < raft.NoIndex || applied.Index < start || applied.Term < raft.NoTerm:
		return errKeys.With("field", "index")
	case len(b) != keysHeader+count*keySize:
		return errKeys.With("field", "count").With("count", count)
	}
	last := start
	for i := range count {
		index := raft.Index(n(keysHeader + i*keySize + 24))
		if index <= last || index > applied.Index {
			return errKeys.With("field", "index").With("index", index)
		}
		last = index
	}
	w.restart(raft.Mark{Index: start, Term: raft.NoTerm})
	for i := range count {
		at := keysHeader + i*keySize
		w.add(known{Key{Client(b[at : at+16]), binary.BigEndian.Uint64(b[at+16:])}, raft.Index(n(at + 24))})
	}
	w.applied = applied
	return nil
}
