package entry

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// NoOffset is the offset of a queue whose offset was removed by a reset.
const NoOffset = -1

// MaxEpoch is the last epoch; a table that has reached it takes no reset any more.
const MaxEpoch = math.MaxUint32

// QueueOffset is where a group goes on in a queue.
type QueueOffset struct {
	Queue  int32
	Epoch  uint32 // of the last reset
	Offset int64  // next offset to consume, or NoOffset
}

// Join returns the higher of two offsets of one queue: that of the later reset, within one the greater offset.
func (q QueueOffset) Join(o QueueOffset) QueueOffset {
	if o.Epoch > q.Epoch || o.Epoch == q.Epoch && o.Offset > q.Offset {
		return o
	}
	return q
}

// Offsets are those of a group in a topic, by queue. A value is never changed.
type Offsets struct {
	queues []QueueOffset // in the order of the queues
}

// NewOffsets makes a value of queues in any order; of two for one queue their Join counts.
func NewOffsets(queues ...QueueOffset) *Offsets {
	return new(Offsets).JoinAll(queues)
}

// Len returns the number of queues, removed ones included.
func (o *Offsets) Len() int { return len(o.queues) }

// All returns the queues in their order, removed ones included.
func (o *Offsets) All() iter.Seq[QueueOffset] { return slices.Values(o.queues) }

func (o *Offsets) find(queue int32) (int, bool) {
	return slices.BinarySearchFunc(o.queues, QueueOffset{Queue: queue}, byQueue)
}

func byQueue(a, b QueueOffset) int { return cmp.Compare(a.Queue, b.Queue) }

// Get returns the offset of a queue. One that was removed is there too, with NoOffset.
func (o *Offsets) Get(queue int32) (QueueOffset, bool) {
	if o == nil {
		return QueueOffset{}, false
	}
	if i, ok := o.find(queue); ok {
		return o.queues[i], true
	}
	return QueueOffset{}, false
}

// JoinAll returns o joined with queues, in any order; o itself where they bring nothing. It is made once, however many they are.
func (o *Offsets) JoinAll(queues []QueueOffset) *Offsets {
	fresh, brings := 0, false
	for _, q := range queues {
		own, found := o.Get(q.Queue)
		if !found {
			fresh++
		}
		brings = brings || !found || own.Join(q) != own
	}
	if !brings {
		return o
	}
	if !slices.IsSortedFunc(queues, byQueue) {
		queues = slices.SortedFunc(slices.Values(queues), byQueue)
	}
	out, own := make([]QueueOffset, 0, len(o.queues)+fresh), o.queues
	for _, q := range queues {
		for len(own) > 0 && own[0].Queue <= q.Queue {
			out, own = append(out, own[0]), own[1:]
		}
		if last := len(out) - 1; last >= 0 && out[last].Queue == q.Queue {
			out[last] = out[last].Join(q)
		} else {
			out = append(out, q)
		}
	}
	return &Offsets{queues: append(out, own...)}
}

// Join returns the two joined; o itself where the other brings nothing.
func (o *Offsets) Join(other *Offsets) *Offsets { return o.JoinAll(other.queues) }

// Epoch returns the highest epoch in it.
func (o *Offsets) Epoch() uint32 {
	var epoch uint32
	for _, q := range o.queues {
		epoch = max(epoch, q.Epoch)
	}
	return epoch
}

// Kind is ConsumerOffsets.
func (o *Offsets) Kind() Kind { return ConsumerOffsets }

// Equal reports whether all queues have equal offsets and epochs.
func (o *Offsets) Equal(v Value) bool {
	other, ok := v.(*Offsets)
	return ok && slices.Equal(o.queues, other.queues)
}

// ReadOffsets reads a map from queue to offset. Its epochs are 0.
func ReadOffsets(r *fastjson.Reader) (*Offsets, error) {
	o := &Offsets{}
	err := r.Object(func(key []byte) error {
		queue, err := strconv.ParseInt(string(key), 10, 32)
		if err != nil || queue < 0 {
			return r.Shape("queue %.40q", key)
		}
		offset, err := r.Int(NoOffset, math.MaxInt64)
		if err != nil {
			return err
		}
		i, found := o.find(int32(queue))
		if found {
			return r.Syntax("queue %d stands there twice", queue)
		}
		o.queues = slices.Insert(o.queues, i, QueueOffset{Queue: int32(queue), Offset: offset})
		return nil
	})
	o.queues = slices.Clip(o.queues)
	return o, err
}

// Present reports whether a queue has an offset that RocketMQ can be told: NoOffset after a reset is none, but one that
// was read from a file is.
func (q QueueOffset) Present() bool { return q.Offset != NoOffset || q.Epoch == 0 }

// Write writes the map from queue to offset.
func (o *Offsets) Write(w *fastjson.Writer) {
	w.Begin()
	for _, q := range o.queues {
		if q.Present() {
			w.IntKey(int64(q.Queue))
			w.Int(q.Offset)
		}
	}
	w.End()
}

// Visible reports whether any queue is present, or none was ever there.
func (o *Offsets) Visible() bool {
	return len(o.queues) == 0 || slices.ContainsFunc(o.queues, QueueOffset.Present)
}

// AppendJSON appends the compact form, without epochs.
func (o *Offsets) AppendJSON(b []byte) []byte {
	w := fastjson.NewWriter(b, false)
	o.Write(w)
	return w.Bytes()
}

// Delay is where the delivery of a delay level goes on.
type Delay struct {
	Offset int64  // next offset in the level's queue
	Epoch  uint32 // of the last reset
}

func (d *Delay) queue() QueueOffset { return QueueOffset{Epoch: d.Epoch, Offset: d.Offset} }

// Join returns the higher of the two; d itself where the other brings nothing.
func (d *Delay) Join(o *Delay) *Delay {
	if d.queue().Join(o.queue()) == d.queue() {
		return d
	}
	return o
}

// Kind is DelayOffsets.
func (d *Delay) Kind() Kind { return DelayOffsets }

// Equal reports whether offset and epoch are equal.
func (d *Delay) Equal(v Value) bool {
	o, ok := v.(*Delay)
	return ok && *d == *o
}

// AppendJSON appends the offset.
func (d *Delay) AppendJSON(b []byte) []byte { return strconv.AppendInt(b, d.Offset, 10) }
