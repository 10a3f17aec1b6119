package dispatch

import (
	"fmt"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// Mender writes single units anew.
type Mender interface {
	// Mend writes u in its place, unless it is there, and reports whether it did. keep says of another unit that stands there
	// whether it has to stay.
	Mend(topic []byte, queueID int32, queueOffset int64, u consumequeue.Unit, keep func(consumequeue.Unit) bool) (bool, error)
}

// Mend writes the units of the records in [from, to) anew where they are not right, after the bytes of the log or of a queue were
// damaged there and the log is sound again; from is a record's start. It returns how many that were. What lies behind Dispatched is
// left to Run, which looks again at what it could not pass.
func (d *Dispatcher) Mend(m Mender, from, to int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.begun {
		return 0, nil // all is still to come
	}
	if err := d.commit(); err != nil {
		d.pos, d.gathered = d.done, 0
		return 0, err
	}
	d.bad, d.reported = badSpot{at: none}, none
	defer d.interrupt()
	written := 0
	for at, to := from, min(to, d.done); at < to; {
		n, next, err := d.mendFile(m, at, to)
		written += n
		if err != nil {
			return written, err
		}
		at = next
	}
	return written, nil
}

// mendFile goes on to to or to the end of the file that holds at.
func (d *Dispatcher) mendFile(m Mender, at, to int64) (written int, next int64, err error) {
	b, release, err := d.viewTo(at, to, d.fileEnd(at)-at)
	if err != nil {
		return 0, at, err
	}
	defer release()
	for len(b) > 0 {
		size, kind, err := message.CheckView(b, at, strict, &d.view)
		if err != nil {
			return written, at, fmt.Errorf("mend queues: %w", err)
		}
		if kind != message.Record {
			return written, d.fileEnd(at), nil
		}
		did, err := d.mendUnit(m, at)
		if err != nil {
			return written, at, err
		}
		if did {
			written++
		}
		at += int64(size)
		b = b[size:]
	}
	return written, at, nil
}

// mendUnit writes the unit of the record in d.view.
func (d *Dispatcher) mendUnit(m Mender, at int64) (bool, error) {
	v := &d.view
	if !message.Queued(v.SysFlag) {
		return false, nil
	}
	u := consumequeue.Unit{Offset: at, Size: v.Size, TagsCode: v.TagsCode(d.o.DelayLevels)}
	did, err := m.Mend(v.Topic, v.QueueID, v.QueueOffset, u, func(there consumequeue.Unit) bool { return d.isUnitOf(there, v) })
	if errdefs.ClassOf(err) == errdefs.InvalidArgument {
		return false, nil // no queue can hold it
	}
	if err != nil {
		return false, fmt.Errorf("mend unit of record at %d: %w", at, err)
	}
	return did, nil
}

// isUnitOf reports whether u points to another record with the queue offset of v.
func (d *Dispatcher) isUnitOf(u consumequeue.Unit, v *message.View) bool {
	if u.Offset == v.PhysicalOffset || u.Offset < d.log.FirstOffset() || u.Offset >= d.done {
		return false
	}
	b, release, err := d.viewTo(u.Offset, d.done, d.fileEnd(u.Offset)-u.Offset)
	if err != nil {
		return false
	}
	defer release()
	var o message.View
	_, kind, err := message.CheckView(b, u.Offset, strict, &o)
	return err == nil && kind == message.Record && string(o.Topic) == string(v.Topic) && o.QueueID == v.QueueID && o.QueueOffset == v.QueueOffset
}
