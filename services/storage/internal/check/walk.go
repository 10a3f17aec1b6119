package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sort"

	"github.com/tandemlog/tandem/services/storage/internal/message"
)

const (
	chunk     = 1 << 20
	probe     = 4 << 10
	tell      = 64 << 10  // bytes between two reports of progress
	maxRecord = 128 << 20 // no record is longer, bytes
	posMagic  = 4
	posOffset = 28 // where a record holds its own log offset
	header    = posOffset + 8
)

// Options of Records.
type Options struct {
	// From is the start of a file, To where the log ends for this walk.
	From, To int64
	// Open: the log may end anywhere before To, and what lies behind its last sound record is left to the caller. Otherwise a
	// record that To cuts in two is passed over, and anything else without a sound record behind is damage.
	Open bool
	// Queues to be compared with the records; nil: none. Levels are those that the units were made with.
	Queues Queues
	Levels message.DelayLevels
	// Whole: From is the log's first offset, so that every unit must have its record.
	Whole bool
	// Dispatched: every record that ends at or below it must have its unit.
	Dispatched int64
	// Emit takes what is found; an error ends the walk.
	Emit func(Finding) error
	// Progress, where it is not nil, is told at the start and every 64 KiB how far the walk is.
	Progress func(offset int64)
}

// Result is what Records has seen.
type Result struct {
	End int64 // behind the last sound record
	// Tail is what lies behind it, with Open: it begins with no sound record, and there is none in it; Tail.End is the end of
	// what is not zero. Its kind is 0 when there is nothing.
	Tail  Finding
	Claim int64 // length, bytes, of the record that Tail seems to begin with; 0: none

	Records int64
	Units   int64 // compared
	Behind  int64 // records behind Dispatched: they need no unit yet
}

// Records checks every record of [From, To), and the units of those.
func Records(ctx context.Context, log Log, o Options) (Result, error) {
	w := &walk{
		log: log, o: o, at: o.From,
		main:  window{log: log, to: o.To, ahead: chunk},
		probe: window{log: log, to: o.To, ahead: probe},
	}
	w.res.End = o.From
	if o.Queues != nil {
		w.match = newMatcher(w)
	}
	if err := w.run(ctx); err != nil {
		return w.res, err
	}
	if w.match != nil {
		if err := w.match.finish(ctx); err != nil {
			return w.res, err
		}
	}
	return w.res, nil
}

// walk stands at offset at.
type walk struct {
	log     Log
	o       Options
	res     Result
	at      int64
	main    window
	probe   window
	view    message.View
	pending []Finding // bad records that no sound one has followed yet
	damaged []Finding // in order
	match   *matcher
	told    int64 // progress is due from this offset on
	// step, where it is not nil, is told every record or damaged stretch that was passed; true ends the walk.
	step func(start, end int64) bool
}

func (w *walk) run(ctx context.Context) error {
	for w.at < w.o.To {
		if w.o.Progress != nil && w.at >= w.told {
			w.told = w.at + tell
			w.o.Progress(w.at)
		}
		from := w.at
		size, kind, bad, err := w.look(ctx)
		switch {
		case err != nil:
			return err
		case bad == nil && kind == message.Record:
			err = w.sound(ctx, size)
		case bad == nil && kind == message.Blank:
			w.at = fileEnd(w.log, w.at)
			if err = w.settle(); err == nil {
				w.res.End = w.at
			}
		case bad == nil && fileEnd(w.log, w.at)-w.at < message.BlankSize:
			w.at = fileEnd(w.log, w.at)
		default:
			var done bool
			if done, err = w.skip(ctx, bad); done {
				return err
			}
		}
		if err != nil || w.step != nil && w.step(from, w.at) {
			return err
		}
	}
	return w.tail(ctx, Finding{}, 0)
}

// look judges what begins at the walk's offset.
func (w *walk) look(ctx context.Context) (size int64, kind message.Kind, bad *message.CorruptError, err error) {
	room := w.main.room(w.at)
	b, err := w.main.peek(ctx, w.at, min(room, header))
	if err != nil {
		return 0, 0, nil, err
	}
	n := room
	if len(b) >= message.BlankSize {
		rest := fileEnd(w.log, w.at) - w.at
		claim := int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // bit pattern
		switch magic := binary.BigEndian.Uint32(b[posMagic:]); {
		case magic == message.MagicBlank && claim != rest:
			return 0, 0, &message.CorruptError{Offset: w.at, Field: "blankSize", Want: rest, Got: claim}, nil
		case magic == message.MagicBlank:
			return rest, message.Blank, nil, nil
		case len(b) < header:
		case magic != message.MagicV1 && magic != message.MagicV2:
			n = header // or there is nothing: no more bytes are needed to say so
		case !isRecord(b, w.at):
			at := int64(binary.BigEndian.Uint64(b[posOffset:])) //nolint:gosec // bit pattern
			return 0, 0, &message.CorruptError{Offset: w.at, Field: "physicalOffset", Want: w.at, Got: at}, nil
		case claim > room || claim > maxRecord:
			return 0, 0, &message.CorruptError{Offset: w.at, Field: "totalSize", Want: room, Got: claim}, nil
		default:
			n = max(claim, header)
		}
	}
	if b, err = w.main.peek(ctx, w.at, n); err != nil {
		return 0, 0, nil, err
	}
	got, kind, cerr := message.CheckView(b, w.at, message.CheckOptions{CRC: true, Offset: true}, &w.view)
	if cerr != nil && !errors.As(cerr, &bad) {
		return 0, 0, nil, cerr
	}
	return int64(got), kind, bad, nil
}

// isRecord reports whether b, a record's first header bytes, has the magic of one and offset for its place.
func isRecord(b []byte, offset int64) bool {
	magic := binary.BigEndian.Uint32(b[posMagic:])
	return (magic == message.MagicV1 || magic == message.MagicV2) &&
		int64(binary.BigEndian.Uint64(b[posOffset:])) == offset //nolint:gosec // bit pattern
}

// sound goes behind the record in view.
func (w *walk) sound(ctx context.Context, size int64) error {
	if err := w.settle(); err != nil {
		return err
	}
	w.res.Records++
	if w.match != nil {
		if err := w.match.record(ctx, w.at, &w.view); err != nil {
			return err
		}
	}
	w.at += size
	w.res.End = w.at
	return nil
}

// settle tells the bad records that a sound one has followed.
func (w *walk) settle() error {
	for _, f := range w.pending {
		if err := w.o.Emit(f); err != nil {
			return err
		}
	}
	w.damaged = append(w.damaged, w.pending...)
	w.pending = w.pending[:0]
	return nil
}

// isDamaged reports whether offset lies in a stretch that was told.
func (w *walk) isDamaged(offset int64) bool {
	i := sort.Search(len(w.damaged), func(i int) bool { return w.damaged[i].End > offset })
	return i < len(w.damaged) && w.damaged[i].Offset <= offset
}

// skip goes behind what is no sound record; done: the log ends here.
func (w *walk) skip(ctx context.Context, bad *message.CorruptError) (done bool, err error) {
	f := Finding{Kind: BadRecord, Offset: w.at, Detail: "no record, only zeros"}
	from := w.at + 1
	if bad != nil {
		f.Field, f.Detail = bad.Field, bad.Error()
		if bad.Size > 0 && bad.Field != "physicalOffset" {
			from = w.at + int64(bad.Size)
			if ok, err := w.follows(ctx, from); ok || err != nil {
				f.End = from
				w.pending = append(w.pending, f)
				w.at = from
				return false, err
			}
		}
	}
	next, ok, last, err := w.search(ctx, from)
	if err != nil {
		return true, err
	}
	if !ok {
		if bad != nil {
			last = max(last, w.at+1)
		}
		return true, w.tail(ctx, f, last)
	}
	f.End = next
	w.pending = append(w.pending, f)
	w.at = next
	return false, nil
}

// follows reports whether a record seems to begin at offset, so that the one before it is as long as it says.
func (w *walk) follows(ctx context.Context, offset int64) (bool, error) {
	if offset == fileEnd(w.log, w.at) {
		return offset < w.o.To, nil
	}
	b, err := w.probe.peek(ctx, offset, header)
	if err != nil || len(b) < message.BlankSize {
		return false, err
	}
	return binary.BigEndian.Uint32(b[posMagic:]) == message.MagicBlank || len(b) == header && isRecord(b, offset), nil
}

// tail ends the walk at the first offset behind which there is no sound record; last is the end of what is not zero there.
func (w *walk) tail(ctx context.Context, f Finding, last int64) error {
	claim, err := w.claim(ctx)
	if err != nil {
		return err
	}
	if w.at < w.o.To && (claim == 0 || w.o.Open || w.at+claim <= w.o.To) {
		f.End = w.o.To
		w.pending = append(w.pending, f)
	}
	if !w.o.Open || len(w.pending) == 0 {
		return w.settle()
	}
	w.res.Tail = w.pending[0]
	w.res.Tail.End = max(last, w.res.Tail.Offset)
	if len(w.pending) == 1 {
		w.res.Claim = claim
	}
	return nil
}

// claim returns the length of the record that seems to begin at the walk's offset and may have been written in part only; 0:
// none does.
func (w *walk) claim(ctx context.Context) (int64, error) {
	if w.at >= w.o.To {
		return 0, nil
	}
	b, err := w.probe.peek(ctx, w.at, message.BlankSize)
	if err != nil {
		return 0, err
	}
	if len(b) < message.BlankSize {
		return message.BlankSize, nil
	}
	magic := binary.BigEndian.Uint32(b[posMagic:])
	size := int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // bit pattern
	if magic != message.MagicV1 && magic != message.MagicV2 || size < header || size > fileEnd(w.log, w.at)-w.at {
		return 0, nil
	}
	return size, nil
}

// magicPrefix is what the magics of both versions begin with.
var magicPrefix = []byte{0xDA, 0xA3, 0x20}

// search looks for a sound record from offset on; last is the end of what is not zero in front of it.
func (w *walk) search(ctx context.Context, from int64) (next int64, ok bool, last int64, err error) {
	for at := from; at < w.o.To; {
		end := at + w.main.room(at)
		b, err := w.main.peek(ctx, at, chunk)
		if err != nil {
			return 0, false, 0, err
		}
		if n := len(bytes.TrimRight(b, "\x00")); n > 0 {
			last = at + int64(n)
		}
		for i := 0; ; i++ {
			j := bytes.Index(b[i:], magicPrefix)
			if j < 0 {
				break
			}
			i += j
			start := at + int64(i) - posMagic
			if start < from || start < at-at%w.log.FileSize() {
				continue
			}
			if ok, err := w.soundAt(ctx, start); ok || err != nil {
				return start, ok, last, err
			}
		}
		if at += int64(len(b)); at < end {
			at -= int64(len(magicPrefix)) - 1
		}
	}
	return 0, false, last, nil
}

// soundAt checks the record that may begin at offset.
func (w *walk) soundAt(ctx context.Context, offset int64) (bool, error) {
	b, err := w.probe.peek(ctx, offset, header)
	if err != nil || len(b) < header || !isRecord(b, offset) {
		return false, err
	}
	size := int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // bit pattern
	if size < header || size > w.probe.room(offset) || size > maxRecord {
		return false, nil
	}
	if b, err = w.probe.peek(ctx, offset, size); err != nil {
		return false, err
	}
	_, kind, cerr := message.Check(b, offset, message.CheckOptions{CRC: true, Offset: true})
	return cerr == nil && kind == message.Record, nil
}
