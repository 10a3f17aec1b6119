package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client"
)

func (a *app) rollbackCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "List, show and put again what a change of the master cut from a log",
		Long: "When a node follows a new master, what only its own log has behind the last common offset is cut and kept under\n" +
			"rollback/ beside the log. It is never removed by itself: look at it, put again what is missing, then delete its\n" +
			"folder on the node.",
		Args: a.unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return wantsCommand(cmd) },
	}
	cmd.AddCommand(a.rollbackListCommand(), a.rollbackShowCommand(), a.rollbackReplayCommand())
	return cmd
}

func (a *app) rollbackListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the kept ranges of each node of --addr",
		Example: "  tandemctl rollback list --addr 10.0.0.1:10911,10.0.0.2:10911",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.rollbackList(cmd.Context()) },
	}
}

// keptRange is a line of rollback list's JSON.
type keptRange struct {
	Address    string `json:"address"`
	Name       string `json:"name"`
	FromOffset int64  `json:"fromOffset,string"`
	ToOffset   int64  `json:"toOffset,string"`
	Epoch      int64  `json:"epoch,string"`
	Size       int64  `json:"size,string"`
	Whole      bool   `json:"whole"`
}

func (a *app) rollbackList(ctx context.Context) error {
	return a.with(ctx, func(c *client.Client) error {
		var rows [][]string
		var failed error
		for _, addr := range c.Addresses() {
			admin, err := c.Admin(addr)
			if err != nil {
				return err
			}
			all, err := admin.Rollbacks(ctx)
			failed = errors.Join(failed, err)
			for _, r := range all {
				if a.json() {
					if err := printJSON(a.out, keptRange{
						addr, r.GetName(), r.GetFromOffset(), r.GetToOffset(), r.GetEpoch(), r.GetSize(), r.GetWhole(),
					}); err != nil {
						return err
					}
					continue
				}
				whole := "yes"
				if !r.GetWhole() {
					whole = "no"
				}
				rows = append(rows, []string{addr, r.GetName(), itoa(r.GetFromOffset()), itoa(r.GetToOffset()), itoa(r.GetEpoch()), sizeText(r.GetSize()), whole})
			}
		}
		if len(rows) > 0 {
			table(a.out, []string{"ADDRESS", "NAME", "FROM", "TO", "CUT BY EPOCH", "SIZE", "WHOLE"}, rows)
		} else if !a.json() && failed == nil {
			say(a.errOut, "nothing is kept: no log was cut")
		}
		if failed != nil {
			return errors.Join(flatten(failed)...)
		}
		return nil
	})
}

// showFlags are those of rollback show.
type showFlags struct {
	raw   bool
	file  string
	force bool
	full  bool
}

func (a *app) rollbackShowCommand() *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show NODE NAME",
		Short: "Print the messages of a kept range, or copy its raw bytes",
		Long: "Print the messages of a kept range with the offsets that they had. A range may begin or end in the middle of a\n" +
			"record: what is left out is said on stderr.",
		Example: "  tandemctl rollback show 10.0.0.1:10911 4096-8192-3\n" +
			"  tandemctl rollback show 10.0.0.1:10911 4096-8192-3 -o json\n" +
			"  tandemctl rollback show 10.0.0.1:10911 4096-8192-3 --raw --file kept.bin",
		Args: nodeAndName,
		RunE: func(cmd *cobra.Command, args []string) error { return a.rollbackShow(cmd, &f, args[0], args[1]) },
	}
	cmd.Flags().BoolVar(&f.raw, "raw", false, "the bytes as they were in the log")
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "write raw bytes to this new `file` instead of stdout")
	cmd.Flags().BoolVar(&f.force, "force", false, "write raw bytes to a terminal, or over a file that exists")
	cmd.Flags().BoolVar(&f.full, "full", false, "do not shorten bodies")
	return cmd
}

func nodeAndName(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return usagef("%s takes the address of a node and the name of a range: `tandemctl rollback list --addr NODE` has the names", cmd.CommandPath())
	}
	return nil
}

func (a *app) rollbackShow(cmd *cobra.Command, f *showFlags, addr, name string) error {
	if f.raw && f.file == "" && !f.force && isTerminal(a.out) {
		return usagef("these are raw bytes, not for a terminal: redirect them, use --file, or insist with --force")
	}
	if f.file != "" && !f.raw {
		return usagef("--file goes with --raw")
	}
	return a.node(cmd, addr, func(ctx context.Context, _ *client.Client, admin *client.Admin) error {
		if f.raw {
			return a.copyRollback(ctx, admin, f, name)
		}
		p := a.printer(&readFlags{full: f.full})
		if err := admin.ReadRollback(ctx, name, p.print, a.sayGap); err != nil {
			return err
		}
		if p.n == 0 && !a.json() {
			say(a.errOut, "no whole message in it")
		}
		return nil
	})
}

func (a *app) sayGap(g *client.RollbackGap) error {
	sayf(a.errOut, "left out: %d to %d, %s\n", g.GetFromOffset(), g.GetToOffset(), g.GetReason())
	return nil
}

func (a *app) copyRollback(ctx context.Context, admin *client.Admin, f *showFlags, name string) error {
	if f.file == "" {
		_, err := admin.CopyRollback(ctx, name, a.out)
		return err
	}
	n, err := newFile(f.file, f.force, func(w io.Writer) (int64, error) { return admin.CopyRollback(ctx, name, w) })
	if err == nil {
		sayf(a.errOut, "%s written to %s\n", sizeText(n), f.file)
	}
	return err
}

// newFile has write fill a new file. It leaves no half file behind: one that failed is removed.
func newFile(name string, over bool, write func(io.Writer) (int64, error)) (int64, error) {
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if over {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	out, err := os.OpenFile(name, mode, 0o644)
	if errors.Is(err, os.ErrExist) {
		return 0, usagef("%s exists; write over it with --force", name)
	}
	if err != nil {
		return 0, &usageError{fmt.Errorf("cannot write there: %w", err)}
	}
	n, err := write(out)
	if err = errors.Join(err, out.Close()); err != nil {
		return n, errors.Join(err, os.Remove(name))
	}
	return n, nil
}
