package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// readFlags are those that get and tail share.
type readFlags struct {
	topic  string
	queue  int32
	from   string
	filter string
	max    int
	raw    bool
	full   bool
}

func (f *readFlags) register(cmd *cobra.Command, from, maxUsage string, maxDefault int) {
	fs := cmd.Flags()
	fs.StringVarP(&f.topic, "topic", "t", "", "topic")
	fs.Int32Var(&f.queue, "queue", -1, "queue `id`; -1: all queues of the topic")
	fs.StringVar(&f.from, "from", from, "queue `offset` to begin with: first, next, a number, or -N for the last N")
	fs.StringVar(&f.filter, "filter", "", "tag `expression`: * or tags joined by ||")
	fs.IntVar(&f.max, "max", maxDefault, maxUsage)
	fs.BoolVar(&f.raw, "raw", false, "only the bodies, one a line")
	fs.BoolVar(&f.full, "full", false, "do not shorten bodies")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"first", "next"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

func (f *readFlags) check() error {
	if f.topic == "" {
		return usagef("--topic is missing; `tandemctl queues` lists topics")
	}
	if f.queue < -1 {
		return usagef("--queue %d is negative", f.queue)
	}
	if f.max < 0 {
		return usagef("--max %d is negative", f.max)
	}
	_, err := f.start(0, 0)
	return err
}

// start returns the queue offset that --from means in a queue.
func (f *readFlags) start(first, next int64) (int64, error) {
	switch f.from {
	case "first":
		return first, nil
	case "next":
		return next, nil
	}
	n, err := strconv.ParseInt(f.from, 10, 64)
	if err != nil {
		return 0, usagef("--from %q is none of first, next, a number, -N", f.from)
	}
	if strings.HasPrefix(f.from, "-") {
		return max(first, next+n), nil
	}
	return n, nil
}

func (a *app) getCommand() *cobra.Command {
	var f readFlags
	offset := int64(-1)
	cmd := &cobra.Command{
		Use:   "get --topic TOPIC | --offset OFFSET",
		Short: "Read messages of a topic, or the record at an offset of the log",
		Example: "  tandemctl get --topic demo\n" +
			"  tandemctl get --topic demo --queue 0 --from 1000 --max 5\n" +
			"  tandemctl get --topic demo --from -3 --raw\n" +
			"  tandemctl get --offset 4096 -o json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("offset") {
				return a.getOffset(cmd.Context(), &f, offset)
			}
			return a.get(cmd.Context(), &f)
		},
	}
	f.register(cmd, "first", "messages at most of each queue", 32)
	cmd.Flags().Int64Var(&offset, "offset", -1, "offset in the log, bytes, at which a record starts")
	return cmd
}

func (a *app) getOffset(ctx context.Context, f *readFlags, offset int64) error {
	if f.topic != "" || offset < 0 {
		return usagef("--offset is a byte position from 0 in the log and goes without --topic")
	}
	return a.with(ctx, func(c *client.Client) error {
		m, err := c.Reader().GetByOffset(ctx, offset)
		if err != nil {
			return outsideOfLog(ctx, c, offset, err)
		}
		return a.printer(f).print(m)
	})
}

// outsideOfLog names the range of the log where that is why there is no record at the offset, else it returns err.
func outsideOfLog(ctx context.Context, c *client.Client, offset int64, err error) error {
	e := errdefs.As(err)
	if e == nil || e.Class != errdefs.OutOfRange && e.Reason != "NO_RECORD" {
		return err
	}
	admin, noAdmin := c.Admin(e.Meta["address"])
	if noAdmin != nil {
		return err
	}
	st, noStatus := admin.Status(ctx)
	m := st.GetWatermarks()
	if noStatus != nil || offset >= m.GetFirstOffset() && offset < m.GetReadableOffset() {
		return err
	}
	return errdefs.Newf(errdefs.OutOfRange, "OFFSET_OUTSIDE", "offset %d is outside of what can be read, which is from %d to below %d", offset, m.GetFirstOffset(), m.GetReadableOffset()).
		With("address", admin.Address())
}

func (a *app) get(ctx context.Context, f *readFlags) error {
	if f.topic == "" {
		return usagef("--topic is missing, or --offset for the record at an offset of the log; `tandemctl queues` lists topics")
	}
	if err := f.check(); err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		r := c.Reader()
		queues, err := a.queuesOf(ctx, r, f)
		if err != nil {
			return err
		}
		p := a.printer(f)
		for _, q := range queues {
			if err := a.getQueue(ctx, r, f, q, p); err != nil {
				return err
			}
		}
		if p.n == 0 && !a.json() && !f.raw {
			say(a.errOut, "no messages there")
		}
		return nil
	})
}

// getQueue prints up to --max messages of one queue.
func (a *app) getQueue(ctx context.Context, r *client.Reader, f *readFlags, q *client.Queue, p *messagePrinter) error {
	at, err := f.start(q.GetMinQueueOffset(), q.GetMaxQueueOffset())
	for left := f.max; left > 0 && err == nil; {
		var resp *client.GetResponse
		resp, err = r.Get(ctx, &client.GetRequest{
			Topic: f.topic, QueueId: q.GetQueueId(), QueueOffset: at, MaxMessages: int32(min(left, 1024)), TagFilter: f.filter, //nolint:gosec // bounded
		})
		if err != nil {
			return err
		}
		switch resp.GetStatus() {
		case storagev1.GetStatus_GET_STATUS_FOUND, storagev1.GetStatus_GET_STATUS_NO_MATCHED_MESSAGE:
		case storagev1.GetStatus_GET_STATUS_OFFSET_TOO_SMALL, storagev1.GetStatus_GET_STATUS_OFFSET_OVERFLOW:
			return errdefs.Newf(errdefs.OutOfRange, "QUEUE_OFFSET_OUTSIDE", "queue %d of %s has no offset %d", q.GetQueueId(), f.topic, at).
				WithRemedy("read from %d to %d", resp.GetMinQueueOffset(), resp.GetMaxQueueOffset())
		default:
			return nil
		}
		for _, m := range resp.GetMessages() {
			if err := p.print(m); err != nil {
				return err
			}
			left--
		}
		if resp.GetNextQueueOffset() <= at {
			return nil
		}
		at = resp.GetNextQueueOffset()
	}
	return err
}

// queuesOf returns the queues that the flags name; none is an error that names the nearest topic.
func (a *app) queuesOf(ctx context.Context, r *client.Reader, f *readFlags) ([]*client.Queue, error) {
	all, err := r.Queues(ctx, f.topic)
	if err != nil {
		return nil, err
	}
	some := slices.DeleteFunc(slices.Clone(all), func(q *client.Queue) bool { return f.queue >= 0 && q.GetQueueId() != f.queue })
	switch {
	case len(some) > 0:
		return some, nil
	case len(all) > 0:
		return nil, errdefs.Newf(errdefs.NotFound, "NO_QUEUE", "topic %s has no queue %d with messages", f.topic, f.queue).
			WithRemedy("leave --queue out for all, or see `tandemctl queues --topic %s`", f.topic)
	}
	e := errdefs.Newf(errdefs.NotFound, "NO_TOPIC", "there is no message of topic %q", f.topic)
	every, err := r.Queues(ctx, "")
	if err != nil {
		return nil, err
	}
	topics := make([]string, 0, len(every))
	for _, q := range every {
		topics = append(topics, q.GetTopic())
	}
	if near := closest(f.topic, topics); near != "" {
		return nil, e.WithRemedy("did you mean %q? `tandemctl queues` lists all", near)
	}
	return nil, e.WithRemedy("`tandemctl queues` lists what there is; `tandemctl put --topic %s hello` begins it", f.topic)
}

// messagePrinter writes messages as the flags say. It is not for concurrent use.
type messagePrinter struct {
	a    *app
	f    *readFlags
	rows *stream
	n    int
}

func (a *app) printer(f *readFlags) *messagePrinter {
	return &messagePrinter{a: a, f: f, rows: &stream{
		w: a.out, header: []string{"QUEUE", "QUEUE OFFSET", "OFFSET", "SIZE", "STORED (UTC)", "TAG", "KEYS", "BODY"},
		widths: []int{5, 12, 12, 7, 23, 8, 10, 0},
	}}
}

func (p *messagePrinter) print(m *client.StoredMessage) error {
	p.n++
	body := m.GetMessage().GetBody()
	switch {
	case p.f.raw:
		_, err := fmt.Fprintf(p.a.out, "%s\n", body)
		return err
	case p.a.json():
		return printProto(p.a.out, m)
	}
	limit := 60
	if p.f.full {
		limit = 0
	}
	p.rows.row(itoa(m.GetMessage().GetQueueId()), itoa(m.GetQueueOffset()), itoa(m.GetOffset()), itoa(m.GetSize()),
		stamp(m.GetStoreTimestamp()), orDash(m.GetMessage().GetTag()), orDash(strings.Join(m.GetMessage().GetKeys(), " ")), preview(body, limit))
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// noArgs is cobra.NoArgs as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}
