package message

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

func TestEachPropertyIsTolerant(t *testing.T) {
	for _, tc := range []struct {
		props string
		want  []string
	}{
		{"", nil},
		{"a\x01b\x02", []string{"a=b"}},
		{"a\x01b", []string{"a=b"}},
		{"a\x01b\x02c\x01d", []string{"a=b", "c=d"}},
		{"\x02\x02a\x01b\x02\x02", []string{"a=b"}},
		{"\x01b\x02c\x01d\x02", []string{"c=d"}},
		{"a\x01\x02c\x01d\x02", []string{"c=d"}},
		{"ab\x02c\x01d\x02", []string{"c=d"}},
		{"abc\x02d", nil},
		{"a\x01b\x01c\x02", []string{"a=b\x01c"}},
		{"a\x011\x02a\x012\x02", []string{"a=1", "a=2"}},
		{"\x01", nil},
	} {
		var got []string
		EachProperty([]byte(tc.props), func(name, value []byte) bool {
			got = append(got, string(name)+"="+string(value))
			return true
		})
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.props, got, tc.want)
		}
	}
}

func TestEachPropertyStops(t *testing.T) {
	n := 0
	EachProperty([]byte("a\x011\x02b\x012\x02"), func(_, _ []byte) bool { n++; return false })
	if n != 1 {
		t.Errorf("called %d times", n)
	}
}

func TestPropertyLastOneWins(t *testing.T) {
	v := View{Properties: []byte("UNIQ_KEY\x01item\x02TAGS\x01t\x02UNIQ_KEY\x01batch\x02UNIQ_KEY\x01\x02")}
	if p, ok := v.Property(PropertyUniqueKey); !ok || string(p) != "batch" {
		t.Errorf("%q %v", p, ok)
	}
	if p, ok := v.Property("UNIQ"); ok || p != nil {
		t.Errorf("part of a name: %q %v", p, ok)
	}
}

func TestAppendProperties(t *testing.T) {
	for _, tc := range []struct{ item, batch, want string }{
		{"a\x01b", "c\x01d\x02", "a\x01b\x02c\x01d\x02"},
		{"a\x01b\x02", "c\x01d\x02", "a\x01b\x02c\x01d\x02"},
		{"", "c\x01d\x02", "c\x01d\x02"},
		{"a\x01b", "", "a\x01b"},
	} {
		if got := AppendProperties([]byte(tc.item), []byte(tc.batch)); string(got) != tc.want {
			t.Errorf("%q + %q = %q, want %q", tc.item, tc.batch, got, tc.want)
		}
	}
}

// TestHashCodeMalformed: the numbers are those of new String(bytes, UTF_8).hashCode() in Java 17.
func TestHashCodeMalformed(t *testing.T) {
	for in, want := range map[string]int32{
		"80":               65533,
		"c0":               65533,
		"e0":               65533,
		"e4b8":             65533,
		"eda080":           65533,
		"edbf":             65533,
		"f09080":           65533,
		"f48f":             65533,
		"f5":               65533,
		"ff":               65533,
		"bfb890f4bfc0ad":   -6023907,
		"ef8f8ff49fede07f": -1704040752,
		"7f9ff4fff0e0b8":   1749862302,
		"b8efff41ffc08041": -518271736,
		"edc0bf9fdf41ad41": -249655800,
		"f480ed9f41":       65008801,
		"e0c0bff4adc2":     1662371552,
		"c1e47fb8f4":       -1948895041,
		"edc2b880ef":       1954567483,
		"e4a0dfe48fc2f8":   -1886039875,
		"edf0ad80edff":     2017367872,
		"4190e0e0ffefa0":   -25145060,
		"4190f4f5f8adb8":   -779431327,
		"f080f5b8f841f5":   -8053415,
		"90ef7ff8f4f8f5":   -280296289,
		"f080adb841c0bfe4": -2137032772,
		"dfbfffed8041a0a0": 820342626,
		"9fedff41ef":       -1888069383,
		"e4addf9fad41":     1956261606,
		"ff7ff0418fc0":     1325184422,
		"9feff0f841c0bf":   -68938655,
		"c0efe4a0c0e47f80": -8051493,
		"8fefc2e4f5":       -1886039875,
		"c1bfedbff8c0f0ed": -6023907,
	} {
		b, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := HashCode(0, b); got != want {
			t.Errorf("%s: %d, want %d", in, got, want)
		}
	}
}

func TestDelayLevels(t *testing.T) {
	d := defaultLevels(t)
	if d.Max() != 18 {
		t.Errorf("%d levels", d.Max())
	}
	for level, delay := range map[int]int64{1: 1000, 4: 30_000, 5: 60_000, 17: 3_600_000, 18: 7_200_000, 0: 1000, 19: 1000, -1: 1000} {
		if got := d.DeliverTime(level, 5) - 5; got != delay {
			t.Errorf("level %d: %d ms, want %d", level, got, delay)
		}
	}
	if day, err := ParseDelayLevels("  0s  2d "); err != nil || day.Max() != 2 || day.DeliverTime(2, 0) != 172_800_000 {
		t.Errorf("%+v %v", day, err)
	}
	for _, s := range []string{"", " ", "1", "s", "1x", "1s5s", "-1s", "1.5s", "1s 5", "99999999999999999999s", "9223372036854775807d", "2305843009213693952s"} {
		if _, err := ParseDelayLevels(s); errdefs.As(err) == nil || errdefs.As(err).Field != "messageDelayLevel" {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestTagsCodeOfDelayed(t *testing.T) {
	hash := TagsCode([]byte("x"))
	for _, tc := range []struct {
		topic, delay string
		levels       DelayLevels
		want         int64
	}{
		{TopicSchedule, "1", defaultLevels(t), 1000 + 1000},
		{TopicSchedule, "+2", defaultLevels(t), 1000 + 5000},
		{TopicSchedule, "99", defaultLevels(t), 1000 + 7_200_000},
		{TopicSchedule, "0", defaultLevels(t), hash},
		{TopicSchedule, "-1", defaultLevels(t), hash},
		{TopicSchedule, "-", defaultLevels(t), hash},
		{TopicSchedule, "one", defaultLevels(t), hash},
		{TopicSchedule, "99999999999999999999", defaultLevels(t), hash},
		{TopicSchedule, "1", DelayLevels{}, hash},
		{"TopicTest", "1", defaultLevels(t), hash},
	} {
		v := View{Topic: []byte(tc.topic), StoreTimestamp: 1000, Properties: []byte("DELAY\x01" + tc.delay + "\x02TAGS\x01x\x02")}
		if got := v.TagsCode(tc.levels); got != tc.want {
			t.Errorf("%s, DELAY=%s: %d, want %d", tc.topic, tc.delay, got, tc.want)
		}
	}
}

func TestTagFilter(t *testing.T) {
	for _, tc := range []struct{ expr, takes, leaves string }{
		{"", "a b * ", ""},
		{"*", "a b ", ""},
		{"a", "a", "b * A "},
		{"a || b", "a b", "c * "},
		{" a||b|| ||a", "a b", "c"},
		{"a || *", "a *", "b"},
		{"Siblings", "Siblings", "Teheran"}, // one hash
	} {
		f, err := ParseTagFilter(tc.expr)
		if err != nil {
			t.Errorf("%q: %v", tc.expr, err)
			continue
		}
		for tag := range strings.SplitSeq(tc.takes, " ") {
			if b := []byte(tag); !f.Match(b) || !f.MatchCode(TagsCode(b)) {
				t.Errorf("%q leaves %q", tc.expr, tag)
			}
		}
		for tag := range strings.SplitSeq(tc.leaves, " ") {
			if tc.leaves != "" && f.Match([]byte(tag)) {
				t.Errorf("%q takes %q", tc.expr, tag)
			}
		}
	}
	if f, _ := ParseTagFilter("Siblings"); !f.MatchCode(TagsCode([]byte("Teheran"))) || f.MatchCode(1) {
		t.Error("codes are not compared by hash")
	}
	for _, expr := range []string{"||", " ", " || ", strings.Repeat("a", 5000)} {
		if _, err := ParseTagFilter(expr); errdefs.As(err) == nil || errdefs.As(err).Field != "tagFilter" {
			t.Errorf("%.10q: %v", expr, err)
		}
	}
}

func TestParseOffsetMessageID(t *testing.T) {
	want := netip.MustParseAddrPort("192.168.1.2:10911")
	if host, off, err := ParseOffsetMessageID("c0a8010200002a9f0000000000000400"); err != nil || host != want || off != 1024 {
		t.Errorf("lower case: %v %d %v", host, off, err)
	}
	for _, id := range []string{
		"", "C0A80102", "C0A8010200002A9F00000000000004", "C0A8010200002A9F000000000000040G",
		"C0A8010200012A9F0000000000000400", "C0A8010200002A9F8000000000000400",
	} {
		if _, _, err := ParseOffsetMessageID(id); errdefs.As(err) == nil || errdefs.As(err).Field != "offsetMessageId" {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestClientBatchDamage(t *testing.T) {
	good := AppendBatchItem(nil, BatchItem{Flag: 1, Body: []byte("one"), Properties: []byte("a\x01b")})
	batch := AppendBatchItem(slices.Clone(good), BatchItem{Flag: 2, Body: []byte("two")})
	for cut := range len(batch) {
		items, failed := 0, false
		for m, err := range DecodeClientBatch(batch[:cut]) {
			if err != nil {
				failed = true
				if e := errdefs.As(err); e == nil || e.Field != "body" {
					t.Errorf("cut at %d: %v", cut, err)
				}
			} else if items++; string(m.Body) != "one" {
				t.Errorf("cut at %d: body %q", cut, m.Body)
			}
		}
		if whole := cut >= len(good); (items == 1) != whole || failed == (cut == 0 || cut == len(good)) {
			t.Errorf("cut at %d: %d items, failed %v", cut, items, failed)
		}
	}
	for _, tc := range []struct {
		pos  int
		b    byte
		text string
	}{{16, 0x80, "bodyLength"}, {16, 0x7F, "bodyLength"}, {len(good) - 5, 0x80, "propertiesLength"}, {len(good) - 4, 0xFF, "propertiesLength"}} {
		bad := slices.Clone(good)
		bad[tc.pos] = tc.b
		for _, err := range DecodeClientBatch(bad) {
			if err == nil || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("byte %d: %v, want %s", tc.pos, err, tc.text)
			}
		}
	}
	for range DecodeClientBatch(batch) {
		break
	}
}
