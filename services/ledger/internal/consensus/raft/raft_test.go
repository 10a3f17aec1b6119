package raft

import (
	"math/rand/v2"
	"testing"
)

// TestLineageAgainstTheLog compares runs with a list of all terms.
func TestLineageAgainstTheLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		l := Lineage{Base: Mark{NoIndex, NoTerm}, Last: NoIndex}
		first, terms, term := Index(0), []Term{}, Term(0)
		for range 60 {
			switch rng.IntN(8) {
			case 0:
				keep := rng.IntN(len(terms) + 1)
				terms = terms[:keep]
				l.Truncate(first + Index(keep) - 1)
			case 1:
				drop := rng.IntN(len(terms) + 1)
				if drop > 0 {
					l.Purge(first + Index(drop) - 1)
					terms, first = terms[drop:], first+Index(drop)
				}
			default:
				term += Term(rng.IntN(2))
				terms = append(terms, term)
				l.Append(term)
			}
			compareLineage(t, &l, first, terms, Mark{Index: first + Index(rng.IntN(20)) - 5, Term: Term(rng.IntN(int(term) + 2))})
		}
	}
}

func compareLineage(t *testing.T, l *Lineage, first Index, terms []Term, at Mark) {
	t.Helper()
	for i, want := range terms {
		if got, ok := l.Term(first + Index(i)); !ok || got != want {
			t.Fatalf("term of %d: %d, want %d", first+Index(i), got, want)
		}
	}
	if _, ok := l.Term(first + Index(len(terms))); ok {
		t.Fatal("term behind the end")
	}
	want := l.Base
	for i, term := range terms {
		if first+Index(i) <= at.Index && term <= at.Term {
			want = Mark{first + Index(i), term}
		}
	}
	if got := l.Floor(at); got != want {
		t.Fatalf("floor of %v: %v, want %v", at, got, want)
	}
	if _, ok := NewLineage(l.Base, l.Runs, l.Last); !ok {
		t.Fatalf("own runs refused: %+v", l)
	}
}

func TestEveryWordHasItsName(t *testing.T) {
	if len(typeNames) != int(lastType)+1 || len(reasonTexts) != int(NumReasons)+1 {
		t.Errorf("%d names for %d types, %d texts for %d reasons", len(typeNames), lastType, len(reasonTexts), NumReasons)
	}
	if got := CommitAnswer.String() + ", " + MessageType(200).String() + ", " + NotVoter.String() + ", " + Reason(200).String(); got !=
		"COMMIT_ANSWER, ?, node has not caught up yet, ?" {
		t.Error(got)
	}
}
