package chunk

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Errors.
var (
	// ErrChunk: bytes that are no chunk of the topic table.
	ErrChunk = errdefs.New(errdefs.DataLoss, "BROKEN_CHUNK", "not a chunk of the topic table").
			WithRemedy("storage and configsync should run the same version")
	// ErrNotWhole: a row of chunks of which a part is missing.
	ErrNotWhole = errdefs.New(errdefs.DataLoss, "TABLE_NOT_WHOLE", "the table is not whole")
)

// Topic is what a storage obeys of a topic's config.
type Topic struct {
	Name                    string
	ReadQueues, WriteQueues int32
	Perm                    int32 // PermRead and PermWrite; other bits mean nothing here
}

// Permissions (RocketMQ: PermName).
const (
	PermWrite int32 = 2
	PermRead  int32 = 4
)

// Version is the table's DataVersion.
type Version struct{ State, Counter, Timestamp int64 }

// Before reports whether v is older than o.
func (v Version) Before(o Version) bool {
	switch {
	case v.State != o.State:
		return v.State < o.State
	case v.Counter != o.Counter:
		return v.Counter < o.Counter
	}
	return v.Timestamp < o.Timestamp
}

// Delta is what leads from one version of the table to another; From means nothing where it is Full.
type Delta struct {
	Full     bool
	From, To Version
	Sum      uint64 // hash of the table at To
	Deleted  []string
	Topics   []Topic // a topic that is in both was deleted and came back
}

const (
	format     = 2
	kindTopics = 1

	flagFull        = 1
	flagLast        = 2
	flagSameUnknown = 4

	maxEntries = 1024    // of a chunk, and as many deletions
	maxBytes   = 4 << 20 // of a chunk
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a table

// head is what stands before the entries; equal in all chunks of a row but for seq and last.
type head struct {
	full             bool
	from, to         Version
	sum              uint64
	entries, deleted uint64 // of the whole row
}

// Assembly puts the chunks of one row together. The zero value waits for the first one.
type Assembly struct {
	delta Delta
	head  head
	next  uint64
	done  bool
}

// Add takes the next chunk. After an error the Assembly must be thrown away.
func (a *Assembly) Add(data []byte) error {
	if len(data) < 4 || len(data) > maxBytes {
		return ErrChunk.WithMsg("a chunk of %d bytes", len(data))
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return ErrChunk.WithMsg("the checksum of a chunk is wrong")
	}
	p := &parser{b: body}
	h, seq, last := p.head()
	switch {
	case p.err != nil:
		return p.err
	case a.done || seq != a.next:
		return ErrNotWhole.With("chunk", seq).With("want", a.next)
	case a.next > 0 && h != a.head:
		return ErrNotWhole.With("chunk", seq).WithMsg("a chunk of another table in between")
	}
	a.head = h
	a.delta.Full, a.delta.From, a.delta.To, a.delta.Sum = h.full, h.from, h.to, h.sum
	if p.body(&a.delta); p.err != nil {
		return p.err
	}
	a.next++
	a.done = last
	topics, deleted := uint64(len(a.delta.Topics)), uint64(len(a.delta.Deleted))
	if topics > h.entries || deleted > h.deleted || last && (topics < h.entries || deleted < h.deleted) {
		return ErrNotWhole.With("topics", topics).With("want", h.entries).With("deleted", deleted).With("want_deleted", h.deleted)
	}
	return nil
}

// Done reports whether the last chunk was there.
func (a *Assembly) Done() bool { return a.done }

// Delta returns the delta, or ErrNotWhole when chunks are missing.
func (a *Assembly) Delta() (*Delta, error) {
	if !a.done {
		return nil, ErrNotWhole.With("chunks", a.next).WithMsg("the last chunk is missing")
	}
	return &a.delta, nil
}

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

func (p *parser) take(n uint64) []byte {
	if n > uint64(len(p.b)) {
		p.fail("a chunk ends in the middle")
		return nil
	}
	b := p.b[:n]
	p.b = p.b[n:]
	return b
}

func (p *parser) byte() byte {
	if b := p.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (p *parser) uvarint(limit uint64) uint64 {
	n, size := binary.Uvarint(p.b)
	if size <= 0 || n > limit {
		p.fail("a number in a chunk that is not one or above %d", limit)
		return 0
	}
	p.b = p.b[size:]
	return n
}

func (p *parser) varint() int64 {
	n, size := binary.Varint(p.b)
	if size <= 0 {
		p.fail("a number in a chunk that is not one")
		return 0
	}
	p.b = p.b[size:]
	return n
}

func (p *parser) int32() int32 {
	n := p.varint()
	if int64(int32(n)) != n { //nolint:gosec // that is the question
		p.fail("number %d in a chunk has more than 32 bits", n)
	}
	return int32(n) //nolint:gosec // see above
}

func (p *parser) text() string { return string(p.take(p.uvarint(math.MaxInt32))) }

func (p *parser) version() Version {
	return Version{State: p.varint(), Counter: p.varint(), Timestamp: p.varint()}
}

func (p *parser) head() (h head, seq uint64, last bool) {
	if f, kind := p.byte(), p.byte(); f != format || kind != kindTopics {
		p.fail("a chunk of format %d and kind %d, want %d and %d", f, kind, format, kindTopics)
	}
	flags := p.byte()
	if flags&^(flagFull|flagLast|flagSameUnknown) != 0 {
		p.fail("flags %#x in a chunk", flags)
	}
	h.full, last = flags&flagFull != 0, flags&flagLast != 0
	seq = p.uvarint(math.MaxInt32)
	h.from, h.to = p.version(), p.version()
	if sum := p.take(8); sum != nil {
		h.sum = binary.BigEndian.Uint64(sum)
	}
	h.entries, h.deleted = p.uvarint(math.MaxInt32), p.uvarint(math.MaxInt32)
	if seq == 0 && flags&flagSameUnknown == 0 {
		p.pass() // fields beside the table: not a storage's business
	}
	return h, seq, last
}

// pass reads over names with values.
func (p *parser) pass() {
	for n := p.uvarint(math.MaxInt32); n > 0 && p.err == nil; n-- {
		p.take(p.uvarint(math.MaxInt32))
		p.take(p.uvarint(math.MaxInt32))
	}
}

// topic reads a topic's name and config.
func (p *parser) topic() Topic {
	t := Topic{Name: p.text()}
	p.byte() // order and filter type
	t.ReadQueues, t.WriteQueues, t.Perm = p.int32(), p.int32(), p.int32()
	p.int32() // topicSysFlag
	p.pass()  // attributes
	p.pass()  // fields that configsync does not know either
	return t
}

// body reads deletions and entries.
func (p *parser) body(d *Delta) {
	for n := p.uvarint(maxEntries); n > 0 && p.err == nil; n-- {
		d.Deleted = append(d.Deleted, p.text())
		p.varint() // when
	}
	for p.err == nil {
		switch more := p.byte(); {
		case p.err != nil:
			return
		case more == 0:
			if len(p.b) > 0 {
				p.fail("%d bytes behind the end of a chunk", len(p.b))
			}
			return
		case more != 1:
			p.fail("byte %d before an entry of a chunk", more)
			return
		}
		p.varint()                // when
		p.uvarint(math.MaxUint32) // fields that a file need not have
		d.Topics = append(d.Topics, p.topic())
	}
}
