package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client"
)

func (a *app) flushCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "flush",
		Short:   "Flush log and queues of each node of --addr to its disk",
		Example: "  tandemctl flush --addr 10.0.0.1:10911,10.0.0.2:10911",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.flush(cmd.Context()) },
	}
}

// flushed is a line of flush's JSON.
type flushed struct {
	Address       string `json:"address"`
	FlushedOffset int64  `json:"flushedOffset,string"`
}

func (a *app) flush(ctx context.Context) error {
	return a.with(ctx, func(c *client.Client) error {
		var rows [][]string
		var failed error
		for _, addr := range c.Addresses() {
			admin, err := c.Admin(addr)
			if err != nil {
				return err
			}
			n, err := admin.FlushNow(ctx)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			if a.json() {
				if err := printJSON(a.out, flushed{addr, n}); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, []string{addr, itoa(n)})
		}
		if len(rows) > 0 {
			table(a.out, []string{"ADDRESS", "FLUSHED"}, rows)
		}
		return failed
	})
}
