package dispatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

const (
	header         = 8  // size and magic, bytes
	physicalOffset = 28 // where a record holds its own log offset
)

var strict = message.CheckOptions{CRC: true, Offset: true}

// own is for records that this process has just made: their checksums would be compared with what made them.
var own = message.CheckOptions{Offset: true}

func (d *Dispatcher) fileEnd(at int64) int64 {
	size := d.log.FileSize()
	return at - at%size + size
}

// viewTo returns the log from at on, up to to, the end of at's file and limit bytes; nothing at to.
func (d *Dispatcher) viewTo(at, to int64, limit int64) ([]byte, func(), error) {
	n := min(limit, to-at, d.fileEnd(at)-at)
	if n <= 0 {
		return nil, func() {}, nil
	}
	b, release, err := d.log.View(at, int(n))
	if err != nil {
		return nil, nil, fmt.Errorf("read log at %d: %w", at, err)
	}
	if int64(len(b)) < n {
		release()
		return nil, nil, errCut.With("offset", at).With("readable", to).With("end", at+int64(len(b)))
	}
	return b[:n], release, nil
}

// step walks over one window of the log and returns what Readable must reach for the next one.
func (d *Dispatcher) step(to int64) (need int64, err error) {
	if first := d.log.FirstOffset(); d.pos < first {
		d.o.Log.Warn("the log begins behind what is dispatched", slog.Int64("dispatched", d.pos), slog.Int64("first", first))
		d.pos = first
	}
	if d.pos >= to {
		return d.pos + 1, nil
	}
	limit := int64(window)
	for {
		from := d.pos
		b, release, err := d.viewTo(d.pos, to, limit)
		if err != nil {
			return 0, err
		}
		need, err = d.walk(b, to, d.log.OwnFrom()) // asked under the lease of b: no cut gives it other bytes
		release()
		if err != nil || d.pos != from || need > to || need <= d.pos+limit {
			return need, err
		}
		limit = need - d.pos // one record larger than the window
	}
}

// boundary returns the end of the last whole record at or below the log offset to, where the log may have been cut inside
// a record. Records do not cross files, so one is known to begin at the start of to's file.
func (d *Dispatcher) boundary(to int64) (int64, error) {
	at := max(to-to%d.log.FileSize(), d.log.FirstOffset())
	b, release, err := d.viewTo(at, to, to-at)
	if err != nil {
		return 0, err
	}
	defer release()
	for len(b) > 0 {
		size, kind, err := message.CheckView(b, at, message.CheckOptions{Offset: true}, &d.view)
		if err != nil {
			next, ok := message.Next(b, at)
			if !ok {
				return at, nil
			}
			size = next
		} else if kind == message.End || int64(size) > to-at {
			return at, nil
		}
		at += int64(size)
		b = b[size:]
	}
	return at, nil
}

// walk dispatches the whole records of b, which begins at pos; from ownFrom on they are this process's. It returns the log
// offset that must be readable to go on.
func (d *Dispatcher) walk(b []byte, to, ownFrom int64) (need int64, err error) {
	for len(b) > 0 {
		if want := d.wants(b); want > int64(len(b)) {
			return d.pos + want, nil
		}
		how := strict
		if d.pos >= ownFrom {
			how = own
		}
		size, kind, err := message.CheckView(b, d.pos, how, &d.view)
		switch {
		case d.foreign(err):
			return 0, ErrFileSize.With("offset", d.pos).With("rest_of_file", d.fileEnd(d.pos)-d.pos)
		case err != nil || kind == message.End:
			if need, crossing := d.crosses(b, to); need > 0 || crossing != nil {
				return need, crossing
			}
			return d.passBad(to, err)
		case kind == message.Record && d.tooLong(size):
			return 0, ErrFileSize.With("offset", d.pos).With("record", size).With("rest_of_file", d.fileEnd(d.pos)-d.pos)
		case kind == message.Blank:
			if d.pos+int64(size) != d.fileEnd(d.pos) {
				if d.o.ForeignFiles {
					return 0, ErrFileSize.With("offset", d.pos).With("filler", size).With("rest_of_file", d.fileEnd(d.pos)-d.pos)
				}
				return d.passBad(to, &message.CorruptError{
					Offset: d.pos, Field: "blankSize", Want: d.fileEnd(d.pos) - d.pos, Got: int64(size),
				})
			}
		default:
			back, err := d.gather()
			if err != nil {
				return 0, err
			}
			if back != none {
				return d.goBack(back)
			}
		}
		d.pos += int64(size)
		b = b[size:]
	}
	return d.pos + 1, nil
}

// wants returns how many bytes the record at b must have, as far as that can be believed; otherwise what is there.
func (d *Dispatcher) wants(b []byte) int64 {
	room := d.fileEnd(d.pos) - d.pos
	if len(b) < header {
		return min(header, room)
	}
	size := int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // bit pattern
	switch binary.BigEndian.Uint32(b[4:]) {
	case message.MagicV1, message.MagicV2:
		if size > room || (len(b) >= physicalOffset+8 && !d.isPlace(b)) {
			return 0
		}
	case message.MagicBlank:
		if size != room {
			return 0
		}
	default:
		return 0
	}
	return size
}

// isPlace reports whether the record says that it is where it is.
func (d *Dispatcher) isPlace(b []byte) bool {
	return int64(binary.BigEndian.Uint64(b[physicalOffset:])) == d.pos //nolint:gosec // bit pattern
}

// gather hands the record in d.view to the queues.
func (d *Dispatcher) gather() (back int64, err error) {
	v := &d.view
	if !message.Queued(v.SysFlag) {
		return none, nil
	}
	back, err = d.queues.Gather(v.Topic, v.QueueID, v.QueueOffset, d.pos, v.Size, v.TagsCode(d.o.DelayLevels))
	if err != nil {
		if errdefs.ClassOf(err) != errdefs.InvalidArgument {
			return none, fmt.Errorf("gather unit of record at %d: %w", d.pos, err)
		}
		d.reportUnfit(err)
		return none, nil
	}
	if back == none {
		if d.o.Observe != nil {
			d.o.Observe(d.pos, v)
		}
		d.gathered++
		d.storeTime = v.StoreTimestamp
	}
	return back, nil
}

func (d *Dispatcher) reportUnfit(err error) {
	if !d.isNews() {
		return
	}
	add(d.metrics.skipped, int64(d.view.Size))
	if d.tell() {
		d.o.Log.Error("message fits into no queue and cannot be consumed",
			slog.Int64("offset", d.pos), slog.Any("error", err), slog.Int64("so_far", d.places))
	}
}

// goBack reads the log again for a queue that is short.
func (d *Dispatcher) goBack(back int64) (int64, error) {
	d.o.Log.Warn("queue is short, the log is read again", slog.String("topic", string(d.view.Topic)),
		slog.Int("queue", int(d.view.QueueID)), slog.Int64("queue_offset", d.view.QueueOffset),
		slog.Int64("offset", d.pos), slog.Int64("read_from", back))
	add(d.metrics.rewinds, 1)
	d.pos, d.storeTime = max(back, d.log.FirstOffset()), 0
	return d.pos, d.commit()
}

// isNews reports whether nothing was reported about pos before, and counts it. Going back leads over places again.
func (d *Dispatcher) isNews() bool {
	if d.pos <= d.reported {
		return false
	}
	d.reported = d.pos
	add(d.metrics.bad, 1)
	return true
}

// recordAt reports whether a record could begin at a log offset.
func (d *Dispatcher) recordAt(at int64) (bool, error) {
	b, release, err := d.viewTo(at, d.log.Written().Load(), physicalOffset+8)
	if err != nil {
		return false, err
	}
	defer release()
	if len(b) < header {
		return true, nil // too little to tell
	}
	if magic := binary.BigEndian.Uint32(b[4:]); magic != message.MagicV1 && magic != message.MagicV2 {
		return magic == message.MagicBlank, nil
	}
	return len(b) < physicalOffset+8 || int64(binary.BigEndian.Uint64(b[physicalOffset:])) == at, nil //nolint:gosec // bit pattern
}

// badSpot is a place where no sound record begins.
type badSpot struct {
	at       int64 // none: there is no such place now
	searched int64 // no sound record begins before this
	news     bool  // met for the first time
	told     bool  // in the log
}

// tell reports whether one more damaged place is worth a line: the first ones are, then fewer and fewer.
func (d *Dispatcher) tell() bool {
	d.places++
	return d.places <= 16 || d.places&(d.places-1) == 0
}

// passBad looks for a sound record behind the bad one at pos and goes there. Without one it stays.
func (d *Dispatcher) passBad(to int64, cause error) (need int64, err error) {
	if readable := d.log.Readable().Load(); readable < to {
		return 0, errCut.With("offset", d.pos).With("readable", readable)
	}
	if d.bad.at != d.pos {
		d.bad = badSpot{at: d.pos, searched: d.pos, news: d.isNews()}
		if cause == nil {
			cause = errors.New("no record, only zeros")
		}
		if d.bad.told = d.bad.news && d.tell(); d.bad.told {
			d.o.Log.Error("bad record in the log; scrub this node and repair it from another",
				slog.Int64("offset", d.pos), slog.Any("error", cause), slog.Int64("so_far", d.places))
		}
	}
	next, err := d.findSound(to)
	if err != nil {
		return 0, err
	}
	if next == none {
		return to + 1, nil
	}
	if d.bad.told {
		d.o.Log.Warn("bad record passed over", slog.Int64("offset", d.pos), slog.Int64("next", next))
	}
	if d.bad.news {
		add(d.metrics.skipped, next-d.pos)
		if d.o.Bad != nil {
			d.o.Bad(d.pos, next)
		}
	}
	d.pos, d.bad = next, badSpot{at: none}
	return next, nil
}

// findSound searches [bad.searched, to) for the first sound record behind pos.
func (d *Dispatcher) findSound(to int64) (int64, error) {
	for at := d.bad.searched; at < to; {
		end := d.fileEnd(at)
		b, release, err := d.viewTo(at, to, end-at)
		if err != nil {
			return none, err
		}
		skip, ok := 0, at != d.pos && sound(b, at)
		if !ok {
			skip, ok = message.Next(b, at)
		}
		n := int64(len(b))
		release()
		if ok {
			return at + int64(skip), nil
		}
		// What began too late to be whole yet may be sound when more is readable.
		d.bad.searched = max(d.bad.searched, at+n-maxRecord)
		if at += n; at != end {
			break
		}
		d.bad.searched = at
	}
	return none, nil
}

// maxRecord is the length of the longest record that is looked for behind a bad one, bytes.
const maxRecord = 5 << 20

func sound(b []byte, at int64) bool {
	size, kind, err := message.Check(b, at, strict)
	return err == nil && size > 0 && kind == message.Record
}
