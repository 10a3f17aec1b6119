package check_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// memLog is a log in memory that begins at 0.
type memLog struct {
	size int64
	data []byte
}

func (l *memLog) FileSize() int64 { return l.size }

func (l *memLog) ReadAt(ctx context.Context, p []byte, offset int64) error {
	if offset/l.size != (offset+int64(len(p))-1)/l.size {
		return fmt.Errorf("read of %d bytes at %d crosses a file's end", len(p), offset)
	}
	if offset+int64(len(p)) > int64(len(l.data)) {
		return fmt.Errorf("read of %d bytes at %d behind the end", len(p), offset)
	}
	copy(p, l.data[offset:])
	return ctx.Err()
}

// add appends a record with a body of that size and returns where it is.
func (l *memLog) add(topic string, queue int32, queueOffset int64, body int) (from, to int64) {
	host := netip.MustParseAddrPort("10.0.0.1:10911")
	rec := message.Append(nil, &message.Draft{
		Topic: topic, QueueID: queue, BornHost: host, StoreHost: host, Body: bytes.Repeat([]byte("b"), body),
		Properties: message.AppendProperty(nil, message.PropertyTags, "TagA"),
	}, true)
	if rest := l.size - int64(len(l.data))%l.size; int64(len(rec))+message.BlankSize > rest {
		l.data = message.AppendBlank(l.data, int32(rest))
		l.data = append(l.data, make([]byte, (l.size-int64(len(l.data))%l.size)%l.size)...)
	}
	from = int64(len(l.data))
	message.Stamp(rec, queueOffset, from, 1_700_000_000_000)
	l.data = append(l.data, rec...)
	return from, int64(len(l.data))
}

// some fills a log of three files and returns the ends of its records.
func some(t *testing.T) (*memLog, []int64) {
	t.Helper()
	l := &memLog{size: 8 << 10}
	ends := []int64{0}
	for i := range 80 {
		from, to := l.add("Topic", int32(i%2), int64(i/2), 100+i*13%300)
		ends[len(ends)-1] = from // behind a blank
		ends = append(ends, to)
	}
	return l, ends
}

// walk returns what is found, as text.
func walk(t *testing.T, l check.Log, o check.Options) (check.Result, []string) {
	t.Helper()
	var found []string
	o.Emit = func(f check.Finding) error {
		text := fmt.Sprintf("%d..%d %s", f.Offset, f.End, f.Field)
		if f.Topic != "" {
			text = fmt.Sprintf("%d %s/%d unit %d: %s", f.Kind, f.Topic, f.QueueID, f.QueueOffset, f.Field)
		}
		found = append(found, strings.TrimSpace(text))
		return nil
	}
	r, err := check.Records(t.Context(), l, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, found
}

func TestRecords(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(l *memLog, ends []int64) (want []string, end int64)
		open   bool
	}{
		"nothing": {damage: func(*memLog, []int64) ([]string, int64) { return nil, 0 }},
		"a body": {damage: func(l *memLog, e []int64) ([]string, int64) {
			l.data[e[10]+100] ^= 1
			return []string{span(e, 10, 11, "bodyCRC")}, 0
		}},
		"a property": {damage: func(l *memLog, e []int64) ([]string, int64) {
			l.data[e[11]-20] ^= 1
			return []string{span(e, 10, 11, "__CRC32#")}, 0
		}},
		"a flag": {damage: func(l *memLog, e []int64) ([]string, int64) {
			l.data[e[10]+17] ^= 1
			return []string{span(e, 10, 11, "__CRC32#")}, 0
		}},
		"a size, larger": {damage: func(l *memLog, e []int64) ([]string, int64) {
			l.data[e[10]] ^= 1
			return []string{span(e, 10, 11, "totalSize")}, 0
		}},
		"a size, smaller": {damage: func(l *memLog, e []int64) ([]string, int64) { l.data[e[10]+3] ^= 8; return nil, -1 }},
		"a magic": {damage: func(l *memLog, e []int64) ([]string, int64) {
			l.data[e[10]+5] ^= 1
			return []string{span(e, 10, 11, "magic")}, 0
		}},
		"a place": {damage: func(l *memLog, e []int64) ([]string, int64) {
			l.data[e[10]+35] ^= 1
			return []string{span(e, 10, 11, "physicalOffset")}, 0
		}},
		"the first": {damage: func(l *memLog, e []int64) ([]string, int64) {
			l.data[100] ^= 1
			return []string{span(e, 0, 1, "bodyCRC")}, 0
		}},
		"zeros over records": {damage: func(l *memLog, e []int64) ([]string, int64) {
			clear(l.data[e[10]:e[14]])
			return []string{span(e, 10, 14, "")}, 0
		}},
		"two side by side": {damage: func(l *memLog, e []int64) ([]string, int64) {
			l.data[e[10]+100] ^= 1
			l.data[e[11]+100] ^= 1
			return []string{span(e, 10, 11, "bodyCRC"), span(e, 11, 12, "bodyCRC")}, 0
		}},
		"a blank": {damage: func(l *memLog, e []int64) ([]string, int64) {
			i := slices.IndexFunc(e, func(n int64) bool { return n == 8<<10 })
			at := int64(bytes.LastIndex(l.data[:8<<10], []byte{0xCB, 0xD4, 0x31, 0x94})) - 4
			l.data[at+3] ^= 1
			return []string{fmt.Sprintf("%d..%d blankSize", at, e[i])}, 0
		}},
		"the last": {damage: func(l *memLog, e []int64) ([]string, int64) {
			n := len(e) - 1
			l.data[e[n]-30] ^= 1
			return []string{span(e, n-1, n, "__CRC32#")}, e[n-1]
		}},
		"the last, open": {open: true, damage: func(l *memLog, e []int64) ([]string, int64) {
			n := len(e) - 1
			l.data[e[n]-30] ^= 1
			return nil, e[n-1]
		}},
		"the end is cut": {damage: func(l *memLog, e []int64) ([]string, int64) {
			n := len(e) - 1
			l.data = l.data[:e[n]-30]
			return nil, e[n-1]
		}},
		"the end is cut in a header": {damage: func(l *memLog, e []int64) ([]string, int64) {
			n := len(e) - 1
			l.data = l.data[:e[n-1]+5]
			return nil, e[n-1]
		}},
		"rot in front of a cut end": {damage: func(l *memLog, e []int64) ([]string, int64) {
			n := len(e) - 1
			l.data = l.data[:e[n]-30]
			l.data[e[n-2]+100] ^= 1
			return []string{span(e, n-2, n-1, "bodyCRC")}, e[n-2]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, ends := some(t)
			want, end := c.damage(l, ends)
			if end == 0 {
				end = ends[len(ends)-1]
			}
			r, found := walk(t, l, check.Options{To: int64(len(l.data)), Open: c.open})
			if end < 0 { // only the place is known
				if len(found) != 1 || !strings.HasPrefix(found[0], fmt.Sprintf("%d..%d ", ends[10], ends[11])) {
					t.Errorf("found %v", found)
				}
				return
			}
			if !slices.Equal(found, want) || r.End != end {
				t.Errorf("found %v up to %d, want %v up to %d", found, r.End, want, end)
			}
			if c.open && (r.Tail.Offset != end || r.Tail.End <= end || r.Claim == 0) {
				t.Errorf("the tail is %+v, %d", r.Tail, r.Claim)
			}
		})
	}
}

func span(e []int64, i, j int, field string) string {
	return strings.TrimSpace(fmt.Sprintf("%d..%d %s", e[i], e[j], field))
}

// Records longer than every window, and damage that is longer, are no trouble.
func TestLongRecords(t *testing.T) {
	l := &memLog{size: 16 << 20}
	var ends []int64
	for i := range 8 {
		_, to := l.add("Topic", 0, int64(i), 3<<20)
		ends = append(ends, to)
	}
	if _, found := walk(t, l, check.Options{To: int64(len(l.data))}); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	l.data[ends[1]] ^= 1
	clear(l.data[ends[2]-100 : ends[2]+50])
	want := []string{fmt.Sprintf("%d..%d totalSize", ends[1], ends[3])}
	if _, found := walk(t, l, check.Options{To: int64(len(l.data))}); !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// No body can pass itself off as the record behind a bad one.
func TestABodyIsNoRecord(t *testing.T) {
	l := &memLog{size: 64 << 10}
	l.add("Topic", 0, 0, 100)
	from, _ := l.add("Topic", 0, 1, 2000)
	fake := &memLog{size: 64 << 10, data: make([]byte, from+500)}
	fake.add("Fake", 0, 0, 200)
	copy(l.data[from+500:], fake.data[from+500:])
	_, to := l.add("Topic", 0, 2, 100)
	want := []string{fmt.Sprintf("%d..%d bodyCRC", from, from+int64(binary.BigEndian.Uint32(l.data[from:])))}
	if r, found := walk(t, l, check.Options{To: int64(len(l.data))}); !slices.Equal(found, want) || r.End != to {
		t.Errorf("found %v, want %v", found, want)
	}
}

// memQueue has the units from lo on.
type memQueue struct {
	topic string
	id    int32
	lo    int64
	units []consumequeue.Unit
}

func (q *memQueue) Topic() string { return q.topic }
func (q *memQueue) ID() int32     { return q.id }
func (q *memQueue) Min() int64    { return q.lo }
func (q *memQueue) Max() int64    { return q.lo + int64(len(q.units)) }
func (q *memQueue) Read(from int64, dst []consumequeue.Unit) (int, error) {
	if from < q.lo || from > q.Max() {
		return 0, consumequeue.ErrOutOfRange
	}
	return copy(dst, q.units[from-q.lo:]), nil
}

type memQueues []*memQueue

func (s memQueues) Lookup(topic string, id int32) check.Queue {
	for _, q := range s {
		if q.topic == topic && q.id == id {
			return q
		}
	}
	return nil
}

func (s memQueues) List() []check.Queue {
	var all []check.Queue
	for _, q := range s {
		all = append(all, q)
	}
	return all
}

func TestUnits(t *testing.T) {
	build := func() (*memLog, memQueues) {
		l := &memLog{size: 8 << 10}
		qs := memQueues{{topic: "Topic"}, {topic: "Topic", id: 1}}
		for i := range 250 {
			q := qs[i%2]
			from, to := l.add("Topic", q.id, int64(len(q.units)), 50)
			q.units = append(q.units, consumequeue.Unit{Offset: from, Size: int32(to - from), TagsCode: message.TagsCode([]byte("TagA"))})
		}
		return l, qs
	}
	blank := consumequeue.Unit{Size: 1<<31 - 1}
	for name, c := range map[string]struct {
		damage func(l *memLog, qs *memQueues)
		want   []string
	}{
		"nothing":         {func(*memLog, *memQueues) {}, nil},
		"an offset":       {func(_ *memLog, q *memQueues) { (*q)[0].units[50].Offset++ }, []string{"2 Topic/0 unit 50: offset"}},
		"a size":          {func(_ *memLog, q *memQueues) { (*q)[0].units[50].Size++ }, []string{"2 Topic/0 unit 50: size"}},
		"tags":            {func(_ *memLog, q *memQueues) { (*q)[0].units[50].TagsCode++ }, []string{"2 Topic/0 unit 50: tagsCode"}},
		"a blank":         {func(_ *memLog, q *memQueues) { (*q)[0].units[50] = blank }, []string{"3 Topic/0 unit 50:"}},
		"zeros":           {func(_ *memLog, q *memQueues) { (*q)[0].units[0] = consumequeue.Unit{} }, []string{"3 Topic/0 unit 0:"}},
		"the last gone":   {func(_ *memLog, q *memQueues) { (*q)[1].units = (*q)[1].units[:124] }, []string{"3 Topic/1 unit 124:"}},
		"a stray":         {func(l *memLog, q *memQueues) { (*q)[1].units = append((*q)[1].units, (*q)[1].units[3]) }, []string{"4 Topic/1 unit 125: offset"}},
		"one too many":    {func(l *memLog, q *memQueues) { (*q)[1].units = append((*q)[1].units, blank) }, nil},
		"a strange queue": {func(_ *memLog, q *memQueues) { *q = append(*q, &memQueue{topic: "New", units: (*q)[0].units[5:6]}) }, []string{"4 New/0 unit 0: offset"}},
		"a light queue": {func(_ *memLog, q *memQueues) {
			*q = append(*q, &memQueue{topic: "%LMQ%New", units: (*q)[0].units[5:9]})
		}, nil},
		"outlived": {func(_ *memLog, q *memQueues) {
			*q = append(*q, &memQueue{topic: "Old", units: []consumequeue.Unit{{Offset: -1, Size: 5}}})
		}, nil},
		"a rotten record": {func(l *memLog, q *memQueues) { l.data[(*q)[0].units[50].Offset+90] ^= 1 }, []string{"bodyCRC"}},
		"a twin": {func(l *memLog, q *memQueues) {
			l.add("Topic", 0, 60, 50)
		}, []string{"3 Topic/0 unit 60:"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, qs := build()
			c.damage(l, &qs)
			end := int64(len(l.data))
			r, found := walk(t, l, check.Options{To: end, Queues: qs, Whole: true, Dispatched: end})
			if name == "a rotten record" {
				if len(found) != 1 || !strings.HasSuffix(found[0], c.want[0]) {
					t.Errorf("found %v", found)
				}
				return
			}
			if !slices.Equal(found, c.want) || r.Behind != 0 {
				t.Errorf("found %v, want %v", found, c.want)
			}
		})
	}
	t.Run("not dispatched yet", func(t *testing.T) {
		l, qs := build()
		half := qs[0].units[60].Offset
		for _, q := range qs {
			q.units = q.units[:60]
		}
		if r, found := walk(t, l, check.Options{To: int64(len(l.data)), Queues: qs, Whole: true, Dispatched: half}); len(found) > 0 || r.Behind != 130 || r.Units != 120 {
			t.Errorf("found %v, %d behind, %d units", found, r.Behind, r.Units)
		}
	})
	t.Run("from the middle", func(t *testing.T) {
		l, qs := build()
		qs[0].units[2].Offset++ // in front
		qs[0].units[100].Offset++
		want := []string{"2 Topic/0 unit 100: offset"}
		if _, found := walk(t, l, check.Options{From: 16 << 10, To: int64(len(l.data)), Queues: qs, Dispatched: int64(len(l.data))}); !slices.Equal(found, want) {
			t.Errorf("found %v", found)
		}
	})
}

func TestAnErrorOfEmitEndsTheWalk(t *testing.T) {
	l, ends := some(t)
	l.data[ends[10]+100] ^= 1
	enough := errors.New("enough")
	_, err := check.Records(t.Context(), l, check.Options{To: int64(len(l.data)), Emit: func(check.Finding) error { return enough }})
	if !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := check.Records(ctx, l, check.Options{To: int64(len(l.data)), Emit: func(check.Finding) error { return nil }}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// FuzzRecords: whatever the bytes are, the walk ends, tells stretches in order and inside of the log, and never a sound record.
func FuzzRecords(f *testing.F) {
	f.Add(uint16(700), byte(1), uint16(3000), byte(255), uint16(0))
	f.Fuzz(func(t *testing.T, at uint16, mask byte, at2 uint16, mask2 byte, cut uint16) {
		l := &memLog{size: 4 << 10}
		for i := range 40 {
			l.add("Topic", 0, int64(i), 60+i*7%200)
		}
		l.data[int(at)%len(l.data)] ^= mask
		l.data[int(at2)%len(l.data)] ^= mask2
		l.data = l.data[:len(l.data)-int(cut)%500]
		last := int64(0)
		_, err := check.Records(t.Context(), l, check.Options{To: int64(len(l.data)), Emit: func(f check.Finding) error {
			if f.Offset < last || f.End <= f.Offset || f.End > int64(len(l.data)) {
				t.Errorf("%+v behind %d", f, last)
			}
			last = f.End
			end := min(f.Offset-f.Offset%l.size+l.size, int64(len(l.data)))
			if _, k, err := message.Check(l.data[f.Offset:end], f.Offset, message.CheckOptions{CRC: true, Offset: true}); err == nil && k == message.Record {
				t.Errorf("%+v is sound", f)
			}
			return nil
		}})
		if err != nil {
			t.Error(err)
		}
	})
}
