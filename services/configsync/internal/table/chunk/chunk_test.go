package chunk

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func build(t testing.TB, kind entry.Kind, entries ...table.Entry) *table.Table {
	t.Helper()
	b := table.NewBuilder(kind)
	for _, e := range entries {
		must(t, b.Add(e))
	}
	return b.Table(entry.Version{State: 1, Counter: 3, Timestamp: 1000}, table.FormFull, nil)
}

func together(kind entry.Kind, chunks ...[]byte) (*table.Delta, error) {
	a := NewAssembly(kind)
	for _, c := range chunks {
		if err := a.Add(c); err != nil {
			return nil, err
		}
	}
	return a.Delta()
}

func equal(a, b *table.Delta) bool {
	return a.Kind == b.Kind && a.Full == b.Full && a.From == b.From && a.To == b.To && a.Sum == b.Sum && a.SameUnknown == b.SameUnknown &&
		slices.Equal(a.Unknown, b.Unknown) && slices.Equal(a.Deleted, b.Deleted) &&
		slices.EqualFunc(sorted(a.All()), sorted(b.All()), func(x, y table.Entry) bool {
			return x.Key == y.Key && x.Change == y.Change && x.Value.Equal(y.Value)
		})
}

func sorted(es []table.Entry) []table.Entry {
	return slices.SortedFunc(slices.Values(es), func(a, b table.Entry) int { return strings.Compare(a.Key, b.Key) })
}

// examples are deltas of all kinds, those of FORMAT.md first.
func examples(t testing.TB) []*table.Delta {
	t.Helper()
	topic := entry.NewTopic("T")
	offsets := build(t, entry.ConsumerOffsets, table.Entry{Key: "T@G", Change: 2, Value: entry.NewOffsets(
		entry.QueueOffset{Offset: 45}, entry.QueueOffset{Queue: 1, Epoch: 2, Offset: entry.NoOffset})})
	delta := &table.Delta{
		Kind: entry.Topics, From: entry.Version{State: 1, Counter: 2, Timestamp: 900}, To: entry.Version{State: 1, Counter: 3, Timestamp: 1000},
		Sum: 0x0123456789abcdef, Deleted: []table.Tombstone{{Key: "gone", Change: 3}}, Entries: []table.Entry{{Key: "T", Change: 3, Value: topic}},
		SameUnknown: true,
	}
	out := []*table.Delta{offsets.Full(), delta}
	out = append(out, &table.Delta{Kind: entry.Groups, Full: true, Unknown: []entry.Field{{Name: "forbiddenTable", Raw: `{"G":{"T":1}}`}}})
	out = append(out, build(t, entry.DelayOffsets, table.Entry{Key: "3", Value: &entry.Delay{Offset: 140, Epoch: 7}}).Full())
	many := &table.Delta{Kind: entry.Groups, Full: true, To: entry.Version{Counter: 9000}}
	for i := range 5000 {
		many.Entries = append(many.Entries, table.Entry{Key: fmt.Sprint(i), Change: int64(i), Value: entry.NewGroup(fmt.Sprint(i))})
		many.Deleted = append(many.Deleted, table.Tombstone{Key: fmt.Sprint("x", i), Change: int64(i)})
	}
	return append(out, many)
}

// TestFormatExamples holds the examples of FORMAT.md against what is written.
func TestFormatExamples(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	must(t, err)
	blocks := strings.Split(string(doc), "```hex\n")[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d examples", len(blocks))
	}
	for i, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		want, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
		must(t, err)
		got := slices.Collect(Split(examples(t)[i]))
		if len(got) != 1 || !slices.Equal(got[0], want) {
			t.Errorf("example %d is\n%s", i, hex.Dump(got[0]))
		}
		d, err := together(examples(t)[i].Kind, want)
		if err != nil || !equal(d, examples(t)[i]) {
			t.Errorf("example %d is read as %+v, %v", i, d, err)
		}
	}
}

func TestThereAndBack(t *testing.T) {
	for i, d := range examples(t) {
		chunks := slices.Collect(Split(d))
		got, err := together(d.Kind, chunks...)
		if err != nil || !equal(got, d) {
			t.Errorf("example %d: %v", i, err)
		}
		for j, c := range chunks {
			_, h, err := open(c)
			must(t, err)
			if Last(c) != (j == len(chunks)-1) {
				t.Errorf("example %d: chunk %d is the last: %v", i, j, Last(c))
			}
			if len(c) > MaxBytes || h.entries != len(d.Entries) {
				t.Errorf("example %d: a chunk of %d bytes", i, len(c))
			}
		}
	}
	if n := len(slices.Collect(Split(examples(t)[4]))); n != 10 {
		t.Errorf("10,000 entries and deletions in %d chunks", n)
	}
}

// TestSplitTable: the chunks of a table are those of its full delta.
func TestSplitTable(t *testing.T) {
	for _, n := range []int{0, 1, MaxEntries - 1, MaxEntries, MaxEntries + 1, 3 * MaxEntries} {
		var es []table.Entry
		for i := range n {
			name := fmt.Sprintf("G%05d", i)
			es = append(es, table.Entry{Key: name, Change: int64(i % 3), Value: entry.NewGroup(name)})
		}
		own := build(t, entry.Groups, es...)
		if n > 1 {
			e := own.Edit(1, 2000)
			e.Delete("G00000")
			own, _ = e.Done()
		}
		s := SplitTable(own)
		for want := range Split(own.Full()) {
			if got := s.Next(); !slices.Equal(got, want) {
				t.Fatalf("%d entries: % x, want % x", n, got[:20], want[:20])
			}
		}
		for range 2 {
			if b := s.Next(); b != nil {
				t.Errorf("%d entries: a chunk behind the last one", n)
			}
		}
	}
}

// TestT13_NoChunkIsTooLarge: even entries as large as they may be.
func TestT13_NoChunkIsTooLarge(t *testing.T) {
	d := &table.Delta{Kind: entry.Topics, Full: true}
	for i := range 20 {
		topic := entry.NewTopic(fmt.Sprint(i))
		topic.Attributes = map[string]string{"a": strings.Repeat("x", table.MaxEntry-1000)}
		d.Entries = append(d.Entries, table.Entry{Key: topic.Name, Value: topic})
	}
	d.Unknown = []entry.Field{{Name: "x", Raw: `"` + strings.Repeat("y", table.MaxEntry-10) + `"`}}
	const message = 4 << 20
	chunks := slices.Collect(Split(d))
	for _, c := range chunks {
		if len(c) > MaxBytes || MaxBytes > message-(64<<10) {
			t.Errorf("a chunk of %d bytes", len(c))
		}
	}
	if got, err := together(entry.Topics, chunks...); err != nil || !equal(got, d) {
		t.Error(err)
	}
}

// TestT14_HalfOfChunks: what is missing, comes twice, or belongs to another table is told, and no delta comes of it.
func TestT14_HalfOfChunks(t *testing.T) {
	d := examples(t)[4]
	c := slices.Collect(Split(d))
	other := *d
	other.Sum++
	foreign := slices.Collect(Split(&other))
	swapped := slices.Clone(c)
	swapped[3], swapped[4] = c[4], c[3]
	for name, in := range map[string][][]byte{
		"nothing": {}, "the last is missing": c[:9], "the first is missing": c[1:], "one is missing": slices.Delete(slices.Clone(c), 4, 5),
		"one twice": slices.Insert(slices.Clone(c), 4, c[3]), "one too many": append(slices.Clone(c), c[9]),
		"two swapped": swapped, "one of another": append(slices.Clone(c[:5]), foreign[5:]...),
	} {
		if _, err := together(entry.Groups, in...); !errors.Is(err, table.ErrNotWhole) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := together(entry.Topics, c...); !errors.Is(err, table.ErrKind) {
		t.Errorf("another kind: %v", err)
	}
	three := slices.Collect(Split(&table.Delta{Kind: entry.Groups, SameUnknown: true, Entries: d.Entries[:3]}))[0]
	entries := 3 + 1 + 6 + 8 // format, kind, flags; number; versions; sum
	for _, n := range []byte{2, 4} {
		lie := reseal(three, func(b []byte) { b[entries] = n })
		if _, err := together(entry.Groups, lie); !errors.Is(err, table.ErrNotWhole) {
			t.Errorf("three entries where %d were promised: %v", n, err)
		}
	}
}

func reseal(c []byte, change func([]byte)) []byte {
	c = slices.Clone(c[:len(c)-4])
	change(c)
	return binary.BigEndian.AppendUint32(c, crc32.Checksum(c, castagnoli))
}

func TestBrokenChunks(t *testing.T) {
	for i, d := range examples(t)[:4] {
		c := slices.Collect(Split(d))[0]
		for n := range c {
			if _, err := together(d.Kind, c[:n]); !errors.Is(err, ErrChunk) {
				t.Errorf("example %d, %d bytes: %v", i, n, err)
			}
			flipped := slices.Clone(c)
			flipped[n] ^= 4
			if _, err := together(d.Kind, flipped); !errors.Is(err, ErrChunk) {
				t.Errorf("example %d, byte %d: %v", i, n, err)
			}
			// With a good checksum the parser is on its own.
			if n < len(c)-4 {
				cut := reseal(c[:n+4], func([]byte) {})
				if _, err := together(d.Kind, cut); err == nil {
					t.Errorf("example %d: %d bytes are taken", i, n)
				}
			}
		}
		for name, change := range map[string]func([]byte){
			"version": func(b []byte) { b[0] = 1 }, "kind": func(b []byte) { b[1] = 5 }, "flags": func(b []byte) { b[2] |= 0x80 },
		} {
			if _, err := together(d.Kind, reseal(c, change)); !errors.Is(err, fastjson.ErrShape) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := together(entry.Topics, make([]byte, MaxBytes+1)); !errors.Is(err, ErrChunk) {
		t.Errorf("a chunk too large: %v", err)
	}
}

func FuzzAdd(f *testing.F) {
	for _, d := range examples(f)[:4] {
		c := slices.Collect(Split(d))[0]
		f.Add(c[:len(c)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data := binary.BigEndian.AppendUint32(slices.Clone(body), crc32.Checksum(body, castagnoli))
		for _, kind := range entry.Kinds() {
			d, err := together(kind, data)
			if err != nil {
				continue
			}
			sum := entry.HashFields(d.Unknown)
			for _, e := range d.All() {
				h, _ := entry.Hash(e.Key, e.Value, nil)
				if sum += h; !d.Full && e != e.Hashed(h) {
					t.Fatalf("the hash of %s %+v is not %#x", e.Key, e.Value, h)
				}
			}
			if d.Sum = sum; d.Full {
				if _, err := d.Table(); err != nil {
					t.Fatalf("%+v: %v", d, err)
				}
			}
			again, err := together(kind, slices.Collect(Split(d))...)
			if err != nil || !equal(d, again) {
				t.Fatalf("%+v became %+v: %v", d, again, err)
			}
		}
	})
}
