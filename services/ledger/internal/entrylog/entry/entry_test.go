package entry_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVectorT12 has the bytes that DLedger's own coder made.
func TestVectorT12(t *testing.T) {
	for _, c := range []struct {
		bytes, unit string
		want        entry.Header
		body        string
	}{
		{
			"0000000100000035000000000000000000000000000000010000000000000000 0000000000000000000000000000000568656c6c6f",
			"0000000100000000000000000000003500000000000000000000000000000001",
			entry.Header{Size: 53, Index: 0, Term: 1, Pos: 0},
			"hello",
		},
		{
			"0000000100000036000000000000000100000000000000010000000000000035 00000000000000000000000000000006776f726c6421",
			"0000000100000000000000350000003600000000000000010000000000000001",
			entry.Header{Size: 54, Index: 1, Term: 1, Pos: 53},
			"world!",
		},
	} {
		b := unhex(t, c.bytes)
		h, err := entry.Read(b)
		if err != nil || h != c.want || string(h.Body(b)) != c.body {
			t.Errorf("%+v, %v", h, err)
		}
		if u := entry.AppendUnit(nil, entry.UnitOf(&h)); !bytes.Equal(u, unhex(t, c.unit)) {
			t.Errorf("unit %x", u)
		}
		if u, ok := entry.ReadUnit(unhex(t, c.unit)); !ok || u != entry.UnitOf(&h) {
			t.Errorf("unit %+v", u)
		}
		// Without the checksums that Tandem adds, the bytes are DLedger's.
		mine := entry.New(0, []byte(c.body))
		entry.Stamp(mine, h.Index, h.Term, h.Pos, true)
		clear(mine[36:44])
		if !bytes.Equal(mine, b) {
			t.Errorf("encoded %x", mine)
		}
	}
	noOp := unhex(t, "000000020000003000000000000000020000000000000002000000000000006b 00000000000000000000000000000000")
	if _, err := entry.Read(noOp); !errors.Is(err, entry.ErrUnsupported) {
		t.Errorf("no-op of DLedger 0.4: %v", err)
	}
	if u, ok := entry.ReadUnit(unhex(t, "00000002000000000000006b0000003000000000000000020000000000000002")); !ok || u.Index != 2 || u.Pos != 107 {
		t.Errorf("unit of DLedger 0.4: %+v, %v", u, ok)
	}
	blank := make([]byte, 100)
	entry.PutBlank(blank, 100)
	if !bytes.Equal(blank[:8], unhex(t, "ffffffff00000064")) || !entry.IsBlank(blank) {
		t.Errorf("blank %x", blank[:8])
	}
}

// TestEveryBitOfASealedEntryCounts flips each bit of header and body.
func TestEveryBitOfASealedEntryCounts(t *testing.T) {
	for _, synced := range []bool{false, true} {
		b := entry.New(77, []byte("some body"))
		entry.Stamp(b, 5, 3, 4096, synced)
		h, err := entry.Read(b)
		want := entry.Header{Size: 57, Index: 5, Term: 3, Pos: 4096, Channel: 77, BodyCRC: crc32.ChecksumIEEE([]byte("some body")), Sealed: true, Synced: synced}
		if err != nil || h != want {
			t.Fatalf("%+v, %v", h, err)
		}
		for bit := range 8 * len(b) {
			c := bytes.Clone(b)
			c[bit/8] ^= 1 << (bit % 8)
			if h, err := entry.Read(c); err == nil {
				t.Errorf("bit %d flipped and taken: %+v", bit, h)
			}
		}
	}
}

// TestWhatCannotBeIsRefused has headers that say what none can, with checksums that agree where there are any.
func TestWhatCannotBeIsRefused(t *testing.T) {
	good := entry.New(0, []byte("hello"))
	entry.Stamp(good, 0, 0, 0, false)
	clear(good[36:44])
	if _, err := entry.Read(good); err != nil {
		t.Fatal(err)
	}
	for field, cases := range map[string]map[int]string{
		"magic":    {0: "00000000"},
		"size":     {4: "00000034"},
		"length":   {44: "ffffffff"},
		"both":     {4: "0000002f", 44: "ffffffff"}, // passes DLedger's scan, which then cannot start
		"too much": {4: "00000036", 44: "00000006"},
		"huge":     {4: "00400001", 44: "003fffd1"},
		"index":    {8: "8000000000000000"},
		"term":     {16: "ffffffffffffffff"},
		"pos":      {24: "8000000000000000"},
		"bodyCrc":  {40: "00000001"},
		"chain":    {36: "00000002"},
	} {
		b := bytes.Clone(good)
		for at, s := range cases {
			copy(b[at:], unhex(t, s))
		}
		if h, err := entry.Read(b); !errors.Is(err, entry.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", field, h, err)
		}
	}
	for n := range len(good) {
		if _, err := entry.Read(good[:n]); !errors.Is(err, entry.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func side(t *testing.T, marks ...raft.Mark) []byte {
	t.Helper()
	var all []byte
	for _, m := range marks {
		b := entry.New(0, []byte("x"))
		entry.Stamp(b, m.Index, m.Term, int64(len(all)), false)
		all = append(all, b...)
	}
	return all
}

func TestSplitWantsEntriesInOrder(t *testing.T) {
	got, err := entry.Split(nil, side(t, raft.Mark{Index: 4, Term: 1}, raft.Mark{Index: 5, Term: 1}, raft.Mark{Index: 6, Term: 3}))
	if err != nil || len(got) != 3 || got[2].Index != 6 || got[2].Term != 3 || string(got[2].Payload[48:]) != "x" || got[0].Kind != raft.Normal {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, bad := range [][]byte{
		side(t, raft.Mark{Index: 4, Term: 1}, raft.Mark{Index: 6, Term: 1}),
		side(t, raft.Mark{Index: 4, Term: 1}, raft.Mark{Index: 4, Term: 1}),
		side(t, raft.Mark{Index: 4, Term: 2}, raft.Mark{Index: 5, Term: 1}),
		append(side(t, raft.Mark{Index: 4, Term: 2}), 0),
	} {
		if got, err := entry.Split(nil, bad); !errors.Is(err, entry.ErrCorrupt) || len(got) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	b := make([]byte, entry.HeaderSize)
	entry.PutNoOp(b)
	entry.Stamp(b, 9, 2, 0, true)
	if got, err := entry.Split(nil, b); err != nil || got[0].Kind != raft.NoOp {
		t.Errorf("no-op: %+v, %v", got, err)
	}
}

func FuzzRead(f *testing.F) {
	b := entry.New(1, []byte("body"))
	f.Add(b)
	entry.Stamp(b, 1, 2, 3, true)
	f.Add(bytes.Clone(b))
	clear(b[36:44])
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := entry.Read(b)
		if err != nil {
			return
		}
		again := entry.New(h.Channel, h.Body(b))
		entry.Stamp(again, h.Index, h.Term, h.Pos, h.Synced)
		if !h.Sealed {
			clear(again[36:40])
		}
		if h.BodyCRC == 0 {
			clear(again[40:44])
		}
		if !bytes.Equal(again, b[:h.Size]) {
			t.Fatalf("%x encodes back to %x", b[:h.Size], again)
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte{})
	b := entry.New(1, []byte("body"))
	f.Add(append(bytes.Clone(b), b...))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := entry.Split(nil, b)
		size := 0
		for i, e := range all {
			size += e.Size
			if i > 0 && e.Index != all[i-1].Index+1 || e.Size != len(e.Payload) {
				t.Fatalf("entry %d: %+v", i, e)
			}
		}
		if err == nil && size != len(b) {
			t.Fatalf("%d of %d bytes", size, len(b))
		}
	})
}

func FuzzUnit(f *testing.F) {
	f.Add(entry.AppendUnit(nil, entry.Unit{Pos: 1, Size: 50, Index: 3, Term: 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, ok := entry.ReadUnit(b)
		if ok && !bytes.Equal(entry.AppendUnit(nil, u)[4:], b[4:entry.UnitSize]) {
			t.Fatalf("%+v from %x", u, b)
		}
	})
}

func TestAllocations(t *testing.T) {
	b := entry.New(1, make([]byte, 1000))
	var dst []raft.Entry
	if n := testing.AllocsPerRun(100, func() {
		entry.Stamp(b, 1, 2, 3, true)
		var err error
		if dst, err = entry.Split(dst[:0], b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
