package registry

import (
	"iter"
	"sync"

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

// fullCache has a whole table as chunks, once for a version, however many ask.
type fullCache struct {
	mu  sync.Mutex
	row *fullRow
}

// fullRow is one version of it.
type fullRow struct {
	table *table.Table

	mu     sync.Mutex
	split  *chunk.Splitter
	chunks [][]byte // so far
}

func (c *fullCache) get(t *table.Table) *fullRow {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.row == nil || c.row.table != t {
		c.row = &fullRow{table: t, split: chunk.SplitTable(t)}
	}
	return c.row
}

// at returns chunk i, which whoever is first has made; nil behind the last one.
func (r *fullRow) at(i int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i == len(r.chunks) {
		b := r.split.Next()
		if b == nil {
			return nil
		}
		r.chunks = append(r.chunks, b)
	}
	return r.chunks[i]
}

// dropStale lets go of the chunks of an older version.
func (c *fullCache) dropStale(t *table.Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.row != nil && c.row.table != t {
		c.row = nil
	}
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
	reply.Chunks = func(yield func([]byte) bool) {
		row := s.full.get(t)
		for i := 0; ; i++ {
			if b := row.at(i); b == nil || !yield(b) {
				return
			}
		}
	}
	return reply, nil
}
