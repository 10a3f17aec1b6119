package chunk

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"unicode/utf8"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// ErrChunk says that bytes are no chunk.
var ErrChunk = errdefs.New(errdefs.DataLoss, "BROKEN_CHUNK", "not a chunk of a table")

// parser reads a chunk; the first error stays.
type parser struct {
	b   []byte
	err error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = ErrChunk.WithMsg(format, args...)
	}
	p.b = nil
}

func (p *parser) byte() byte {
	if len(p.b) == 0 {
		p.fail("it ends in the middle")
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

func (p *parser) uvarint(limit uint64) uint64 {
	n, size := binary.Uvarint(p.b)
	if size <= 0 || n > limit {
		p.fail("a number that is not one or above %d", limit)
		return 0
	}
	p.b = p.b[size:]
	return n
}

func (p *parser) varint() int64 {
	n, size := binary.Varint(p.b)
	if size <= 0 {
		p.fail("a number that is not one")
		return 0
	}
	p.b = p.b[size:]
	return n
}

func (p *parser) text() string { return string(p.bytes()) }

// bytes is a text as it lies in the chunk.
func (p *parser) bytes() []byte {
	n := int(p.uvarint(uint64(len(p.b))))
	if n > len(p.b) {
		p.fail("it ends in the middle")
		return nil
	}
	b := p.b[:n]
	p.b = p.b[n:]
	return b
}

func (p *parser) version() entry.Version {
	return entry.Version{State: p.varint(), Counter: p.varint(), Timestamp: p.varint()}
}

// head is what stands before the entries.
type head struct {
	seq              int
	last             bool
	delta            table.Delta // without entries and deletions
	entries, deleted int         // of the whole delta
}

// open checks the frame of a chunk and reads its head.
func open(data []byte) (*parser, head, error) {
	var h head
	if len(data) < 4 || len(data) > MaxBytes {
		return nil, h, ErrChunk.WithMsg("%d bytes", len(data))
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, h, ErrChunk.WithMsg("the checksum is wrong")
	}
	p := &parser{b: body}
	if v := p.byte(); v != version {
		p.fail("format %d, want %d", v, version)
	}
	h.delta.Kind = entry.Kind(p.byte())
	flags := p.byte()
	if !h.delta.Kind.Valid() || flags&^(flagFull|flagLast|flagSameUnknown) != 0 {
		p.fail("kind %d, flags %#x", h.delta.Kind, flags)
	}
	h.delta.Full, h.last, h.delta.SameUnknown = flags&flagFull != 0, flags&flagLast != 0, flags&flagSameUnknown != 0
	h.seq = int(p.uvarint(math.MaxInt32))
	h.delta.From, h.delta.To = p.version(), p.version()
	if len(p.b) < 8 {
		p.fail("it ends in the middle")
		return nil, h, p.err
	}
	h.delta.Sum = binary.BigEndian.Uint64(p.b)
	p.b = p.b[8:]
	h.entries = int(p.uvarint(math.MaxInt32))
	h.deleted = int(p.uvarint(math.MaxInt32))
	if h.seq == 0 && !h.delta.SameUnknown {
		p.fields(&h.delta)
	}
	return p, h, p.err
}

func (p *parser) fields(d *table.Delta) {
	for n := p.uvarint(uint64(len(p.b))); n > 0 && p.err == nil; n-- {
		f := entry.Field{Name: p.text(), Raw: p.text()}
		if !fastjson.Compact(f.Raw) || !utf8.ValidString(f.Name) {
			p.fail("field %.80q is not compact JSON", f.Name)
			return
		}
		d.Unknown = entry.SetField(d.Unknown, f)
	}
}

// body reads deletions and entries.
func (p *parser) body(d *table.Delta) {
	n := p.uvarint(MaxEntries)
	for ; n > 0 && p.err == nil; n-- {
		d.Deleted = append(d.Deleted, table.Tombstone{Key: p.text(), Change: p.varint()})
	}
	for p.err == nil {
		more := p.byte()
		if more == 0 {
			break
		}
		if more != 1 {
			p.fail("byte %d before an entry", more)
			return
		}
		key, change := p.text(), p.varint()
		value, err := p.value(d.Kind, key)
		if err != nil && p.err == nil {
			p.err = err
		}
		d.Entries = append(d.Entries, table.Entry{Key: key, Change: change, Value: value})
	}
	if p.err == nil && len(p.b) > 0 {
		p.fail("%d bytes behind its end", len(p.b))
	}
}

func (p *parser) value(kind entry.Kind, key string) (entry.Value, error) {
	switch kind {
	case entry.Topics, entry.Groups:
		r := fastjson.NewReader(p.bytes())
		if p.err != nil {
			return nil, p.err
		}
		var v entry.Value
		var err error
		if kind == entry.Topics {
			v, err = entry.ReadTopic(r, key)
		} else {
			v, err = entry.ReadGroup(r, key)
		}
		if err == nil {
			err = r.End()
		}
		return v, err
	case entry.ConsumerOffsets:
		var queues []entry.QueueOffset
		for n := p.uvarint(uint64(len(p.b))); n > 0 && p.err == nil; n-- {
			q := entry.QueueOffset{Queue: int32(p.uvarint(math.MaxInt32)), Epoch: uint32(p.uvarint(math.MaxUint32)), Offset: p.offset()}
			queues = append(queues, q)
		}
		return entry.NewOffsets(queues...), p.err
	default:
		return &entry.Delay{Epoch: uint32(p.uvarint(math.MaxUint32)), Offset: p.offset()}, p.err
	}
}

func (p *parser) offset() int64 {
	n := p.varint()
	if n < entry.NoOffset {
		p.fail("offset %d", n)
	}
	return n
}

// Assembly puts the chunks of one delta together.
type Assembly struct {
	kind  entry.Kind
	delta *table.Delta
	head  head
	next  int
	done  bool
}

// NewAssembly waits for the chunks of a delta of a kind.
func NewAssembly(kind entry.Kind) *Assembly { return &Assembly{kind: kind} }

// Add takes the next chunk. After an error the Assembly must be thrown away.
func (a *Assembly) Add(data []byte) error {
	p, h, err := open(data)
	if err != nil {
		return err
	}
	if h.delta.Kind != a.kind {
		return table.ErrKind.With("kind", a.kind).With("got", h.delta.Kind)
	}
	if a.done || h.seq != a.next {
		return table.ErrNotWhole.With("kind", a.kind).With("chunk", h.seq).With("want", a.next)
	}
	if a.next == 0 {
		d := h.delta
		a.delta, a.head = &d, h
	} else if h.delta.To != a.head.delta.To || h.delta.From != a.head.delta.From || h.delta.Sum != a.head.delta.Sum ||
		h.delta.Full != a.head.delta.Full || h.entries != a.head.entries || h.deleted != a.head.deleted {
		return table.ErrNotWhole.With("kind", a.kind).With("chunk", h.seq).WithMsg("a chunk of another table in between")
	}
	p.body(a.delta)
	if p.err != nil {
		return p.err
	}
	a.next++
	a.done = h.last
	if len(a.delta.Entries) > h.entries || len(a.delta.Deleted) > h.deleted ||
		h.last && (len(a.delta.Entries) < h.entries || len(a.delta.Deleted) < h.deleted) {
		return table.ErrNotWhole.With("kind", a.kind).With("entries", len(a.delta.Entries)).With("want", h.entries)
	}
	return nil
}

// Done reports whether the last chunk was there.
func (a *Assembly) Done() bool { return a.done }

// Delta returns the delta, or ErrNotWhole when chunks are missing.
func (a *Assembly) Delta() (*table.Delta, error) {
	if !a.done {
		return nil, table.ErrNotWhole.With("kind", a.kind).With("chunks", a.next).WithMsg("the last chunk is missing")
	}
	return a.delta, nil
}
