package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client/config"
)

// diffFlags are those of config diff.
type diffFlags struct {
	tables []string
	limit  int32
	quiet  bool
}

func (a *app) configDiffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare the tables of two nodes, entry by entry",
		Long: "Compare the tables of two nodes, field by field. A asks B itself, so B is the address by which A reaches it.\n\n" +
			"Exit code 0: no difference; 1: there are differences, or one of the nodes cannot be compared. Versions are shown and\n" +
			"do not count: the same content may have come about in different ways.",
		Example: "  tandemctl config diff 10.0.0.1:10921 10.0.0.2:10921\n" +
			"  tandemctl config diff 10.0.0.1:10921 10.0.0.2:10921 --tables topics,groups -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("config diff takes two addresses: %s 10.0.0.1:10921 10.0.0.2:10921", cmd.CommandPath())
			}
			if args[0] == args[1] {
				return usagef("%s is one node: name two", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.configDiff(cmd.Context(), &f, args[0], args[1])
		},
	}
	kindsFlag(cmd, &f.tables)
	cmd.Flags().Int32Var(&f.limit, "limit", 1000, "`differences` listed at most; all are counted")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "only count")
	return cmd
}

func (a *app) configDiff(ctx context.Context, f *diffFlags, one, other string) error {
	kinds, err := kindsOf(f.tables)
	if err != nil {
		return err
	}
	if f.limit < 1 {
		return usagef("--limit %d is not above 0", f.limit)
	}
	return a.withConfigAt([]string{one}, func(c *config.Client) error {
		admin, err := c.Admin("")
		if err != nil {
			return err
		}
		s := &stream{w: a.out, header: []string{"TABLE", "ENTRY", "FIELD", "A", "B"}, widths: []int{7, 32, 16, 20, 0}}
		sums, err := admin.Diff(ctx, other, f.limit, kinds, func(d *config.Difference) error {
			switch {
			case f.quiet:
			case a.json():
				return printProto(a.out, d)
			default:
				s.row(kindName(d.GetKind()), d.GetKey(), orDash(d.GetField()), orDash(d.GetHere()), orDash(d.GetThere()))
			}
			return nil
		})
		if err != nil {
			return wrapUsage(err)
		}
		return a.diffSummary(sums, s.begun)
	})
}

// diffSummary counts, and is an error where there is a difference.
func (a *app) diffSummary(sums []*config.DiffSummary, below bool) error {
	different := false
	var rows [][]string
	for _, s := range sums {
		different = different || s.GetDifferent()+s.GetOnlyHere()+s.GetOnlyThere() > 0
		if a.json() {
			if err := printProto(a.out, s); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			kindName(s.GetKind()), itoa(s.GetSame()), itoa(s.GetDifferent()), itoa(s.GetOnlyHere()), itoa(s.GetOnlyThere()),
			versionText(s.GetHere().GetDataVersion()), versionText(s.GetThere().GetDataVersion()),
		})
	}
	if !a.json() {
		if below {
			say(a.out)
		}
		table(a.out, []string{"TABLE", "SAME", "DIFFERENT", "ONLY A", "ONLY B", "VERSION A", "VERSION B"}, rows)
	}
	if different {
		return errReported
	}
	return nil
}
