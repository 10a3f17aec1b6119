package commitlog_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

func TestAppendStampsAndReads(t *testing.T) {
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		t.Run(fmt.Sprint("sync flush ", o.SyncFlush), func(t *testing.T) {
			now := time.UnixMilli(1_700_000_000_123)
			o.Now = func() time.Time { return now }
			l, _ := open(t, memfs.New(), o)
			defer closeLog(t, l, true)
			cursor := commitlog.NewCursor(41)
			a, err := l.Append(&commitlog.Batch{Records: [][]byte{record(0, 10), record(1, 20), record(2, 0)}, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			if a.Offset != 0 || a.QueueOffset != 41 || a.StoreTimestamp != now.UnixMilli() || a.Next != l.End() {
				t.Errorf("%+v, end %d", a, l.End())
			}
			b, err := l.Append(&commitlog.Batch{Records: [][]byte{record(3, 5)}, Cursor: cursor})
			if err != nil || b.QueueOffset != 44 || b.Offset != a.Next {
				t.Errorf("%+v %v", b, err)
			}
			prepared, err := l.Append(&commitlog.Batch{Records: [][]byte{record(4, 5)}})
			if err != nil || prepared.QueueOffset != 0 {
				t.Errorf("%+v %v", prepared, err)
			}
			log := contents(t, l)
			wantQueueOffsets := []int64{41, 42, 43, 44, 0}
			at := 0
			for i := range wantQueueOffsets {
				var v message.View
				size, _, err := message.CheckView(log[at:], int64(at), message.CheckOptions{CRC: true, Offset: true}, &v)
				if err != nil {
					t.Fatal(err)
				}
				if v.QueueOffset != wantQueueOffsets[i] || v.StoreTimestamp != now.UnixMilli() {
					t.Errorf("record %d: queue offset %d, stored %d", i, v.QueueOffset, v.StoreTimestamp)
				}
				at += size
			}
			if at != len(log) {
				t.Errorf("%d bytes of records in a log of %d", at, len(log))
			}
		})
	}
}

// TestBlankRule is the vector T5: a record fits iff its length and 8 bytes do, else a blank record fills the file.
func TestBlankRule(t *testing.T) {
	const size = 512
	for _, o := range []commitlog.Options{{FileSize: size}, {FileSize: size, SyncFlush: true}} {
		for _, tc := range []struct {
			free   int64
			offset int64 // of the record of 144 bytes behind
		}{{152, 360}, {151, size}} {
			t.Run(fmt.Sprintf("%d free, sync flush %v", tc.free, o.SyncFlush), func(t *testing.T) {
				fsys := memfs.New()
				l, _ := open(t, fsys, o)
				put(t, l, sized(0, int(size-tc.free)))
				a := put(t, l, sized(1, 144))
				if a.Offset != tc.offset || a.Next != tc.offset+144 {
					t.Errorf("%+v", a)
				}
				closeLog(t, l, true)
				file := logFiles(t, fsys, root)["00000000000000000000"]
				blank := file[size-tc.free:]
				if tc.offset == size {
					if binary.BigEndian.Uint64(blank) != uint64(tc.free)<<32|0xCBD43194 || !allZero(blank[8:]) {
						t.Errorf("blank % x", blank)
					}
				} else if !allZero(blank[144:]) {
					t.Error("something was written behind the last record")
				}
			})
		}
	}
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

func TestABatchLandsInOneFile(t *testing.T) {
	l, _ := open(t, memfs.New(), options())
	defer closeLog(t, l, true)
	put(t, l, sized(0, fileSize-1000))
	a, err := l.Append(&commitlog.Batch{Records: [][]byte{sized(1, 500), sized(2, 493)}})
	if err != nil || a.Offset != fileSize {
		t.Errorf("%+v %v: 993 bytes and a blank record do not fit into 1000", a, err)
	}
	_, err = l.Append(&commitlog.Batch{Records: [][]byte{sized(1, fileSize/2), sized(2, fileSize/2-7)}})
	mustIs(t, err, commitlog.ErrTooLarge)
	if _, err = l.Append(&commitlog.Batch{Records: [][]byte{sized(1, fileSize/2), sized(2, fileSize/2-8)}}); err != nil {
		t.Error(err)
	}
	_, err = l.Append(&commitlog.Batch{})
	if errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("an empty batch: %v", err)
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	for _, o := range []commitlog.Options{{FileSize: 1 << 20}, {FileSize: 1 << 20, SyncFlush: true}} {
		l, _, err := commitlog.Open(vfs.OS(), t.TempDir(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer closeLog(t, l, true)
		b := &commitlog.Batch{Records: [][]byte{sized(0, 200)}, Cursor: commitlog.NewCursor(0)}
		if allocs := testing.AllocsPerRun(1000, func() {
			if _, err := l.Append(b); err != nil {
				t.Error(err)
			}
		}); allocs != 0 {
			t.Errorf("sync flush %v: %v allocations an append", o.SyncFlush, allocs)
		}
		if allocs := testing.AllocsPerRun(1000, func() {
			_, release, err := l.View(0, 100)
			if err != nil {
				t.Error(err)
			}
			release()
		}); allocs != 0 {
			t.Errorf("%v allocations a view", allocs)
		}
	}
}

func TestAppendRawAllocatesNothing(t *testing.T) {
	l, _, err := commitlog.Open(vfs.OS(), t.TempDir(), commitlog.Options{FileSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l, true)
	bodies := [][]byte{make([]byte, 100), make([]byte, 3), make([]byte, 250)}
	write := func() {
		if _, err := l.AppendRaw(l.End(), bodies); err != nil {
			t.Error(err)
		}
	}
	write()
	if allocs := testing.AllocsPerRun(1000, write); allocs != 0 {
		t.Errorf("%v allocations a frame", allocs)
	}
}

// TestAppendRawCutsAnywhere copies a log of many files in pieces that know nothing of records and files.
func TestAppendRawCutsAnywhere(t *testing.T) {
	master, _ := open(t, memfs.New(), options())
	defer closeLog(t, master, true)
	fill(t, master, 150)
	want := contents(t, master)
	if len(want) < 4*fileSize {
		t.Fatalf("only %d bytes", len(want))
	}
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		most := 1 << (1 + rnd.IntN(16))
		slave, _ := open(t, memfs.New(), options())
		for rest := want; len(rest) > 0; {
			var bodies [][]byte
			sum := 0
			for range 1 + rnd.IntN(10) {
				n := min(len(rest), rnd.IntN(most+1))
				bodies = append(bodies, rest[:n])
				rest = rest[n:]
				sum += n
			}
			n, err := slave.AppendRaw(slave.End(), bodies)
			if err != nil || n != sum {
				t.Fatalf("seed %d: %d of %d, %v", seed, n, sum, err)
			}
		}
		if slave.Readable().Load() != 0 {
			t.Error("AppendRaw moved Readable")
		}
		if !bytes.Equal(contents(t, slave), want) {
			t.Fatalf("seed %d: other bytes", seed)
		}
		closeLog(t, slave, true)
		slave.Close(true)
	}
}

func TestAppendRawRefusesAGap(t *testing.T) {
	l, _ := open(t, memfs.New(), options())
	defer closeLog(t, l, true)
	for _, offset := range []int64{1, fileSize, -1} {
		n, err := l.AppendRaw(offset, [][]byte{make([]byte, 10)})
		mustIs(t, err, commitlog.ErrGap)
		if e := errdefs.As(err); n != 0 || e.Meta["end"] != "0" {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	if n, err := l.AppendRaw(0, nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
}

// TestViewAndFileAt checks the bounds of both.
func TestViewAndFileAt(t *testing.T) {
	dir := t.TempDir()
	l, _, err := commitlog.Open(vfs.OS(), dir, options())
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l, true)
	fill(t, l, 40)
	end := l.End()
	for _, offset := range []int64{-1, end + 1, end + 1<<40} {
		_, release, err := l.View(offset, 10)
		release()
		mustIs(t, err, commitlog.ErrOutOfRange)
		_, _, _, release, err = l.FileAt(offset, 10)
		release()
		mustIs(t, err, commitlog.ErrOutOfRange)
	}
	b, release, err := l.View(end, 10)
	release()
	if len(b) != 0 || err != nil {
		t.Errorf("at the end: %d bytes, %v", len(b), err)
	}
	b, release, err = l.View(fileSize-4, 100)
	if len(b) != 4 || err != nil {
		t.Errorf("at a file's end: %d bytes, %v", len(b), err)
	}
	want := bytes.Clone(b)
	release()
	fd, pos, n, release, err := l.FileAt(fileSize-4, 100)
	defer release()
	if fd == 0 || pos != fileSize-4 || n != 4 || err != nil {
		t.Fatalf("fd %d, position %d, %d bytes, %v", fd, pos, n, err)
	}
	file := readFile(t, vfs.OS(), filepath.Join(dir, "commitlog", "00000000000000000000"))
	if !bytes.Equal(file[pos:pos+4], want) {
		t.Error("other bytes in the file")
	}
}

func TestAhead(t *testing.T) {
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		t.Run(fmt.Sprint("sync flush ", o.SyncFlush), func(t *testing.T) {
			o.Ahead = true
			fsys := memfs.New()
			created := make(chan string, 100)
			fsys.SetHook(func(op memfs.Op) memfs.Action {
				if op.Kind == memfs.KindRename && filepath.Dir(op.To) == filepath.Join(root, "commitlog") {
					created <- filepath.Base(op.To)
				}
				return memfs.Proceed
			})
			l, _ := open(t, fsys, o)
			stop := run(t, l)
			if len(created) != 0 {
				t.Error("a file was made before anything was appended")
			}
			put(t, l, sized(0, 300))
			if a, b := <-created, <-created; a != "00000000000000000000" || b != "00000000000000008192" {
				t.Errorf("made %s, then %s", a, b)
			}
			put(t, l, sized(1, fileSize-8))
			if c := <-created; c != "00000000000000016384" {
				t.Errorf("then %s", c)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			left := killed(fsys)
			closeLog(t, l, true)
			if n := len(logFiles(t, fsys, root)); n != 2 {
				t.Errorf("%d files after a clean stop", n)
			}
			// After a kill the file of zeros is still there, and no harm.
			if n := len(logFiles(t, left, root)); n != 3 {
				t.Errorf("%d files after a kill", n)
			}
			l, r := open(t, left, o)
			if r.End != fileSize+fileSize-8 || r.CutBytes != 0 {
				t.Errorf("recovered %+v", *r)
			}
			closeLog(t, l, true)
			if n := len(logFiles(t, left, root)); n != 3 {
				t.Errorf("%d files after opening and closing", n)
			}
		})
	}
}

// TestOpenAndCloseMakesNothing: a master that gets no put leaves the folder alone.
func TestOpenAndCloseMakesNothing(t *testing.T) {
	o := options()
	o.Ahead = true
	fsys := memfs.New()
	l, r := open(t, fsys, o)
	if !r.Clean || r.End != 0 || l.FirstOffset() != 0 || l.FileSize() != fileSize {
		t.Errorf("%+v", *r)
	}
	stop := run(t, l)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l, true)
	if _, err := fsys.Stat(root + "/commitlog"); err == nil {
		t.Error("a commitlog folder was made")
	}
	if _, err := fsys.Stat(root + "/abort"); err == nil {
		t.Error("the abort file is still there")
	}
}

// TestStoreTimesGrow: callers read their clocks before they get the lock, and may get it in another order.
func TestStoreTimesGrow(t *testing.T) {
	l, _ := open(t, memfs.New(), options())
	defer closeLog(t, l, true)
	at := time.UnixMilli(1_700_000_000_000)
	for i, step := range []struct{ now, want time.Duration }{
		{0, 0},
		{5 * time.Millisecond, 5 * time.Millisecond},
		{2 * time.Millisecond, 5 * time.Millisecond}, // overtaken
		{-time.Hour, -time.Hour},                     // the clock was set back
		{-time.Hour + time.Millisecond, -time.Hour + time.Millisecond},
	} {
		a, err := l.Append(&commitlog.Batch{Records: [][]byte{record(i, 5)}, Now: at.Add(step.now)})
		if err != nil || a.StoreTimestamp != at.Add(step.want).UnixMilli() {
			t.Errorf("step %d: stored at %v, want %v: %v", i, time.UnixMilli(a.StoreTimestamp).Sub(at), step.want, err)
		}
	}
}
