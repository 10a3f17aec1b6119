package table

import (
	"slices"

	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/ptree"
)

// DerivedField is what RocketMQ 5 writes beside the consumer offsets and computes from them. It is kept while they have
// the keys it was computed from.
const DerivedField = "groupTopicMap"

// Edit makes the next version of a table: all its changes get one counter. It is for one goroutine.
type Edit struct {
	next    Table
	base    *Table
	edit    *ptree.Editor[entry.Value]
	counter int64
	version entry.Version
	changed bool
	scratch []byte
}

// Edit begins the next version. State is the epoch of who makes it, nowMS the time.
func (t *Table) Edit(state, nowMS int64) *Edit {
	v := t.version.Next(state, nowMS)
	return &Edit{next: *t, base: t, edit: t.tree.Edit(), version: v, counter: v.Counter}
}

// Done returns the next version and what it changes; the old table and nil when nothing changed. The Edit is used up.
func (e *Edit) Done() (*Table, *Delta) {
	t := e.table()
	if t == e.base {
		return t, nil
	}
	return t, t.since(e.base.version)
}

// table is Done for who needs no delta.
func (e *Edit) table() *Table {
	if !e.changed {
		return e.base
	}
	t := e.next
	t.tree = e.edit.Tree()
	t.advance(e.version)
	return &t
}

// Touch makes a new version even if nothing else changes.
func (e *Edit) Touch() { e.changed = true }

// Get returns an entry, changes included.
func (e *Edit) Get(key string) (Entry, bool) {
	i, ok := e.edit.Get(key)
	return asEntry(i), ok
}

// Put puts a topic or a group in. The value must not be changed any more.
func (e *Edit) Put(v entry.Value) error {
	if v.Kind() != e.base.kind {
		return ErrKind.With("kind", e.base.kind).With("got", v.Kind())
	}
	switch v := v.(type) {
	case *entry.TopicConfig:
		e.set(v.Name, v)
		return e.check(v.Name)
	case *entry.GroupConfig:
		e.set(v.Name, v)
		return e.check(v.Name)
	default:
		return ErrKind.With("kind", e.base.kind).WithMsg("offsets are committed or reset, not put")
	}
}

// check refuses what set has just hashed if it is too large.
func (e *Edit) check(key string) error {
	if len(e.scratch) > MaxEntry {
		return tooLarge(key, len(e.scratch))
	}
	return nil
}

// set puts a value under a key, unless it is there already.
func (e *Edit) set(key string, v entry.Value) {
	old, had := e.edit.Get(key)
	if !had || !old.Value.Equal(v) {
		e.replace(key, old.Value, v)
	}
}

// replace puts v in place of old, which may be nil.
func (e *Edit) replace(key string, old, v entry.Value) {
	if old != nil {
		e.next.sum -= e.hash(key, old)
	} else {
		e.next.derived = ""
	}
	e.next.sum += e.hash(key, v)
	e.next.epoch = max(e.next.epoch, epochOf(v))
	e.edit.Put(ptree.Item[entry.Value]{Key: key, Mark: e.counter, Value: v})
	e.changed = true
}

func (e *Edit) hash(key string, v entry.Value) (h uint64) {
	h, e.scratch = entry.Hash(key, v, e.scratch)
	return h
}

func (e *Edit) setUnknown(fields []entry.Field) {
	if !slices.Equal(fields, e.next.unknown) {
		e.next.unknown = fields
		e.next.unknownMark = e.counter
		e.changed = true
	}
}

// Delete takes a topic or a group out; false if it is not there.
func (e *Edit) Delete(key string) bool {
	old, ok := e.edit.Get(key)
	if !ok || e.base.kind.Offsets() {
		return false
	}
	e.next.sum -= e.hash(key, old.Value)
	e.edit.Delete(key)
	e.next.bury(key, e.counter)
	e.changed = true
	return true
}
