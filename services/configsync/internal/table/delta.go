package table

import "github.com/tandemlog/tandem/services/configsync/internal/table/entry"

// Delta leads from one version of a table to another: deletions first, then entries. A full one holds the whole table and
// leads there from any version.
type Delta struct {
	Kind     entry.Kind
	Full     bool
	From, To entry.Version
	Sum      uint64 // of the whole table at To
	Entries  []Entry
	Deleted  []Tombstone
	// Unknown are the fields beside the table; nil with SameUnknown: as before.
	Unknown     []entry.Field
	SameUnknown bool

	whole *Builder // what was added to a full one
}

// Add puts an entry in. Of a full delta it goes into the table that comes of it, and not among Entries: so a large table is not
// there twice.
func (d *Delta) Add(e Entry) error {
	if !d.Full {
		d.Entries = append(d.Entries, e)
		return nil
	}
	if d.whole == nil {
		d.whole = NewBuilder(d.Kind)
	}
	e.Change = min(e.Change, d.To.Counter)
	return d.whole.Add(e)
}

// All returns Entries, or what was added to a full delta.
func (d *Delta) All() []Entry {
	if d.whole == nil {
		return d.Entries
	}
	var out []Entry
	for i := range d.whole.tree().Ascend("") {
		out = append(out, asEntry(i))
	}
	return out
}

// Since returns what has changed since version v; false when that is not known and the whole table is needed.
func (t *Table) Since(v entry.Version) (*Delta, bool) {
	if v != t.version && !t.reaches(v) {
		return nil, false
	}
	return t.since(v), true
}

// reaches reports whether v is a version that this table had, or that its master had, and whose deltas are still known.
func (t *Table) reaches(v entry.Version) bool {
	if v.IsZero() || v.Counter < t.floor || v.Counter >= t.version.Counter {
		return false
	}
	ended := int64(-1)
	for _, s := range t.spans {
		if s.state == v.State && v.Counter > ended && v.Counter <= s.last {
			return true
		}
		ended = s.last
	}
	return v.State == t.version.State && v.Counter > ended
}

func (t *Table) since(v entry.Version) *Delta {
	d := &Delta{Kind: t.kind, From: v, To: t.version, Sum: t.Sum()}
	for i := range t.tree.Above(v.Counter) {
		d.Entries = append(d.Entries, asEntry(i))
	}
	for g := t.gone; g != nil && g.Change > v.Counter; g = g.before {
		d.Deleted = append(d.Deleted, g.Tombstone)
	}
	if t.unknownMark > v.Counter {
		d.Unknown = t.unknown
	} else {
		d.SameUnknown = true
	}
	return d
}

// Full returns the whole table with the deletions that are known.
func (t *Table) Full() *Delta {
	d := t.FullHead()
	d.Entries = make([]Entry, 0, t.tree.Len())
	for i := range t.tree.Ascend("") {
		d.Entries = append(d.Entries, asEntry(i))
	}
	return d
}

// FullHead is Full without the entries, for who takes them from the table.
func (t *Table) FullHead() *Delta {
	d := &Delta{Kind: t.kind, Full: true, To: t.version, Sum: t.Sum(), Unknown: t.unknown}
	for g := t.gone; g != nil; g = g.before {
		d.Deleted = append(d.Deleted, g.Tombstone)
	}
	return d
}

// build makes a table of a full delta.
func (d *Delta) build() (*Table, error) {
	whole := Delta{Kind: d.Kind, Full: true, To: d.To, whole: d.whole}
	if whole.whole == nil {
		whole.whole = NewBuilder(d.Kind)
	}
	for _, e := range d.Entries {
		if err := whole.Add(e); err != nil {
			return nil, err
		}
	}
	t := whole.whole.Table(d.To, FormFull, d.Unknown)
	if t.Sum() != d.Sum {
		return nil, ErrNotWhole.With("kind", d.Kind).With("entries", t.Len()).WithMsg("the content is not the one announced")
	}
	for i := len(d.Deleted) - 1; i >= 0; i-- {
		t.bury(d.Deleted[i].Key, d.Deleted[i].Change)
	}
	return t, nil
}

// Table returns the table that a full delta holds. ErrNotWhole: it is not the one announced.
func (d *Delta) Table() (*Table, error) {
	if !d.Full {
		return nil, ErrNotWhole.With("kind", d.Kind).WithMsg("a delta holds only what changed")
	}
	return d.build()
}
