package raft

import "sort"

// Lineage knows the term of every entry held, as runs of equal terms: 16 bytes an election, until a purge. Only its methods
// change it.
type Lineage struct {
	Base Mark // the entry before the first
	Runs []Run
	Last Index
}

// NewLineage takes over what was found on disk; ok is false when it contradicts itself. The runs are copied.
func NewLineage(base Mark, held []Run, last Index) (lineage Lineage, ok bool) {
	l := Lineage{Base: base, Runs: append([]Run(nil), held...), Last: last}
	if l.Base.Index < NoIndex || l.Last < l.Base.Index || (l.Last > l.Base.Index) != (len(l.Runs) > 0) {
		return l, false
	}
	before := Run{First: l.Base.Index, Term: l.Base.Term}
	for i, r := range l.Runs {
		follows := r.First > before.First && r.Term > before.Term
		if i == 0 { // the first run may go on with the base's term
			follows = r.First == before.First+1 && r.Term >= before.Term
		}
		if !follows || r.First > l.Last || r.Term < 0 {
			return l, false
		}
		before = r
	}
	return l, true
}

// Term returns the term of entry i; ok only from the base to the end.
func (l *Lineage) Term(i Index) (t Term, ok bool) {
	switch {
	case i < l.Base.Index || i > l.Last:
		return NoTerm, false
	case i == l.Base.Index:
		return l.Base.Term, true
	}
	n := sort.Search(len(l.Runs), func(k int) bool { return l.Runs[k].First > i })
	return l.Runs[n-1].Term, true
}

// Has says whether the entry is the base or among those held.
func (l *Lineage) Has(m Mark) bool {
	t, ok := l.Term(m.Index)
	return ok && t == m.Term
}

// End returns the last entry, the base where none is held.
func (l *Lineage) End() Mark {
	if len(l.Runs) == 0 {
		return l.Base
	}
	return Mark{Index: l.Last, Term: l.Runs[len(l.Runs)-1].Term}
}

// Floor returns the last entry at or before m.Index whose term is not above m.Term, or the base.
func (l *Lineage) Floor(m Mark) Mark {
	at := min(m.Index, l.Last)
	for k := len(l.Runs) - 1; k >= 0; k-- {
		if r := l.Runs[k]; r.First <= at {
			if r.Term <= m.Term {
				return Mark{Index: at, Term: r.Term}
			}
			at = r.First - 1
		}
	}
	return l.Base
}

// Append adds an entry of term t, which must not be below that of the last one.
func (l *Lineage) Append(t Term) {
	l.Last++
	if len(l.Runs) == 0 || l.Runs[len(l.Runs)-1].Term != t {
		l.Runs = append(l.Runs, Run{First: l.Last, Term: t})
	}
}

// Truncate drops what lies behind last.
func (l *Lineage) Truncate(last Index) {
	for len(l.Runs) > 0 && l.Runs[len(l.Runs)-1].First > last {
		l.Runs = l.Runs[:len(l.Runs)-1]
	}
	l.Last = last
}

// Purge makes entry i the base.
func (l *Lineage) Purge(i Index) {
	t, _ := l.Term(i)
	n := sort.Search(len(l.Runs), func(k int) bool { return l.Runs[k].First > i+1 })
	rest := append([]Run(nil), l.Runs[max(0, n-1):]...) // a copy, so that the old runs can go
	switch {
	case i == l.Last:
		rest = nil
	case len(rest) > 0:
		rest[0].First = i + 1
	}
	l.Base, l.Runs = Mark{Index: i, Term: t}, rest
}
