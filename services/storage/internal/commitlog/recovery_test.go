package commitlog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// stopped makes a closed log of n records and returns the end of each.
func stopped(t *testing.T, n int, clean bool) (*memfs.FS, []int64) {
	t.Helper()
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	ends := fill(t, l, n)
	closeLog(t, l, clean)
	return fsys, ends
}

// TestT10_TornRecord zeroes the last k bytes of the last record, for each k.
func TestT10_TornRecord(t *testing.T) {
	for _, clean := range []bool{true, false} {
		fsys, ends := stopped(t, 100, clean)
		end, before := ends[99], ends[98]
		for k := int64(1); k <= end-before; k++ {
			f := fsys.CrashClone(memfs.All)
			patch(t, f, end-k, make([]byte, k))
			l, r := open(t, f, options())
			if r.End != before || len(r.Rot) != 0 {
				t.Fatalf("%d bytes zeroed: %+v, want the end %d", k, *r, before)
			}
			closeLog(t, l, true)
			l, r = open(t, cut(f), options())
			if r.End != before || r.CutBytes != 0 || r.Lost != 0 {
				t.Fatalf("%d bytes zeroed, second start: %+v", k, *r)
			}
			closeLog(t, l, true)
		}
	}
}

// TestT10_StaleRecord copies a record behind the end: it is not where it says it is.
func TestT10_StaleRecord(t *testing.T) {
	fsys, ends := stopped(t, 100, false)
	l, _ := open(t, fsys, options())
	old := read(t, l, ends[9], ends[10])
	tail := read(t, l, ends[98], ends[99])
	closeLog(t, l, false)
	for name, behind := range map[string][]byte{"record 10": old, "the last record": tail, "rubbish": []byte("rubbish")} {
		f := fsys.CrashClone(memfs.All)
		patch(t, f, ends[99], behind)
		l, r := open(t, f, options())
		if r.End != ends[99] || r.CutBytes != int64(len(behind)) || len(r.Rot) != 0 {
			t.Errorf("%s: %+v, want the end %d", name, *r, ends[99])
		}
		closeLog(t, l, false)
		// Zeroed, durably, before Open has returned.
		if rest := tailBytes(t, cut(f), ends[99]); !allZero(rest) {
			t.Errorf("%s: still there after a power cut", name)
		}
	}
}

func tailBytes(t *testing.T, fsys *memfs.FS, from int64) []byte {
	t.Helper()
	start := from - from%fileSize
	return readFile(t, fsys, filepath.Join(root, "commitlog", mappedfile.Name(start)))[from-start:]
}

// TestT10_FileEnds lets the last file end with every small number of free bytes, as a slave or a foreign store may leave
// it, and goes on from there.
func TestT10_FileEnds(t *testing.T) {
	for _, free := range []int64{0, 1, 7, 8, 12, 48, 90, 91} {
		for _, more := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d free, next file %v", free, more), func(t *testing.T) {
				fsys := memfs.New()
				l, _ := open(t, fsys, options())
				// AppendRaw, as Append keeps room for a blank record.
				size := fileSize - free
				rec := sized(0, int(size))
				message.Stamp(rec, 0, 0, 1)
				next := sized(1, 300)
				message.Stamp(next, 1, fileSize, 2)
				bodies := [][]byte{rec}
				if more {
					fillUp := make([]byte, free)
					if free >= 8 {
						copy(fillUp, message.AppendBlank(nil, int32(free)))
					}
					bodies = append(bodies, fillUp, next)
				}
				if _, err := l.AppendRaw(0, bodies); err != nil {
					t.Fatal(err)
				}
				want := l.End()
				flushNow(t, l)
				if whole, err := l.WholeEnd(); err != nil || whole != want {
					t.Errorf("whole end %d, want %d, %v", whole, want, err)
				}
				closeLog(t, l, false)
				l, r := open(t, fsys, options())
				if r.End != want || r.CutBytes != 0 || len(r.Rot) != 0 || r.Lost != 0 {
					t.Errorf("recovered %+v, want the end %d", *r, want)
				}
				a := put(t, l, sized(2, 200))
				closeLog(t, l, false)
				l, r = open(t, fsys, options())
				if r.End != a.Next || len(r.Rot) != 0 {
					t.Errorf("recovered %+v, want the end %d", *r, a.Next)
				}
				closeLog(t, l, true)
			})
		}
	}
}

// TestT10_Rot flips bits in the middle of the log: nothing is cut, each bad stretch is reported.
func TestT10_Rot(t *testing.T) {
	fsys, ends := stopped(t, 100, false)
	// Without Tandem's own checkpoint the whole log is read.
	if err := fsys.Remove(root + "/checkpoint"); err != nil {
		t.Fatal(err)
	}
	l, _ := open(t, fsys, options())
	full := contents(t, l)
	closeLog(t, l, false)
	bad := 40 // a record in the middle of a file
	for ends[bad-1]/fileSize != ends[bad+1]/fileSize {
		bad++
	}
	start, next := ends[bad-1], ends[bad]
	lastInFile := 1
	for ends[lastInFile]/fileSize == ends[lastInFile-1]/fileSize {
		lastInFile++
	}
	for _, tc := range []struct {
		name   string
		offset int64
		next   int64
	}{
		{"body", start + 120, next},
		{"property", next - 25, next},
		{"record checksum", next - 5, next},
		{"size", start + 3, next},
		{"size, huge", start, next},
		{"magic", start + 5, next},
		{"own offset", start + 30, next},
		{"blank record", ends[lastInFile-1] + 5, fileSize},
	} {
		f := fsys.CrashClone(memfs.All)
		if err := f.Remove(root + "/checkpoint"); err != nil {
			t.Fatal(err)
		}
		patch(t, f, tc.offset, []byte{full[tc.offset] ^ 0x40})
		for round := range 2 {
			l, r := open(t, f, options())
			if r.End != int64(len(full)) || r.CutBytes != 0 || r.Lost != 0 {
				t.Errorf("%s: %+v", tc.name, *r)
			}
			if round == 0 && (len(r.Rot) != 1 || r.Rot[0].Next != tc.next || !errors.Is(r.Rot[0].Err, message.ErrCorrupt)) {
				t.Errorf("%s: rot %+v, next sound record at %d", tc.name, r.Rot, tc.next)
			}
			got := contents(t, l)
			got[tc.offset] ^= 0x40
			if !bytes.Equal(got, full) {
				t.Errorf("%s: other bytes", tc.name)
			}
			closeLog(t, l, false)
		}
	}
	// Lost pages in front of a whole file are rot too.
	f := fsys.CrashClone(memfs.All)
	if err := f.Remove(root + "/checkpoint"); err != nil {
		t.Fatal(err)
	}
	patch(t, f, 4096, make([]byte, 4096))
	_, r := open(t, f, options())
	if r.End != int64(len(full)) || len(r.Rot) != 1 || r.Rot[0].Next != fileSize {
		t.Errorf("lost pages: %+v", *r)
	}
}

// TestHoles: pages reach a disk in any order, so after the machine went down the log may have holes behind what was durable. The
// first one is its end: what is behind it was promised by nobody here, and a peer has what lies in the hole. The same bytes after
// the end of a process alone, or below what was durable, are rot.
func TestHoles(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	fill(t, l, 60)
	flushNow(t, l)
	sure := l.End()
	closeLog(t, l, true)
	l, _ = open(t, fsys, options())
	ends := fill(t, l, 60)
	end := ends[59]
	left := killed(fsys)
	hole := sure + (end-sure)/2
	for hole%fileSize > fileSize/2 || hole+1000 > end {
		hole -= 500
	}
	wholly := wholeBelow(append([]int64{sure}, ends...), hole)
	for _, tc := range []struct {
		name string
		boot string
		at   int64
		want int64
		rot  int
	}{
		{"the machine went down", "boot-2", hole, wholly, 0},
		{"only the process ended", boot, hole, end, 1},
		{"no boot id", "", hole, wholly, 0},
		{"it was durable", "boot-2", sure - 1000, end, 1},
	} {
		f := left.CrashClone(memfs.All)
		patch(t, f, tc.at, make([]byte, 900))
		o := options()
		o.BootID = tc.boot
		l, r := open(t, f, o)
		if r.End != tc.want || len(r.Rot) != tc.rot || r.Lost != 0 || tc.rot == 0 && r.CutBytes == 0 {
			t.Errorf("%s: %+v, want the end %d and %d bad stretches", tc.name, *r, tc.want, tc.rot)
		}
		a := put(t, l, sized(5, 300))
		flushNow(t, l)
		if l2, r := open(t, cut(f), o); r.End != a.Next || r.CutBytes != 0 {
			t.Errorf("%s: after another crash %+v, want the end %d", tc.name, *r, a.Next)
		} else {
			closeLog(t, l2, false)
		}
		closeLog(t, l, false)
	}
}

// TestT10_FailedSync is C13: the first failed sync ends the log, although the next would succeed.
func TestT10_FailedSync(t *testing.T) {
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		for _, action := range []memfs.Action{memfs.FailBefore(nil), memfs.FailAfter(nil)} {
			fsys := memfs.New()
			l, _ := open(t, fsys, o)
			put(t, l, record(0, 100))
			flushNow(t, l)
			durable := l.End()
			fsys.SetHook(func(op memfs.Op) memfs.Action {
				if op.Kind == memfs.KindSync {
					fsys.SetHook(nil)
					return action
				}
				return memfs.Proceed
			})
			marks := []interface{ Err() error }{l.Written(), l.Flushed(), l.Readable()}
			a := put(t, l, record(1, 100))
			waiting := make(chan error, 1)
			flushed := l.Flushed()
			go func() { waiting <- flushed.Wait(t.Context(), a.Next) }()
			var err error
			if o.SyncFlush {
				err = l.Run(t.Context())
			} else {
				_, err = l.FlushNow(t.Context())
			}
			mustIs(t, err, commitlog.ErrFaulted)
			mustIs(t, <-waiting, commitlog.ErrFaulted)
			for _, m := range marks {
				mustIs(t, m.Err(), commitlog.ErrFaulted)
			}
			if flushed.Load() != durable {
				t.Errorf("flushed %d after the failure", flushed.Load())
			}
			_, err = appendOne(l, record(2, 10))
			mustIs(t, err, commitlog.ErrFaulted)
			_, err = l.AppendRaw(l.End(), [][]byte{{1}})
			mustIs(t, err, commitlog.ErrFaulted)
			_, err = l.FlushNow(t.Context())
			mustIs(t, err, commitlog.ErrFaulted)
			mustIs(t, l.Truncate(0), commitlog.ErrFaulted)
			mustIs(t, l.Run(t.Context()), commitlog.ErrFaulted)
			if len(contents(t, l)) == 0 {
				t.Error("what is there cannot be read any more")
			}
			closeLog(t, l, true)
			if _, r := open(t, cut(fsys), o); r.Clean || r.End < durable {
				t.Errorf("recovered %+v", *r)
			}
		}
	}
}

// TestT9_CrashAcrossFiles: three records in a new file, then a crash: all of both files are found, also by a folder whose
// checkpoint says nothing and by one that Tandem has not written.
func TestT9_CrashAcrossFiles(t *testing.T) {
	for _, checkpoint := range []string{"tandem", "none", "rocketmq"} {
		fsys, ends := stopped(t, 100, false)
		want := ends[99]
		switch checkpoint {
		case "none":
			must(t, fsys.Remove(root+"/checkpoint"))
			must(t, fsys.SyncDir(root))
		case "rocketmq":
			writeCheckpoint(t, fsys, fixedTime().UnixMilli(), fixedTime().UnixMilli())
		}
		l, r := open(t, cut(fsys), options())
		if r.End != want || r.Clean || !r.SameBoot {
			t.Errorf("%s: %+v", checkpoint, *r)
		}
		// Records are all of one time, so RocketMQ's rule of 3 s finds no file to begin with but the first.
		if first := r.ScannedFrom == 0; first == (checkpoint == "tandem") {
			t.Errorf("%s: scanned from %d", checkpoint, r.ScannedFrom)
		}
		closeLog(t, l, false)
	}
}

func writeCheckpoint(t *testing.T, fsys vfs.FS, physic, logics int64) {
	t.Helper()
	b := make([]byte, 4096)
	binary.BigEndian.PutUint64(b, uint64(physic))
	binary.BigEndian.PutUint64(b[8:], uint64(logics))
	f, err := fsys.OpenFile(root+"/checkpoint", 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestBadFolders: each is a typed error that names what is wrong.
func TestBadFolders(t *testing.T) {
	dir := root + "/commitlog/"
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, fsys *memfs.FS)
		want error
		key  string
		val  string
	}{
		{"a file in the middle is missing", func(t *testing.T, fsys *memfs.FS) {
			must(t, fsys.Remove(dir+mappedfile.Name(2*fileSize)))
		}, mappedfile.ErrGap, "missing", fmt.Sprint(2 * fileSize)},
		{
			"a short file", func(t *testing.T, fsys *memfs.FS) { resize(t, fsys, dir+mappedfile.Name(fileSize), 100) },
			mappedfile.ErrSize, "file", mappedfile.Name(fileSize),
		},
		{
			"a long file", func(t *testing.T, fsys *memfs.FS) { resize(t, fsys, dir+mappedfile.Name(fileSize), 2*fileSize) },
			mappedfile.ErrSize, "size", fmt.Sprint(2 * fileSize),
		},
		{"a file at no multiple", func(t *testing.T, fsys *memfs.FS) {
			must(t, fsys.Rename(dir+mappedfile.Name(0), dir+mappedfile.Name(12)))
		}, mappedfile.ErrMisplaced, "file", mappedfile.Name(12)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys, _ := stopped(t, 100, true)
			tc.do(t, fsys)
			_, _, err := commitlog.Open(fsys, root, options())
			mustIs(t, err, tc.want)
			if e := errdefs.As(err); e.Meta[tc.key] != tc.val || e.Remedy == "" {
				t.Errorf("%v", err)
			}
			// The lock was given back.
			_, _, err = commitlog.Open(fsys, root, options())
			mustIs(t, err, tc.want)
		})
	}
	fsys, ends := stopped(t, 10, true)
	o := options()
	o.FileSize = 2 * fileSize
	_, _, err := commitlog.Open(fsys, root, o)
	mustIs(t, err, mappedfile.ErrSize)
	// A name that is none of ours, and the trace of a broker killed while it made a file, are no errors.
	for _, name := range []string{"notes.txt", mappedfile.Name(fileSize)} {
		f, err := fsys.OpenFile(dir+name, 0x42, 0o644)
		must(t, err)
		must(t, f.Close())
	}
	l, r := open(t, fsys, options())
	defer closeLog(t, l, true)
	if r.End != ends[9] || len(r.Foreign) != 1 || r.Foreign[0] != "notes.txt" {
		t.Errorf("%+v", *r)
	}
	_, _, err = commitlog.Open(fsys, root, options())
	mustIs(t, err, vfs.ErrLocked)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func resize(t *testing.T, fsys *memfs.FS, name string, size int64) {
	t.Helper()
	f, err := fsys.OpenFile(name, 2, 0)
	must(t, err)
	must(t, f.Truncate(size))
	must(t, f.Close())
}

// wholeIndex returns the index of the last of ends that is at most n.
func wholeIndex(ends []int64, n int64) int {
	i := len(ends) - 1
	for ends[i] > n {
		i--
	}
	return i
}

// TestLostTail: what was durable and is gone is told, a record that a slave had half is not.
func TestLostTail(t *testing.T) {
	fsys, ends := stopped(t, 100, true)
	last := mappedfile.Name(ends[99] - ends[99]%fileSize)
	must(t, fsys.Remove(root+"/commitlog/"+last))
	l, r := open(t, fsys, options())
	if r.Lost != ends[99]-r.End || r.End%fileSize != 0 {
		t.Errorf("%+v", *r)
	}
	closeLog(t, l, true)

	// A disk that loses what it had called durable loses it across files: the end is found where it is.
	fsys, ends = stopped(t, 100, true)
	at := ends[99] - ends[99]%fileSize
	want := ends[wholeIndex(ends, at-fileSize/2)]
	patch(t, fsys, want, make([]byte, at-want))
	patch(t, fsys, at, make([]byte, fileSize))
	l, r = open(t, fsys, options())
	if r.End != want || r.Lost != ends[99]-want || len(r.Rot) != 0 {
		t.Errorf("%+v, want the end %d", *r, want)
	}
	closeLog(t, l, true)

	fsys = memfs.New()
	l, _ = open(t, fsys, options())
	rec := sized(0, 500)
	message.Stamp(rec, 0, 0, 1)
	half := sized(1, 500)
	message.Stamp(half, 1, 500, 2)
	_, err := l.AppendRaw(0, [][]byte{rec, half[:300]})
	must(t, err)
	if whole, err := l.WholeEnd(); whole != 500 || err != nil {
		t.Errorf("whole end %d, %v", whole, err)
	}
	closeLog(t, l, true)
	l, r = open(t, fsys, options())
	if r.End != 500 || r.CutBytes != 300 || r.Lost != 0 {
		t.Errorf("%+v", *r)
	}
	closeLog(t, l, true)
}
