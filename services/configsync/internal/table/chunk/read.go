package chunk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
	"github.com/tandemlog/tandem/services/configsync/internal/table/packed"
)

// ErrChunk says that bytes are no chunk. One that a newer version may have made is fastjson.ErrShape.
var ErrChunk = errdefs.New(errdefs.DataLoss, "BROKEN_CHUNK", "not a chunk of a table")

var errShape = fastjson.ErrShape.WithRemedy("both nodes should run the same version")

// head is what stands before the entries.
type head struct {
	seq              int
	last             bool
	delta            table.Delta // without entries and deletions
	entries, deleted int         // of the whole delta
}

// open checks the frame of a chunk and reads its head.
func open(data []byte) (*packed.Reader, head, error) {
	var h head
	if len(data) < 4 || len(data) > MaxBytes {
		return nil, h, ErrChunk.WithMsg("%d bytes", len(data))
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, h, ErrChunk.WithMsg("the checksum is wrong")
	}
	// Of a whole table all is kept or nothing.
	r := packed.NewReader(body, len(body) > flagsAt && body[flagsAt]&flagFull != 0)
	if v := r.Byte(); v != version {
		r.Fail(errShape.WithMsg("format %d, want %d", v, version))
	}
	h.delta.Kind = entry.Kind(r.Byte())
	flags := r.Byte()
	if !h.delta.Kind.Valid() || flags&^(flagFull|flagLast|flagSameUnknown) != 0 {
		r.Fail(errShape.WithMsg("kind %d, flags %#x", h.delta.Kind, flags))
	}
	h.delta.Full, h.last, h.delta.SameUnknown = flags&flagFull != 0, flags&flagLast != 0, flags&flagSameUnknown != 0
	h.seq = int(r.Uvarint(math.MaxInt32))
	h.delta.From, h.delta.To = readVersion(r), readVersion(r)
	if b := r.Take(8); b != nil {
		h.delta.Sum = binary.BigEndian.Uint64(b)
	}
	h.entries, h.deleted = int(r.Uvarint(math.MaxInt32)), int(r.Uvarint(math.MaxInt32))
	if h.seq == 0 && !h.delta.SameUnknown {
		h.delta.Unknown = entry.ReadFields(r)
	}
	return r, h, broken(r)
}

// broken returns what is wrong with the bytes.
func broken(r *packed.Reader) error {
	err := r.Err()
	if err == nil || errors.Is(err, errShape) {
		return err
	}
	return ErrChunk.Wrap(err)
}

func readVersion(r *packed.Reader) entry.Version {
	return entry.Version{State: r.Varint(), Counter: r.Varint(), Timestamp: r.Varint()}
}

// body reads deletions and entries.
func (a *Assembly) body(r *packed.Reader) error {
	d := a.delta
	n := r.Uvarint(MaxEntries)
	for ; n > 0 && r.Err() == nil; n-- {
		d.Deleted = append(d.Deleted, table.Tombstone{Key: r.Text(), Change: r.Varint()})
	}
	for more := r.Byte(); more != 0; more = r.Byte() {
		if more != 1 {
			r.Failf("byte %d before an entry", more)
			break
		}
		e := table.Entry{Change: r.Varint()}
		absent := r.Uvarint(math.MaxUint32)
		at := r.Mark()
		e.Key, e.Value = a.unpacker.Read(r, d.Kind, uint32(absent), d.Full)
		text := r.Since(at)
		if len(text) > table.MaxEntry {
			r.Failf("an entry of %d bytes: %.80q", len(text), e.Key)
		}
		if r.Err() != nil {
			break
		}
		if err := d.Add(e.Hashed(entry.HashPacked(text))); err != nil {
			return err
		}
		a.entries++
	}
	if r.Left() > 0 {
		r.Failf("%d bytes behind its end", r.Left())
	}
	return broken(r)
}

// Assembly puts the chunks of one delta together.
type Assembly struct {
	kind  entry.Kind
	delta *table.Delta
	head  head
	next  int
	done  bool

	entries  int // so far
	unpacker entry.Unpacker
}

// NewAssembly waits for the chunks of a delta of a kind.
func NewAssembly(kind entry.Kind) *Assembly { return &Assembly{kind: kind} }

// Add takes the next chunk. After an error the Assembly must be thrown away.
func (a *Assembly) Add(data []byte) error {
	r, h, err := open(data)
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
	if err := a.body(r); err != nil {
		return err
	}
	a.next++
	a.done = h.last
	if a.entries > h.entries || len(a.delta.Deleted) > h.deleted ||
		h.last && (a.entries < h.entries || len(a.delta.Deleted) < h.deleted) {
		return table.ErrNotWhole.With("kind", a.kind).With("entries", a.entries).With("want", h.entries)
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
