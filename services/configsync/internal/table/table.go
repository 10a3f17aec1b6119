package table

import (
	"iter"
	"strings"

	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/ptree"
)

const (
	// maxGone bounds the tombstones: up to twice as many are kept before the older half goes.
	maxGone = 10_000
	// maxSpans bounds the masters before this one whose versions are recognised.
	maxSpans = 16
)

// Table is one version of one table. It never changes.
type Table struct {
	kind     entry.Kind
	form     Form
	version  entry.Version
	upstream entry.Version
	tree     ptree.Tree[entry.Value]
	sum      uint64 // of the entries
	epoch    uint32 // the highest of all offsets

	unknown     []entry.Field
	unknownMark int64
	derived     string

	gone  *tombstones
	floor int64  // deltas reach back to this counter
	spans []span // masters before the present one, the oldest first
}

// Form says which fields of its version a file had.
type Form uint8

// Forms: RocketMQ 5's, 4's without stateVersion, and that of 4's offsets without any version.
const (
	FormFull Form = iota
	FormNoState
	FormNoVersion
)

// span is the history of one master: counters up to last.
type span struct{ state, last int64 }

// tombstones are deletions, the newest first.
type tombstones struct {
	Tombstone
	count  int // with all before
	before *tombstones
}

// Tombstone is a deletion.
type Tombstone struct {
	Key    string
	Change int64 // counter of the version that deleted it
}

// Entry is one entry of a table.
type Entry struct {
	Key    string
	Change int64 // counter of the version that changed it last
	Value  entry.Value

	hash uint64 // of key and value; 0: not known
}

// Hashed returns e with the hash of its key and value, which whoever has read them from their packed form knows. Together they
// were at most MaxEntry bytes.
func (e Entry) Hashed(hash uint64) Entry {
	e.hash = hash
	return e
}

// Etag is a hash of key and value: the same on every node and after a restart, another after a change.
func (e Entry) Etag() uint64 {
	h, _ := entry.Hash(e.Key, e.Value, nil)
	return h
}

// New returns an empty table that has never changed.
func New(kind entry.Kind) *Table { return &Table{kind: kind} }

// Kind returns the kind.
func (t *Table) Kind() entry.Kind { return t.kind }

// Version returns the version.
func (t *Table) Version() entry.Version { return t.version }

// Upstream returns the version that a Java master had when this table was taken from it; zero after a restart.
func (t *Table) Upstream() entry.Version { return t.upstream }

// Form returns which fields of the version a file has to have; any version but that of the file it came from has all.
func (t *Table) Form() Form { return t.form }

// Sum returns the hash of the content.
func (t *Table) Sum() uint64 { return t.sum + entry.HashFields(t.unknown) }

// Len returns the number of entries.
func (t *Table) Len() int { return t.tree.Len() }

// ResetEpoch returns the highest epoch of all offsets.
func (t *Table) ResetEpoch() uint32 { return t.epoch }

// Unknown returns the fields beside the table that nobody here knows. The caller must not change them.
func (t *Table) Unknown() []entry.Field { return t.unknown }

// Derived returns the value of DerivedField as it came from a file; empty once the keys have changed. It is no content: it
// is in no delta and no sum.
func (t *Table) Derived() string { return t.derived }

func asEntry(i ptree.Item[entry.Value]) Entry {
	return Entry{Key: i.Key, Change: i.Mark, Value: i.Value}
}

// Get returns an entry.
func (t *Table) Get(key string) (Entry, bool) {
	i, ok := t.tree.Get(key)
	return asEntry(i), ok
}

// Topic returns a topic's config, or nil.
func (t *Table) Topic(name string) *entry.TopicConfig {
	i, _ := t.tree.Get(name)
	c, _ := i.Value.(*entry.TopicConfig)
	return c
}

// Group returns a group's config, or nil.
func (t *Table) Group(name string) *entry.GroupConfig {
	i, _ := t.tree.Get(name)
	c, _ := i.Value.(*entry.GroupConfig)
	return c
}

// Offsets returns a group's offsets in a topic, or nil.
func (t *Table) Offsets(topic, group string) *entry.Offsets {
	i, _ := t.tree.Get(entry.OffsetKey(topic, group))
	o, _ := i.Value.(*entry.Offsets)
	return o
}

// Offset returns a group's offset in a queue; one that a reset removed is there, with NoOffset.
func (t *Table) Offset(topic, group string, queue int32) (entry.QueueOffset, bool) {
	return t.Offsets(topic, group).Get(queue)
}

// Delay returns the offset of a delay level.
func (t *Table) Delay(level int32) (entry.Delay, bool) {
	i, _ := t.tree.Get(entry.DelayKey(level))
	if d, ok := i.Value.(*entry.Delay); ok {
		return *d, true
	}
	return entry.Delay{}, false
}

// Ascend returns the entries from a key on, in the order of the keys.
func (t *Table) Ascend(from string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for i := range t.tree.Ascend(from) {
			if !yield(asEntry(i)) {
				return
			}
		}
	}
}

// Prefix returns the entries whose keys begin with prefix, behind the key after if that is not empty.
func (t *Table) Prefix(prefix, after string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for e := range t.Ascend(max(prefix, after)) {
			if e.Key == after && after != "" {
				continue
			}
			if !strings.HasPrefix(e.Key, prefix) || !yield(e) {
				return
			}
		}
	}
}

// bury adds a tombstone and drops the oldest where they are too many.
func (t *Table) bury(key string, change int64) {
	count := 1
	if t.gone != nil {
		count += t.gone.count
	}
	t.gone = &tombstones{Tombstone: Tombstone{Key: key, Change: change}, count: count, before: t.gone}
	if count < 2*maxGone {
		return
	}
	kept := make([]Tombstone, 0, maxGone)
	last := t.gone
	for ; len(kept) < maxGone; last = last.before {
		kept = append(kept, last.Tombstone)
	}
	t.floor = max(t.floor, last.Change)
	t.gone = nil
	for i := len(kept) - 1; i >= 0; i-- {
		t.gone = &tombstones{Tombstone: kept[i], count: len(kept) - i, before: t.gone}
	}
}

// advance sets the version, and notes the end of a master's history.
func (t *Table) advance(v entry.Version) {
	if v.State != t.version.State {
		spans := append([]span{}, t.spans...)
		spans = append(spans, span{state: t.version.State, last: t.version.Counter})
		t.spans = spans[max(0, len(spans)-maxSpans):]
	}
	t.version = v
	t.form = FormFull
}
