package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
)

// scrubFlags are those of scrub.
type scrubFlags struct {
	from, to, rate int64
	progress       bool
}

func (a *app) scrubCommand() *cobra.Command {
	var f scrubFlags
	cmd := &cobra.Command{
		Use:   "scrub NODE",
		Short: "Look for damaged records and queue units in a running node",
		Long: "Read the node's log while it is in use and check every record, its checksums and its unit in the queue.\n" +
			"Each damage is told as it is met; the exit code is 1 when there is one. Nothing is changed.\n\n" +
			"What the node has in memory is not read from its disk again. `storage check DIR` does the same with a stopped node.",
		Example: "  tandemctl scrub 10.0.0.2:10911\n" +
			"  tandemctl scrub 10.0.0.2:10911 --rate 268435456 -o json",
		Args: oneNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.node(cmd, args[0], func(ctx context.Context, _ *client.Client, n *client.Admin) error {
				return a.scrub(ctx, &f, n)
			})
		},
	}
	fs := cmd.Flags()
	fs.Int64Var(&f.from, "from", 0, "first `offset`, lowered to the start of its file; 0: the log's first")
	fs.Int64Var(&f.to, "to", 0, "`offset` to stop at; 0: the log's end now")
	fs.Int64Var(&f.rate, "rate", 0, "`bytes` of the log read in a second; 0: 67108864")
	fs.BoolVar(&f.progress, "progress", false, "show progress even without a terminal")
	return cmd
}

func (f *scrubFlags) check() error {
	if f.from < 0 || f.to < 0 || f.to != 0 && f.to <= f.from {
		return usagef("--from %d and --to %d are no range", f.from, f.to)
	}
	if f.rate < 0 {
		return usagef("--rate %d is negative", f.rate)
	}
	return nil
}

func (a *app) scrub(ctx context.Context, f *scrubFlags, n *client.Admin) error {
	if err := f.check(); err != nil {
		return err
	}
	p := a.scrubProgress(f.progress)
	var sum *storagev1.ScrubSummary
	req := &storagev1.ScrubRequest{FromOffset: f.from, ToOffset: f.to, BytesPerSecond: f.rate}
	err := n.Scrub(ctx, req, func(r *storagev1.ScrubResponse) error {
		if r.GetProgress() != nil {
			p.scrub(r.GetProgress())
			return nil
		}
		p.clear()
		if sum = r.GetSummary(); sum != nil || r.GetDamage() == nil {
			return nil
		}
		return a.printDamage(r.GetDamage())
	})
	p.clear()
	if err != nil {
		return err
	}
	if a.json() {
		err = printProto(a.out, sum)
	} else {
		what := "SOUND"
		if sum.GetDamages() > 0 {
			what = "DAMAGED"
		}
		sayf(a.out, "%s: %s from %d to %d: %s, %s compared, %s (%s)\n", what, sizeText(sum.GetToOffset()-sum.GetFromOffset()),
			sum.GetFromOffset(), sum.GetToOffset(), plural(int(sum.GetRecords()), "record"), plural(int(sum.GetUnits()), "unit"),
			plural(int(sum.GetDamages()), "damage"), shortDuration(sum.GetTook().AsDuration()))
	}
	if err != nil || sum.GetDamages() == 0 {
		return err
	}
	a.advise(fmt.Sprintf("`tandemctl repair %s --from PEER` takes the bytes of another node", n.Address()))
	return errReported
}

func (a *app) printDamage(d *storagev1.Damage) error {
	if a.json() {
		return printProto(a.out, d)
	}
	place := fmt.Sprintf("record at %d to %d", d.GetOffset(), d.GetEndOffset())
	if d.GetKind() != storagev1.DamageKind_DAMAGE_KIND_RECORD {
		place = fmt.Sprintf("%s/%d unit %d, record at %d", d.GetTopic(), d.GetQueueId(), d.GetQueueOffset(), d.GetOffset())
	}
	detail := strings.TrimPrefix(d.GetDetail(), fmt.Sprintf("record at %d: ", d.GetOffset()))
	sayf(a.out, "damage  %s: %s\n", place, detail)
	return nil
}

// scrubProgress is a line of progress whose ends come with the first news.
func (a *app) scrubProgress(always bool) *progress {
	return &progress{w: a.errOut, on: always || isTerminal(a.errOut)}
}

// scrub shows how far a scrub is.
func (p *progress) scrub(s *storagev1.ScrubProgress) {
	if p.began.IsZero() {
		p.start(s.GetOffset(), s.GetToOffset())
	}
	p.at(s.GetOffset())
}
