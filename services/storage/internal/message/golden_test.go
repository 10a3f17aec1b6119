package message

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandemlog/tandem/pkg/testkit"
)

// dumped is one line of dump.jsonl: a record as RocketMQ's own decoder reads it.
type dumped struct {
	Offset                    int64
	Size                      int32
	Blank                     bool
	Magic, BodyCRC            uint32
	QueueID, Flag, SysFlag    int32
	QueueOffset               int64
	PhysicalOffset            int64
	BornTimestamp             int64
	BornHost                  string
	StoreTimestamp            int64
	StoreHost                 string
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	BodyLength                int
	BodySHA1                  string
	Topic                     string
	Properties                map[string]string
}

// store is what is needed of a golden store's master.
type store struct {
	log    [][]byte // files of the commit log, in order
	queues string   // folder of the queues: topic/queue/file
	dump   []dumped
}

func golden(t testing.TB, name string) store {
	t.Helper()
	dir := testkit.Golden(t, name)
	names, err := filepath.Glob(filepath.Join(dir, "master/commitlog/*")) // sorted
	if err != nil {
		t.Fatal(err)
	}
	s := store{queues: filepath.Join(dir, "master/consumequeue"), dump: readDump(t, readFile(t, filepath.Join(dir, "dump.jsonl")))}
	for _, n := range names {
		s.log = append(s.log, readFile(t, n))
	}
	return s
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readDump(t testing.TB, data []byte) (lines []dumped) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(data)); d.More(); {
		var l dumped
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// each calls f with every record and blank of the log, checked in all respects.
func (s store) each(t testing.TB, f func(at int64, rec []byte, k Kind, v *View)) {
	t.Helper()
	at := int64(0)
	for _, file := range s.log {
		for pos := 0; pos < len(file); {
			var v View
			size, kind, err := CheckView(file[pos:], at+int64(pos), CheckOptions{CRC: true, Offset: true, FileEnd: true}, &v)
			if err != nil {
				t.Fatal(err)
			}
			if kind == End {
				break
			}
			f(at+int64(pos), file[pos:pos+size], kind, &v)
			pos += size
		}
		at += int64(len(file))
	}
}

var goldenStores = []struct {
	name                string
	records, v2, blanks int
}{
	{"rocketmq-5.3.3", 1079, 120, 3},
	{"rocketmq-4.9.7", 1130, 0, 3},
	{"rocketmq-5.3.3-crash", 9896, 40, 35},
}

func TestGoldenRecords(t *testing.T) {
	for _, g := range goldenStores {
		t.Run(g.name, func(t *testing.T) {
			s := golden(t, g.name)
			var records, v2, blanks int
			s.each(t, func(at int64, rec []byte, k Kind, v *View) {
				n := records + blanks
				switch {
				case n >= len(s.dump):
					t.Fatalf("record at %d is not in the dump", at)
				case k == Blank:
					blanks++
					compareBlank(t, rec, at, s.dump[n])
				default:
					records++
					if v.V2 {
						v2++
					}
					compareRecord(t, rec, v, at, s.dump[n])
				}
			})
			if n := records + blanks; n != len(s.dump) {
				t.Errorf("the log has %d records, the dump %d", n, len(s.dump))
			}
			if records != g.records || v2 != g.v2 || blanks != g.blanks {
				t.Errorf("%d records, %d of them V2, %d blanks; want %d, %d, %d", records, v2, blanks, g.records, g.v2, g.blanks)
			}
		})
	}
}

func compareBlank(t *testing.T, rec []byte, at int64, want dumped) {
	t.Helper()
	if !want.Blank || want.Offset != at || int(want.Size) != len(rec) {
		t.Errorf("blank of %d at %d, dump says %+v", len(rec), at, want)
	}
	if got := AppendBlank(nil, int32(len(rec))); !bytes.Equal(got, rec[:BlankSize]) {
		t.Errorf("blank at %d encodes to %x, is %x", at, got, rec[:BlankSize])
	}
}

func compareRecord(t *testing.T, rec []byte, v *View, at int64, want dumped) {
	t.Helper()
	magic := MagicV1
	if v.V2 {
		magic = MagicV2
	}
	sum := sha1.Sum(v.Body)
	got := dumped{
		Offset: at, Size: v.Size, Magic: magic, BodyCRC: v.BodyCRC, QueueID: v.QueueID, Flag: v.Flag,
		SysFlag: v.SysFlag, QueueOffset: v.QueueOffset, PhysicalOffset: v.PhysicalOffset, BornTimestamp: v.BornTimestamp,
		BornHost: v.BornHost.String(), StoreTimestamp: v.StoreTimestamp, StoreHost: v.StoreHost.String(),
		ReconsumeTimes: v.ReconsumeTimes, PreparedTransactionOffset: v.PreparedTransactionOffset,
		BodyLength: len(v.Body), BodySHA1: hex.EncodeToString(sum[:]), Topic: string(v.Topic),
		Properties: propertyMap(v.Properties),
	}
	if !maps.Equal(got.Properties, want.Properties) {
		t.Errorf("record at %d: properties %q, want %q", at, got.Properties, want.Properties)
	}
	for name, value := range want.Properties {
		if p, ok := v.Property(name); !ok || string(p) != value {
			t.Errorf("record at %d: property %s is %q %v, want %q", at, name, p, ok, value)
		}
	}
	got.Properties, want.Properties = nil, nil
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("record at %d:\ngot  %s\nwant %s", at, a, b)
	}
	if !bytes.Equal(Encode(v), rec) {
		t.Errorf("record at %d does not encode back", at)
	}
	if again := reappend(v); !bytes.Equal(again, rec) {
		t.Errorf("record at %d: put again it becomes\n%x\nwant\n%x", at, again, rec)
	}
}

// reappend puts a record through Draft, Append and Stamp.
func reappend(v *View) []byte {
	d := Draft{
		Topic: string(v.Topic), QueueID: v.QueueID, Flag: v.Flag, SysFlag: v.SysFlag, BornTimestamp: v.BornTimestamp,
		BornHost: v.BornHost, StoreHost: v.StoreHost, ReconsumeTimes: v.ReconsumeTimes,
		PreparedTransactionOffset: v.PreparedTransactionOffset, Body: v.Body, Properties: v.Properties,
	}
	rec := Append(nil, &d, false)
	Stamp(rec, v.QueueOffset, v.PhysicalOffset, v.StoreTimestamp)
	return rec
}

// TestGoldenUnits makes the queue units of every record and looks for them where RocketMQ put them.
func TestGoldenUnits(t *testing.T) {
	const fileSize, unitSize = 2000, 20
	levels := defaultLevels(t)
	for _, g := range goldenStores[:2] {
		t.Run(g.name, func(t *testing.T) {
			s := golden(t, g.name)
			delayed, units := 0, 0
			files := make(map[string][]byte)
			s.each(t, func(at int64, rec []byte, k Kind, v *View) {
				if k != Record || !Queued(v.SysFlag) {
					return
				}
				unit := binary.BigEndian.AppendUint64(nil, uint64(at))
				unit = binary.BigEndian.AppendUint32(unit, uint32(len(rec)))
				unit = binary.BigEndian.AppendUint64(unit, uint64(v.TagsCode(levels)))
				pos := v.QueueOffset * unitSize
				name := fmt.Sprintf("%s/%d/%020d", v.Topic, v.QueueID, pos-pos%fileSize)
				file, ok := files[name]
				if !ok {
					file = readFile(t, filepath.Join(s.queues, name))
					files[name] = file
				}
				if pos %= fileSize; len(file) != fileSize || !bytes.Equal(file[pos:pos+unitSize], unit) {
					t.Errorf("record at %d: unit %x is not in its queue", at, unit)
				}
				units++
				if string(v.Topic) == TopicSchedule {
					delayed++
				}
			})
			if units != g.records || delayed < 100 {
				t.Errorf("%d units of %d records, %d of them delayed", units, g.records, delayed)
			}
		})
	}
}
