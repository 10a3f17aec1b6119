package topics_test

import (
	"errors"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/topics"
)

func TestStaticView(t *testing.T) {
	v := topics.NewStatic(8)
	for _, topic := range []string{"TopicTest", "%RETRY%group", "SCHEDULE_TOPIC_XXXX"} {
		if n, err := v.WriteQueues(t.Context(), topic); n != 8 || err != nil {
			t.Errorf("%s: %d %v", topic, n, err)
		}
	}
	if n, err := v.WriteQueues(t.Context(), ""); n != 0 || errdefs.As(err) == nil || errdefs.As(err).Field != "topic" {
		t.Errorf("no topic: %d %v", n, err)
	}
}

func TestStaticViewWithoutQueues(t *testing.T) {
	for _, queues := range []int{0, -1} {
		n, err := topics.NewStatic(queues).WriteQueues(t.Context(), "TopicTest")
		if n != 0 || !errors.Is(err, topics.ErrNoQueues) || errdefs.As(err).Meta["topic"] != "TopicTest" || errdefs.As(err).Remedy == "" {
			t.Errorf("%d queues: %d %v", queues, n, err)
		}
	}
}
