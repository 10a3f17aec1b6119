package whole

import (
	"iter"
	"sync"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
)

// Cache has the chunks of one version at a time. The zero value is empty.
type Cache struct {
	mu  sync.Mutex
	row *row
}

// row is one version.
type row struct {
	table *table.Table

	mu     sync.Mutex
	split  *chunk.Splitter
	chunks [][]byte // so far
}

// Chunks returns those of t, which must not be changed.
func (c *Cache) Chunks(t *table.Table) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		r := c.get(t)
		for i := 0; ; i++ {
			if b := r.at(i); b == nil || !yield(b) {
				return
			}
		}
	}
}

func (c *Cache) get(t *table.Table) *row {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.row == nil || c.row.table != t {
		c.row = &row{table: t, split: chunk.SplitTable(t)}
	}
	return c.row
}

// at returns chunk i, which whoever is first has made; nil behind the last one.
func (r *row) at(i int) []byte {
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

// DropStale lets go of the chunks unless they are those of t, and reports whether any are left.
func (c *Cache) DropStale(t *table.Table) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.row != nil && c.row.table != t {
		c.row = nil
	}
	return c.row != nil
}
