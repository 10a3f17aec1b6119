package message

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// vectors returns the section `## name ...` of testdata/vectors.txt. The vectors were made by a program of their own, in
// Java, and decoded back by RocketMQ's decoder.
func vectors(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	for section := range strings.SplitSeq(string(text), "## ") {
		if strings.HasPrefix(section, name+" ") {
			return section
		}
	}
	t.Fatalf("no section %s", name)
	return ""
}

// dump returns the indented hex behind the first line that contains after.
func dump(t testing.TB, section, after string) []byte {
	t.Helper()
	_, rest, ok := strings.Cut(section, after)
	if !ok {
		t.Fatalf("no %q", after)
	}
	var text strings.Builder
	for i, line := range strings.Split(rest, "\n") {
		if i > 0 && !strings.HasPrefix(line, "    ") {
			break
		}
		if i > 0 {
			text.WriteString(line)
		}
	}
	return unhex(t, text.String())
}

func field(t testing.TB, section, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(section)
	if m == nil {
		t.Fatalf("no match of %q", pattern)
	}
	return m[1]
}

func TestVectorsRecords(t *testing.T) {
	v6 := Draft{
		Topic: "T", QueueID: 1, BornTimestamp: bornTime, BornHost: netip.MustParseAddrPort("[2001:db8::1]:50000"),
		StoreHost: storeHost, Body: []byte("hello"), Properties: []byte("TAGS\x01TagA\x02"),
	}
	retry := Draft{
		Topic: "%RETRY%" + strings.Repeat("g", 130), BornTimestamp: bornTime, BornHost: bornHost, StoreHost: storeHost,
		ReconsumeTimes: 1, Body: []byte("x"),
	}
	for _, tc := range []struct {
		section string
		got     []byte
	}{
		{"T1", stamped(draft(), false, 42, 1024)},
		{"T2", stamped(retry, false, 0, 0)},
		{"T3", stamped(v6, false, 5, 4096)},
		{"T4", stamped(draft(), true, 42, 1024)},
	} {
		want := dump(t, vectors(t, tc.section), "len=")
		if !bytes.Equal(tc.got, want) {
			t.Errorf("%s:\ngot  %x\nwant %x", tc.section, tc.got, want)
		}
		var v View
		if err := Decode(want, &v); err != nil {
			t.Errorf("%s: %v", tc.section, err)
		} else if !bytes.Equal(Encode(&v), want) {
			t.Errorf("%s does not encode back", tc.section)
		}
	}
	for body, want := range map[string]uint32{"": 0, "a": 0x68b7be43, "hello": 0x3610a686} {
		if got := BodyCRC([]byte(body)); got != want {
			t.Errorf("CRC of %q is %#x, want %#x", body, got, want)
		}
	}
}

func TestVectorsCRCSeparator(t *testing.T) {
	want := unhex(t, field(t, vectors(t, "T4"), `separator is added; len=135 tail=(\w+)`))
	d := draft()
	d.Properties = []byte("TAGS\x01TagA")
	if got := stamped(d, true, 42, 1024); len(got) != 135 || !bytes.HasSuffix(got, want) {
		t.Errorf("got %d bytes that end in %x, want %x", len(got), got[len(got)-len(want):], want)
	}
}

func TestVectorsBlank(t *testing.T) {
	want := unhex(t, field(t, vectors(t, "T5"), `-> (\w+) then`))
	if got := AppendBlank(nil, 112); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	d := draft()
	if n := EncodedSize(&d, false); n+BlankSize != 152 {
		t.Errorf("T1 needs %d free bytes, want 152", n+BlankSize)
	}
}

func TestVectorsTagsCode(t *testing.T) {
	lines := regexp.MustCompile(`(?m)^'(.*)' +utf8=\w* hash=(-?\d+) tagsCode\(8 bytes\)=(\w+)`).
		FindAllStringSubmatch(vectors(t, "T6"), -1)
	if len(lines) != 11 {
		t.Fatalf("%d lines, want 11", len(lines))
	}
	for _, m := range lines {
		got := TagsCode([]byte(m[1]))
		if strconv.FormatInt(got, 10) != m[2] || fmt.Sprintf("%016x", uint64(got)) != m[3] {
			t.Errorf("%q: %d %016x, want %s %s", m[1], got, uint64(got), m[2], m[3])
		}
	}
	if TagsCode(nil) != 0 {
		t.Error("absent tags have a code")
	}
	topic := HashCode(HashCode(HashCode(0, []byte("TopicTest")), []byte("#")), []byte("k1"))
	if want := field(t, vectors(t, "T8"), `TopicTest#k1 +hash=(\d+)`); fmt.Sprint(topic) != want {
		t.Errorf("joined hash %d, want %s", topic, want)
	}
}

func TestVectorsDeliverTime(t *testing.T) {
	want, err := strconv.ParseInt(field(t, vectors(t, "T7"), `deliver time (\d+):`), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	v := View{Topic: []byte(TopicSchedule), StoreTimestamp: storeTime, Properties: []byte("TAGS\x01TagA\x02DELAY\x013\x02")}
	if got := v.TagsCode(defaultLevels(t)); got != want {
		t.Errorf("tags code %d, want %d", got, want)
	}
}

func TestVectorsOffsetMessageID(t *testing.T) {
	section := vectors(t, "T9")
	for want, host := range map[string]string{
		field(t, section, `(?m)^(\w{32})$`):         "192.168.1.2:10911",
		field(t, section, `ipv6 store host: (\w+)`): "[2001:db8::1]:10911",
	} {
		addr := netip.MustParseAddrPort(host)
		if got := OffsetMessageID(addr, 1024); got != want {
			t.Errorf("%s: got %s, want %s", host, got, want)
		}
		if a, off, err := ParseOffsetMessageID(want); err != nil || a != addr || off != 1024 {
			t.Errorf("%s: parsed to %v %d %v", want, a, off, err)
		}
	}
}

func TestVectorsBatch(t *testing.T) {
	section := vectors(t, "T13")
	batch := unhex(t, field(t, section, `client batch body: (\w+)`))
	want := append(dump(t, section, "stored"), dump(t, section, "second at")...)
	var log, again []byte
	queueOffset := int64(100)
	for m, err := range DecodeClientBatch(batch) {
		if err != nil {
			t.Fatal(err)
		}
		again = AppendBatchItem(again, m)
		d := draft()
		d.QueueID, d.Flag, d.Body, d.Properties = 2, m.Flag, m.Body, m.Properties
		at := len(log)
		log = Append(log, &d, false)
		Stamp(log[at:], queueOffset, int64(8192+at), storeTime)
		queueOffset++
	}
	if !bytes.Equal(log, want) {
		t.Errorf("got  %x\nwant %x", log, want)
	}
	if !bytes.Equal(again, batch) {
		t.Errorf("batch encodes to %x, want %x", again, batch)
	}
}

func TestVectorsProperties(t *testing.T) {
	lines := regexp.MustCompile(`(?m)^[^:\n]+: +(\w+)$`).FindAllStringSubmatch(vectors(t, "T18"), -1)
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	for _, m := range lines {
		if got := propertyMap(unhex(t, m[1])); len(got) != 2 || got["A"] != "1" || got["B"] != "2" {
			t.Errorf("%s: %v", m[1], got)
		}
	}
	if got := AppendProperty(AppendProperty(nil, "A", "1"), "B", "2"); !bytes.Equal(got, unhex(t, lines[0][1])) {
		t.Errorf("encoded to %x", got)
	}
}

func propertyMap(props []byte) map[string]string {
	m := make(map[string]string)
	EachProperty(props, func(name, value []byte) bool {
		m[string(name)] = string(value)
		return true
	})
	return m
}

func defaultLevels(t testing.TB) DelayLevels {
	t.Helper()
	d, err := ParseDelayLevels(DefaultDelayLevels)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
