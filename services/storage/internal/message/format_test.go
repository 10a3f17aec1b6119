package message

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	bornHost  = netip.MustParseAddrPort("10.0.0.1:50000")
	storeHost = netip.MustParseAddrPort("192.168.1.2:10911")
)

const (
	bornTime  = 1700000000000
	storeTime = 1700000000123
)

func draft() Draft {
	return Draft{
		Topic: "TopicTest", QueueID: 3, Flag: 7, BornTimestamp: bornTime, BornHost: bornHost, StoreHost: storeHost,
		Body: []byte("hello"), Properties: []byte("KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x010A000001\x02"),
	}
}

func stamped(d Draft, crc bool, queueOffset, physicalOffset int64) []byte {
	rec := Append(nil, &d, crc)
	Stamp(rec, queueOffset, physicalOffset, storeTime)
	return rec
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// formatExamples returns the hex examples of FORMAT.md by name.
func formatExamples(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]byte)
	for _, m := range regexp.MustCompile("(?s)```hex (\\w+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = unhex(t, regexp.MustCompile(";.*").ReplaceAllString(m[2], ""))
	}
	return out
}

func TestFormatExamples(t *testing.T) {
	v2 := Draft{
		Topic: "%RETRY%" + strings.Repeat("g", 130), BornTimestamp: bornTime, BornHost: bornHost, StoreHost: storeHost,
		ReconsumeTimes: 1, Body: []byte("x"),
	}
	v6 := Draft{
		Topic: "T", QueueID: 1, BornTimestamp: bornTime, BornHost: netip.MustParseAddrPort("[2001:db8::1]:50000"),
		StoreHost: storeHost, Body: []byte("hello"), Properties: []byte("TAGS\x01TagA\x02"),
	}
	batch := AppendBatchItem(nil, BatchItem{Body: []byte("m0"), Properties: []byte("TAGS\x01TagA\x02")})
	batch = AppendBatchItem(batch, BatchItem{Flag: 9, Body: []byte("m01")})
	want := map[string][]byte{
		"v1":    stamped(draft(), false, 42, 1024),
		"v2":    stamped(v2, false, 0, 0),
		"v6":    stamped(v6, false, 5, 4096),
		"crc":   stamped(draft(), true, 42, 1024),
		"blank": AppendBlank(nil, 112),
		"batch": batch,
		"id":    unhex(t, OffsetMessageID(storeHost, 1024)),
	}
	examples := formatExamples(t)
	if len(examples) != len(want) {
		t.Errorf("FORMAT.md has %d examples, the test %d", len(examples), len(want))
	}
	for name, w := range want {
		if !bytes.Equal(examples[name], w) {
			t.Errorf("%s:\nFORMAT.md %x\ncodec     %x", name, examples[name], w)
		}
	}
}
