package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/consumer"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// TestAMessageThatIsTooLargeEndsIt: what is before it is handled and committed, be it that all together are too large for one answer.
func TestAMessageThatIsTooLargeEndsIt(t *testing.T) {
	const limit = 8 << 10
	r := newRig(t, 1)
	put := func(n, size int) {
		sc, err := client.Dial(t.Context(), client.Options{Addresses: []string{r.storages[0].Addr()}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sc.Close() }()
		for range n {
			if _, err := sc.Producer(client.ProducerOptions{}).Put(t.Context(), &client.Message{Topic: "t", Body: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(20, limit/2)
	put(1, 2*limit)
	put(1, 1)
	sc, err := client.Dial(t.Context(), client.Options{Addresses: []string{r.storages[0].Addr()}, MaxMessage: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sc.Close() })
	c, err := consumer.New(sc.Reader(), r.offsets, consumer.Options{
		Group: "g", Topic: "t", PrefetchBytes: 1, Each: func(_ context.Context, m *consumer.Message) error {
			r.note(m)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = c.Run(ctx)
	e := errdefs.As(err)
	if !errors.Is(err, client.ErrTooLarge) || e.Meta["topic"] != "t" || e.Meta["queue_id"] != "0" || e.Meta["queue_offset"] != "20" || e.Remedy == "" {
		t.Errorf("got %v", err)
	}
	r.wantSeen(map[int32][]int64{0: upTo(0, 20)})
	if got := r.committed(0); got != 20 {
		t.Errorf("committed %d", got)
	}
}
