package entry

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
	"github.com/tandemlog/tandem/services/configsync/internal/table/packed"
)

func TestXXH64(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0xef46db3751d8e999, "a": 0xd24ec4f1a98c6e5b, "as": 0x1c330fb2d66be179, "asd": 0x631c37ce72a97393, "asdf": 0x415872f599cea71e,
		"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02a2e85470d6fd96,
	} {
		if got := HashPacked([]byte(text)); got != want {
			t.Errorf("%q has %#x, want %#x", text, got, want)
		}
	}
}

// packedExamples are values of all shapes, with their keys.
func packedExamples(t testing.TB) (keys []string, values []Value) {
	t.Helper()
	add := func(key string, v Value) { keys, values = append(keys, key), append(values, v) }
	for _, text := range []string{
		`{"topicName":"T"}`,
		`{"attributes":{"+b":"x","a":"\"ä"},"future":{0:[1]},"order":true,"perm":-7,"readQueueNums":2147483647,"topicFilterType":"MULTI_TAG",` +
			`"topicName":"T","topicSysFlag":-2147483648,"writeQueueNums":0,"zone":null}`,
		`{"perm":6,"readQueueNums":4,"topicName":"T","writeQueueNums":4}`,
	} {
		v, err := ReadTopic(fastjson.NewReader([]byte(text)), "T")
		if err != nil {
			t.Fatal(err)
		}
		add("T", v)
	}
	for _, text := range []string{
		`{}`, `{"groupRetryPolicy":{"type":"EXPONENTIAL"},"brokerId":-9223372036854775808,"consumeEnable":false,"x":1,"y":{}}`,
		`{"consumeMessageOrderly":true,"attributes":{"":""}}`,
	} {
		v, err := ReadGroup(fastjson.NewReader([]byte(text)), "G")
		if err != nil {
			t.Fatal(err)
		}
		add("G", v)
	}
	add("T@G", NewOffsets())
	add("T@G", NewOffsets(QueueOffset{Queue: 3, Offset: math.MaxInt64}, QueueOffset{Queue: math.MaxInt32, Epoch: MaxEpoch, Offset: NoOffset}))
	add("3", &Delay{Offset: 7, Epoch: 1})
	return keys, values
}

func TestPackedThereAndBack(t *testing.T) {
	keys, values := packedExamples(t)
	for i, v := range values {
		b := AppendPacked(nil, keys[i], v)
		for _, shared := range []bool{false, true} {
			var u Unpacker
			r := packed.NewReader(b, shared)
			key, got := u.Read(r, v.Kind(), Absent(v), shared)
			if r.Err() != nil || r.Left() != 0 || key != keys[i] || !got.Equal(v) {
				t.Errorf("%d: %v, %d bytes left, %q", i, r.Err(), r.Left(), key)
			}
			if text, want := got.AppendJSON(nil), v.AppendJSON(nil); !bytes.Equal(text, want) {
				t.Errorf("%s became %s", want, text)
			}
		}
	}
}

// TestPackedHasOneForm: whatever bytes are taken are those that are written of what they mean.
func TestPackedHasOneForm(t *testing.T) {
	keys, values := packedExamples(t)
	taken := 0
	for i, v := range values {
		good := AppendPacked(nil, keys[i], v)
		for at := range good {
			for c := range 256 {
				b := bytes.Clone(good)
				b[at] = byte(c)
				var u Unpacker
				r := packed.NewReader(b, false)
				key, got := u.Read(r, v.Kind(), Absent(v), false)
				if r.Err() != nil || r.Left() > 0 {
					continue
				}
				taken++
				if again := AppendPacked(nil, key, got); !bytes.Equal(again, b) {
					t.Fatalf("example %d: % x is written as % x", i, b, again)
				}
			}
			var u Unpacker
			if r := packed.NewReader(good[:at], false); r.Err() == nil {
				if u.Read(r, v.Kind(), Absent(v), false); r.Err() == nil {
					t.Fatalf("example %d: %d bytes of %d are taken", i, at, len(good))
				}
			}
		}
	}
	if taken < 1000 {
		t.Errorf("only %d are taken", taken)
	}
}

// TestPackedRefused: what has another order, is there twice or is known elsewhere.
func TestPackedRefused(t *testing.T) {
	topic := AppendPacked(nil, "T", NewTopic("T"))
	group := AppendPacked(nil, "G", NewGroup("G"))
	topic, group = topic[:len(topic)-2], group[:len(group)-2] // without attributes and unknown fields
	withFlags := func(b []byte, at int, flags byte) []byte {
		b = bytes.Clone(b)
		b[at] = flags
		return b
	}
	policy := packed.AppendText(withFlags(group, 2, groupPolicy), DefaultRetryPolicy)
	for name, c := range map[string]struct {
		kind   Kind
		b      string
		absent uint32
	}{
		"attributes out of order": {Topics, string(topic) + "\x02\x01b\x00\x01a\x00\x00", 0},
		"an attribute twice":      {Topics, string(topic) + "\x02\x01a\x00\x01a\x00\x00", 0},
		"fields out of order":     {Topics, string(topic) + "\x00\x02\x01b\x011\x01a\x011", 0},
		"a field twice":           {Topics, string(topic) + "\x00\x02\x01a\x011\x01a\x011", 0},
		"a field of blanks":       {Topics, string(topic) + "\x00\x01\x01a\x021 ", 0},
		"a known field":           {Topics, string(topic) + "\x00\x01\x04perm\x016", 0},
		"a known field of groups": {Groups, string(group) + "\x00\x01\x08brokerId\x016", 0},
		"flags of topics":         {Topics, string(withFlags(topic, 2, 4)) + "\x00\x00", 0},
		"flags of groups":         {Groups, string(withFlags(group, 2, 64)) + "\x00\x00", 0},
		"the default policy":      {Groups, string(policy) + "\x00\x00", 0},
		"no policy":               {Groups, string(packed.AppendText(withFlags(group, 2, groupPolicy), "")) + "\x00\x00", 0},
		"absent that is needed":   {Topics, string(topic) + "\x00\x00", 1 << 5},
		"absent of no field":      {Groups, string(group) + "\x00\x00", 1 << 20},
		"absent of an offset":     {DelayOffsets, "\x011\x00\x00", 1},
		"queues out of order":     {ConsumerOffsets, "\x03T@G\x02\x01\x00\x00\x00\x00\x00", 0},
		"a queue twice":           {ConsumerOffsets, "\x03T@G\x02\x01\x00\x00\x01\x00\x00", 0},
		"an offset below -1":      {DelayOffsets, "\x011\x00\x03", 0},
	} {
		var u Unpacker
		r := packed.NewReader([]byte(c.b), false)
		if u.Read(r, c.kind, c.absent, false); r.Err() == nil || strings.Contains(r.Err().Error(), "ends") {
			t.Errorf("%s: %v", name, r.Err())
		} else if shape := errors.Is(r.Err(), fastjson.ErrShape); shape != strings.HasPrefix(name, "flags") {
			t.Errorf("%s: %v", name, r.Err())
		}
	}
}

func BenchmarkPacked(b *testing.B) {
	name := "some-topic-name-0001234"
	topic := NewTopic(name)
	text := AppendPacked(nil, name, topic)
	b.Run("out", func(b *testing.B) {
		for range b.N {
			text = AppendPacked(text[:0], name, topic)
		}
	})
	b.Run("hash", func(b *testing.B) {
		for range b.N {
			HashPacked(text)
		}
	})
	for _, shared := range []bool{false, true} {
		b.Run(fmt.Sprintf("in/shared=%v", shared), func(b *testing.B) {
			b.ReportAllocs()
			var u Unpacker
			all := bytes.Repeat(text, b.N)
			b.ResetTimer()
			r := packed.NewReader(all, shared)
			for range b.N {
				u.Read(r, Topics, 0, shared)
			}
			if r.Err() != nil {
				b.Fatal(r.Err())
			}
		})
	}
}
