package message

import (
	"net/netip"
	"testing"
)

func TestHotPathAllocatesNothing(t *testing.T) {
	small, large := draft(), draft()
	small.Properties = []byte("TAGS\x01\xe4\xb8\xad\xf0\x9f\x98\x80\x02DELAY\x013\x02UNIQ_KEY\x010A000001")
	large.Body = make([]byte, 64<<10)
	large.BornHost = netip.MustParseAddrPort("[2001:db8::1]:1")
	delayed := small
	delayed.Topic = TopicSchedule
	levels := defaultLevels(t)
	filter, err := ParseTagFilter("TagA || TagB")
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 0, 128<<10)
	for name, d := range map[string]*Draft{"small": &small, "large": &large, "delayed": &delayed} {
		rec := stamped(*d, true, 1, 2)
		var v View
		sink := int64(0)
		for call, f := range map[string]func(){
			"Validate": func() {
				if err := (Limits{}).Validate(d); err != nil {
					t.Error(err)
				}
			},
			"Append": func() { sink += int64(len(Append(buf, d, true))) },
			"Stamp":  func() { Stamp(rec, 1, 2, storeTime) },
			"Decode": func() {
				if err := Decode(rec, &v); err != nil {
					t.Error(err)
				}
			},
			"Check": func() {
				if _, _, err := Check(rec, 2, all); err != nil {
					t.Error(err)
				}
			},
			"Property": func() {
				if _, ok := v.Property(PropertyUniqueKey); !ok {
					t.Error("not found")
				}
			},
			"TagsCode":       func() { sink += v.TagsCode(levels) },
			"TagFilter":      func() { filter.Match(v.Topic); filter.MatchCode(sink) },
			"AppendBlank":    func() { sink += int64(len(AppendBlank(buf, 8))) },
			"AppendProperty": func() { sink += int64(len(AppendProperty(buf, "name", "value"))) },
		} {
			if err := Decode(rec, &v); err != nil {
				t.Fatal(err)
			}
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%s of a %s message: %v allocations", call, name, n)
			}
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	for name, size := range map[string]int{"200B": 200, "1KiB": 1 << 10, "64KiB": 64 << 10, "4MiB": 4 << 20} {
		d := draft()
		d.Body = make([]byte, size)
		rec := stamped(d, true, 1, 2)
		buf := make([]byte, 0, len(rec))
		b.Run("Append/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(rec)))
			for b.Loop() {
				Append(buf, &d, true)
			}
		})
		b.Run("Stamp/"+name, func(b *testing.B) {
			for b.Loop() {
				Stamp(rec, 1, 2, 3)
			}
		})
		b.Run("CheckView/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(rec)))
			var v View
			Stamp(rec, 1, 2, 3)
			for b.Loop() {
				if _, _, err := CheckView(rec, 2, all, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
