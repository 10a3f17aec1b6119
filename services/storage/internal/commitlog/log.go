package commitlog

import (
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/mend"
)

// Log is the message log of one storage. All methods may be called concurrently, save that Run must have returned before
// Close. Locks are taken in the order flushMu, mu, makeMu.
type Log struct {
	fsys    vfs.FS
	root    string
	o       Options
	lock    io.Closer
	queue   *mappedfile.Queue
	cp      *checkpoint.File
	metrics *metrics
	mender  *mend.Mender

	marks   atomic.Pointer[marks]
	fault   atomic.Pointer[error]
	faulted chan struct{} // closed with the fault
	closed  atomic.Bool
	own     atomic.Int64 // see OwnFrom

	ahead   atomic.Bool
	kick    chan struct{} // capacity 1: a file is in use whose successor may be made
	tailEnd atomic.Int64  // end of that file

	flushMu sync.Mutex // one flush or cut at a time
	kept    *Kept      // by Rollback, for the cut that follows; guarded by flushMu

	mu        sync.Mutex       // the append lock
	end       int64            // log offset behind the last byte
	tail      *mappedfile.File // the file that holds end; nil until it is needed
	store     []byte           // its memory for stores; nil until an append needs it, and with SyncFlush
	asked     bool             // the successor of tail was asked for
	pages     mappedfile.Pages // of store
	lastStamp int64            // store timestamp of the last record, ms; 0: not known
	pieces    [][]byte         // of AppendRaw, reused
	abort     bool             // the abort file is there

	makeMu sync.Mutex // one file is made at a time
	made   int64      // start of a file that was made ahead and not used yet, or -1
}

// marks are what others wait for. A cut replaces all of them.
type marks struct {
	written, flushed, readable *watermark.Mark
	wanted                     atomic.Int64 // what SetReadable asked for
}

func newMarks(end, flushed, readable int64) *marks {
	m := &marks{written: watermark.New(end), flushed: watermark.New(flushed), readable: watermark.New(readable)}
	m.wanted.Store(readable)
	return m
}

func (m *marks) close(err error) {
	m.written.Close(err)
	m.flushed.Close(err)
	m.readable.Close(err)
}

// Written is the end of the log, Flushed what is durable, Readable what readers may see: offsets in bytes. A cut closes them
// with watermark.ErrTruncated and makes new ones, a fault closes them with ErrFaulted.
func (l *Log) Written() *watermark.Mark { return l.marks.Load().written }

// Flushed is the offset below which everything is durable.
func (l *Log) Flushed() *watermark.Mark { return l.marks.Load().flushed }

// Readable is the offset below which readers may look; only SetReadable moves it.
func (l *Log) Readable() *watermark.Mark { return l.marks.Load().readable }

// FirstOffset returns the offset of the first byte that the log still has, End that behind the last one.
func (l *Log) FirstOffset() int64 {
	if f := l.queue.First(); f != nil {
		return f.Start()
	}
	return l.End()
}

// End returns the offset behind the last byte.
func (l *Log) End() int64 { return l.marks.Load().written.Load() }

// OwnFrom returns the offset from which on all is what Append wrote since Open: the end when the rest came from elsewhere.
func (l *Log) OwnFrom() int64 { return l.own.Load() }

// FileSize returns the length of each file, bytes.
func (l *Log) FileSize() int64 { return l.queue.FileSize() }

// SetReadable raises Readable to n, at most to End and, with SyncFlush, at most to Flushed, which it then follows up to n.
func (l *Log) SetReadable(n int64) {
	m := l.marks.Load()
	n = min(n, m.written.Load())
	for old := m.wanted.Load(); n > old && !m.wanted.CompareAndSwap(old, n); {
		old = m.wanted.Load()
	}
	l.raiseReadable(m)
}

func (l *Log) raiseReadable(m *marks) {
	n := m.wanted.Load()
	if l.o.SyncFlush {
		n = min(n, m.flushed.Load())
	}
	m.readable.Advance(n)
}

// swapMarks replaces the marks by new ones; who waits for the old ones gets why.
func (l *Log) swapMarks(next *marks, why error) {
	old := l.marks.Swap(next)
	old.close(why)
	if err := l.Err(); err != nil {
		next.close(err)
	}
}

// Err returns the fault that ended the log, nil while it works.
func (l *Log) Err() error {
	if err := l.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// fail ends the log: nobody who waits is told that anything is there or durable, and nothing more is taken.
func (l *Log) fail(cause error) error {
	fault := error(ErrFaulted.Wrap(cause))
	if l.fault.CompareAndSwap(nil, &fault) {
		close(l.faulted)
	}
	err := l.Err()
	l.marks.Load().close(err)
	return err
}

// usable says why nothing can be written, nil if it can.
func (l *Log) usable() error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Checkpoint returns what reads the checkpoint and sets what others know. Run and Close save it.
func (l *Log) Checkpoint() checkpoint.View { return checkpoint.NewView(l.cp) }

// SetAhead says whether the file behind the one in use is made before it is needed. Run does it, after the first append.
func (l *Log) SetAhead(on bool) { l.ahead.Store(on) }

func (l *Log) path(name string) string { return filepath.Join(l.root, filepath.FromSlash(name)) }
