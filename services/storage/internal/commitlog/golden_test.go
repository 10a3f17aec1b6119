package commitlog_test

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// TestGoldenStores opens folders that RocketMQ wrote: the ends are those of its own recovery, no byte of a clean log is
// changed, and a second open changes nothing of a crashed one.
func TestGoldenStores(t *testing.T) {
	for _, tc := range []struct {
		archive, side string
		end           int64 // 0: that of the last record
		clean         bool
	}{
		{"rocketmq-5.3.3", "master", 0, true},
		{"rocketmq-5.3.3", "slave", 0, true},
		{"rocketmq-4.9.7", "master", 0, true},
		{"rocketmq-4.9.7", "slave", 0, true},
		{"rocketmq-5.3.3-crash", "master", 9250775, false},
		{"rocketmq-5.3.3-crash", "slave", 9235815, false},
	} {
		t.Run(tc.archive+"/"+tc.side, func(t *testing.T) {
			root := filepath.Join(testkit.Golden(t, tc.archive), tc.side)
			before := logFiles(t, vfs.OS(), root)
			end := tc.end
			if end == 0 {
				end = endOf(t, before)
			}
			for round := range 2 {
				r := openGolden(t, root, round == 0, end)
				if round == 0 && r.Clean != tc.clean {
					t.Errorf("clean: %v", r.Clean)
				}
				if after := logFiles(t, vfs.OS(), root); !maps.EqualFunc(before, after, bytes.Equal) {
					t.Fatalf("round %d changed the log", round)
				}
			}
		})
	}
}

func openGolden(t *testing.T, root string, ahead bool, end int64) *commitlog.Recovery {
	t.Helper()
	l, r, err := commitlog.Open(vfs.OS(), root, commitlog.Options{BootID: boot, Ahead: ahead})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, l)
	if r.End != end || l.End() != end || r.CheckpointReadable != end || len(r.Rot) != 0 || r.Lost != 0 || r.CutBytes != 0 {
		t.Errorf("recovered %+v, want the end %d", *r, end)
	}
	if l.FileSize() != 256<<10 {
		t.Errorf("file size %d", l.FileSize())
	}
	if whole, err := l.WholeEnd(); err != nil || whole != end {
		t.Errorf("whole end %d, %v", whole, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l, true)
	return r
}

// endOf walks all records with the codec alone.
func endOf(t *testing.T, files map[string][]byte) int64 {
	t.Helper()
	var end int64
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b := files[name]
		start := end
		for at := 0; at < len(b); {
			size, kind, err := message.Check(b[at:], start+int64(at), message.CheckOptions{CRC: true, Offset: true})
			if err != nil {
				t.Fatal(err)
			}
			if kind == message.End {
				return start + int64(at)
			}
			at += size
			end = start + int64(at)
		}
	}
	return end
}

// TestGoldenGoesOn appends to a crashed RocketMQ store and opens it again.
func TestGoldenGoesOn(t *testing.T) {
	root := filepath.Join(testkit.Golden(t, "rocketmq-5.3.3-crash"), "master")
	o := commitlog.Options{Ahead: true, SyncFlush: true}
	l, r, err := commitlog.Open(vfs.OS(), root, o)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, l)
	var last commitlog.Appended
	for i := range 1000 {
		last = put(t, l, sized(i, 700))
	}
	if err := l.Flushed().WaitUntil(t.Context(), last.Next, time.Now().Add(10*time.Second)); err != nil {
		t.Fatal(err)
	}
	want := read(t, l, r.End, l.End())
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l, false)
	l, r2, err := commitlog.Open(vfs.OS(), root, o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l, true)
	if r2.End != last.Next || r2.Clean || r2.CutBytes != 0 || len(r2.Rot) != 0 {
		t.Errorf("recovered %+v, want the end %d", *r2, last.Next)
	}
	if !bytes.Equal(read(t, l, r.End, l.End()), want) {
		t.Error("other bytes")
	}
}
