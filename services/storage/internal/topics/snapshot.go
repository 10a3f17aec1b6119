package topics

import (
	"hash/maphash"
	"maps"

	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
)

// parts is how many maps a snapshot has, so that a change does not copy all topics.
const parts = 256

// snapshot is the table at one version. It never changes.
type snapshot struct {
	version chunk.Version
	sum     uint64
	count   int
	topics  [parts]map[string]config
}

// config is what counts of a topic.
type config struct{ read, write, perm int32 }

var seed = maphash.MakeSeed() //nolint:gochecknoglobals // the same for all snapshots

func part(topic string) uint64 { return maphash.String(seed, topic) % parts }

func (s *snapshot) get(topic string) (config, bool) {
	c, ok := s.topics[part(topic)][topic]
	return c, ok
}

// apply returns the next snapshot. s is nil before the first one; the error has changed nothing.
func (s *snapshot) apply(d *chunk.Delta) (*snapshot, error) {
	next := &snapshot{version: d.To, sum: d.Sum}
	var own [parts]bool // parts that next does not share with s
	switch {
	case d.Full:
		if err := s.mayReplace(d); err != nil {
			return nil, err
		}
	case s == nil || s.version != d.From:
		return nil, errGap
	default:
		next.count, next.topics = s.count, s.topics
	}
	write := func(topic string) map[string]config {
		i := part(topic)
		if !own[i] {
			own[i] = true
			if next.topics[i] = maps.Clone(next.topics[i]); next.topics[i] == nil {
				next.topics[i] = map[string]config{}
			}
		}
		return next.topics[i]
	}
	for _, topic := range d.Deleted {
		if _, ok := next.get(topic); ok {
			delete(write(topic), topic)
			next.count--
		}
	}
	for _, t := range d.Topics {
		m := write(t.Name)
		before := len(m)
		m[t.Name] = config{t.ReadQueues, t.WriteQueues, t.Perm}
		next.count += len(m) - before
	}
	return next, nil
}

// mayReplace refuses an empty table that does not say of each own topic that it was deleted.
func (s *snapshot) mayReplace(d *chunk.Delta) error {
	if s == nil || len(d.Topics) > 0 {
		return nil
	}
	gone := map[string]bool{}
	for _, topic := range d.Deleted {
		if _, ok := s.get(topic); ok {
			gone[topic] = true
		}
	}
	if len(gone) < s.count {
		return errEmpty.With("topics", s.count)
	}
	return nil
}
