package consumequeue

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/summary"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/unit"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newFS has the store's folder, which is not this package's to make.
func newFS(t testing.TB) *memfs.FS {
	t.Helper()
	fsys := memfs.New()
	check(t, durable.MkdirAll(fsys, "/s"))
	return fsys
}

func open(t testing.TB, fsys vfs.FS, o Options) *Set {
	t.Helper()
	s, err := Open(fsys, "/s", o)
	check(t, err)
	return s
}

func read(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := durable.ReadFile(fsys, name)
	check(t, err)
	return b
}

func all(t testing.TB, q *Queue) []Unit {
	t.Helper()
	u := make([]Unit, q.Max()-q.Min())
	n, err := q.Read(q.Min(), u)
	check(t, err)
	return u[:n]
}

// formatHex returns the bytes of the first hex dump in FORMAT.md, and the text of the block after the last one.
func formatHex(t *testing.T) (dump []byte, summary string) {
	t.Helper()
	text, err := os.ReadFile("FORMAT.md")
	check(t, err)
	for _, m := range regexp.MustCompile(`(?m)^[0-9a-f]{4}: (.*)$`).FindAllSubmatch(text, -1) {
		b, err := hex.DecodeString(strings.ReplaceAll(string(m[1]), " ", ""))
		check(t, err)
		dump = append(dump, b...)
	}
	m := regexp.MustCompile("(?s)```\n(queues 1\n.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatal("no summary in FORMAT.md")
	}
	return dump, string(m[1])
}

func TestFormatExample(t *testing.T) {
	fsys := newFS(t)
	s := open(t, fsys, Options{FileSize: 60})
	for _, m := range []struct {
		at, offset int64
		size       int32
		code       int64
	}{{4, 1024, 144, 2598919}, {5, 2048, 300, 1700000010123}} {
		back, err := s.Gather([]byte("TopicTest"), 0, m.at, m.offset, m.size, m.code)
		if check(t, err); back != None {
			t.Fatalf("back to %d", back)
		}
	}
	check(t, s.Commit(2348, 1))
	check(t, s.Close())
	dump, text := formatHex(t)
	if got := read(t, fsys, "/s/consumequeue/TopicTest/0/00000000000000000060"); !slices.Equal(got, dump) {
		t.Errorf("file\n%x, want\n%x", got, dump)
	}
	got, _, err := durable.ReadChecked(fsys, "/s/tandem/queues")
	if check(t, err); string(got) != text {
		t.Errorf("summary\n%s, want\n%s", got, text)
	}
	u, err := summary.Decode([]byte(text))
	if check(t, err); string(u.Encode()) != text {
		t.Errorf("decodes to %+v", u)
	}
}

func TestT7_UnitsOfTheSpec(t *testing.T) {
	for want, u := range map[string]Unit{
		"000000000000040000000090000000000027a807": {Offset: 1024, Size: 144, TagsCode: 2598919},
		"000000000000040000000090ffffffff80000000": {Offset: 1024, Size: 144, TagsCode: -2147483648},
		"00000000000000007fffffff0000000000000000": unit.Blank(),
		"00000000000008000000012c0000018bcfe58f8b": {Offset: 2048, Size: 300, TagsCode: 1700000010123},
	} {
		b := unit.Append(nil, u)
		if got := hex.EncodeToString(b); got != want || unit.Decode(b) != u {
			t.Errorf("%v is %s, want %s; back %v", u, got, want, unit.Decode(b))
		}
	}
}

func TestT7_FirstUnitInTheMiddleOfAFile(t *testing.T) {
	fsys := newFS(t)
	s := open(t, fsys, Options{})
	check(t, s.Append([]byte("T"), 0, 300_003, Unit{Offset: 1024, Size: 144, TagsCode: 7}))
	check(t, s.Flush())
	name := "/s/consumequeue/T/0/00000000000006000000"
	b := read(t, fsys, name)
	want := append(slices.Repeat(unit.Append(nil, unit.Blank()), 3), unit.Append(nil, Unit{Offset: 1024, Size: 144, TagsCode: 7})...)
	if len(b) != DefaultFileSize || !slices.Equal(b[:80], want) || b[80+11] != 0 {
		t.Errorf("%d bytes: %x, want %x", len(b), b[:100], want)
	}
	q := s.Lookup("T", 0)
	if q.Min() != 300_003 || q.Max() != 300_004 || s.MaxPhysical() != 1168 {
		t.Errorf("min %d, max %d, physical %d: blank units are no place in the log", q.Min(), q.Max(), s.MaxPhysical())
	}
	check(t, s.Close())
	s = open(t, fsys, Options{})
	if s.MaxPhysical() != 0 { // Append alone says nothing about the log
		t.Errorf("max physical %d without a summary", s.MaxPhysical())
	}
	check(t, s.Close())
}

// TestH8H9: RocketMQ ignores the one and puts the other in the wrong place.
func TestH8H9_RepeatsAndGaps(t *testing.T) {
	s := open(t, newFS(t), Options{FileSize: 100})
	topic := []byte("T")
	for i := range int64(10) {
		check(t, s.Append(topic, 1, i, Unit{Offset: 100 * i, Size: 100, TagsCode: i}))
	}
	check(t, s.Append(topic, 1, 8, Unit{Offset: 5000, Size: 100, TagsCode: 99}))
	err := s.Append(topic, 1, 12, Unit{Offset: 5000, Size: 100, TagsCode: 12})
	if !errors.Is(err, ErrQueueGap) || !strings.Contains(err.Error(), "want=10") || !strings.Contains(err.Error(), "got=12") {
		t.Errorf("gap: %v", err)
	}
	for i, u := range all(t, s.Lookup("T", 1)) {
		if want := (Unit{Offset: 100 * int64(i), Size: 100, TagsCode: int64(i)}); u != want {
			t.Errorf("unit %d is %v, want %v", i, u, want)
		}
	}
	if q := s.Lookup("T", 1); q.Max() != 10 || q.Grown().Load() != 10 {
		t.Errorf("max %d, grown %d", q.Max(), q.Grown().Load())
	}
	check(t, s.Close())
}

func TestAGapIsLookedForAndThenFilled(t *testing.T) {
	s := open(t, newFS(t), Options{FileSize: 100})
	topic := []byte("T")
	gather := func(at, offset int64) int64 {
		t.Helper()
		back, err := s.Gather(topic, 0, at, offset, 100, 1)
		check(t, err)
		return back
	}
	gather(0, 0)
	if back := gather(3, 1000); back != 100 {
		t.Fatalf("back to %d, want the end of the last message", back)
	}
	gather(0, 0) // the log is read again: a repeat, and one of the missing ones
	gather(1, 200)
	if back := gather(3, 1000); back != 300 {
		t.Fatalf("back to %d", back)
	}
	if back := gather(3, 1000); back != None {
		t.Fatalf("back to %d again", back)
	}
	check(t, s.Commit(1100, 0))
	got := all(t, s.Lookup("T", 0))
	if len(got) != 4 || !got[2].Blank() || got[3].Offset != 1000 {
		t.Errorf("queue %v", got)
	}
	if back := gather(1<<40, 2000); back != 1100 {
		t.Fatalf("back to %d", back)
	}
	if _, err := s.Gather(topic, 0, 1<<40, 2000, 100, 1); !errors.Is(err, ErrNotQueued) {
		t.Errorf("a queue offset from nowhere: %v", err)
	}
	check(t, s.Close())
}

func TestWhatNoQueueCanHold(t *testing.T) {
	fsys := newFS(t)
	s := open(t, fsys, Options{})
	for _, c := range []struct {
		topic string
		id    int32
		at    int64
		field string
	}{
		{"", 0, 0, "topic"},
		{".", 0, 0, "topic"},
		{"..", 0, 0, "topic"},
		{"a/b", 0, 0, "topic"},
		{"a\nb", 0, 0, "topic"},
		{strings.Repeat("x", 256), 0, 0, "topic"},
		{"T", -1, 0, "queueId"},
		{"T", 0, -1, "queueOffset"},
		{"T", 0, 1 << 60, "queueOffset"},
	} {
		_, err := s.Gather([]byte(c.topic), c.id, c.at, 0, 100, 0)
		if !errors.Is(err, ErrNotQueued) || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%q %d %d: %v", c.topic, c.id, c.at, err)
		}
	}
	if len(s.List()) != 0 {
		t.Errorf("%d queues", len(s.List()))
	}
	check(t, s.Close())
}

func TestReadOutside(t *testing.T) {
	s := open(t, newFS(t), Options{FileSize: 100})
	for i := int64(7); i < 20; i++ {
		check(t, s.Append([]byte("T"), 0, i, Unit{Offset: 100 * i, Size: 100, TagsCode: 0}))
	}
	q := s.Lookup("T", 0)
	var dst [50]Unit
	for at, want := range map[int64]int{6: -1, 7: 13, 19: 1, 20: 0, 21: -1, -1: -1} {
		n, err := q.Read(at, dst[:])
		if (want < 0) != errors.Is(err, ErrOutOfRange) || (want >= 0 && n != want) {
			t.Errorf("read at %d: %d, %v", at, n, err)
		}
	}
	check(t, s.Close())
	if _, err := q.Read(7, dst[:]); !errors.Is(err, ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if err := s.Append([]byte("T"), 0, 20, Unit{Offset: 1, Size: 1, TagsCode: 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if err := q.Grown().Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("grown after close: %v", err)
	}
	check(t, s.Close())
}

func TestManyQueuesCostNeitherDiskNorDescriptors(t *testing.T) {
	const queues, limit = 2000, 16
	root := t.TempDir()
	s, err := Open(vfs.OS(), root, Options{OpenFiles: limit})
	check(t, err)
	for round := range int64(2) {
		for i := range queues {
			_, err := s.Gather([]byte(fmt.Sprint("Topic", i/8)), int32(i%8), round, round*1000, 100, 0)
			check(t, err)
		}
		check(t, s.Commit(1000*(round+1), 0))
		check(t, s.spill())
		if n := s.pool.Count(); n > limit {
			t.Fatalf("%d files open", n)
		}
	}
	for _, q := range s.List() {
		if u := all(t, q); len(u) != 2 || u[1].Offset != 1000 {
			t.Fatalf("queue %v", u)
		}
	}
	f, err := os.Stat(filepath.Join(root, "consumequeue/Topic0/0/00000000000000000000"))
	check(t, err)
	if f.Size() != DefaultFileSize {
		t.Errorf("file of %d bytes", f.Size())
	}
	if used := blocks(t, root); used > queues*16<<10 {
		t.Errorf("%d queues take %d bytes of the disk", queues, used)
	}
	check(t, s.Close())
	if n := s.pool.Count(); n != 0 {
		t.Errorf("%d files open after close", n)
	}
}

func TestReadersWhileQueuesAreWrittenAndCut(t *testing.T) {
	s := open(t, newFS(t), Options{FileSize: 100, OpenFiles: 2})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for id := range int32(3) {
		wg.Go(func() {
			var dst [7]Unit
			for ctx.Err() == nil {
				q := s.Lookup("T", id)
				if q == nil {
					continue
				}
				for at := q.Min(); ctx.Err() == nil; {
					n, err := q.Read(at, dst[:])
					if err != nil && !errors.Is(err, ErrOutOfRange) {
						t.Error(err)
						return
					}
					for i, u := range dst[:n] {
						if u.Offset != (at+int64(i))*100 || u.Size != 100 {
							t.Errorf("unit %d is %v", at+int64(i), u)
						}
					}
					if at += int64(n); n == 0 {
						break
					}
				}
			}
		})
	}
	at := int64(0)
	for range 200 {
		for range 30 {
			for id := range int32(3) {
				_, err := s.Gather([]byte("T"), id, at, 100*at, 100, 0)
				check(t, err)
			}
			at++
		}
		check(t, s.Commit(100*at, 0))
		at -= 20
		check(t, s.Truncate(100*at))
	}
	cancel()
	wg.Wait()
	check(t, s.Close())
}

func TestTruncateAtEveryUnit(t *testing.T) {
	const n = 17
	for cut := range int64(n + 1) {
		fsys := newFS(t)
		s := open(t, fsys, Options{FileSize: 100})
		for i := range int64(n) {
			_, err := s.Gather([]byte("T"), 0, i, 1000+100*i, 100, 9)
			check(t, err)
		}
		check(t, s.Commit(1000+100*n, 0))
		check(t, s.Flush())
		grown := s.Lookup("T", 0).Grown()
		check(t, s.Truncate(1000+100*cut))
		if cut < n && !errors.Is(grown.Err(), watermark.ErrTruncated) {
			t.Errorf("cut at %d: grown is %v", cut, grown.Err())
		}
		clone := fsys.CrashClone(memfs.OnlySynced)
		check(t, s.Close())
		for _, fsys := range []*memfs.FS{fsys, clone} {
			s := open(t, fsys, Options{FileSize: 100})
			if q := s.Lookup("T", 0); cut > 0 && (q == nil || q.Max() != cut || len(all(t, q)) != int(cut)) || cut == 0 && q != nil {
				t.Errorf("cut at %d: %v", cut, q)
			}
			var files []string
			for start := int64(0); start < 400; start += 100 {
				name := fmt.Sprintf("/s/consumequeue/T/0/%020d", start)
				f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
				if err != nil {
					continue
				}
				files = append(files, name)
				b := make([]byte, 100)
				if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				check(t, f.Close())
				for at := range int64(5) {
					if live := start/UnitSize+at < cut; live != (unit.Decode(b[at*UnitSize:]) != Unit{}) {
						t.Errorf("cut at %d: unit %d is %v", cut, start/UnitSize+at, unit.Decode(b[at*UnitSize:]))
					}
				}
			}
			if want := int(cut+4) / 5; len(files) != want {
				t.Errorf("cut at %d: files %v", cut, files)
			}
			check(t, s.Close())
		}
	}
}

// TestQ09: a queue whose messages are all gone has min = max, and goes on counting.
func TestQ09_MinFollowsTheLog(t *testing.T) {
	fsys := newFS(t)
	s := open(t, fsys, Options{FileSize: 100})
	for i := range int64(12) {
		_, err := s.Gather([]byte("T"), 0, i, 100*i, 100, 0)
		check(t, err)
	}
	check(t, s.Commit(1200, 0))
	for _, c := range []struct{ first, min int64 }{{0, 0}, {1, 1}, {100, 1}, {550, 6}, {1100, 11}, {1200, 12}, {9999, 12}} {
		check(t, s.CorrectMin(c.first))
		if q := s.Lookup("T", 0); q.Min() != c.min || q.Max() != 12 {
			t.Errorf("log from %d: min %d, want %d; max %d", c.first, q.Min(), c.min, q.Max())
		}
	}
	check(t, s.Close())
	s = open(t, fsys, Options{FileSize: 100})
	from, err := s.Resume(9999, 20000)
	if check(t, err); from != 9999 {
		t.Errorf("resume at %d", from)
	}
	if q := s.Lookup("T", 0); q.Min() != 12 || q.Max() != 12 {
		t.Errorf("after a restart: %d to %d", q.Min(), q.Max())
	}
	back, err := s.Gather([]byte("T"), 0, 12, 10000, 100, 0)
	if check(t, err); back != None {
		t.Errorf("back to %d", back)
	}
	check(t, s.Commit(10100, 0))
	check(t, s.Close())
}

func TestAFullDiskTakesBackWhatWasGathered(t *testing.T) {
	const n = chunkSize/UnitSize + 7
	fsys := newFS(t)
	s := open(t, fsys, Options{FileSize: 100})
	check(t, s.Append([]byte("T"), 0, 0, Unit{Offset: 0, Size: 100, TagsCode: 0}))
	for _, kind := range []memfs.Kind{memfs.KindWrite, memfs.KindTruncate, memfs.KindCreate, memfs.KindMkdir} {
		fsys.SetHook(failing(kind))
		at := s.Lookup("T", 0).Max()
		var err error
		for i := int64(0); i < n && err == nil; i++ {
			if _, err = s.Gather([]byte("U"+kind.String()), 0, i, 100*i, 100, 0); err == nil {
				_, err = s.Gather([]byte("T"), 0, at+i, 100*(at+i), 100, 0)
			}
		}
		if !errors.Is(err, vfs.ErrNoSpace) || s.Lookup("T", 0).Max() != at {
			t.Errorf("%s: %v, max %d", kind, err, s.Lookup("T", 0).Max())
		}
		fsys.SetHook(nil)
		for i := at; i < at+n; i++ {
			_, err := s.Gather([]byte("T"), 0, i, 100*i, 100, 0)
			check(t, err)
		}
		check(t, s.Commit(100*(at+n), 0))
	}
	for i, u := range all(t, s.Lookup("T", 0)) {
		if u != (Unit{Offset: 100 * int64(i), Size: 100, TagsCode: 0}) {
			t.Errorf("unit %d is %v", i, u)
		}
	}
	check(t, s.Close())
}

// failing fails one kind of operation for want of space.
func failing(kind memfs.Kind) func(memfs.Op) memfs.Action {
	return func(op memfs.Op) memfs.Action {
		if op.Kind == kind {
			return memfs.FailBefore(vfs.ErrNoSpace)
		}
		return memfs.Proceed
	}
}

func TestC13_AFailedSyncIsFatal(t *testing.T) {
	for _, kind := range []memfs.Kind{memfs.KindSync, memfs.KindSyncDir} {
		fsys := newFS(t)
		s := open(t, fsys, Options{FileSize: 100})
		_, err := s.Gather([]byte("T"), 0, 0, 0, 100, 0)
		check(t, err)
		check(t, s.Commit(100, 0))
		failed := false
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == kind && !failed {
				failed = true
				return memfs.FailBefore(nil)
			}
			return memfs.Proceed
		})
		for range 2 {
			if err := s.Flush(); !errors.Is(err, ErrSync) {
				t.Errorf("%s: flush: %v", kind, err)
			}
		}
		if err := s.Commit(100, 0); !errors.Is(err, ErrSync) {
			t.Errorf("%s: commit: %v", kind, err)
		}
		if _, _, err := durable.ReadChecked(fsys, "/s/tandem/queues"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a summary of what is not durable: %v", kind, err)
		}
		if err := s.Close(); !errors.Is(err, ErrSync) {
			t.Errorf("%s: close: %v", kind, err)
		}
	}
}

func TestFileSizes(t *testing.T) {
	write := func(fsys *memfs.FS, name string, size int64) {
		t.Helper()
		check(t, fsys.MkdirAll(filepath.Dir(name), 0o755))
		f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		check(t, err)
		check(t, f.Truncate(size))
		check(t, f.Close())
	}
	const zero = "/s/consumequeue/T/0/00000000000000000000"
	for name, c := range map[string]struct {
		configured int64
		files      map[string]int64
		want       int64 // 0: refused
	}{
		"none":             {0, nil, DefaultFileSize},
		"configured":       {200, nil, 200},
		"from files":       {0, map[string]int64{zero: 100}, 100},
		"same":             {100, map[string]int64{zero: 100}, 100},
		"other":            {200, map[string]int64{zero: 100}, 0},
		"torn":             {0, map[string]int64{zero: 100, "/s/consumequeue/T/0/00000000000000000100": 7}, 100},
		"torn and empty":   {100, map[string]int64{zero: 0}, 100},
		"no multiple":      {0, map[string]int64{zero: 101}, 0},
		"misplaced":        {0, map[string]int64{zero: 100, "/s/consumequeue/T/0/00000000000000000050": 100}, 0},
		"foreign names":    {0, map[string]int64{zero: 100, "/s/consumequeue/T/0/x": 7, "/s/consumequeue/T/y/0": 7, "/s/consumequeue/z": 3}, 100},
		"configured wrong": {30, nil, 0},
	} {
		fsys := newFS(t)
		for f, size := range c.files {
			write(fsys, f, size)
		}
		s, err := Open(fsys, "/s", Options{FileSize: c.configured})
		if c.want == 0 {
			if !errors.Is(err, ErrFileSize) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || s.FileSize() != c.want {
			t.Errorf("%s: %v, want size %d", name, err, c.want)
			continue
		}
		check(t, s.Close())
		for f := range c.files {
			if _, err := fsys.Stat(f); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestRunFlushesAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := newFS(t)
		s := open(t, fsys, Options{FileSize: 100})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { check(t, s.Run(ctx)) })
		_, err := s.Gather([]byte("T"), 0, 0, 0, 100, 0)
		check(t, err)
		check(t, s.Commit(100, 0))
		synctest.Wait()
		if _, err := fsys.Stat("/s/tandem/queues"); err == nil {
			t.Error("written before its time")
		}
		tick, stop := context.WithTimeout(ctx, DefaultFlushInterval+1)
		<-tick.Done()
		stop()
		synctest.Wait()
		ops := fsys.Ops()
		check(t, s.Flush())
		if fsys.Ops() != ops {
			t.Error("written though nothing has changed")
		}
		clone := fsys.CrashClone(memfs.OnlySynced)
		cancel()
		wg.Wait()
		check(t, s.Close())
		s = open(t, clone, Options{})
		if q := s.Lookup("T", 0); q == nil || q.Max() != 1 || s.Dispatched() != 100 {
			t.Errorf("after a power cut: %v", q)
		}
		check(t, s.Close())
	})
}

func TestNothingIsAllocatedPerUnit(t *testing.T) {
	s := open(t, newFS(t), Options{})
	topic := []byte("Topic")
	at := int64(0)
	var dst [32]Unit
	var q *Queue
	step := func() {
		for range 10 {
			for id := range int32(4) {
				if _, err := s.Gather(topic, id, at, at*100, 100, 5); err != nil {
					t.Error(err)
				}
			}
			at++
		}
		if err := s.Commit(at*100, 1); err != nil {
			t.Error(err)
		}
		if q == nil {
			q = s.Lookup("Topic", 3)
		}
		if n, err := q.Read(max(0, at-32), dst[:]); n == 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	step()
	if n := testing.AllocsPerRun(400, step); n > 0.5 { // the test's file system has a new page now and then
		t.Errorf("%v allocations for 40 units", n)
	}
	check(t, s.Close())
}
