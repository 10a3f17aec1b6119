package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client"
)

func (a *app) tailCommand() *cobra.Command {
	var f readFlags
	every := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "tail --topic TOPIC",
		Short: "Follow a topic: print each new message until Ctrl-C",
		Long: "Follow one or all queues of a topic. When the connection breaks it goes on from the next message,\n" +
			"at another address if --addr names several. A topic that does not exist yet is waited for.",
		Example: "  tandemctl tail --topic demo\n" +
			"  tandemctl tail --topic demo --queue 0 --from first --max 100 --raw",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.tail(cmd.Context(), &f, every) },
	}
	f.register(cmd, "next", "end after this many messages; 0: never", 0)
	return cmd
}

// errEnough ends a tail that has printed --max messages.
var errEnough = errors.New("enough messages")

// tailer follows the queues of a topic.
type tailer struct {
	a *app
	f *readFlags
	r *client.Reader

	mu      sync.Mutex // guards the printer and stderr
	printer *messagePrinter

	end     context.CancelCauseFunc
	wg      sync.WaitGroup
	running map[int32]bool
}

// tail follows the topic; every so often it looks for queues that are new.
func (a *app) tail(ctx context.Context, f *readFlags, every time.Duration) error {
	if err := f.check(); err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		t := &tailer{a: a, f: f, r: c.Reader(), printer: a.printer(f), end: end, running: map[int32]bool{}}
		err := t.discover(ctx, every)
		end(err)
		t.wg.Wait()
		if cause := context.Cause(ctx); errors.Is(cause, errEnough) || errors.Is(cause, context.Canceled) {
			return nil // Ctrl-C is how a tail ends
		}
		return context.Cause(ctx)
	})
}

// discover starts a follower for each queue, now and when new ones appear.
func (t *tailer) discover(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		qs, err := t.r.Queues(ctx, t.f.topic)
		if err != nil && first {
			return err // later the followers say what is wrong
		}
		if first && len(qs) == 0 && !t.a.json() && !t.f.raw {
			sayf(t.a.errOut, "no messages of topic %s yet, waiting\n", t.f.topic)
		}
		if first && len(qs) > 0 && t.f.from == "next" && !t.a.json() && !t.f.raw {
			say(t.a.errOut, "waiting for new messages (--from first shows what is there)")
		}
		for _, q := range qs {
			if err := t.follow(ctx, q, first); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// follow starts to follow a queue unless that is done or not wanted. A queue that appears later is followed from its start.
func (t *tailer) follow(ctx context.Context, q *client.Queue, first bool) error {
	id := q.GetQueueId()
	if t.running[id] || t.f.queue >= 0 && t.f.queue != id {
		return nil
	}
	from := q.GetMinQueueOffset()
	if first {
		var err error
		if from, err = t.f.start(q.GetMinQueueOffset(), q.GetMaxQueueOffset()); err != nil {
			return err
		}
	}
	t.running[id] = true
	t.wg.Go(func() {
		err := t.r.Tail(ctx, client.TailOptions{
			Topic: t.f.topic, QueueID: id, From: from, Filter: t.f.filter, OnRetry: t.retrying,
		}, t.print)
		t.end(err)
	})
	return nil
}

func (t *tailer) retrying(err error, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	what, _ := explain(err)
	sayf(t.a.errOut, "tandemctl: %s; trying again in %s\n", what, shortDuration(pause))
}

func (t *tailer) print(m *client.StoredMessage) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f.max > 0 && t.printer.n >= t.f.max {
		return errEnough
	}
	if err := t.printer.print(m); err != nil {
		return err
	}
	if t.printer.n == t.f.max {
		return errEnough
	}
	return nil
}
