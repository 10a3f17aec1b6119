package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/clienttest/configtest"
	"github.com/tandemlog/tandem/pkg/client/config"
	"github.com/tandemlog/tandem/pkg/client/consumer"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// rig is storages, config sync nodes and what a consumer has seen.
type rig struct {
	t        *testing.T
	storages []*clienttest.Storage
	configs  *configtest.Group
	reader   *client.Reader
	offsets  *config.Offsets

	mu   sync.Mutex
	seen map[int32][]int64 // queue offsets by queue, in the order of the handler's calls
	news chan struct{}     // closed and replaced when something was seen
}

func newRig(t *testing.T, storages int) *rig {
	t.Helper()
	r := &rig{t: t, configs: configtest.Start(t, 2), seen: map[int32][]int64{}, news: make(chan struct{})}
	var addrs []string
	for range storages {
		s := clienttest.Start(t, clienttest.Options{})
		r.storages = append(r.storages, s)
		addrs = append(addrs, s.Addr())
	}
	sc, err := client.Dial(t.Context(), client.Options{Addresses: addrs})
	if err != nil {
		t.Fatal(err)
	}
	cc, err := config.Dial(config.Options{Addresses: r.configs.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(sc.Close(), cc.Close()); err != nil {
			t.Error(err)
		}
	})
	r.reader, r.offsets = sc.Reader(), cc.Offsets()
	r.configs.AfterCall(func(*configtest.Node, string) error {
		r.note() // an offset may have changed
		return nil
	})
	return r
}

// put puts n messages into a queue of some storages, or of all.
func (r *rig) put(queue int32, n int, storages ...*clienttest.Storage) {
	r.t.Helper()
	if len(storages) == 0 {
		storages = r.storages
	}
	for _, s := range storages {
		c, err := client.Dial(r.t.Context(), client.Options{Addresses: []string{s.Addr()}})
		if err != nil {
			r.t.Fatal(err)
		}
		p := c.Producer(client.ProducerOptions{})
		for i := range n {
			if _, err := p.Put(r.t.Context(), &client.Message{Topic: "t", QueueId: &queue, Body: fmt.Appendf(nil, "%06d", i)}); err != nil {
				r.t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

func (r *rig) note(ms ...*consumer.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range ms {
		id := m.GetMessage().GetQueueId()
		r.seen[id] = append(r.seen[id], m.GetQueueOffset())
	}
	close(r.news)
	r.news = make(chan struct{})
}

// await blocks until what was seen is as ok wants it.
func (r *rig) await(ok func(seen map[int32][]int64) bool) {
	r.t.Helper()
	for {
		r.mu.Lock()
		done, news := ok(r.seen), r.news
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-news:
		case <-time.After(30 * time.Second):
			r.t.Fatalf("saw only %v; committed %d and %d", r.got(), r.committed(0), r.committed(1))
		}
	}
}

func (r *rig) awaitCount(queue int32, n int) {
	r.t.Helper()
	r.await(func(seen map[int32][]int64) bool { return len(seen[queue]) >= n })
}

func (r *rig) got() map[int32][]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.seen)
}

// awaitOffset blocks until the service has an offset.
func (r *rig) awaitOffset(queue int32, want int64) {
	r.t.Helper()
	r.await(func(map[int32][]int64) bool { return r.committed(queue) == want })
}

func key(queue int32) configtest.Key { return configtest.Key{Group: "g", Topic: "t", Queue: queue} }

func (r *rig) committed(queue int32) int64 { return r.configs.Offset(key(queue)) }

// start runs a consumer; stop ends it, may be called again, and returns what Run did.
func (r *rig) start(o consumer.Options) (stop func() error, c *consumer.Consumer) {
	r.t.Helper()
	o.Group, o.Topic = "g", "t"
	if o.Each == nil && o.Batch == nil {
		o.Each = func(_ context.Context, m *consumer.Message) error {
			r.note(m)
			return nil
		}
	}
	o.CommitInterval, o.Discover = 20*time.Millisecond, 20*time.Millisecond
	c, err := consumer.New(r.reader, r.offsets, o)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	r.t.Cleanup(func() { _ = stop() })
	return stop, c
}

func upTo(from, to int64) []int64 {
	var all []int64
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

func (r *rig) wantSeen(want map[int32][]int64) {
	r.t.Helper()
	if got := r.got(); !maps.EqualFunc(got, want, slices.Equal) {
		r.t.Errorf("saw %v, want %v", got, want)
	}
}

// TestGoesOnWhereItsGroupWas: in queue order, all queues, also those that come later; committed at the stop; another one goes on.
func TestGoesOnWhereItsGroupWas(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 50)
	r.put(1, 30)
	stop, c := r.start(consumer.Options{})
	r.awaitCount(0, 50)
	r.put(7, 10)
	r.awaitCount(7, 10)
	r.awaitCount(1, 30)
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.wantSeen(map[int32][]int64{0: upTo(0, 50), 1: upTo(0, 30), 7: upTo(0, 10)})
	if r.committed(0) != 50 || r.committed(1) != 30 || r.committed(7) != 10 || !maps.Equal(c.Positions(), map[int32]int64{0: 50, 1: 30, 7: 10}) {
		t.Errorf("committed %d, %d, %d; at %v", r.committed(0), r.committed(1), r.committed(7), c.Positions())
	}
	r.put(0, 5)
	stop, _ = r.start(consumer.Options{From: consumer.Last}) // says nothing where there is an offset
	r.awaitCount(0, 55)
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.wantSeen(map[int32][]int64{0: upTo(0, 55), 1: upTo(0, 30), 7: upTo(0, 10)})
}

// TestCommitsWhileItRuns: without a stop too.
func TestCommitsWhileItRuns(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 20)
	r.start(consumer.Options{Durable: true})
	r.awaitOffset(0, 20)
}

func TestWhereItBegins(t *testing.T) {
	for name, tc := range map[string]struct {
		o    consumer.Options
		want []int64
	}{
		"first":   {consumer.Options{}, upTo(0, 4)},
		"last":    {consumer.Options{From: consumer.Last}, upTo(3, 4)},
		"early":   {consumer.Options{From: consumer.AtTime, Time: time.UnixMilli(1)}, upTo(0, 4)},
		"now":     {consumer.Options{From: consumer.AtTime, Time: time.Now()}, upTo(3, 4)},
		"ignored": {consumer.Options{IgnoreCommitted: true, Queues: []int32{1, 1}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.put(0, 3)
			r.put(1, 2)
			if name == "ignored" {
				r.configs.SetOffset(key(1), 1, 4)
				r.start(tc.o)
				r.awaitCount(1, 2)
				r.awaitOffset(1, 2)
				r.wantSeen(map[int32][]int64{1: {0, 1}})
				return
			}
			r.start(tc.o)
			r.awaitOffset(0, 3) // where it begins is committed at once, or what it has consumed
			r.put(0, 1)
			r.awaitCount(0, len(tc.want))
			r.awaitOffset(0, 4)
			if got := r.got()[0]; !slices.Equal(got, tc.want) {
				t.Errorf("saw %v, want %v", got, tc.want)
			}
		})
	}
}

// TestGoesOnAtTheOtherSide: the masters of log and offsets are killed in the middle; nothing is skipped, nothing comes twice.
func TestGoesOnAtTheOtherSide(t *testing.T) {
	r := newRig(t, 2)
	r.put(0, 100)
	r.put(1, 100)
	var handled, retries atomic.Int32
	stop, _ := r.start(consumer.Options{
		Each: func(_ context.Context, m *consumer.Message) error {
			if handled.Add(1) == 30 {
				r.storages[0].Stop()
				r.configs.Nodes[0].Stop()
				r.configs.Lead(1)
			}
			r.note(m)
			return nil
		},
		OnRetry: func(err error, pause time.Duration) {
			if err == nil || pause <= 0 {
				t.Errorf("%v, %v", err, pause)
			}
			retries.Add(1)
		},
	})
	r.awaitCount(0, 100)
	r.awaitCount(1, 100)
	r.awaitOffset(0, 100)
	r.put(0, 3, r.storages[1])
	r.awaitCount(0, 103)
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.wantSeen(map[int32][]int64{0: upTo(0, 103), 1: upTo(0, 100)})
	if r.committed(0) != 103 || r.committed(1) != 100 {
		t.Errorf("committed %d and %d", r.committed(0), r.committed(1))
	}
}

// TestWaitsForNodesThatAreAway: at the start, and all at once later.
func TestWaitsForNodesThatAreAway(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 2)
	r.storages[0].Stop()
	r.configs.Nodes[0].Stop()
	r.configs.Nodes[1].Stop()
	var retries atomic.Int32
	first := make(chan struct{})
	stop, _ := r.start(consumer.Options{OnRetry: func(error, time.Duration) {
		if retries.Add(1) == 1 {
			close(first)
		}
	}})
	<-first
	r.storages[0].Restart()
	r.configs.Nodes[0].Restart()
	r.awaitCount(0, 2)
	r.storages[0].Stop()
	r.storages[0].Restart()
	r.put(0, 2)
	r.awaitCount(0, 4)
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.wantSeen(map[int32][]int64{0: upTo(0, 4)})
}

// TestTellsANewMasterWhatItLacks: commits of the last seconds are gone with the old master, and no message comes to commit them again.
func TestTellsANewMasterWhatItLacks(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 10)
	r.start(consumer.Options{})
	r.awaitOffset(0, 10)
	r.configs.SetOffset(key(0), 4, 0)
	r.configs.Lead(1)
	r.awaitOffset(0, 10)
}

// TestResetIsHeard: by a consumer that has nothing to do, and by one whose handler is busy with what was reset.
func TestResetIsHeard(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 6)
	type move struct{ from, to int64 }
	moves := make(chan move, 4)
	busy := make(chan struct{})
	var block atomic.Bool
	stop, c := r.start(consumer.Options{
		Each: func(ctx context.Context, m *consumer.Message) error {
			if m.GetQueueOffset() == 5 && block.Swap(false) {
				close(busy)
				<-ctx.Done() // ends with the reset
				return ctx.Err()
			}
			r.note(m)
			return nil
		},
		OnMove: func(_ int32, from, to int64) { moves <- move{from, to} },
	})
	r.awaitOffset(0, 6)
	block.Store(true)
	r.configs.SetOffset(key(0), 3, 1)
	if m := <-moves; m != (move{6, 3}) {
		t.Errorf("moved %v", m)
	}
	<-busy
	r.configs.SetOffset(key(0), 2, 2)
	if m := <-moves; m != (move{5, 2}) {
		t.Errorf("moved %v", m)
	}
	r.awaitCount(0, 6+2+4)
	r.awaitOffset(0, 6)
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.wantSeen(map[int32][]int64{0: append(append(upTo(0, 6), 3, 4), upTo(2, 6)...)})
	if c.Positions()[0] != 6 {
		t.Errorf("at %v", c.Positions())
	}
}

// TestARefusedCommitHoldsUpNoOther: the service refuses one queue's.
func TestARefusedCommitHoldsUpNoOther(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 5)
	r.put(1, 5)
	r.configs.SetEnd("t", 0, 3) // its storage has not dispatched the rest yet
	refused := make(chan struct{}, 1)
	r.start(consumer.Options{OnRetry: func(err error, _ time.Duration) {
		if errdefs.ReasonOf(err) == "OFFSET_BEYOND_END" {
			select {
			case refused <- struct{}{}:
			default:
			}
		}
	}})
	r.awaitOffset(1, 5)
	<-refused
	r.configs.SetEnd("t", 0, 5)
	r.awaitOffset(0, 5)
}

// TestAnOffsetThatIsGone: the log was cut below it; its reset brings the consumer back.
func TestAnOffsetThatIsGone(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 4)
	r.configs.SetOffset(key(0), 9, 1)
	outside := make(chan struct{}, 1)
	r.start(consumer.Options{OnRetry: func(err error, _ time.Duration) {
		if errdefs.ClassOf(err) == errdefs.OutOfRange {
			select {
			case outside <- struct{}{}:
			default:
			}
		}
	}})
	<-outside
	r.configs.SetOffset(key(0), 2, 2)
	r.awaitCount(0, 2)
	r.awaitOffset(0, 4)
	r.wantSeen(map[int32][]int64{0: {2, 3}})
}

// TestAHandlersErrorEndsIt: what was handled before is committed, the rest is not.
func TestAHandlersErrorEndsIt(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 10)
	bad := errors.New("no such customer")
	c, err := consumer.New(r.reader, r.offsets, consumer.Options{Group: "g", Topic: "t", Each: func(_ context.Context, m *consumer.Message) error {
		if m.GetQueueOffset() == 6 {
			return bad
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, bad) || err.Error() != "handle t/0 from 6 on: no such customer" {
		t.Errorf("got %v", err)
	}
	if r.committed(0) != 6 {
		t.Errorf("committed %d", r.committed(0))
	}
}

func TestBatches(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 100)
	var most, calls, running atomic.Int64
	stop, _ := r.start(consumer.Options{MaxBatch: 8, Prefetch: 16, Concurrency: 1, Batch: func(_ context.Context, ms []*consumer.Message) error {
		if running.Add(1) > 1 {
			t.Error("two handlers at once")
		}
		most.Store(max(most.Load(), int64(len(ms))))
		calls.Add(1)
		r.note(ms...)
		running.Add(-1)
		return nil
	}})
	r.put(1, 100)
	r.awaitCount(0, 100)
	r.awaitCount(1, 100)
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.wantSeen(map[int32][]int64{0: upTo(0, 100), 1: upTo(0, 100)})
	if most.Load() > 8 || calls.Load() < 200/8 {
		t.Errorf("%d calls, of %d messages at most", calls.Load(), most.Load())
	}
}

// TestTheStopWaitsForHandlers: what they do until they return counts.
func TestTheStopWaitsForHandlers(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 3)
	begun := make(chan struct{}, 3)
	stop, _ := r.start(consumer.Options{Each: func(ctx context.Context, _ *consumer.Message) error {
		begun <- struct{}{}
		<-ctx.Done()
		return nil // done nevertheless
	}})
	<-begun
	if err := stop(); err != nil || r.committed(0) != 1 {
		t.Errorf("committed %d, %v", r.committed(0), err)
	}
}

func TestBadOptions(t *testing.T) {
	r := newRig(t, 1)
	each := func(context.Context, *consumer.Message) error { return nil }
	for field, o := range map[string]consumer.Options{
		"group":           {Topic: "t", Each: each},
		"topic":           {Group: "g", Each: each},
		"each":            {Group: "g", Topic: "t"},
		"from":            {Group: "g", Topic: "t", Each: each, From: 9},
		"time":            {Group: "g", Topic: "t", Each: each, From: consumer.AtTime},
		"commit_interval": {Group: "g", Topic: "t", Each: each, CommitInterval: time.Minute},
		"prefetch":        {Group: "g", Topic: "t", Each: each, Prefetch: -1},
		"queues":          {Group: "g", Topic: "t", Each: each, Queues: []int32{-1}},
	} {
		if _, err := consumer.New(r.reader, r.offsets, o); errdefs.ClassOf(err) != errdefs.InvalidArgument || errdefs.As(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestWhatCanNeverWorkEndsIt: the service refuses the group.
func TestWhatCanNeverWorkEndsIt(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 1)
	r.configs.BeforeCall(func(_ *configtest.Node, method string) error {
		if method == "Query" {
			return errdefs.Invalid("group", "is no name")
		}
		return nil
	})
	c, err := consumer.New(r.reader, r.offsets, consumer.Options{Group: "?", Topic: "t", Each: func(context.Context, *consumer.Message) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

// TestTheLastCommitThatFailsIsTold: nobody is there to take it.
func TestTheLastCommitThatFailsIsTold(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	r := newRig(t, 1)
	r.put(0, 3)
	stop, _ := r.start(consumer.Options{StopTimeout: 100 * time.Millisecond, Each: func(_ context.Context, m *consumer.Message) error {
		r.configs.Nodes[0].Stop()
		r.configs.Nodes[1].Stop()
		r.note(m)
		return nil
	}})
	r.awaitCount(0, 3)
	if err := stop(); err == nil {
		t.Error("nobody was told")
	}
}

// TestAQueueThatMayNotBeReadNowHoldsUpNoOther: the topic has lost its permission, or the queue, and gets it back.
func TestAQueueThatMayNotBeReadNowHoldsUpNoOther(t *testing.T) {
	for _, refusal := range []*errdefs.Error{
		errdefs.Invalid("queue_id", "5 is not below the 4 queues for readers"), errdefs.New(errdefs.PermissionDenied, "NO_PERMISSION", "the topic may not be read"),
	} {
		r := newRig(t, 1)
		r.put(0, 3)
		r.put(5, 3)
		var refused atomic.Int32
		r.storages[0].OnGetStream(func(req *storagev1.GetStreamRequest) error {
			if req.GetQueueId() == 5 && refused.Add(1) < 3 {
				return refusal
			}
			return nil
		})
		stop, _ := r.start(consumer.Options{})
		r.awaitCount(0, 3)
		r.awaitCount(5, 3)
		if err := stop(); err != nil || refused.Load() != 3 {
			t.Errorf("%v after %d streams", err, refused.Load())
		}
	}
}

// TestAStorageThatRefusesEndsIt: what it says comes again however often one asks.
func TestAStorageThatRefusesEndsIt(t *testing.T) {
	r := newRig(t, 1)
	r.put(0, 1)
	r.storages[0].OnGetStream(func(*storagev1.GetStreamRequest) error { return errdefs.Invalid("tag_filter", "is none") })
	c, err := consumer.New(r.reader, r.offsets, consumer.Options{Group: "g", Topic: "t", Filter: "||", Each: func(context.Context, *consumer.Message) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("got %v", err)
	}
}
