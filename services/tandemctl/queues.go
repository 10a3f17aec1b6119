package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client"
)

func (a *app) queuesCommand() *cobra.Command {
	var topic string
	var wide bool
	cmd := &cobra.Command{
		Use:     "queues",
		Short:   "List queues with their first and next queue offset",
		Example: "  tandemctl queues\n  tandemctl queues --topic demo -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("wide") {
				wide = !isTerminal(a.out)
			}
			return a.queues(cmd.Context(), topic, wide)
		},
	}
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "only this topic")
	cmd.Flags().BoolVar(&wide, "wide", false, "do not shorten topics; without a terminal they never are")
	return cmd
}

// topicWidth is the width of the topics' column.
const topicWidth = 40

func (a *app) queues(ctx context.Context, topic string, wide bool) error {
	return a.with(ctx, func(c *client.Client) error {
		qs, err := c.Reader().Queues(ctx, topic)
		if err != nil {
			return err
		}
		if a.json() {
			for _, q := range qs {
				if err := printProto(a.out, q); err != nil {
					return err
				}
			}
			return nil
		}
		if len(qs) == 0 {
			say(a.errOut, a.hint("no queues yet; `tandemctl put --topic demo hello` makes one"))
			return nil
		}
		rows := make([][]string, 0, len(qs))
		for _, q := range qs {
			name := q.GetTopic()
			if !wide {
				name = middle(name, topicWidth)
			}
			rows = append(rows, []string{
				name, itoa(q.GetQueueId()), itoa(q.GetMinQueueOffset()), itoa(q.GetMaxQueueOffset()), itoa(q.GetMaxQueueOffset() - q.GetMinQueueOffset()),
			})
		}
		table(a.out, []string{"TOPIC", "QUEUE", "FIRST", "NEXT", "MESSAGES"}, rows)
		return nil
	})
}
