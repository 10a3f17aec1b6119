package table

import (
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/ptree"
)

// MaxEntry bounds the bytes of an entry, and of what is beside the entries, so that it fits into a message.
const MaxEntry = 1 << 20

func tooLarge(key string, size int) error {
	return entry.ErrField.WithField("value").With("key", key).WithMsg("an entry of %d bytes", size).WithRemedy("use at most %d", MaxEntry)
}

// Builder makes a table of entries that come from a file or another node. It is for one goroutine.
type Builder struct {
	table   Table
	fill    ptree.Filler[entry.Value]
	edit    *ptree.Editor[entry.Value] // from the first key on that is not behind the others
	scratch []byte
}

// NewBuilder begins an empty table.
func NewBuilder(kind entry.Kind) *Builder { return &Builder{table: Table{kind: kind}} }

// Add puts an entry in. A key may come once.
func (b *Builder) Add(e Entry) error {
	if e.Value.Kind() != b.table.kind {
		return ErrKind.With("kind", b.table.kind).With("got", e.Value.Kind())
	}
	if err := entry.ValidateKey(b.table.kind, e.Key); err != nil {
		return err
	}
	if e.hash == 0 {
		if e.hash, b.scratch = entry.Hash(e.Key, e.Value, b.scratch); len(b.scratch) > MaxEntry {
			return tooLarge(e.Key, len(b.scratch))
		}
	}
	before := b.len()
	b.put(e)
	if b.len() == before {
		return ErrDuplicate.With("key", e.Key)
	}
	return nil
}

func (b *Builder) len() int {
	if b.edit != nil {
		return b.edit.Len()
	}
	return b.fill.Len()
}

func (b *Builder) put(e Entry) {
	if e.hash == 0 {
		e.hash, b.scratch = entry.Hash(e.Key, e.Value, b.scratch)
	}
	b.table.sum += e.hash
	b.table.epoch = max(b.table.epoch, epochOf(e.Value))
	item := ptree.Item[entry.Value]{Key: e.Key, Mark: e.Change, Value: e.Value}
	if b.edit == nil {
		if b.fill.Put(item) {
			return
		}
		b.edit = b.fill.Tree().Edit()
	}
	b.edit.Put(item)
}

func epochOf(v entry.Value) uint32 {
	switch v := v.(type) {
	case *entry.Offsets:
		return v.Epoch()
	case *entry.Delay:
		return v.Epoch
	}
	return 0
}

func (b *Builder) tree() ptree.Tree[entry.Value] {
	if b.edit != nil {
		return b.edit.Tree()
	}
	return b.fill.Tree()
}

// Table returns the table with a version. Deltas reach back to it and no further.
func (b *Builder) Table(v entry.Version, form Form, unknown []entry.Field) *Table {
	t := b.table
	t.tree = b.tree()
	t.version, t.form = v, form
	for _, f := range unknown {
		if f.Name == DerivedField {
			t.derived = f.Raw
		} else {
			t.unknown = append(t.unknown, f)
		}
	}
	t.floor, t.unknownMark = v.Counter, v.Counter
	return &t
}
