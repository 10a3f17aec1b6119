package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// repairFlags are those of repair.
type repairFlags struct {
	source, span string
	rate         int64
	dryRun       bool
	progress     bool
}

func (a *app) repairCommand() *cobra.Command {
	var f repairFlags
	cmd := &cobra.Command{
		Use:   "repair NODE --from PEER",
		Short: "Replace a node's damaged records by another node's bytes",
		Long: "Scrub the node, fetch what is damaged from a peer with the same history, check it on arrival, and write it in place.\n" +
			"The bytes that stood there are kept below repair/ in the node's folder. Queue units are mended from the node's own log.\n" +
			"A range whose history differs in the peer, or that is damaged there too, is left as it is; then the exit code is 1.\n\n" +
			"With --range nothing is searched for: the records in that range are replaced by the peer's, also where both seem sound.\n" +
			"That is for a difference that `tandemctl verify` shows and scrub does not: you say which node is right.",
		Example: "  tandemctl repair 10.0.0.2:10911 --from 10.0.0.1:10911 --dry-run\n" +
			"  tandemctl repair 10.0.0.2:10911 --from 10.0.0.1:10911 --range 4096-8192",
		Args: oneNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.node(cmd, args[0], func(ctx context.Context, _ *client.Client, n *client.Admin) error {
				return a.repair(ctx, &f, n)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.source, "from", "", "gRPC `address` of the node whose bytes are taken, as NODE reaches it")
	fs.StringVar(&f.span, "range", "", "`first-end` offsets to replace, widened to whole records")
	fs.BoolVar(&f.dryRun, "dry-run", false, "fetch and check, and change nothing")
	fs.Int64Var(&f.rate, "rate", 0, "`bytes` of the log scrubbed in a second; 0: 67108864")
	fs.BoolVar(&f.progress, "progress", false, "show progress even without a terminal")
	return cmd
}

// offsets returns what --range names; zeros without it.
func (f *repairFlags) offsets() (from, to int64, err error) {
	if f.source == "" {
		return 0, 0, usagef("--from is missing: name the node whose bytes are right")
	}
	if f.rate < 0 {
		return 0, 0, usagef("--rate %d is negative", f.rate)
	}
	if f.span == "" {
		return 0, 0, nil
	}
	first, end, ok := strings.Cut(f.span, "-")
	from, err1 := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(end, 10, 64)
	if !ok || err1 != nil || err2 != nil || from >= to {
		return 0, 0, usagef("--range %q is not first-end, such as 4096-8192", f.span)
	}
	return from, to, nil
}

func (a *app) repair(ctx context.Context, f *repairFlags, n *client.Admin) error {
	from, to, err := f.offsets()
	if err != nil {
		return err
	}
	if f.source == n.Address() {
		return usagef("--from %s is the node to be repaired: name another one", f.source)
	}
	p := a.scrubProgress(f.progress)
	var sum *storagev1.RepairSummary
	req := &storagev1.RepairRequest{Source: f.source, FromOffset: from, ToOffset: to, DryRun: f.dryRun, BytesPerSecond: f.rate}
	err = n.Repair(ctx, req, func(r *storagev1.RepairResponse) error {
		if r.GetProgress() != nil {
			p.scrub(r.GetProgress())
			return nil
		}
		p.clear()
		if r.GetRange() != nil {
			return a.printRepaired(r.GetRange(), f.dryRun)
		}
		if sum = r.GetSummary(); sum != nil || r.GetDamage() == nil {
			return nil
		}
		return a.printDamage(r.GetDamage())
	})
	p.clear()
	if e := errdefs.As(err); e != nil && e.Reason == client.ErrUnreachable.Reason && e.Meta["address"] != n.Address() {
		return errdefs.Newf(e.Class, "SOURCE_UNREACHABLE", "%s cannot reach --from %s: %s", n.Address(), f.source, whyUnreached(e)).
			WithRemedy("start the node that --from names, or name another one")
	}
	if err != nil {
		return err
	}
	if err := a.printRepair(sum, f.dryRun); err != nil {
		return err
	}
	if sum.GetLeft() > 0 {
		return errReported
	}
	return nil
}

func (a *app) printRepaired(r *storagev1.RepairedRange, dryRun bool) error {
	if a.json() {
		return printProto(a.out, r)
	}
	what, end := "repaired", ""
	if dryRun {
		what = "would repair"
	}
	if r.GetReason() != "" {
		what, end = "left", ": "+r.GetReason()
	} else if len(r.GetKept()) > 0 {
		end = "; what stood there is in repair/" + strings.Join(r.GetKept(), ", repair/")
	}
	sayf(a.out, "%s  %d to %d: %s changed, %s%s\n", what, r.GetFromOffset(), r.GetToOffset(), plural(int(r.GetChangedBytes()), "byte"),
		plural(int(r.GetUnits()), "unit"), end)
	if r.GetRemedy() != "" {
		a.advise(r.GetRemedy())
	}
	return nil
}

func (a *app) printRepair(sum *storagev1.RepairSummary, dryRun bool) error {
	if a.json() {
		return printProto(a.out, sum)
	}
	if sum.GetRepaired() == 0 && sum.GetLeft() == 0 {
		say(a.out, "SOUND: nothing is damaged")
		return nil
	}
	what := "DONE"
	switch {
	case sum.GetLeft() > 0:
		what = "NOT ALL"
	case dryRun:
		what = "POSSIBLE"
	}
	sayf(a.out, "%s: %s, %s; %s changed, %s\n", what, fmt.Sprint(sum.GetRepaired(), " repaired"), fmt.Sprint(sum.GetLeft(), " left"),
		plural(int(sum.GetChangedBytes()), "byte"), plural(int(sum.GetUnits()), "unit"))
	return nil
}
