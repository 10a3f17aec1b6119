package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

var all = CheckOptions{CRC: true, Offset: true, FileEnd: true}

// logOf returns n records side by side from log offset at on, and where each begins in the bytes.
func logOf(n int, at int64, crc bool) (log []byte, starts []int) {
	for i := range n {
		d := draft()
		d.Body = []byte(fmt.Sprintf("body %d", i))
		start := len(log)
		starts = append(starts, start)
		log = Append(log, &d, crc)
		Stamp(log[start:], int64(i), at+int64(start), storeTime)
	}
	return log, starts
}

func TestCheckKinds(t *testing.T) {
	rec := stamped(draft(), true, 1, 512)
	for _, tc := range []struct {
		name   string
		window []byte
		size   int
		kind   Kind
	}{
		{"record", rec, len(rec), Record},
		{"record with more behind it", append(slices.Clone(rec), 1, 2, 3), len(rec), Record},
		{"nothing", nil, 0, End},
		{"seven zeros", make([]byte, 7), 0, End},
		{"zeros", make([]byte, 100), 0, End},
		{"blank", append(AppendBlank(nil, 20), make([]byte, 12)...), 20, Blank},
		{"blank over old bytes", append(AppendBlank(nil, 20), "twelve bytes"...), 20, Blank},
		{"smallest blank", AppendBlank(nil, 8), 8, Blank},
	} {
		size, kind, err := Check(tc.window, 512, all)
		if size != tc.size || kind != tc.kind || err != nil {
			t.Errorf("%s: %d %d %v, want %d %d", tc.name, size, kind, err, tc.size, tc.kind)
		}
	}
}

func TestCheckDamage(t *testing.T) {
	put32 := func(pos int, n uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint32(b[pos:], n); return b }
	}
	const topicLength, propertiesLength = 93, 103 // of draft
	for _, tc := range []struct {
		name  string
		harm  func([]byte) []byte
		field string
		size  int
		short bool
	}{
		{"magic", put32(4, 0xDAA320A8), "magic", 0, false},
		{"magic of DLedger's blank", put32(4, 0xFFFFFFFF), "magic", 0, false},
		{"size 0", put32(0, 0), "totalSize", 0, false},
		{"size negative", put32(0, 0x80000000), "totalSize", 0, false},
		{"size below the least", put32(0, 90), "totalSize", 0, false},
		{"size beyond the window", put32(0, 0x7FFFFFFF), "totalSize", 0, true},
		{"size one less", put32(0, 143), "propertiesLength", 0, false},
		{"body length negative", put32(84, 0xFFFFFFFF), "bodyLength", 0, false},
		{"body length huge", put32(84, 0x7FFFFFFF), "bodyLength", 0, false},
		{"body length takes all", put32(84, 144-88), "bodyLength", 0, false},
		{"topic length negative", func(b []byte) []byte { b[topicLength] = 0x80; return b }, "topicLength", 0, false},
		{"topic length takes all", func(b []byte) []byte { b[topicLength] = 144 - 94; return b }, "topicLength", 0, false},
		{"properties length one more", func(b []byte) []byte { b[propertiesLength+1]++; return b }, "propertiesLength", 0, false},
		{"properties length negative", func(b []byte) []byte { b[propertiesLength] = 0x80; return b }, "propertiesLength", 0, false},
		{"born host turns IPv6", put32(36, 0x10), "bodyLength", 0, false},
		{"another place", func(b []byte) []byte { b[35]++; return b }, "physicalOffset", 144, false},
		{"body", func(b []byte) []byte { b[88] ^= 1; return b }, "bodyCRC", 144, false},
		{"body CRC's upper bit", func(b []byte) []byte { b[8] ^= 0x80; return b }, "bodyCRC", 144, false},
		{"topic with a slash", func(b []byte) []byte { b[95] = '/'; return b }, "topic", 144, false},
		{"topic with 00", func(b []byte) []byte { b[95] = 0; return b }, "topic", 144, false},
		{"properties end in 00", func(b []byte) []byte { b[143] = 0; return b }, "properties", 144, false},
		{"cut in the header", func(b []byte) []byte { return b[:7] }, "totalSize", 0, true},
		{"cut behind the header", func(b []byte) []byte { return b[:8] }, "totalSize", 0, true},
		{"cut at the end", func(b []byte) []byte { return b[:143] }, "totalSize", 0, true},
		{"blank of 7", func([]byte) []byte { return AppendBlank(nil, 7) }, "blankSize", 0, false},
		{"blank negative", func([]byte) []byte { return AppendBlank(nil, -1) }, "blankSize", 0, false},
		{"blank too short for the file", func([]byte) []byte { return append(AppendBlank(nil, 9), 0, 0) }, "blankSize", 0, false},
		{"blank beyond the window", func([]byte) []byte { return AppendBlank(nil, 9) }, "blankSize", 0, false},
	} {
		size, _, err := Check(tc.harm(stamped(draft(), false, 42, 1024)), 1024, all)
		var c *CorruptError
		if !errors.As(err, &c) {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if c.Offset != 1024 || c.Field != tc.field || size != tc.size || int(c.Size) != tc.size || c.Short != tc.short {
			t.Errorf("%s: size %d, %+v; want field %s, size %d, short %v", tc.name, size, c, tc.field, tc.size, tc.short)
		}
		if e := errdefs.As(err); !errors.Is(err, ErrCorrupt) || e.Class != errdefs.DataLoss || e.Meta["offset"] != "1024" || e.Field != tc.field {
			t.Errorf("%s: its class is lost: %+v", tc.name, e)
		}
		if !strings.HasPrefix(err.Error(), "record at 1024: "+tc.field) {
			t.Errorf("%s: %q", tc.name, err)
		}
	}
}

// What one copy of a record shows of a flipped bit: everything where the record has its checksum, else the body, the lengths, the offset
// and what is compared with a constant. The README says so.
func TestCheckSeesAFlippedBit(t *testing.T) {
	flips := func(crc bool) (unseen []int) {
		rec, _ := logOf(1, 4096, crc)
		for i := range rec {
			for bit := range 8 {
				rec[i] ^= 1 << bit
				if _, k, err := Check(rec, 4096, all); err == nil && k == Record && !slices.Contains(unseen, i) {
					unseen = append(unseen, i)
				}
				rec[i] ^= 1 << bit
			}
		}
		return unseen
	}
	if unseen := flips(true); unseen != nil {
		t.Errorf("with a checksum bytes %v may change unseen", unseen)
	}
	rec, _ := logOf(1, 4096, false)
	body, props := bytes.Index(rec, []byte("body 0")), bytes.Index(rec, draft().Properties)
	unseen := flips(false)
	for _, i := range unseen {
		if i < posQueueID || i >= posPhysicalOffset && i < posSysFlag || i >= body && i < body+len("body 0") {
			t.Errorf("byte %d may change unseen", i)
		}
	}
	if !slices.Contains(unseen, props) || !slices.Contains(unseen, posQueueID) {
		t.Errorf("without a checksum only bytes %v may change unseen: the README says more", unseen)
	}
}

func TestBegins(t *testing.T) {
	rec, _ := logOf(1, 4096, true)
	for i := range rec[:posBornTimestamp] {
		rec[i] ^= 0xFF
		if !Begins(rec, 4096) {
			t.Errorf("not with a flipped byte %d", i)
		}
		rec[i] ^= 0xFF
		if i > 0 && Begins(rec[i:], 4096+int64(i)) {
			t.Errorf("at byte %d of a record", i)
		}
	}
	for name, b := range map[string][]byte{"nothing": nil, "zeros": make([]byte, 100), "a blank": AppendBlank(nil, 100)} {
		if Begins(b, 0) || Begins(b, 4096) {
			t.Error(name)
		}
	}
}

func TestCheckShortBlankIsNoDamageYet(t *testing.T) {
	_, _, err := Check(AppendBlank(nil, 9), 0, CheckOptions{})
	var c *CorruptError
	if !errors.As(err, &c) || !c.Short {
		t.Errorf("got %v", err)
	}
}

func TestCheckTopicsThatAreNoFolder(t *testing.T) {
	for topic, ok := range map[string]bool{"": false, ".": false, "..": false, "a/b": false, "a\x1f": false, "...": true, "%RETRY%g": true} {
		d := draft()
		d.Topic = topic
		_, _, err := Check(stamped(d, true, 0, 0), 0, all)
		var c *CorruptError
		if errors.As(err, &c); ok != (err == nil) || !ok && c.Field != "topic" {
			t.Errorf("%q: %v", topic, err)
		}
	}
}

// TestT10_TornTail zeroes the last k bytes of the last record, for every k.
func TestT10_TornTail(t *testing.T) {
	for _, crc := range []bool{true, false} {
		log, starts := logOf(3, 0, crc)
		last := starts[2]
		for k := 1; k <= len(log)-last; k++ {
			torn := slices.Clone(log)
			clear(torn[len(torn)-k:])
			_, kind, err := Check(torn[last:], int64(last), all)
			if gone := allZero(torn[last:]); gone != (err == nil && kind == End) {
				t.Errorf("crc %v, last %d bytes zero: kind %d, %v", crc, k, kind, err)
			}
			if skip, ok := Next(torn[last:], int64(last)); ok {
				t.Errorf("crc %v, last %d bytes zero: found a record %d behind the torn one", crc, k, skip)
			}
		}
	}
}

// TestT10_StaleRecord puts an old record behind the end of the log.
func TestT10_StaleRecord(t *testing.T) {
	log, starts := logOf(3, 0, true)
	end := len(log)
	log = append(log, log[starts[1]:starts[2]]...)
	_, _, err := Check(log[end:], int64(end), all)
	var c *CorruptError
	if !errors.As(err, &c) || c.Field != "physicalOffset" || c.Want != int64(end) || c.Got != int64(starts[1]) {
		t.Errorf("got %v", err)
	}
	if _, ok := Next(log[end:], int64(end)); ok {
		t.Error("a stale record proves nothing")
	}
}

// TestT10_BitRot flips each bit of a record that carries the checksum: every one is seen, and the record behind it is
// found.
func TestT10_BitRot(t *testing.T) {
	const at = 4096
	log, starts := logOf(3, at, true)
	begin, next := starts[1], starts[2]
	for bit := range 8 * (next - begin) {
		rotten := slices.Clone(log)
		rotten[begin+bit/8] ^= 1 << (bit % 8)
		size, _, err := Check(rotten[begin:], at+int64(begin), all)
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d of byte %d: not seen (%v)", bit%8, bit/8, err)
		}
		if size != 0 && size != next-begin {
			t.Errorf("bit %d of byte %d: size %d", bit%8, bit/8, size)
		}
		if skip, ok := Next(rotten[begin:], at+int64(begin)); !ok || skip != next-begin {
			t.Errorf("bit %d of byte %d: next record at %d %v, want %d", bit%8, bit/8, skip, ok, next-begin)
		}
	}
}

// TestT10_BitRotInALongRecord: of a long record the body is read once for both checksums.
func TestT10_BitRotInALongRecord(t *testing.T) {
	for _, topic := range []string{"T", strings.Repeat("t", 200)} {
		d := draft()
		d.Topic, d.Body = topic, []byte(strings.Repeat("long body ", directCRC/10+2))
		rec := stamped(d, true, 7, 512)
		var v View
		if _, _, err := CheckView(rec, 512, all, &v); err != nil {
			t.Fatal(err)
		}
		body, record := v.sums(rec, true)
		if body != BodyCRC(d.Body) || record != recordCRC(rec) || record != storedCRC(rec) {
			t.Errorf("checksums %#x and %#x, want %#x and %#x", body, record, BodyCRC(d.Body), recordCRC(rec))
		}
		for at := range rec {
			rec[at] ^= 1 << (at % 8)
			if _, _, err := Check(rec, 512, all); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d: not seen (%v)", at, err)
			}
			rec[at] ^= 1 << (at % 8)
		}
	}
}

// TestNextPassesOverBodies: a body may hold what looks like a sound record at its very place.
func TestNextPassesOverBodies(t *testing.T) {
	d := draft()
	probe := Append(nil, &d, true)
	forged := stamped(d, true, 0, int64(88)) // where the body of the outer record begins
	d.Body = forged
	outer := stamped(d, true, 0, 0)
	outer[len(outer)-2] ^= 1
	if skip, ok := Next(outer, 0); ok {
		t.Errorf("found %d bytes behind", skip)
	}
	outer = append(outer, probe...)
	Stamp(outer[len(outer)-len(probe):], 1, int64(len(outer)-len(probe)), storeTime)
	if skip, ok := Next(outer, 0); !ok || skip != len(outer)-len(probe) {
		t.Errorf("found %d %v, want %d", skip, ok, len(outer)-len(probe))
	}
}

func TestNextAfterLostBytes(t *testing.T) {
	log, starts := logOf(5, 0, true)
	clear(log[starts[1]+3 : starts[3]+7]) // a page that never reached the disk
	if skip, ok := Next(log[starts[1]:], int64(starts[1])); !ok || skip != starts[4]-starts[1] {
		t.Errorf("found %d %v, want %d", skip, ok, starts[4]-starts[1])
	}
}
