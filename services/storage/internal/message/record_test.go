package message

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// full has a value of its own in every field.
func full() View {
	return View{
		V2: true, BodyCRC: 0x01020304, QueueID: 5, Flag: -6, QueueOffset: 7, PhysicalOffset: 8,
		SysFlag: SysFlagBornHostV6 | SysFlagStoreHostV6 | TransactionCommit, BornTimestamp: 9,
		BornHost: netip.MustParseAddrPort("[2001:db8::1]:10"), BornPort: 10, StoreTimestamp: 11,
		StoreHost: netip.MustParseAddrPort("[2001:db8::2]:12"), StorePort: 12, ReconsumeTimes: 13,
		PreparedTransactionOffset: 14, Body: []byte("body"), Topic: []byte("topic"), Properties: []byte("a\x01b\x02"),
	}
}

func TestEncodeDecodeEveryField(t *testing.T) {
	for _, v6 := range []int32{0, SysFlagBornHostV6, SysFlagStoreHostV6, SysFlagBornHostV6 | SysFlagStoreHostV6} {
		want := full()
		want.SysFlag = want.SysFlag&^sysFlagHostV6 | v6
		if v6&SysFlagBornHostV6 == 0 {
			want.BornHost = netip.MustParseAddrPort("10.0.0.1:10")
		}
		if v6&SysFlagStoreHostV6 == 0 {
			want.StoreHost = netip.MustParseAddrPort("10.0.0.2:12")
		}
		rec := Encode(&want)
		want.Size = int32(len(rec))
		var got View
		if err := Decode(rec, &got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Body, want.Body) || !bytes.Equal(got.Topic, want.Topic) || !bytes.Equal(got.Properties, want.Properties) {
			t.Errorf("parts: %+v", got)
		}
		got.Body, got.Topic, got.Properties, want.Body, want.Topic, want.Properties = nil, nil, nil, nil, nil, nil
		if g, w := got, want; !sameScalars(&g, &w) {
			t.Errorf("got  %+v\nwant %+v", g, w)
		}
	}
}

func sameScalars(a, b *View) bool {
	return a.Size == b.Size && a.V2 == b.V2 && a.BodyCRC == b.BodyCRC && a.QueueID == b.QueueID && a.Flag == b.Flag &&
		a.QueueOffset == b.QueueOffset && a.PhysicalOffset == b.PhysicalOffset && a.SysFlag == b.SysFlag &&
		a.BornTimestamp == b.BornTimestamp && a.BornHost == b.BornHost && a.BornPort == b.BornPort &&
		a.StoreTimestamp == b.StoreTimestamp && a.StoreHost == b.StoreHost && a.StorePort == b.StorePort &&
		a.ReconsumeTimes == b.ReconsumeTimes && a.PreparedTransactionOffset == b.PreparedTransactionOffset
}

func TestPortsThatAreNone(t *testing.T) {
	v := full()
	v.BornPort, v.StorePort = -1, 70000
	rec := Encode(&v)
	var got View
	if err := Decode(rec, &got); err != nil {
		t.Fatal(err)
	}
	if got.BornPort != -1 || got.StorePort != 70000 || got.BornHost.Port() != 0 || got.StoreHost.Port() != 0 {
		t.Errorf("%d %d %v %v", got.BornPort, got.StorePort, got.BornHost, got.StoreHost)
	}
	if !bytes.Equal(Encode(&got), rec) {
		t.Error("does not encode back")
	}
}

func TestViewsDoNotReachBehindTheirParts(t *testing.T) {
	rec := append(stamped(draft(), false, 0, 0), "next"...)
	var v View
	if err := Decode(rec, &v); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(rec)
	_, _, _ = append(v.Body, 'x'), append(v.Topic, 'x'), append(v.Properties, 'x')
	if !bytes.Equal(rec, before) {
		t.Error("appending to a part of a view wrote into the record")
	}
}

func TestAppendHosts(t *testing.T) {
	for _, tc := range []struct{ given, stored string }{
		{"10.0.0.1:1", "10.0.0.1:1"},
		{"[::ffff:10.0.0.1]:1", "10.0.0.1:1"},
		{"[2001:db8::1]:1", "[2001:db8::1]:1"},
		{"", "0.0.0.0:0"},
	} {
		d := draft()
		d.SysFlag = sysFlagHostV6 // a caller's bits do not count
		d.BornHost, d.StoreHost = netip.AddrPort{}, netip.AddrPort{}
		if tc.given != "" {
			d.BornHost = netip.MustParseAddrPort(tc.given)
			d.StoreHost = d.BornHost
		}
		var v View
		if err := Decode(stamped(d, true, 0, 0), &v); err != nil {
			t.Fatal(err)
		}
		if v.BornHost.String() != tc.stored || v.StoreHost.String() != tc.stored {
			t.Errorf("%q: stored %v %v, want %s", tc.given, v.BornHost, v.StoreHost, tc.stored)
		}
	}
}

func TestAppendGoesBehindWhatIsThere(t *testing.T) {
	d := draft()
	dirty := bytes.Repeat([]byte{0xFF}, 4096)
	got := Append(dirty[:3], &d, true)
	if &got[0] != &dirty[0] || !bytes.Equal(got[3:], Append(nil, &d, true)) {
		t.Error("append into a dirty buffer differs")
	}
	if n := EncodedSize(&d, true); n != len(got)-3 {
		t.Errorf("EncodedSize says %d, it was %d", n, len(got)-3)
	}
}

func TestAppendVersion(t *testing.T) {
	for n, v2 := range map[int]bool{1: false, 127: false, 128: true, 255: true} {
		d := draft()
		d.Topic = strings.Repeat("t", n)
		rec := stamped(d, true, 0, 0)
		var v View
		if err := Decode(rec, &v); err != nil || v.V2 != v2 || string(v.Topic) != d.Topic {
			t.Errorf("topic of %d: V2 %v, %v", n, v.V2, err)
		}
		if EncodedSize(&d, true) != len(rec) {
			t.Errorf("topic of %d: EncodedSize %d, was %d", n, EncodedSize(&d, true), len(rec))
		}
	}
}

func TestAppendDropsForeignCRC(t *testing.T) {
	d := draft()
	plain := stamped(d, false, 0, 0)
	sealed := stamped(d, true, 0, 0)
	d.Properties = append(slices.Clone(d.Properties), "__CRC32#\x010000000000\x02"...)
	if !bytes.Equal(stamped(d, false, 0, 0), plain) || !bytes.Equal(stamped(d, true, 0, 0), sealed) {
		t.Error("the checksum of another record was kept")
	}
}

// TestStamp compares the corrected checksum with one computed anew, for records of all sizes, stamped again and again.
func TestStamp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 100, 1000, 3936, 3937, 3938, 5000, 65_537, 1 << 20} {
		d := draft()
		d.Body = make([]byte, size)
		for i := range d.Body {
			d.Body[i] = byte(rnd.Uint32())
		}
		if size%2 == 0 {
			d.BornHost = netip.MustParseAddrPort("[2001:db8::1]:1")
		}
		rec := Append(nil, &d, true)
		for range 5 {
			q, at, when := rnd.Int64(), rnd.Int64(), rnd.Int64()
			Stamp(rec, q, at, when)
			var v View
			if n, k, err := CheckView(rec, at, all, &v); err != nil || k != Record || n != len(rec) {
				t.Fatalf("body of %d: %v", size, err)
			}
			if got, want := storedCRC(rec), recordCRC(rec); got != want {
				t.Fatalf("body of %d: checksum %#x, want %#x", size, got, want)
			}
			if v.QueueOffset != q || v.PhysicalOffset != at || v.StoreTimestamp != when {
				t.Errorf("body of %d: stamped %+v", size, v)
			}
		}
	}
}

func TestStampLeavesOthersAlone(t *testing.T) {
	d := draft()
	d.Properties = []byte("a\x01__CRC32#\x02")
	plain := Append(nil, &d, false)
	again := slices.Clone(plain)
	Stamp(again, 0, 0, 0)
	if !bytes.Equal(plain, again) {
		t.Error("stamping with zeros changed a record without checksum")
	}
}

func TestTransactionFlags(t *testing.T) {
	for flag, queued := range map[int32]bool{TransactionNone: true, TransactionPrepared: false, TransactionCommit: true, TransactionRollback: false} {
		f := flag | SysFlagCompressed | SysFlagBornHostV6
		if Queued(f) != queued || Transaction(f) != flag {
			t.Errorf("%#x: queued %v, transaction %#x", f, Queued(f), Transaction(f))
		}
	}
}
