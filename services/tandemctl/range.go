package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client"
)

// rangeFlags are those of range.
type rangeFlags struct {
	from, to int64
	file     string
	force    bool
}

func (a *app) rangeCommand() *cobra.Command {
	var f rangeFlags
	cmd := &cobra.Command{
		Use:   "range --from OFFSET [--to OFFSET]",
		Short: "Copy raw bytes of the log to stdout or a file",
		Example: "  tandemctl range --from 0 --to 4096 | xxd\n" +
			"  tandemctl range --from 0 --file commitlog.bin",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.copyRange(cmd.Context(), &f) },
	}
	cmd.Flags().Int64Var(&f.from, "from", 0, "first `offset`, bytes")
	cmd.Flags().Int64Var(&f.to, "to", 0, "`offset` behind the last byte; 0: the end of the log")
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "write to this new `file` instead of stdout")
	cmd.Flags().BoolVar(&f.force, "force", false, "write to a terminal, or over a file that exists")
	return cmd
}

func (a *app) copyRange(ctx context.Context, f *rangeFlags) error {
	switch {
	case f.from < 0 || f.to < 0:
		return usagef("offsets are byte positions from 0")
	case f.to > 0 && f.to < f.from:
		return usagef("--to %d lies before --from %d", f.to, f.from)
	case f.file == "" && !f.force && isTerminal(a.out):
		return usagef("these are raw bytes, not for a terminal: redirect them, use --file, or insist with --force")
	}
	return a.with(ctx, func(c *client.Client) error {
		admin, err := c.Admin("")
		if err != nil {
			return err
		}
		if f.file == "" {
			_, err = admin.Range(ctx, f.from, f.to, a.out)
			return err
		}
		return a.rangeToFile(ctx, admin, f)
	})
}

func (a *app) rangeToFile(ctx context.Context, admin *client.Admin, f *rangeFlags) error {
	n, err := newFile(f.file, f.force, func(w io.Writer) (int64, error) { return admin.Range(ctx, f.from, f.to, w) })
	if err == nil {
		sayf(a.errOut, "%s from offset %d written to %s\n", sizeText(n), f.from, f.file)
	}
	return err
}
