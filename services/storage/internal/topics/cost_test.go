package topics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
)

// TestKnownTopicsCostNothing: a put or a get of a known topic allocates nothing.
func TestKnownTopicsCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		r.set(topic("T", 4, 8, 6))
		ctx := t.Context()
		if n := testing.AllocsPerRun(100, func() {
			if n, err := r.WriteQueues(ctx, "T"); n != 8 || err != nil {
				t.Error(n, err)
			}
			if err := r.CheckRead("T", 3); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// TestManyTopics: a hundred thousand topics come over the stream and are all there.
func TestManyTopics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, false, nil)
		const many = 100_000
		ts := make([]chunk.Topic, many)
		for i := range ts {
			ts[i] = topic(fmt.Sprint("topic-", i), 1, int32(1+i%16), 6)
		}
		r.fake.Set(ts...)
		r.up()
		pass(10 * time.Second)
		if st := r.State(); !st.Current || st.Topics != many {
			t.Fatalf("%+v", st)
		}
		for i := range ts {
			r.wantQueues(ts[i].Name, 1+i%16)
		}
		r.set(topic("one more", 1, 1, 6))
		r.wantQueues("one more", 1)
	})
}
