package commitlog_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
)

func checkpointOf(t *testing.T, fsys vfs.FS) []byte {
	t.Helper()
	b := readFile(t, fsys, root+"/checkpoint")
	if len(b) != 4096 {
		t.Fatalf("a checkpoint of %d bytes", len(b))
	}
	return b
}

func long(b []byte, pos int) int64 { return int64(binary.BigEndian.Uint64(b[pos:])) }

// TestCheckpoint: what RocketMQ reads is where it looks for it, and bytes that nobody knows are kept.
func TestCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New()
		now := fixedTime()
		o := options()
		o.Now = func() time.Time { return now }
		l, _ := open(t, fsys, o)
		closeLog(t, l, true)
		f, err := fsys.OpenFile(root+"/checkpoint", 2, 0)
		must(t, err)
		_, err = f.WriteAt([]byte("unknown"), 100)
		must(t, err)
		_, err = f.WriteAt([]byte{0, 0, 0, 0, 0, 0, 0, 9}, 24) // masterFlushedOffset
		must(t, err)
		must(t, f.Close())

		l, _ = open(t, fsys, o)
		stop := run(t, l)
		ends := fill(t, l, 30)
		l.SetReadable(ends[20])
		l.Checkpoint().SetLogics(now.UnixMilli() - 500)
		l.Checkpoint().SetIndex(now.UnixMilli() - 700)
		flushNow(t, l)
		time.Sleep(1100 * time.Millisecond) //nolint:forbidigo // synctest's clock
		synctest.Wait()
		b := checkpointOf(t, cut(fsys))
		if long(b, 0) != now.UnixMilli() || long(b, 8) != now.UnixMilli()-500 || long(b, 16) != now.UnixMilli()-700 ||
			long(b, 24) != 9 || long(b, 32) != ends[20] || string(b[100:107]) != "unknown" {
			t.Errorf("% x ... %q", b[:40], b[100:107])
		}
		if v := l.Checkpoint(); v.Physic() != long(b, 0) || v.Logics() != long(b, 8) || v.Index() != long(b, 16) {
			t.Errorf("the view says %d %d %d", v.Physic(), v.Logics(), v.Index())
		}
		left := cut(fsys)
		ops := fsys.Ops()
		time.Sleep(5 * time.Second) //nolint:forbidigo // synctest's clock
		synctest.Wait()
		if fsys.Ops() != ops {
			t.Error("an unchanged checkpoint was written")
		}
		must(t, stop())
		closeLog(t, l, false)
		l, r := open(t, left, o)
		if r.CheckpointReadable != ends[20] || l.Readable().Load() != ends[20] || r.End != ends[29] {
			t.Errorf("%+v", *r)
		}
		closeLog(t, l, true)
	})
}

// TestCheckpointReadable: 0 is the end, and more than the end is the end, durably, before anything is appended; what a
// broker has left there does not count.
func TestCheckpointReadable(t *testing.T) {
	for _, broker := range []bool{false, true} {
		for _, saved := range []int64{0, 1 << 40, -5, 500} {
			fsys, ends := stopped(t, 10, true)
			if broker {
				writeCheckpoint(t, fsys, 1000, 1000)
			}
			want := ends[9]
			if (saved == 500 || saved == 0) && !broker {
				want = saved // 0 too: a node that was killed before anything was confirmed shows nothing
			}
			f, err := fsys.OpenFile(root+"/checkpoint", 2, 0)
			must(t, err)
			_, err = f.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(saved)), 32)
			must(t, err)
			must(t, f.Close())
			l, r := open(t, fsys, options())
			if r.CheckpointReadable != want || l.Readable().Load() != want {
				t.Errorf("saved %d, broker %v: %+v", saved, broker, *r)
			}
			if b := checkpointOf(t, cut(fsys)); long(b, 32) > want || long(b, 32) < 0 {
				t.Errorf("saved %d, broker %v: %d after the start", saved, broker, long(b, 32))
			}
			closeLog(t, l, true)
		}
	}
}

// TestSlaveMovesTheCheckpoint is C05: a slave's log is scanned from its last flush, not from its first file, by us; and the
// time in it follows the dispatched records for a broker that takes the folder over.
func TestSlaveMovesTheCheckpoint(t *testing.T) {
	full, _ := sample(t, 80)
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	load(t, l, true, full)
	flushNow(t, l)
	if l.Checkpoint().Physic() != 0 {
		t.Error("a time although nothing was dispatched")
	}
	l.Checkpoint().SetLogics(fixedTime().UnixMilli() - 9)
	_, err := l.AppendRaw(l.End(), [][]byte{full[:100]})
	must(t, err)
	flushNow(t, l)
	if p := l.Checkpoint().Physic(); p != fixedTime().UnixMilli()-9 {
		t.Errorf("physic %d", p)
	}
	closeLog(t, l, false)
	l, r := open(t, cut(fsys), options())
	if r.ScannedFrom != int64(len(full))/fileSize*fileSize || r.End != int64(len(full)) {
		t.Errorf("%+v of %d", *r, len(full))
	}
	closeLog(t, l, true)
}

// TestRocketMQsStartFile: with a broker's checkpoint the scan starts at the last file whose first record is 3 s older.
func TestRocketMQsStartFile(t *testing.T) {
	fsys := memfs.New()
	now := fixedTime()
	o := options()
	o.Now = func() time.Time { return now }
	l, _ := open(t, fsys, o)
	var firsts []int64 // time of the first record of each file
	for i := 0; len(firsts) < 5; i++ {
		now = now.Add(time.Second)
		if a := put(t, l, samplePut(i)); a.Offset == int64(len(firsts))*fileSize {
			firsts = append(firsts, a.StoreTimestamp)
		}
	}
	end := l.End()
	closeLog(t, l, false)
	for _, tc := range []struct{ physic, logics, want int64 }{
		{firsts[3] + 3000, firsts[4] + 90_000, 3 * fileSize},
		{firsts[3] + 2999, firsts[4] + 90_000, 2 * fileSize},
		{firsts[4] + 90_000, firsts[1] + 3000, fileSize}, // the queues lag
		{firsts[4] + 90_000, 0, 0},
	} {
		f := fsys.CrashClone(memfs.All)
		writeCheckpoint(t, f, tc.physic, tc.logics)
		l, r := open(t, f, o)
		if r.ScannedFrom != tc.want || r.End != end {
			t.Errorf("physic +%d, logics +%d: %+v, want a scan from %d", tc.physic-firsts[0], tc.logics-firsts[0], *r, tc.want)
		}
		closeLog(t, l, false)
	}
}

// TestBadCheckpoints: whatever is in the file, nothing of the log is lost.
func TestBadCheckpoints(t *testing.T) {
	for name, content := range map[string][]byte{
		"empty": nil, "half": make([]byte, 20), "garbage": bytes.Repeat([]byte{0xA5}, 4096),
		"far future": bytes.Repeat([]byte{0x7F}, 4096),
	} {
		fsys, ends := stopped(t, 100, false)
		must(t, fsys.Remove(root+"/checkpoint"))
		f, err := fsys.OpenFile(root+"/checkpoint", 0x42, 0o644)
		must(t, err)
		_, err = f.WriteAt(content, 0)
		must(t, err)
		must(t, f.Close())
		l, r := open(t, fsys, options())
		if r.End != ends[99] || r.ScannedFrom != 0 || r.CutBytes != 0 {
			t.Errorf("%s: %+v", name, *r)
		}
		closeLog(t, l, true)
		checkpointOf(t, fsys)
	}
}

// TestAbortFile: a second crash does not make the first one harmless.
func TestAbortFile(t *testing.T) {
	fsys := memfs.New()
	o := options()
	abort := func() string {
		t.Helper()
		return string(readFile(t, fsys, root+"/abort"))
	}
	l, r := open(t, fsys, o)
	if !r.Clean || abort() != boot+"\n" {
		t.Errorf("%+v, abort %q", *r, abort())
	}
	closeLog(t, l, false)
	l, r = open(t, fsys, o)
	if r.Clean || !r.SameBoot {
		t.Errorf("after a kill: %+v", *r)
	}
	closeLog(t, l, false)
	o.BootID = "boot-2"
	for range 2 {
		l, r = open(t, fsys, o)
		if r.Clean || r.SameBoot || abort() != boot+"\n" {
			t.Errorf("after the machine went down: %+v, abort %q", *r, abort())
		}
		closeLog(t, l, false)
	}
	l, _ = open(t, fsys, o)
	must(t, l.MarkWhole())
	closeLog(t, l, false)
	if l, r = open(t, fsys, o); !r.SameBoot {
		t.Errorf("after it was whole again: %+v", *r)
	}
	closeLog(t, l, true)
	if l, r = open(t, fsys, o); !r.Clean {
		t.Errorf("after a clean stop: %+v", *r)
	}
	must(t, l.Close(true))
	must(t, l.Close(true))
	_, err := appendOne(l, record(0, 1))
	mustIs(t, err, commitlog.ErrClosed)
	_, release, err := l.View(0, 1)
	release()
	mustIs(t, err, commitlog.ErrClosed)
	mustIs(t, l.Written().Err(), commitlog.ErrClosed)
}

// TestFormat holds the examples of FORMAT.md against what is written.
func TestFormat(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testkit.ModuleRoot(t), "services/storage/internal/commitlog/FORMAT.md"))
	must(t, err)
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	ends := fill(t, l, 3)
	l.SetReadable(ends[1])
	l.Checkpoint().SetLogics(fixedTime().UnixMilli() - 1000)
	var note string
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindRemove && strings.HasSuffix(op.Name, "/tandem/cut") {
			note = string(readFile(t, fsys, op.Name))
		}
		return memfs.Proceed
	})
	flushNow(t, l)
	closeLog(t, l, true)
	b := checkpointOf(t, fsys)
	for _, part := range [][]byte{b[:40], b[4064:]} {
		example := strings.ReplaceAll(hex.EncodeToString(part), " ", "")
		if !strings.Contains(strings.Join(strings.Fields(string(text)), ""), example) {
			t.Errorf("FORMAT.md lacks %s", example)
		}
	}
	l, _ = open(t, fsys, options())
	_, err = l.Rollback(ends[0], 3, noLimit)
	must(t, err)
	must(t, l.Truncate(ends[0]))
	if !strings.Contains(string(text), note) || note == "" {
		t.Errorf("FORMAT.md lacks\n%s", note)
	}
	kept := root + "/rollback/200-711-3/" + mappedfile.Name(200)
	if info, err := fsys.Stat(kept); err != nil || info.Size != 511 || !strings.Contains(string(text), kept[len(root)+1:]) {
		t.Errorf("%+v %v: FORMAT.md has another name or size", info, err)
	}
	closeLog(t, l, true)
}
