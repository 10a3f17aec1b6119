package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/ledger"
)

// ledgerReadFlags are those that ledger get and tail share.
type ledgerReadFlags struct {
	readFlags // from, max, raw, full

	local bool
}

func (f *ledgerReadFlags) register(cmd *cobra.Command, from, maxUsage string, maxDefault int) {
	fs := cmd.Flags()
	fs.StringVar(&f.from, "from", from, "`index` to begin with: first, next, a number, or -N for the last N")
	fs.IntVar(&f.max, "max", maxDefault, maxUsage)
	fs.BoolVar(&f.raw, "raw", false, "only the bodies, one a line; nothing for entries without a body")
	fs.BoolVar(&f.full, "full", false, "do not shorten bodies")
	fs.BoolVar(&f.local, "local", false, "what the first node of --addr that answers knows to be committed, without asking the leader")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"first", "next"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

func (f *ledgerReadFlags) check() error {
	if f.max < 0 {
		return usagef("--max %d is negative", f.max)
	}
	_, err := f.start(0, 0)
	return err
}

func (f *ledgerReadFlags) consistency() ledger.Consistency {
	if f.local {
		return ledger.Local
	}
	return ledger.Linearizable
}

// begin returns the index that --from means.
func (f *ledgerReadFlags) begin(ctx context.Context, c *ledger.Client) (int64, error) {
	b, err := c.Bounds(ctx, f.consistency())
	if err != nil {
		return 0, err
	}
	return f.start(b.GetFirstIndex(), b.GetCommittedIndex()+1)
}

func (a *app) ledgerGetCommand() *cobra.Command {
	var f ledgerReadFlags
	cmd := &cobra.Command{
		Use:   "get [INDEX]",
		Short: "Read the entry at an index, or entries from an index on",
		Long: "Read committed entries: everything that was acknowledged to anybody before the call, whichever node answers;\n" +
			"with --local what that node knows, which may be less.",
		Example: "  tandemctl ledger get 17\n" +
			"  tandemctl ledger get --from 100 --max 5\n" +
			"  tandemctl ledger get --from -3 --raw",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return a.ledgerGet(cmd.Context(), &f)
			case 1:
				return a.ledgerGetOne(cmd.Context(), &f, args[0])
			}
			return usagef("ledger get takes one index; --from and --max read several")
		},
	}
	f.register(cmd, "first", "entries at most", 32)
	return cmd
}

func (a *app) ledgerGetOne(ctx context.Context, f *ledgerReadFlags, text string) error {
	index, err := strconv.ParseInt(text, 10, 64)
	if err != nil || index < 0 {
		return usagef("%q is no index: a number from 0 on", text)
	}
	return a.withLedger(func(c *ledger.Client) error {
		e, err := c.Get(ctx, index, f.consistency())
		if err != nil {
			return err
		}
		return a.entryPrinter(f).print(e)
	})
}

func (a *app) ledgerGet(ctx context.Context, f *ledgerReadFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	return a.withLedger(func(c *ledger.Client) error {
		at, err := f.begin(ctx, c)
		if err != nil {
			return err
		}
		p := a.entryPrinter(f)
		how := f.consistency()
		for left := f.max; left > 0; {
			resp, err := c.GetRange(ctx, &ledgerv1.GetRangeRequest{Index: at, MaxEntries: int32(min(left, 1024)), Consistency: how}) //nolint:gosec // bounded
			if err != nil {
				return err
			}
			if len(resp.GetEntries()) == 0 {
				break
			}
			for _, e := range resp.GetEntries() {
				if err := p.print(e); err != nil {
					return err
				}
			}
			left -= len(resp.GetEntries())
			at, how = resp.GetNextIndex(), ledger.Local // the beginning was as new as asked for
		}
		if p.n == 0 && !a.json() && !f.raw {
			say(a.errOut, "no entries there")
		}
		return nil
	})
}

func (a *app) ledgerTailCommand() *cobra.Command {
	var f ledgerReadFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the log: print each new entry until Ctrl-C",
		Long:  "Follow the log. When the connection breaks it goes on from the next entry, at another address if --addr names several.",
		Example: "  tandemctl ledger tail\n" +
			"  tandemctl ledger tail --from first --max 100 --raw",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ledgerTail(cmd.Context(), &f) },
	}
	f.register(cmd, "next", "end after this many entries; 0: never", 0)
	return cmd
}

func (a *app) ledgerTail(ctx context.Context, f *ledgerReadFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	return a.withLedger(func(c *ledger.Client) error {
		from, err := f.begin(ctx, c)
		if err != nil {
			return err
		}
		if f.from == "next" && !a.json() && !f.raw {
			say(a.errOut, "waiting for new entries (--from first shows what is there)")
		}
		p := a.entryPrinter(f)
		err = c.Tail(ctx, ledger.TailOptions{From: from, Consistency: f.consistency(), OnRetry: a.tailRetrying}, func(e *ledger.Entry) error {
			if err := p.print(e); err != nil {
				return err
			}
			if p.n == f.max {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) || errors.Is(err, context.Canceled) {
			return nil // Ctrl-C is how a tail ends
		}
		return err
	})
}

func (a *app) tailRetrying(err error, pause time.Duration) {
	what, _ := explain(err)
	sayf(a.errOut, "tandemctl: %s; trying again in %s\n", what, shortDuration(pause))
}

// entryPrinter writes entries as the flags say. It is not for concurrent use.
type entryPrinter struct {
	a    *app
	f    *ledgerReadFlags
	rows *stream
	n    int
}

func (a *app) entryPrinter(f *ledgerReadFlags) *entryPrinter {
	return &entryPrinter{a: a, f: f, rows: &stream{
		w: a.out, header: []string{"INDEX", "TERM", "SIZE", "CHANNEL", "CLIENT", "SEQUENCE", "BODY"}, widths: []int{10, 5, 7, 8, 8, 8, 0},
	}}
}

func (p *entryPrinter) print(e *ledger.Entry) error {
	p.n++
	switch {
	case p.f.raw && e.GetNoOp():
		return nil
	case p.f.raw:
		_, err := fmt.Fprintf(p.a.out, "%s\n", e.GetBody())
		return err
	case p.a.json():
		return printProto(p.a.out, e)
	}
	limit := 60
	if p.f.full {
		limit = 0
	}
	client, sequence, body := "-", "-", preview(e.GetBody(), limit)
	if id := e.GetClientId(); len(id) > 0 {
		client, sequence = hex.EncodeToString(id[:min(4, len(id))]), strconv.FormatUint(e.GetSequence(), 10)
	}
	if e.GetNoOp() {
		body = "(opens the term)"
	}
	p.rows.row(itoa(e.GetIndex()), itoa(e.GetTerm()), itoa(len(e.GetBody())), itoa(e.GetChannel()), client, sequence, body)
	return nil
}
