package commitlog

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// Cursor is the next queue offset of one queue. The log's append lock guards it.
type Cursor struct{ next int64 }

// NewCursor makes a cursor that stands at next.
func NewCursor(next int64) *Cursor { return &Cursor{next: next} }

// Batch is what one Append writes side by side into one file.
type Batch struct {
	// Records are whole records as message.Append makes them; Append stamps them in place.
	Records [][]byte
	// Cursor gives the queue offsets and moves on by one a record; nil: all are 0, as for prepared and rollback records.
	Cursor *Cursor
	// Now is the caller's clock, read a moment before, so that nobody is held up by reading it under the lock. Zero: read it.
	Now time.Time
}

// Appended says where the first record of a batch went; the others follow side by side.
type Appended struct {
	Offset         int64 // log offset of the first record
	Next           int64 // log offset behind the last one
	QueueOffset    int64 // of the first record
	StoreTimestamp int64 // ms since 1970, of all
}

// Append gives the records their place and time and writes them. They are in the log when it returns, durable when
// Flushed has passed Next. Errors: vfs.ErrNoSpace, and the log goes on once there is space; ErrTooLarge; ErrFaulted;
// ErrClosed. After any of them nothing of the batch is in the log. A batch of one allocates nothing.
func (l *Log) Append(b *Batch) (Appended, error) {
	total := int64(0)
	for _, r := range b.Records {
		total += int64(len(r))
	}
	if total == 0 {
		return Appended{}, errdefs.Invalid("records", "a batch needs at least one record")
	}
	l.mu.Lock()
	a, err := l.append(b, total)
	m := l.marks.Load()
	l.mu.Unlock()
	if err == nil {
		m.written.Advance(a.Next)
	}
	return a, err
}

func (l *Log) append(b *Batch, total int64) (Appended, error) {
	if err := l.usable(); err != nil {
		return Appended{}, err
	}
	if size := l.FileSize(); total+message.BlankSize > size {
		return Appended{}, ErrTooLarge.With("bytes", total).With("file_size", size)
	}
	if err := l.place(total); err != nil {
		return Appended{}, err
	}
	l.askAhead()
	a := Appended{Offset: l.end, Next: l.end + total, StoreTimestamp: l.stamp(b.Now)}
	l.pages.Use(l.tail, a.Offset-l.tail.Start(), total, a.StoreTimestamp)
	if b.Cursor != nil {
		a.QueueOffset = b.Cursor.next
	}
	at, queueOffset := a.Offset, a.QueueOffset
	for _, r := range b.Records {
		message.Stamp(r, queueOffset, at, a.StoreTimestamp)
		at += int64(len(r))
		if b.Cursor != nil {
			queueOffset++
		}
	}
	if err := l.write(b.Records); err != nil {
		return Appended{}, l.fail(err)
	}
	l.end, l.lastStamp = a.Next, a.StoreTimestamp
	if b.Cursor != nil {
		b.Cursor.next = queueOffset
	}
	return a, nil
}

// stamp returns the store time of a batch, ms. Store times grow although callers that read their clocks one after the other
// may come in another order; a clock that was set back is believed.
func (l *Log) stamp(now time.Time) int64 {
	if now.IsZero() {
		now = l.o.Now()
	}
	if ms := now.UnixMilli(); ms > l.lastStamp || ms <= l.lastStamp-maxStale {
		return ms
	}
	return l.lastStamp
}

// write puts the records at the end, into memory or, with SyncFlush, by pwrite: a page that was dirtied through a map
// makes the sync that follows more than twice as slow.
func (l *Log) write(records [][]byte) error {
	pos := l.end - l.tail.Start()
	if l.store == nil {
		_, err := l.tail.WritevAt(records, pos)
		return err
	}
	for _, r := range records {
		pos += int64(copy(l.store[pos:], r))
	}
	return nil
}

// place makes tail and store those of a file with room for total bytes and a blank record behind them. Until the next
// file is ready nothing of the log is touched.
func (l *Log) place(total int64) error {
	if err := l.openTail(); err != nil {
		return err
	}
	free := l.tail.End() - l.end
	if total+message.BlankSize <= free {
		return nil
	}
	next, err := l.fileAt(l.tail.End())
	if err != nil {
		return err
	}
	store, err := l.writable(next)
	if err != nil {
		return err
	}
	if err := l.fillUp(free); err != nil {
		return l.fail(err)
	}
	l.end = next.Start()
	l.setTail(next, store)
	return nil
}

// openTail finds or makes the file that holds the end and makes it ready for Append.
func (l *Log) openTail() error {
	if err := l.begin(); err != nil {
		return err
	}
	if l.tail != nil && (l.store != nil || l.o.SyncFlush) {
		return nil
	}
	var err error
	l.store, err = l.writable(l.tail)
	return err
}

// begin makes sure that the abort file is there, and that tail is a file with blocks for every byte.
func (l *Log) begin() error {
	if !l.abort {
		if err := l.writeAbort(); err != nil {
			return err
		}
	}
	if l.tail == nil {
		f, err := l.fileAt(l.end)
		if err != nil {
			return err
		}
		l.setTail(f, nil)
	}
	return l.tail.Reserve()
}

// askAhead tells Run, once a file, that its successor may be made.
func (l *Log) askAhead() {
	if l.asked || !l.ahead.Load() {
		return
	}
	l.asked = true
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *Log) setTail(f *mappedfile.File, store []byte) {
	l.tail, l.store, l.asked, l.pages = f, store, false, mappedfile.Pages{}
	l.tailEnd.Store(f.End())
}

// writable returns the memory of f for stores, reserved; nil with SyncFlush.
func (l *Log) writable(f *mappedfile.File) ([]byte, error) {
	if l.o.SyncFlush {
		return nil, f.Reserve()
	}
	return f.Writable()
}

// fileAt returns the file that holds offset, which is made unless it was made ahead.
func (l *Log) fileAt(offset int64) (*mappedfile.File, error) {
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	l.made = -1
	if f := l.queue.Find(offset); f != nil {
		return f, nil
	}
	f, err := l.queue.Create(offset, nil)
	if errors.Is(err, mappedfile.ErrSync) {
		return nil, l.fail(err)
	}
	return f, err
}

// fillUp closes the tail by RocketMQ's blank record; a rest too small for one stays zero.
func (l *Log) fillUp(free int64) error {
	if free < message.BlankSize {
		return nil
	}
	var blank [message.BlankSize]byte
	binary.BigEndian.PutUint32(blank[:], uint32(free))
	binary.BigEndian.PutUint32(blank[4:], message.MagicBlank)
	return l.write([][]byte{blank[:]})
}

// AppendRaw writes what a master sent: bodies side by side from offset, which must be the end (ErrGap). They may begin, end
// and cross files anywhere in a record. n is how much is in the log now: all of it, or what went before vfs.ErrNoSpace.
// Readable is not touched. It allocates nothing once the log has seen as many bodies at once.
func (l *Log) AppendRaw(offset int64, bodies [][]byte) (n int, err error) {
	l.mu.Lock()
	n, err = l.appendRaw(offset, bodies)
	m, end := l.marks.Load(), l.end
	l.mu.Unlock()
	if n > 0 {
		m.written.Advance(end)
	}
	return n, err
}

func (l *Log) appendRaw(offset int64, bodies [][]byte) (n int, err error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	if offset != l.end {
		return 0, ErrGap.With("offset", offset).With("end", l.end)
	}
	rest := mappedfile.NewBodies(bodies)
	for rest.More() {
		if err := l.begin(); err != nil {
			return n, err
		}
		l.pieces = rest.Take(l.pieces[:0], l.tail.End()-l.end)
		m, err := l.tail.WritevAt(l.pieces, l.end-l.tail.Start())
		clear(l.pieces)
		if err != nil {
			return n, l.rawFailed(err)
		}
		n += m
		l.end += int64(m)
		l.own.Store(l.end)
		l.lastStamp = 0
		if l.end == l.tail.End() {
			l.tail, l.store = nil, nil
		}
	}
	return n, nil
}

// rawFailed judges a failed write into reserved blocks: bytes may stand behind the end now. A full disk is survived if
// they can be wiped.
func (l *Log) rawFailed(err error) error {
	if !errors.Is(err, vfs.ErrNoSpace) {
		return l.fail(err)
	}
	pos := l.end - l.tail.Start()
	if zerr := l.tail.Zero(pos, l.tail.End()-l.end); zerr != nil {
		return l.fail(errors.Join(err, zerr))
	}
	return err
}
