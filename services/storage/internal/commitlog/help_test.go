package commitlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

const (
	root     = "/store"
	fileSize = 8 << 10
	boot     = "boot-1"
)

func options() commitlog.Options {
	return commitlog.Options{FileSize: fileSize, BootID: boot, Grace: 50 * time.Millisecond, Now: fixedTime}
}

func fixedTime() time.Time { return time.UnixMilli(1_700_000_000_000) }

func syncOptions() commitlog.Options {
	o := options()
	o.SyncFlush = true
	return o
}

func open(t testing.TB, fsys vfs.FS, o commitlog.Options) (*commitlog.Log, *commitlog.Recovery) {
	t.Helper()
	l, r, err := commitlog.Open(fsys, root, o)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

func closeLog(t testing.TB, l *commitlog.Log, clean bool) {
	t.Helper()
	if err := l.Close(clean); err != nil {
		t.Fatal(err)
	}
}

// record makes an encoded record whose body has the given size; its bytes depend on i.
func record(i, body int) []byte {
	host := netip.MustParseAddrPort("10.0.0.1:10911")
	props := message.AppendProperty(nil, "KEYS", fmt.Sprintf("key-%d", i))
	return message.Append(nil, &message.Draft{
		Topic: "Topic", QueueID: 3, BornTimestamp: 1_700_000_000_000, BornHost: host, StoreHost: host,
		Body: bytes.Repeat([]byte{byte('a' + i%26)}, body), Properties: props,
	}, true)
}

// overhead is the size of a record with an empty body.
func overhead(i int) int { return len(record(i, 0)) }

// sized makes a record of exactly size bytes.
func sized(i, size int) []byte { return record(i, size-overhead(i)) }

func appendOne(l *commitlog.Log, rec []byte) (commitlog.Appended, error) {
	return l.Append(&commitlog.Batch{Records: [][]byte{rec}, Cursor: commitlog.NewCursor(0)})
}

func put(t testing.TB, l *commitlog.Log, rec []byte) commitlog.Appended {
	t.Helper()
	a, err := appendOne(l, rec)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fill appends n records of 100 to 900 bytes and returns the offset behind each.
func fill(t testing.TB, l *commitlog.Log, n int) []int64 {
	t.Helper()
	var ends []int64
	for i := range n {
		ends = append(ends, put(t, l, sized(i, 200+i*37%700)).Next)
	}
	return ends
}

// contents returns the bytes of the log from its first offset to its end.
func contents(t testing.TB, l *commitlog.Log) []byte {
	t.Helper()
	return read(t, l, l.FirstOffset(), l.End())
}

func read(t testing.TB, l *commitlog.Log, from, to int64) []byte {
	t.Helper()
	var all []byte
	for from < to {
		b, release, err := l.View(from, int(to-from))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			t.Fatalf("nothing to read at %d of [%d, %d)", from, l.FirstOffset(), l.End())
		}
		all = append(all, b...)
		from += int64(len(b))
		release()
	}
	return all
}

func flushNow(t testing.TB, l *commitlog.Log) {
	t.Helper()
	if n, err := l.FlushNow(t.Context()); err != nil || n != l.End() {
		t.Fatalf("flushed to %d of %d: %v", n, l.End(), err)
	}
}

// logFiles returns the bytes of the files of a closed log.
func logFiles(t testing.TB, fsys vfs.FS, root string) map[string][]byte {
	t.Helper()
	dir := filepath.Join(root, "commitlog")
	infos, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, info := range infos {
		files[info.Name] = readFile(t, fsys, filepath.Join(dir, info.Name))
	}
	return files
}

func readFile(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	f, err := fsys.OpenFile(name, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		t.Fatal(err)
	}
	return b
}

// patch overwrites bytes of a closed log and makes that durable.
func patch(t testing.TB, fsys vfs.FS, offset int64, b []byte) {
	t.Helper()
	start := offset - offset%fileSize
	f, err := fsys.OpenFile(filepath.Join(root, "commitlog", mappedfile.Name(start)), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, offset-start); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// run runs the log until the test ends or stop is called.
func run(t testing.TB, l *commitlog.Log) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	var result error
	stopped := false
	stop = func() error {
		if !stopped {
			cancel()
			result = <-done
			stopped = true
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func mustIs(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// killed returns what the end of the process leaves, cut what a power cut does.
func killed(f *memfs.FS) *memfs.FS { return f.CrashClone(memfs.All) }
func cut(f *memfs.FS) *memfs.FS    { return f.CrashClone(memfs.OnlySynced) }
