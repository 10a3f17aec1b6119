package registry

import (
	"iter"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Reply is what a slave gets.
type Reply struct {
	Unchanged bool
	Full      bool
	// SameVersion says that the asker has this version with another content: of offsets, some of its own that are ahead.
	SameVersion bool
	Version     entry.Version // to which the chunks lead
	Sum         uint64
	// Chunks are for chunk.Assembly. They are made when they are asked for, and shared by all who ask: the caller must not
	// change them.
	Chunks iter.Seq[[]byte]
}

// Fetch answers a slave that has version have with content sum: nothing, a delta, or the whole table. A sum of 0 is not
// compared.
func (r *Registry) Fetch(kind entry.Kind, have entry.Version, sum uint64) (Reply, error) {
	if !kind.Valid() {
		return Reply{}, table.ErrKind.With("kind", kind)
	}
	s := r.stores[kind]
	if err := s.whole(); err != nil {
		return Reply{}, err
	}
	t := s.table.Load()
	reply := Reply{Version: t.Version(), Sum: t.Sum()}
	if have == t.Version() && (sum == 0 || sum == reply.Sum) {
		reply.Unchanged = true
		reply.Chunks = func(func([]byte) bool) {}
		return reply, nil
	}
	if d, ok := t.Since(have); ok && have != t.Version() && len(d.Entries)+len(d.Deleted) <= t.Len() {
		reply.Chunks = chunk.Split(d)
		return reply, nil
	}
	reply.Full, reply.SameVersion = true, have == t.Version()
	reply.Chunks = s.full.Chunks(t)
	return reply, nil
}
