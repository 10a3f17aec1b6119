package table

import (
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Commit is a group's progress in a queue.
type Commit struct {
	Topic, Group string
	Queue        int32
	Offset       int64 // next offset to consume
	// Guard refuses the commit when the queue was reset since Epoch: the consumer has not heard of it yet.
	Guard bool
	Epoch uint32
}

// Reset sets a group's offset in a queue whatever it was; NoOffset removes it.
type Reset struct {
	Topic, Group string
	Queue        int32
	Offset       int64
}

// Outcome says what became of a commit.
type Outcome uint8

// Outcomes of a commit.
const (
	Taken  Outcome = iota // or equal to what is there
	Lower                 // below what is there, which stays
	Staled                // of before a reset
)

func validateOffset(topic, group string, queue int32, offset, lowest int64) error {
	if err := entry.ValidateTopicName(topic); err != nil {
		return err
	}
	if err := entry.ValidateGroupName(group); err != nil {
		return err
	}
	return validateQueue(queue, offset, lowest)
}

func validateQueue(queue int32, offset, lowest int64) error {
	if queue < 0 || queue >= entry.MaxQueues {
		return entry.ErrOffset.WithField("queue_id").WithMsg("queue %d", queue).WithRemedy("queues are counted from 0 to %d", entry.MaxQueues-1)
	}
	if offset < lowest {
		return entry.ErrOffset.WithField("offset").WithMsg("offset %d", offset).WithRemedy("use %d or more", lowest)
	}
	return nil
}

// Validate checks names and numbers.
func (c Commit) Validate() error { return validateOffset(c.Topic, c.Group, c.Queue, c.Offset, 0) }

// Validate checks names and numbers.
func (r Reset) Validate() error {
	return validateOffset(r.Topic, r.Group, r.Queue, r.Offset, entry.NoOffset)
}

// Judge returns the offset that a commit makes of what is there, and what became of it.
func (c Commit) Judge(have entry.QueueOffset, exists bool) (entry.QueueOffset, Outcome) {
	switch {
	case !exists:
		return entry.QueueOffset{Queue: c.Queue, Offset: c.Offset}, Taken
	case c.Guard && have.Epoch > c.Epoch:
		return have, Staled
	case c.Offset < have.Offset:
		return have, Lower
	}
	return entry.QueueOffset{Queue: c.Queue, Epoch: have.Epoch, Offset: c.Offset}, Taken
}

// Commit takes a commit, which must be valid.
func (e *Edit) Commit(c Commit) Outcome {
	have, exists := e.offsets(entry.OffsetKey(c.Topic, c.Group)).Get(c.Queue)
	q, outcome := c.Judge(have, exists)
	if outcome == Taken {
		e.join(entry.OffsetKey(c.Topic, c.Group), q)
	}
	return outcome
}

// CommitAll takes valid commits of one group in one topic, each of another queue, and makes its entry once.
func (e *Edit) CommitAll(topic, group string, cs []Commit) {
	key := entry.OffsetKey(topic, group)
	have := e.offsets(key)
	taken := make([]entry.QueueOffset, 0, len(cs))
	for _, c := range cs {
		own, exists := have.Get(c.Queue)
		if q, outcome := c.Judge(own, exists); outcome == Taken {
			taken = append(taken, q)
		}
	}
	if len(taken) > 0 {
		e.join(key, taken...)
	}
}

// CommitDelay takes the progress of a delay level; a lower offset than the one that is there is not taken.
func (e *Edit) CommitDelay(level int32, offset int64) (Outcome, error) {
	if err := validateLevel(level, offset, 0); err != nil {
		return Lower, err
	}
	have, exists := e.delay(level)
	if exists && offset < have.Offset {
		return Lower, nil
	}
	e.set(entry.DelayKey(level), &entry.Delay{Offset: offset, Epoch: have.Epoch})
	return Taken, nil
}

func validateLevel(level int32, offset, lowest int64) error {
	if level < 1 || level > entry.MaxDelayLevel {
		return entry.ErrOffset.WithField("level").WithMsg("delay level %d", level).WithRemedy("levels are counted from 1")
	}
	return validateQueue(0, offset, lowest)
}

func (e *Edit) offsets(key string) *entry.Offsets {
	i, _ := e.edit.Get(key)
	o, _ := i.Value.(*entry.Offsets)
	return o
}

func (e *Edit) delay(level int32) (entry.Delay, bool) {
	i, _ := e.edit.Get(entry.DelayKey(level))
	if d, ok := i.Value.(*entry.Delay); ok {
		return *d, true
	}
	return entry.Delay{}, false
}

// join joins queues into the offsets under key.
func (e *Edit) join(key string, queues ...entry.QueueOffset) {
	if have := e.offsets(key); have != nil {
		e.set(key, have.JoinAll(queues))
		return
	}
	e.set(key, entry.NewOffsets(queues...))
}

// NewEpoch returns the epoch for resets of this edit, higher than all that are known.
func (e *Edit) NewEpoch() (uint32, error) {
	if e.base.epoch == entry.MaxEpoch {
		return 0, ErrEpochs.With("kind", e.base.kind)
	}
	return e.base.epoch + 1, nil
}

// ResetAll takes resets, which must be valid, with the epoch of NewEpoch. Of two for one queue the later one counts, be it lower.
// Each entry is made once.
func (e *Edit) ResetAll(resets []Reset, epoch uint32) {
	type place struct{ topic, group string }
	last := map[place]map[int32]int64{}
	for _, r := range resets {
		at := place{r.Topic, r.Group}
		if last[at] == nil {
			last[at] = map[int32]int64{}
		}
		last[at][r.Queue] = r.Offset
	}
	for at, offsets := range last {
		key := entry.OffsetKey(at.topic, at.group)
		var queues []entry.QueueOffset
		if have := e.offsets(key); have != nil {
			for q := range have.All() {
				if _, again := offsets[q.Queue]; !again {
					queues = append(queues, q)
				}
			}
		}
		for queue, offset := range offsets {
			queues = append(queues, entry.QueueOffset{Queue: queue, Epoch: epoch, Offset: offset})
		}
		e.set(key, entry.NewOffsets(queues...))
	}
}

// ResetDelay sets the offset of a delay level whatever it was.
func (e *Edit) ResetDelay(level int32, offset int64, epoch uint32) error {
	if err := validateLevel(level, offset, entry.NoOffset); err != nil {
		return err
	}
	e.set(entry.DelayKey(level), &entry.Delay{Offset: offset, Epoch: epoch})
	return nil
}

// ScheduleTopic holds what waits for its delay; level n lies in queue n-1.
const ScheduleTopic = "SCHEDULE_TOPIC_XXXX"

// Clamp resets every offset beyond what limit says to that, with a new epoch; limit returns false for queues it does not
// know, which stay. The result is the number of offsets that were lowered.
func (e *Edit) Clamp(limit func(topic string, queue int32) (int64, bool)) (int, error) {
	lowered := 0
	epoch, err := e.NewEpoch()
	for i := range e.base.tree.Ascend("") {
		switch v := i.Value.(type) {
		case *entry.Offsets:
			topic, _, _ := entry.SplitOffsetKey(i.Key)
			var low []entry.QueueOffset
			for q := range v.All() {
				if end, ok := limit(topic, q.Queue); ok && q.Offset > end {
					low = append(low, entry.QueueOffset{Queue: q.Queue, Epoch: epoch, Offset: end})
				}
			}
			if len(low) > 0 {
				lowered += len(low)
				e.join(i.Key, low...)
			}
		case *entry.Delay:
			level, _ := entry.ParseDelayKey(i.Key)
			if end, ok := limit(ScheduleTopic, level-1); ok && v.Offset > end {
				lowered++
				e.set(i.Key, &entry.Delay{Offset: end, Epoch: epoch})
			}
		}
	}
	if lowered > 0 && err != nil {
		return 0, err
	}
	return lowered, nil
}
