package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client"
)

// loadFlags are those of the three benchmarks.
type loadFlags struct {
	topic       string
	queue       int32
	size        byteSize
	concurrency int
	runsFor     time.Duration
	count       int64
	acks        int32
	wait        time.Duration
	most        int32 // messages of one get
}

const (
	mostConcurrency = 1 << 16
	// benchBytes bounds the bodies under way.
	benchBytes = 1 << 30
)

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench put|get|stream",
		Short: "Measure a running cluster: rates, percentiles, a histogram",
		Long: "Put or get messages for a while, so many at a time, and print messages and bytes per second, how often each status\n" +
			"came, and how long it took: percentiles and a histogram. Ctrl-C ends it early and prints what there is.\n\n" +
			"It loads the cluster as hard as it can, and what it puts stays in the log.",
		Example: "  tandemctl bench stream --size 200 -c 512\n" +
			"  tandemctl bench put --for 1m --acks 2 -o json\n" +
			"  tandemctl bench get --topic orders --count 1000000",
		Args: a.unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return wantsCommand(cmd) },
	}
	cmd.AddCommand(
		a.oneBench("put", "Measure puts of one call each", (*load).putEach),
		a.oneBench("stream", "Measure puts over one stream, as with `put --stream`", (*load).putStream),
		a.oneBench("get", "Measure reading what a topic holds, again and again", (*load).getEach))
	return cmd
}

func (a *app) oneBench(verb, short string, run func(*load, context.Context, *client.Client) error) *cobra.Command {
	f := loadFlags{size: 200}
	cmd := &cobra.Command{
		Use: verb, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.count > 0 && !cmd.Flags().Changed("for") {
				f.runsFor = 0
			}
			if err := f.check(); err != nil {
				return err
			}
			return a.bench(cmd.Context(), &load{a: a, f: &f, verb: verb}, run)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.topic, "topic", "t", "bench", "topic")
	fs.Int32Var(&f.queue, "queue", -1, "queue `id`; -1: all of them in turn")
	fs.IntVarP(&f.concurrency, "concurrency", "c", 64, "how many are under way at a `time`")
	fs.DurationVar(&f.runsFor, "for", 10*time.Second, "end after this `time`; with --count only where it is given")
	fs.Int64Var(&f.count, "count", 0, "end after this many; 0: by time only")
	if verb == "get" {
		fs.Int32Var(&f.most, "max", 32, "messages at most of one get")
		return cmd
	}
	fs.Var(&f.size, "size", "`size` of a body")
	fs.Int32Var(&f.acks, "acks", -1, "slaves that must have it before PUT_OK; -1: as the storage is set up")
	fs.DurationVar(&f.wait, "wait", 0, "longest `time` to wait for slaves; 0: as the storage is set up")
	return cmd
}

func (f *loadFlags) check() error {
	switch {
	case f.topic == "":
		return usagef("--topic is empty")
	case f.queue < -1:
		return usagef("--queue %d is negative", f.queue)
	case f.concurrency < 1 || f.concurrency > mostConcurrency:
		return usagef("--concurrency %d is not within 1 and %d", f.concurrency, mostConcurrency)
	case f.runsFor < 0 || f.runsFor == 0 && f.count == 0:
		return usagef("--for %v is not above 0", f.runsFor)
	case f.count < 0:
		return usagef("--count %d is negative", f.count)
	case f.size < 1 || int64(f.size) > benchBytes/int64(f.concurrency):
		return usagef("--size %v is not within 1 and %v, the most with --concurrency %d", &f.size, new(byteSize(benchBytes/f.concurrency)), f.concurrency)
	case f.acks < -1:
		return usagef("--acks %d is negative", f.acks)
	case f.wait < 0:
		return usagef("--wait %v is negative", f.wait)
	case f.most < 0 || f.most > 1024:
		return usagef("--max %d is not within 1 and 1024", f.most)
	}
	return nil
}

// load is one measurement.
type load struct {
	a    *app
	f    *loadFlags
	verb string

	began    time.Time
	end      time.Time // zero: none
	started  atomic.Int64
	messages atomic.Int64 // of puts only those with a status
	bytes    atomic.Int64 // of bodies
	counts   [32]atomic.Int64
	took     latencies

	mu      sync.Mutex
	reason  string // of the first status that is not PUT_OK
	unknown int64  // puts of which nobody knows
	why     error  // of the first of these
	failed  error  // what ended it
	stop    context.CancelFunc
}

// bench runs one and prints it.
func (a *app) bench(ctx context.Context, b *load, run func(*load, context.Context, *client.Client) error) error {
	return a.with(ctx, func(c *client.Client) error {
		if err := b.connect(ctx, c); err != nil {
			return err
		}
		if !a.json() {
			say(a.errOut, b.intent())
		}
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		b.stop = cancel
		b.began = time.Now()
		if b.f.runsFor > 0 {
			b.end = b.began.Add(b.f.runsFor)
		}
		err := run(b, running, c)
		took := time.Since(b.began)
		if err != nil && ctx.Err() == nil {
			b.fail(err)
		}
		if err := b.print(took, ctx.Err() != nil); err != nil {
			return err
		}
		return b.verdict(context.WithoutCancel(ctx), c)
	})
}

// connect makes the first connection, which is not to be measured.
func (b *load) connect(ctx context.Context, c *client.Client) error {
	if b.verb == "get" {
		_, err := b.queues(ctx, c.Reader())
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.a.timeout)
	defer cancel()
	_, err := c.FindMaster(ctx)
	return err
}

// intent says what is about to be done.
func (b *load) intent() string {
	until := ""
	if b.f.count > 0 {
		until = fmt.Sprintf(" %d times", b.f.count)
	}
	if b.f.runsFor > 0 {
		until += fmt.Sprintf(" for %s", shortDuration(b.f.runsFor))
	}
	what := fmt.Sprintf("putting bodies of %s to", sizeText(int64(b.f.size)))
	if b.verb == "get" {
		what = "reading"
	}
	return fmt.Sprintf("%s topic %s%s, %d at a time; Ctrl-C ends it early", what, b.f.topic, until, b.f.concurrency)
}

// more says whether another one is to begin.
func (b *load) more(ctx context.Context) bool {
	if ctx.Err() != nil || !b.end.IsZero() && !time.Now().Before(b.end) {
		return false
	}
	return b.f.count == 0 || b.started.Add(1) <= b.f.count
}

// callers runs f in as many goroutines as are to be at work at a time, until it returns an error or nothing more is to begin.
func (b *load) callers(ctx context.Context, f func(ctx context.Context, caller int) error) {
	var all sync.WaitGroup
	for i := range b.f.concurrency {
		all.Go(func() {
			for b.more(ctx) {
				if err := f(ctx, i); err != nil && ctx.Err() == nil {
					b.fail(err)
				}
			}
		})
	}
	all.Wait()
}

// producer returns one for the flags, and the message.
func (b *load) producer(c *client.Client) (*client.Producer, *client.Message) {
	size := int(b.f.size)
	o := client.ProducerOptions{
		SlaveTimeout: b.f.wait, MaxInFlight: b.f.concurrency, MaxInFlightBytes: max(b.f.concurrency*size, 16<<20),
	}
	if b.f.acks >= 0 {
		o.Acks = &b.f.acks
	}
	text := []byte("tandemctl bench ")
	m := &client.Message{Topic: b.f.topic, Body: bytes.Repeat(text, size/len(text)+1)[:size]}
	if b.f.queue >= 0 {
		m.QueueId = &b.f.queue
	}
	return c.Producer(o), m
}

func (b *load) putEach(ctx context.Context, c *client.Client) error {
	p, m := b.producer(c)
	b.callers(ctx, func(ctx context.Context, _ int) error {
		one, cancel := context.WithTimeout(ctx, b.a.timeout)
		defer cancel()
		began := time.Now()
		r, err := p.Put(one, m)
		return b.note(ctx, time.Since(began), r, err)
	})
	return nil
}

func (b *load) putStream(ctx context.Context, c *client.Client) error {
	p, m := b.producer(c)
	under := make(chan struct{}, b.f.concurrency)
	return p.Stream(ctx, func(s *client.Sender) error {
		for b.more(ctx) {
			select {
			case under <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			began := time.Now()
			_, err := s.Send(ctx, m, func(o client.Outcome) {
				if err := b.note(ctx, time.Since(began), o.Result, o.Err); err != nil {
					b.fail(err)
				}
				<-under
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// note counts a put's outcome and returns an error that ends it all: one that is neither a status nor a put of which nobody
// knows. What the end itself cut short does not count.
func (b *load) note(ctx context.Context, took time.Duration, r *client.Result, err error) error {
	if err == nil {
		b.took.add(took)
		b.messages.Add(1)
		b.bytes.Add(int64(b.f.size))
		b.counts[min(max(int(r.GetStatus()), 0), len(b.counts)-1)].Add(1)
		if r.GetStatus() != client.StatusOK {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.reason == "" {
				b.reason = r.GetReason()
			}
		}
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	if !errors.Is(err, client.ErrOutcomeUnknown) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unknown++; b.why == nil {
		b.why = err
	}
	return nil
}

// fail ends it all; what comes first counts, as what follows is often its consequence.
func (b *load) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		b.failed = err
	}
	b.stop()
}

// queues returns what is to be read.
func (b *load) queues(ctx context.Context, r *client.Reader) ([]*client.Queue, error) {
	return b.a.queuesOf(ctx, r, &readFlags{topic: b.f.topic, queue: b.f.queue})
}

// getEach lets each caller read a queue, of those that there are the next one, from its start to what was its end at first,
// and then anew.
func (b *load) getEach(ctx context.Context, c *client.Client) error {
	r := c.Reader()
	queues, err := b.queues(ctx, r)
	if err != nil {
		return err
	}
	at := make([]int64, b.f.concurrency)
	for i := range at {
		at[i] = math.MaxInt64 // so that each begins anew
	}
	b.callers(ctx, func(ctx context.Context, i int) error {
		q := queues[i%len(queues)]
		if at[i] >= q.GetMaxQueueOffset() {
			at[i] = q.GetMinQueueOffset()
		}
		began := time.Now()
		resp, err := r.Get(ctx, &client.GetRequest{Topic: b.f.topic, QueueId: q.GetQueueId(), QueueOffset: at[i], MaxMessages: b.f.most})
		if err != nil {
			return err
		}
		b.took.add(time.Since(began))
		b.counts[min(max(int(resp.GetStatus()), 0), len(b.counts)-1)].Add(1)
		b.messages.Add(int64(len(resp.GetMessages())))
		for _, m := range resp.GetMessages() {
			b.bytes.Add(int64(len(m.GetMessage().GetBody())))
		}
		if next := resp.GetNextQueueOffset(); next > at[i] {
			at[i] = next
		} else {
			at[i] = math.MaxInt64
		}
		return nil
	})
	return nil
}
