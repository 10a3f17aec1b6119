package whole

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

func groups(t *testing.T, n int) *table.Table {
	t.Helper()
	b := table.NewBuilder(entry.Groups)
	for i := range n {
		name := fmt.Sprintf("group-%05d", i)
		if err := b.Add(table.Entry{Key: name, Value: entry.NewGroup(name)}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Table(entry.Version{Counter: 1}, table.FormFull, nil)
}

// TestManyAskAtOnce: all get the whole table, of the same chunks, whoever has made them; one that stops early takes nothing from the
// others.
func TestManyAskAtOnce(t *testing.T) {
	var c Cache
	own := groups(t, 4*chunk.MaxEntries)
	want := slices.Collect(chunk.Split(own.Full()))
	got := make([][][]byte, 8)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			for b := range c.Chunks(own) {
				if got[i] = append(got[i], b); i == 0 && len(got[i]) == 2 {
					return
				}
			}
		})
	}
	all.Wait()
	for i, chunks := range got {
		if i == 0 {
			chunks = append(chunks, want[2:]...)
		}
		if len(chunks) != len(want) || &chunks[0][0] != &got[0][0][0] {
			t.Fatalf("asker %d gets %d chunks, want %d, made once", i, len(chunks), len(want))
		}
		for j := range want {
			if !slices.Equal(chunks[j], want[j]) {
				t.Errorf("asker %d: chunk %d is not the table's", i, j)
			}
		}
	}
}

// TestDropStale: who reads an old version reads it to its end.
func TestDropStale(t *testing.T) {
	var c Cache
	old, now := groups(t, 3*chunk.MaxEntries), groups(t, 1)
	n := 0
	for range c.Chunks(old) {
		if n++; n == 1 && (!c.DropStale(old) || c.DropStale(now)) {
			t.Error("the chunks of an old version are kept, or those of the present one are not")
		}
	}
	if n != 3 || len(slices.Collect(c.Chunks(now))) != 1 || !c.DropStale(now) || c.DropStale(old) {
		t.Errorf("%d chunks", n)
	}
}
