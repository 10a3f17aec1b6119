package table

import "github.com/tandemlog/tandem/services/configsync/internal/table/entry"

// maxLower bounds the lower offsets of a Java master that a Report lists.
const maxLower = 1000

// Report says what a merge did.
type Report struct {
	Changed                 bool
	Added, Updated, Removed int
	// Ahead counts own offsets that are above what the other node has; they stay.
	Ahead int
	// OtherContent says that the content under this version is not the other node's. After a delta of offsets: fetch the
	// full table; after a full one: the own offsets are ahead.
	OtherContent bool
	// Lower are offsets of a Java master below the own ones, at most 1,000 of LowerCount.
	Lower      []Difference
	LowerCount int
}

// FollowOptions are for the operator.
type FollowOptions struct {
	// Force takes the full table of the master as it is: be it older, empty, or with lower offsets.
	Force bool
}

// Follow is what becomes of a slave's table when its Tandem master's delta comes. On an error the table stays as it is.
func Follow(own *Table, d *Delta, o FollowOptions) (*Table, Report, error) {
	if d.Kind != own.kind {
		return own, Report{}, ErrKind.With("kind", own.kind).With("got", d.Kind)
	}
	if !d.Full {
		return followDelta(own, d)
	}
	master, err := d.build()
	if err != nil {
		return own, Report{}, err
	}
	if o.Force {
		return master, compare(own, master), nil
	}
	order := d.To.Compare(own.version)
	switch {
	case order < 0:
		return own, Report{}, ErrOlder.With("kind", own.kind).With("have", own.version).With("got", d.To)
	case own.kind.Offsets():
		return followOffsets(own, master)
	case order == 0 && own.Sum() == master.Sum():
		return own, Report{}, nil
	case order == 0:
		return own, Report{}, ErrOtherContent.With("kind", own.kind).With("version", d.To)
	}
	if err := mayReplace(own, master); err != nil {
		return own, Report{}, err
	}
	return master, compare(own, master), nil
}

// mayReplace refuses an empty table, unless it says of each own entry that it was deleted.
func mayReplace(own, other *Table) error {
	if other.Len() > 0 || own.Len() == 0 {
		return nil
	}
	deleted := map[string]bool{}
	for g := other.gone; g != nil; g = g.before {
		deleted[g.Key] = true
	}
	for e := range own.Ascend("") {
		if !deleted[e.Key] {
			return ErrEmpty.With("kind", own.kind).With("entries", own.Len()).
				WithRemedy("delete the entries on the master, or force the table on this node")
		}
	}
	return nil
}

func followDelta(own *Table, d *Delta) (*Table, Report, error) {
	if d.From != own.version {
		return own, Report{}, ErrGap.With("kind", own.kind).With("have", own.version).With("from", d.From)
	}
	if d.To == own.version {
		return own, Report{OtherContent: d.Sum != own.Sum()}, nil
	}
	if d.To.Compare(own.version) < 0 || d.To.Counter < own.version.Counter {
		return own, Report{}, ErrOlder.With("kind", own.kind).With("have", own.version).With("got", d.To)
	}
	e := own.Edit(d.To.State, d.To.Timestamp)
	e.version, e.counter = d.To, d.To.Counter
	e.Touch()
	if !d.SameUnknown {
		e.setUnknown(d.Unknown)
	}
	var r Report
	for i := len(d.Deleted) - 1; i >= 0; i-- { // the oldest first, as they were made
		if e.Delete(d.Deleted[i].Key) {
			r.Removed++
		}
	}
	for _, in := range d.Entries {
		if err := e.take(in, &r); err != nil {
			return own, Report{}, err
		}
	}
	next := e.table()
	r.Changed = true
	r.OtherContent = next.Sum() != d.Sum
	if r.OtherContent && !own.kind.Offsets() {
		return own, Report{}, ErrOtherContent.With("kind", own.kind).With("version", d.To)
	}
	return next, r, nil
}

// take puts an entry of another node in, joined with the own one where both have offsets.
func (e *Edit) take(in Entry, r *Report) error {
	if in.Value.Kind() != e.base.kind {
		return ErrKind.With("kind", e.base.kind).With("got", in.Value.Kind())
	}
	if err := entry.ValidateKey(e.base.kind, in.Key); err != nil {
		return err
	}
	old, had := e.edit.Get(in.Key)
	value := in.Value
	if had {
		var ahead int
		value, ahead = joinValues(old.Value, in.Value)
		r.Ahead += ahead
	}
	switch {
	case !had:
		r.Added++
	case !value.Equal(old.Value):
		r.Updated++
	default:
		return nil
	}
	e.replace(in.Key, old.Value, value)
	return nil
}

// joinValues returns what two nodes' values of one key make together, and how many offsets of own are ahead of the other's.
func joinValues(own, other entry.Value) (entry.Value, int) {
	switch own := own.(type) {
	case *entry.Offsets:
		if o, ok := other.(*entry.Offsets); ok {
			return own.Join(o), ahead(own, o)
		}
	case *entry.Delay:
		if o, ok := other.(*entry.Delay); ok {
			joined := own.Join(o)
			if joined == own && *own != *o {
				return joined, 1
			}
			return joined, 0
		}
	}
	return other, 0
}

func ahead(own, other *entry.Offsets) int {
	n := 0
	for q := range own.All() {
		if o, ok := other.Get(q.Queue); !ok || o.Join(q) != o {
			n++
		}
	}
	return n
}

// followOffsets joins a master's whole table of offsets into the own one.
func followOffsets(own, master *Table) (*Table, Report, error) {
	if own.version == master.version && own.Sum() == master.Sum() {
		return own, Report{}, nil
	}
	next, r, err := joinOffsets(own, master, master.version)
	if err != nil {
		return own, Report{}, err
	}
	r.OtherContent = next.Sum() != master.Sum()
	if own.version == next.version && own.Sum() == next.Sum() {
		return own, r, nil
	}
	return next, r, nil
}

// joinOffsets makes a table of two, with version v. Deltas do not reach behind it: entries may come from either.
func joinOffsets(own, other *Table, v entry.Version) (*Table, Report, error) {
	var r Report
	b := NewBuilder(own.kind)
	for e := range own.Ascend("") {
		theirs, both := other.Get(e.Key)
		switch {
		case !both:
			r.Ahead += width(e.Value)
		default:
			joined, ahead := joinValues(e.Value, theirs.Value)
			r.Ahead += ahead
			if !joined.Equal(e.Value) {
				r.Updated++
				e.Value = joined
			}
		}
		e.Change = min(e.Change, v.Counter)
		b.put(e)
	}
	for e := range other.Ascend("") {
		if _, both := own.Get(e.Key); !both {
			r.Added++
			e.Change = min(e.Change, v.Counter)
			b.put(e)
		}
	}
	unknown := own.unknown
	if other.version.Compare(own.version) > 0 {
		unknown = other.unknown
	}
	r.Changed = r.Added+r.Updated > 0
	return b.Table(v, FormFull, unknown), r, nil
}

func width(v entry.Value) int {
	if o, ok := v.(*entry.Offsets); ok {
		return o.Len()
	}
	return 1
}

// compare counts what a replacement changes.
func compare(own, next *Table) Report {
	r := Report{Changed: true}
	for e := range next.Ascend("") {
		old, had := own.Get(e.Key)
		switch {
		case !had:
			r.Added++
		case !old.Value.Equal(e.Value):
			r.Updated++
		}
	}
	r.Removed = own.Len() + r.Added - next.Len()
	return r
}
