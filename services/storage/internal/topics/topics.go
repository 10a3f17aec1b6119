package topics

import "github.com/tandemlog/tandem/pkg/errdefs"

// ErrNoQueues means that the view gives topics no queue to put messages into.
var ErrNoQueues = errdefs.New(errdefs.FailedPrecondition, "TOPIC_WITHOUT_QUEUES", "topic has no queues")

// View answers what the topic table says. It is safe for concurrent use.
type View struct {
	queues int // of every topic
}

// NewStatic returns the view in which every topic has that many queues.
func NewStatic(queues int) *View { return &View{queues: queues} }

// Queues returns how many queues the topic has, at least 1; they are numbered from 0. The error is an errdefs.Invalid of
// field topic where there is no topic, or ErrNoQueues.
func (v *View) Queues(topic string) (int, error) {
	if topic == "" {
		return 0, errdefs.Invalid("topic", "is empty")
	}
	if v.queues < 1 {
		return 0, ErrNoQueues.With("topic", topic).With("queues", v.queues).
			WithRemedy("set defaultTopicQueueNums to 1 or more")
	}
	return v.queues, nil
}
