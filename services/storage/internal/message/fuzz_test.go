package message

import (
	"bytes"
	"runtime"
	"testing"
)

// seeds adds sound records of all kinds, each also cut and with a length that claims much.
func seeds(f *testing.F) {
	f.Helper()
	for _, rec := range formatExamples(f) {
		f.Add(rec)
		f.Add(rec[:len(rec)/2])
		for _, pos := range []int{0, 84} {
			if len(rec) > pos+4 {
				claim := bytes.Clone(rec)
				copy(claim[pos:], "\x7F\xFF\xFF\xF0")
				f.Add(claim)
			}
		}
	}
	f.Add([]byte{})
	f.Add(make([]byte, 100))
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, rec []byte) {
		var v View
		err := Decode(rec, &v)
		if err != nil {
			return
		}
		if int(v.Size) > len(rec) || len(v.Body)+len(v.Topic)+len(v.Properties) > int(v.Size) {
			t.Fatalf("parts exceed the record: %+v", v)
		}
		if !bytes.Equal(Encode(&v), rec[:v.Size]) {
			t.Fatal("does not encode back")
		}
	})
}

func FuzzCheck(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, window []byte) {
		for _, o := range []CheckOptions{{}, all} {
			size, kind, err := Check(window, 1024, o)
			switch {
			case size < 0 || size > len(window):
				t.Fatalf("size %d of %d bytes", size, len(window))
			case err == nil && (kind == End) != (size == 0):
				t.Fatalf("kind %d with size %d", kind, size)
			}
		}
		if skip, ok := Next(window, 1024); ok {
			if _, kind, err := Check(window[skip:], 1024+int64(skip), CheckOptions{CRC: true, Offset: true}); err != nil || kind != Record || skip < 1 {
				t.Fatalf("Next found %d: %d %v", skip, kind, err)
			}
		}
	})
}

func FuzzProperties(f *testing.F) {
	for _, s := range []string{"", "a\x01b\x02", "a\x01b", "\x01\x02\x01\x02", "a\x01b\x02a\x01c\x02__CRC32#\x010000000000\x02"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, props []byte) {
		last := make(map[string]string)
		total := 0
		EachProperty(props, func(name, value []byte) bool {
			if len(name) == 0 || len(value) == 0 {
				t.Fatalf("empty part in %q", props)
			}
			total += len(name) + len(value) + 1
			last[string(name)] = string(value)
			return true
		})
		if total > len(props) {
			t.Fatalf("%d bytes out of %d", total, len(props))
		}
		var again []byte
		for name, value := range last {
			if got, ok := FindProperty(props, name); !ok || string(got) != value {
				t.Fatalf("%q is %q, want %q", name, got, value)
			}
			again = AppendProperty(again, name, value)
		}
		d := draft()
		d.Properties = again
		if err := (Limits{MaxBody: 10}).Validate(&d); err == nil && len(last) > 0 {
			rec := stamped(d, true, 0, 0)
			if _, _, err := Check(rec, 0, all); err != nil {
				t.Fatalf("%q: %v", again, err)
			}
		}
		HashCode(0, props)
	})
}

func FuzzClientBatch(f *testing.F) {
	one := AppendBatchItem(nil, BatchItem{Flag: 9, Body: []byte("one"), Properties: []byte("a\x01b\x02")})
	f.Add(one)
	f.Add(AppendBatchItem(one, BatchItem{}))
	f.Add(one[:len(one)-1])
	f.Add(append(bytes.Clone(one[:16]), "\x7F\xFF\xFF\xFFmore than there is"...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, batch []byte) {
		var again []byte
		for m, err := range DecodeClientBatch(batch) {
			if err != nil {
				return
			}
			if again = AppendBatchItem(again, m); len(again) > len(batch) {
				t.Fatal("items exceed the batch")
			}
		}
		if len(again) != len(batch) {
			t.Fatalf("%d bytes of %d were decoded", len(again), len(batch))
		}
	})
}

// TestClaimsAreNotAllocated decodes what claims gigabytes.
func TestClaimsAreNotAllocated(t *testing.T) {
	rec := stamped(draft(), true, 0, 0)
	copy(rec, "\x7F\xFF\xFF\xF0")
	copy(rec[84:], "\x7F\xFF\xFF\x00")
	batch := append(make([]byte, 16), "\x7F\xFF\xFF\xFFmore than there is"...)
	n := allocated(func() {
		for range 100 {
			var v View
			if Decode(rec, &v) == nil {
				t.Error("decoded")
			}
			if _, _, err := Check(rec, 0, all); err == nil {
				t.Error("sound")
			}
			if _, ok := Next(rec, 0); ok {
				t.Error("found a record")
			}
			for _, err := range DecodeClientBatch(batch) {
				if err == nil {
					t.Error("batch decoded")
				}
			}
		}
	})
	if n > 1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}
