package main

import "fmt"

// entry is a committed entry as a node shows it.
type entry struct {
	index, term int64
	id          string // which append it is; empty: the no-op that opens a term
}

// book is the log of a cluster as far as it has been read: what every history is held against.
type book struct {
	entries []entry          // by index
	appends []int            // how many of the entries up to an index are clients', by index
	at      map[string]int64 // index of an append
}

func newBook() *book { return &book{at: map[string]int64{}} }

// next returns the index of the first entry that has not been read.
func (b *book) next() int64 { return int64(len(b.entries)) }

// count returns how many appends stand in the log up to and including index; -1 is before the first entry.
func (b *book) count(index int64) (int, bool) {
	switch {
	case index == -1:
		return 0, true
	case index < -1 || index >= b.next():
		return 0, false
	}
	return b.appends[index], true
}

// add writes down the next entries of the log. It says what is wrong with them, if anything is.
func (b *book) add(es []entry) error {
	for _, e := range es {
		if e.index != b.next() {
			return fmt.Errorf("entry %d stands where %d is due", e.index, b.next())
		}
		n := 0
		if len(b.entries) > 0 {
			last := b.entries[len(b.entries)-1]
			if e.term < last.term {
				return fmt.Errorf("entry %d has term %d, the one before it %d", e.index, e.term, last.term)
			}
			n = b.appends[len(b.appends)-1]
		}
		if e.id != "" {
			if first, twice := b.at[e.id]; twice {
				return fmt.Errorf("append %s stands twice, at %d and %d", e.id, first, e.index)
			}
			b.at[e.id] = e.index
			n++
		}
		b.entries = append(b.entries, e)
		b.appends = append(b.appends, n)
	}
	return nil
}
