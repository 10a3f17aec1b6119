package wire_test

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// TestFormatExamples holds the hex examples of FORMAT.md, which are RocketMQ's, against the codec.
func TestFormatExamples(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	report := make([]byte, wire.ReportSize)
	wire.PutReport(report, 1073741824)
	heartbeat := make([]byte, wire.HeaderSize)
	wire.PutHeader(heartbeat, wire.Header{Offset: 1073741824})
	data := make([]byte, wire.HeaderSize)
	wire.PutHeader(data, wire.Header{Offset: 1024, Size: 5})
	data = append(data, "hello"...)
	var token wire.Token
	for i := range token {
		token[i] = byte(i)
	}
	for name, got := range map[string][]byte{
		"report 1073741824":              report,
		"heartbeat at 1073741824":        heartbeat,
		`data at 1024, body "hello"`:     data,
		"preamble with token 000102..0f": wire.AppendPreamble(nil, token),
	} {
		_, rest, found := strings.Cut(string(doc), "\n"+name+"\n")
		want, _, _ := strings.Cut(rest, "\n")
		if !found || want != hex.EncodeToString(got) {
			t.Errorf("%s: FORMAT.md has %q, the codec makes %x", name, want, got)
		}
	}
	if h := wire.ParseHeader(data); h != (wire.Header{Offset: 1024, Size: 5}) {
		t.Errorf("parsed %+v", h)
	}
	if n := wire.ParseReport(report); n != 1073741824 {
		t.Errorf("parsed %d", n)
	}
}

func TestHeaderCheck(t *testing.T) {
	for _, tc := range []struct {
		h    wire.Header
		want wire.Fault
	}{
		{wire.Header{Offset: 100, Size: 0}, wire.OK},
		{wire.Header{Offset: 100, Size: 1000}, wire.OK},
		{wire.Header{Offset: 100, Size: 1001}, wire.TooLarge},
		{wire.Header{Offset: 100, Size: math.MaxInt32}, wire.TooLarge},
		{wire.Header{Offset: 100, Size: -1}, wire.NegativeSize},
		{wire.Header{Offset: 100, Size: math.MinInt32}, wire.NegativeSize},
		{wire.Header{Offset: 101, Size: 1}, wire.WrongOffset},
		{wire.Header{Offset: 99, Size: 0}, wire.WrongOffset},
		{wire.Header{Offset: -1, Size: 0}, wire.WrongOffset},
	} {
		if got := tc.h.Check(100, 1000); got != tc.want {
			t.Errorf("%+v: got %d, want %d", tc.h, got, tc.want)
		}
	}
}

func TestClassify(t *testing.T) {
	be := func(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	for _, tc := range []struct {
		first string
		want  wire.First
	}{
		{"\xD4ANDEM01", wire.Preamble},
		{"\xD4ANDEM02", wire.Negative},
		{be(0), wire.Report},
		{be(1 << 60), wire.Report},
		{be(1 << 62), wire.Report}, // sense is for the caller to judge
		{be(math.MaxInt64), wire.Report},
		{be(-1), wire.Negative},
		{be(math.MinInt64), wire.Negative},
		{"GET / HT", wire.Text},
		{"\r\n\r\nabcd", wire.Text},
		{"\x16\x03\x01\x02\x00\x01\x00\x01", wire.TLS},
	} {
		if got := wire.Classify([]byte(tc.first)); got != tc.want {
			t.Errorf("%q: got %d, want %d", tc.first, got, tc.want)
		}
	}
}

// FuzzHeader: what is parsed encodes to the same bytes, and a header that passes is within the limits.
func FuzzHeader(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x05"), int64(1024))
	f.Add([]byte("GET / HTTP/1.1"), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, end int64) {
		if len(b) < wire.HeaderSize {
			return
		}
		h := wire.ParseHeader(b)
		again := make([]byte, wire.HeaderSize)
		wire.PutHeader(again, h)
		if string(again) != string(b[:wire.HeaderSize]) {
			t.Fatalf("%x became %x", b[:wire.HeaderSize], again)
		}
		if h.Check(end, wire.MaxBody) == wire.OK && (h.Offset != end || h.Size < 0 || h.Size > wire.MaxBody) {
			t.Fatalf("passed: %+v with end %d", h, end)
		}
		if k := wire.Classify(b); (k == wire.Report) && wire.ParseReport(b) < 0 {
			t.Fatalf("a negative report: %x", b[:8])
		}
	})
}
