package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/config"
)

func (a *app) offsetCommand() *cobra.Command {
	cmd := a.configParent(&cobra.Command{
		Use:   "offset",
		Short: "Show where consumer groups stand and how far behind they are, commit and reset offsets",
		Example: "  tandemctl offset lag\n" +
			"  tandemctl offset list --group billing\n" +
			"  tandemctl offset reset --group billing --topic orders --time 2h --dry-run",
	})
	cmd.AddCommand(a.offsetListCommand(), a.offsetLagCommand(), a.offsetCommitCommand(), a.offsetResetCommand())
	return cmd
}

// offsetFlags say which offsets are meant.
type offsetFlags struct {
	group, topic string
	queue        int32
}

func (a *app) groupAndTopic(cmd *cobra.Command, f *offsetFlags, groupUsage, topicUsage string) {
	cmd.Flags().StringVarP(&f.group, "group", "g", "", groupUsage)
	cmd.Flags().StringVarP(&f.topic, "topic", "t", "", topicUsage)
	for flag, complete := range map[string]cobra.CompletionFunc{"group": a.completeGroups(), "topic": a.completeTopics()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return complete(cmd, nil, prefix)
		}) // the flag exists
	}
}

func (a *app) offsetListCommand() *cobra.Command {
	var f offsetFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the offset of each group in each queue, and what is behind it",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.offsetList(cmd.Context(), &f) },
	}
	a.groupAndTopic(cmd, &f, "only this group", "only topics that begin so")
	return a.localFlag(cmd)
}

func (a *app) offsetList(ctx context.Context, f *offsetFlags) error {
	return a.withConfig(func(c *config.Client) error {
		var rows [][]string
		err := c.Offsets().Lag(ctx, f.group, f.topic, func(l *config.Lag) error {
			if a.json() {
				return printProto(a.out, l)
			}
			rows = append(rows, []string{
				l.GetTopic(), l.GetGroup(), itoa(l.GetQueueId()), itoa(l.GetOffset()), unlessNone(l.GetMinOffset()), unlessNone(l.GetMaxOffset()),
				unlessNone(l.GetLag()),
			})
			return nil
		})
		if err != nil {
			return err
		}
		a.offsetTable([]string{"TOPIC", "GROUP", "QUEUE", "OFFSET", "FIRST", "NEXT", "LAG"}, rows)
		return nil
	})
}

func (a *app) offsetTable(header []string, rows [][]string) {
	switch {
	case a.json():
	case len(rows) == 0:
		say(a.errOut, "no offsets there")
	default:
		table(a.out, header, rows)
	}
}

// unlessNone writes -1, which says that it is not known, as a dash.
func unlessNone(n int64) string {
	if n < 0 {
		return "-"
	}
	return itoa(n)
}

// groupLag is where a group stands in a topic.
type groupLag struct {
	Topic   string `json:"topic"`
	Group   string `json:"group"`
	Queues  int    `json:"queues"`
	Unknown int    `json:"unknown"` // queues whose end is not known
	Lag     int64  `json:"lag,string"`
	Most    int64  `json:"most,string"` // of one queue
}

func (a *app) offsetLagCommand() *cobra.Command {
	var f offsetFlags
	least := int64(0)
	cmd := &cobra.Command{
		Use:     "lag",
		Short:   "Show how many messages each group has left in each topic",
		Example: "  tandemctl offset lag --min 1000",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.offsetLag(cmd.Context(), &f, least) },
	}
	a.groupAndTopic(cmd, &f, "only this group", "only topics that begin so")
	cmd.Flags().Int64Var(&least, "min", 0, "only where at least so many `messages` are left")
	return a.localFlag(cmd)
}

func (a *app) offsetLag(ctx context.Context, f *offsetFlags, least int64) error {
	return a.withConfig(func(c *config.Client) error {
		var sums []groupLag // the list comes by topic and group
		err := c.Offsets().Lag(ctx, f.group, f.topic, func(l *config.Lag) error {
			if n := len(sums); n == 0 || sums[n-1].Topic != l.GetTopic() || sums[n-1].Group != l.GetGroup() {
				sums = append(sums, groupLag{Topic: l.GetTopic(), Group: l.GetGroup()})
			}
			sum := &sums[len(sums)-1]
			sum.Queues++
			if l.GetLag() < 0 {
				sum.Unknown++
				return nil
			}
			sum.Lag += l.GetLag()
			sum.Most = max(sum.Most, l.GetLag())
			return nil
		})
		if err != nil {
			return err
		}
		var rows [][]string
		for _, s := range sums {
			if s.Lag < least {
				continue
			}
			if a.json() {
				if err := printJSON(a.out, s); err != nil {
					return err
				}
				continue
			}
			lag, most := itoa(s.Lag), itoa(s.Most)
			if s.Unknown == s.Queues {
				lag, most = "-", "-"
			}
			rows = append(rows, []string{s.Topic, s.Group, itoa(s.Queues), lag, most})
		}
		a.offsetTable([]string{"TOPIC", "GROUP", "QUEUES", "LAG", "MOST IN ONE"}, rows)
		return nil
	})
}

func (f *offsetFlags) check(cmd *cobra.Command) error {
	if f.group == "" || f.topic == "" {
		return usagef("--group and --topic are needed: %s --group GROUP --topic TOPIC", cmd.CommandPath())
	}
	return nil
}

func (a *app) offsetCommitCommand() *cobra.Command {
	var f offsetFlags
	var offset int64
	var durable bool
	cmd := &cobra.Command{
		Use:     "commit --group GROUP --topic TOPIC --queue N --offset N",
		Short:   "Commit the offset of one queue; a higher one that is there stays",
		Example: "  tandemctl offset commit --group billing --topic orders --queue 0 --offset 1200",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if !cmd.Flags().Changed("queue") || !cmd.Flags().Changed("offset") || f.queue < 0 || offset < 0 {
				return usagef("--queue and --offset are needed, from 0 on")
			}
			return a.withConfig(func(c *config.Client) error {
				held, err := c.Offsets().Commit(cmd.Context(), &config.Offset{Group: f.group, Topic: f.topic, QueueId: f.queue, Offset: offset}, durable)
				switch {
				case err != nil:
					return wrapUsage(err)
				case a.json():
					return printJSON(a.out, struct {
						Offset int64 `json:"offset,string"`
					}{held})
				case held > offset:
					sayf(a.out, "%s@%s, queue %d stays at %d, which is higher\n", f.topic, f.group, f.queue, held)
					a.advise("`tandemctl offset reset` sets it back")
					return nil
				}
				sayf(a.out, "%s@%s, queue %d is at %d\n", f.topic, f.group, f.queue, held)
				return nil
			})
		},
	}
	a.groupAndTopic(cmd, &f, "group", "topic")
	cmd.Flags().Int32Var(&f.queue, "queue", 0, "queue `id`")
	cmd.Flags().Int64Var(&offset, "offset", 0, "the next queue `offset` to be consumed")
	cmd.Flags().BoolVar(&durable, "durable", false, "wait until it is on the master's disk")
	return cmd
}

// resetFlags are those of offset reset.
type resetFlags struct {
	offsetFlags
	to, time    string
	yes, dryRun bool
}

func (a *app) offsetResetCommand() *cobra.Command {
	var f resetFlags
	cmd := &cobra.Command{
		Use:   "reset --group GROUP --topic TOPIC (--to PLACE | --time TIME)",
		Short: "Set offsets of a group, backwards too; shows what changes and asks first",
		Long: "Set the offsets of a group in all queues of a topic, or in one. What would change is shown first. Consumers of Tandem's\n" +
			"client hear of it within seconds and go on there; what they commit of before is refused. RocketMQ's consumers are to be\n" +
			"stopped first.",
		Example: "  tandemctl offset reset --group billing --topic orders --to first\n" +
			"  tandemctl offset reset --group billing --topic orders --queue 3 --to 1200 --yes\n" +
			"  tandemctl offset reset --group billing --topic orders --time 2h --dry-run\n" +
			"  tandemctl offset reset --group billing --topic orders --time 2026-05-01T12:00:00Z",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.offsetReset(cmd, &f) },
	}
	a.groupAndTopic(cmd, &f.offsetFlags, "group", "topic")
	fs := cmd.Flags()
	fs.Int32Var(&f.queue, "queue", -1, "queue `id`; -1: all queues")
	fs.StringVar(&f.to, "to", "", "`place` to go on at: first, next, or a queue offset")
	fs.StringVar(&f.time, "time", "", "go on at the first message stored at or after this `time`: 2h (ago), 2026-05-01T12:00:00Z, milliseconds since 1970")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only show what would change")
	cmd.MarkFlagsMutuallyExclusive("to", "time")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"first", "next"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// request is what the flags ask for.
func (f *resetFlags) request(now time.Time) (*config.ResetRequest, error) {
	req := &config.ResetRequest{Group: f.group, Topic: f.topic}
	switch {
	case f.queue < -1:
		return nil, usagef("--queue %d is negative", f.queue)
	case f.queue >= 0:
		req.QueueId = &f.queue
	}
	switch {
	case f.time != "":
		t, err := parseTime(f.time, now)
		if err != nil {
			return nil, err
		}
		req.To = &configsyncv1.ResetRequest_Time{Time: timestamppb.New(t)}
	case f.to == "first":
		req.To = &configsyncv1.ResetRequest_Earliest{Earliest: true}
	case f.to == "next":
		req.To = &configsyncv1.ResetRequest_Latest{Latest: true}
	default:
		n, err := strconv.ParseInt(f.to, 10, 64)
		if err != nil || n < 0 {
			return nil, usagef("--to %q is none of first, next, a queue offset; or give --time", f.to)
		}
		req.To = &configsyncv1.ResetRequest_Offset{Offset: n}
	}
	return req, nil
}

// parseTime reads a time: how long ago, RFC 3339 or what of it is needed, or milliseconds since 1970.
func parseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
		return time.UnixMilli(ms), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--time %q is none of 2h (ago), 2026-05-01T12:00:00Z, milliseconds since 1970; without a zone it is UTC", text)
}

func (a *app) offsetReset(cmd *cobra.Command, f *resetFlags) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	req, err := f.request(time.Now())
	if err != nil {
		return err
	}
	return a.withConfig(func(c *config.Client) error {
		if f.dryRun || !f.yes {
			req.DryRun = true
			would, err := c.Offsets().Reset(cmd.Context(), req)
			if err != nil {
				return wrapUsage(err)
			}
			if f.dryRun {
				return a.showReset(a.out, would)
			}
			if err := a.showReset(a.errOut, would); err != nil {
				return err
			}
			if err := a.confirm(false, "Set the offsets of %s in %s so?", f.group, f.topic); err != nil {
				return err
			}
		}
		req.DryRun = false
		did, err := c.Offsets().Reset(cmd.Context(), req)
		if err != nil {
			return wrapUsage(err)
		}
		return a.showReset(a.out, did)
	})
}

// showReset writes what a reset does to each queue.
func (a *app) showReset(w io.Writer, offsets []*config.ResetOffset) error {
	var rows [][]string
	for _, o := range offsets {
		if a.json() && w == a.out {
			if err := printProto(w, o); err != nil {
				return err
			}
			continue
		}
		change := "-"
		switch d := o.GetNewOffset() - o.GetOldOffset(); {
		case o.GetOldOffset() < 0:
			change = "new"
		case d != 0:
			change = fmt.Sprintf("%+d", d)
		}
		rows = append(rows, []string{itoa(o.GetQueueId()), unlessNone(o.GetOldOffset()), itoa(o.GetNewOffset()), change})
	}
	if len(rows) > 0 {
		table(w, []string{"QUEUE", "FROM", "TO", "CHANGE"}, rows)
	}
	return nil
}
