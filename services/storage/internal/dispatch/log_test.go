package dispatch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// fakeLog is a log in memory.
type fakeLog struct {
	size  int64 // of a file
	first int64
	own   int64 // OwnFrom

	mu       sync.Mutex
	data     []byte // from first on
	written  *watermark.Mark
	readable *watermark.Mark
	views    int
}

func newLog(fileSize, first int64) *fakeLog {
	return &fakeLog{size: fileSize, first: first, own: math.MaxInt64, written: watermark.New(first), readable: watermark.New(first)}
}

func (l *fakeLog) FirstOffset() int64 { return l.first }
func (l *fakeLog) FileSize() int64    { return l.size }
func (l *fakeLog) OwnFrom() int64     { return l.own }

func (l *fakeLog) Written() *watermark.Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written
}

func (l *fakeLog) Readable() *watermark.Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readable
}

func (l *fakeLog) end() int64 { return l.first + int64(len(l.data)) }

func nothing() {}

func (l *fakeLog) View(offset int64, limit int) ([]byte, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.views++
	if offset < l.first || offset > l.end() {
		return nil, nothing, fmt.Errorf("view at %d, log from %d to %d", offset, l.first, l.end())
	}
	n := min(int64(limit), l.end()-offset, l.size-offset%l.size)
	at := offset - l.first
	return l.data[at : at+n : at+n], nothing, nil
}

// write appends bytes without any rule.
func (l *fakeLog) write(b []byte) {
	l.mu.Lock()
	l.data = append(l.data, b...)
	written, end := l.written, l.end()
	l.mu.Unlock()
	written.Advance(end)
}

// show makes everything readable.
func (l *fakeLog) show() { l.Readable().Advance(l.Written().Load()) }

// cut truncates the log as the real one does.
func (l *fakeLog) cut(to int64) {
	l.mu.Lock()
	w, r := l.written, l.readable
	l.written, l.readable = watermark.New(to), watermark.New(min(to, r.Load()))
	l.data = slices.Clone(l.data[:to-l.first])
	l.mu.Unlock()
	w.Close(watermark.ErrTruncated)
	r.Close(watermark.ErrTruncated)
}

// reset empties the log.
func (l *fakeLog) reset(start int64) {
	l.mu.Lock()
	w, r := l.written, l.readable
	l.written, l.readable, l.first, l.data = watermark.New(start), watermark.New(start), start, nil
	l.mu.Unlock()
	w.Close(watermark.ErrTruncated)
	r.Close(watermark.ErrTruncated)
}

// msg is one message to append.
type msg struct {
	topic   string
	queue   int32
	at      int64 // queue offset
	sysFlag int32
	tags    string
	delay   string
	body    int
	stamp   int64
}

var host = netip.MustParseAddrPort("10.0.0.1:10911")

// put appends a message as a broker would, with a blank record where it does not fit, and returns its log offset.
func (l *fakeLog) put(m msg) int64 {
	var props []byte
	if m.tags != "" {
		props = message.AppendProperty(props, message.PropertyTags, m.tags)
	}
	if m.delay != "" {
		props = message.AppendProperty(props, message.PropertyDelay, m.delay)
	}
	d := message.Draft{
		Topic: m.topic, QueueID: m.queue, SysFlag: m.sysFlag, BornHost: host, StoreHost: host,
		Body: bytes.Repeat([]byte{'b'}, max(m.body, 1)), Properties: props,
	}
	rec := message.Append(nil, &d, false)
	if room := l.size - l.end()%l.size; room < int64(len(rec))+message.BlankSize {
		b := binary.BigEndian.AppendUint32(nil, uint32(room))
		b = binary.BigEndian.AppendUint32(b, message.MagicBlank)
		l.write(append(b, make([]byte, room-message.BlankSize)...))
	}
	at := l.end()
	stamp := m.stamp
	if stamp == 0 {
		stamp = 1_700_000_000_000 + at
	}
	message.Stamp(rec, m.at, at, stamp)
	l.write(rec)
	return at
}

// loadLog reads the commitlog folder of a store; the log ends behind its last record.
func loadLog(t testing.TB, store string) *fakeLog {
	t.Helper()
	dir := filepath.Join(store, "commitlog")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := newLog(0, 0)
	var all []byte
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		l.size = int64(len(b))
		all = append(all, b...)
	}
	end := int64(0)
	for end < int64(len(all)) {
		window := all[end:]
		window = window[:min(int64(len(window)), l.size-end%l.size)]
		n, kind, err := message.Check(window, end, message.CheckOptions{CRC: true, Offset: true, FileEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		if kind == message.End {
			break
		}
		end += int64(n)
	}
	l.write(all[:end])
	return l
}

func levels(t testing.TB) message.DelayLevels {
	t.Helper()
	d, err := message.ParseDelayLevels(message.DefaultDelayLevels)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newDispatcher(t testing.TB, l dispatch.Log, q dispatch.Queues) *dispatch.Dispatcher {
	t.Helper()
	d, err := dispatch.New(dispatch.Options{DelayLevels: levels(t)}, l, q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newFS has the store's folder, made durable as the log does it.
func newFS(t testing.TB) *memfs.FS {
	t.Helper()
	fsys := memfs.New()
	check(t, durable.MkdirAll(fsys, "/s"))
	return fsys
}

func openQueues(t testing.TB, fsys vfs.FS, root string, o consumequeue.Options) *consumequeue.Set {
	t.Helper()
	s, err := consumequeue.Open(fsys, root, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// catchUp dispatches everything readable.
func catchUp(t testing.TB, d *dispatch.Dispatcher, l *fakeLog) {
	t.Helper()
	check(t, d.CatchUp(t.Context(), l.Readable().Load()))
}

// queueFiles returns all queue files below root by their names.
func queueFiles(t testing.TB, fsys vfs.FS, root string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	var walk func(dir string)
	walk = func(dir string) {
		infos, err := fsys.ReadDir(dir)
		if os.IsNotExist(err) {
			return
		}
		check(t, err)
		for _, i := range infos {
			name := filepath.Join(dir, i.Name)
			if i.Dir {
				walk(name)
				continue
			}
			f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
			check(t, err)
			b := make([]byte, i.Size)
			if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			check(t, f.Close())
			rel, err := filepath.Rel(root, name)
			check(t, err)
			out[rel] = b
		}
	}
	walk(filepath.Join(root, "consumequeue"))
	return out
}

// sameFiles compares two results of queueFiles.
func sameFiles(t testing.TB, what string, got, want map[string][]byte) {
	t.Helper()
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			t.Errorf("%s: %s is missing", what, name)
			continue
		}
		if !bytes.Equal(g, w) {
			at := 0
			for at < len(g) && at < len(w) && g[at] == w[at] {
				at++
			}
			t.Errorf("%s: %s differs at %d of %d (%d)", what, name, at, len(w), len(g))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is too much: %x", what, name, got[name])
		}
	}
}
