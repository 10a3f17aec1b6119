package epoch

import (
	"slices"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// ErrBadList is an epoch list that no storage can have written.
var ErrBadList = errdefs.New(errdefs.InvalidArgument, "BAD_EPOCH_LIST", "the epoch list contradicts itself")

// maxEntries bounds a list: about one change of masters an hour for seven years.
const maxEntries = 1 << 16

// ID is the random number that tells two reigns with one epoch number apart; 0 is none.
type ID uint64

// Entry is one reign: its number (from 1), the first offset of the log that belongs to it, in bytes, and its id.
type Entry struct {
	Epoch, Start int64
	ID           ID
}

// List is the epochs of a log, oldest first. History before the first start is epoch 0.
type List []Entry

// Promise names a reign without its start; the zero value is none.
type Promise struct {
	Epoch int64
	ID    ID
}

// higher returns the one with the higher number, a where they are equal.
func higher(a, b Promise) Promise {
	if b.Epoch > a.Epoch {
		return b
	}
	return a
}

// Last returns the newest reign in the list, the zero value when it is empty.
func (l List) Last() Promise {
	if len(l) == 0 {
		return Promise{}
	}
	e := l[len(l)-1]
	return Promise{Epoch: e.Epoch, ID: e.ID}
}

// Check returns ErrBadList when numbers do not grow or are beyond all bounds, starts fall or an id is missing.
func (l List) Check() error {
	if len(l) > maxEntries {
		return ErrBadList.WithMsg("the epoch list has %d entries, at most %d are legal", len(l), maxEntries)
	}
	prev := Entry{}
	for i, e := range l {
		if e.Epoch <= prev.Epoch || e.Epoch > maxEpoch || e.Start < prev.Start || e.ID == 0 {
			return ErrBadList.With("entry", i).With("epoch", e.Epoch).With("start", e.Start)
		}
		prev = e
	}
	return nil
}

// endOf returns where entry i ends in a log that ends at end; -1 is epoch 0.
func (l List) endOf(i int, end int64) int64 {
	if i+1 < len(l) {
		return min(l[i+1].Start, end)
	}
	return end
}

// Part returns the offset at which two logs part and the number of leading entries that they share. With 0 common entries
// the offset only bounds what they can share: both hold history of epoch 0 up to there, which has no identity.
func Part(a List, aEnd int64, b List, bEnd int64) (offset int64, common int) {
	for common < len(a) && common < len(b) && a[common] == b[common] {
		common++
	}
	return min(a.endOf(common-1, aEnd), b.endOf(common-1, bEnd)), common
}

// Rank orders logs: the highest epoch whose start is reached, then the end in bytes.
type Rank struct{ Epoch, End int64 }

// rank returns the rank of a log.
func (w law) rank(l List, end int64) Rank {
	r := Rank{End: end}
	for _, e := range l {
		if e.Start <= end || !w.holds(ruleReached) {
			r.Epoch = max(r.Epoch, e.Epoch)
		}
	}
	return r
}

// Less reports whether a ranks below b.
func Less(a, b Rank) bool {
	if a.Epoch != b.Epoch {
		return a.Epoch < b.Epoch
	}
	return a.End < b.End
}

// appendEpoch returns the list of a log that a new reign begins on at end: entries that start at or past it have no bytes
// and would make older epochs seem to end there, so they go.
func (w law) appendEpoch(l List, end int64, p Promise) List {
	n := len(l)
	for n > 0 && l[n-1].Start >= end {
		n--
		if !w.holds(ruleDropEmpty) {
			break
		}
	}
	return append(slices.Clone(l[:n]), Entry{Epoch: p.Epoch, Start: end, ID: p.ID})
}

// withBytes returns the entries that have bytes in a log that ends at end.
func (l List) withBytes(end int64) List {
	n := len(l)
	for n > 0 && l[n-1].Start >= end {
		n--
	}
	return l[:n]
}
