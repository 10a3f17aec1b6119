package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

func (a *app) ledgerTransferCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "transfer [ID]",
		Short: "Hand leadership over to a member, or to the follower that has most of the log",
		Long: "Hand leadership over: the leader takes no appends for the moment that the member needs to have all of its log, then\n" +
			"the member is elected. Nothing is lost; appends that came meanwhile are tried again by their clients. A member that\n" +
			"is far behind, silent, or without a vote is refused; to one that leads already nothing is done.",
		Example: "  tandemctl ledger transfer\n" +
			"  tandemctl ledger transfer n1",
		ValidArgsFunction: a.completeMembers,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("ledger transfer takes the id of one member: tandemctl ledger transfer n1")
			}
			return a.ledgerTransfer(cmd.Context(), strings.Join(args, ""))
		},
	}
}

func (a *app) ledgerTransfer(ctx context.Context, target string) error {
	return a.withLedger(func(c *ledger.Client) error {
		moved, err := c.Transfer(ctx, target)
		if err != nil {
			return err
		}
		if a.json() {
			return printProto(a.out, moved)
		}
		if moved.GetTerm() == 0 {
			sayf(a.out, "%s (%s) leads already; nothing was changed\n", moved.GetTarget(), moved.GetAddress())
			return nil
		}
		sayf(a.out, "term %d has ended; %s (%s) takes over\n", moved.GetTerm(), moved.GetTarget(), moved.GetAddress())
		return nil
	})
}

// completeMembers completes the id of a member that could take over.
func (a *app) completeMembers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	_ = a.withLedger(func(c *ledger.Client) error { // nothing to offer where nobody answers
		for _, m := range a.members(c).ask(ctx) {
			for _, f := range m.status.GetFollowers() {
				if id := f.GetId() + "\t" + f.GetAddress(); m.status.GetLeader() == m.status.GetId() {
					ids = append(ids, id)
				}
			}
		}
		return nil
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) ledgerBootstrapCommand() *cobra.Command {
	var want []string
	var yes bool
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make a brand-new group of the members that the first node of --addr is configured with",
		Long: "Make a new group. All members must run, answer, and hold nothing. It may be repeated until it has been done.\n\n" +
			"It is for a new group only, never for one that lost members: a node that lost its disk comes back by itself and gets\n" +
			"the log from the others, but would forget here what it had promised them. Where a majority has lost its disks, what\n" +
			"was acknowledged can be gone.",
		Example: "  tandemctl ledger bootstrap --addr 10.0.0.1:20911\n" +
			"  tandemctl ledger bootstrap --members n0,n1,n2 --yes",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ledgerBootstrap(cmd.Context(), want, yes) },
	}
	cmd.Flags().StringSliceVar(&want, "members", nil, "`ids` of all members, as a check; empty: those that the node is configured with")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) ledgerBootstrap(ctx context.Context, want []string, yes bool) error {
	return a.withLedger(func(c *ledger.Client) error {
		admin, err := c.Admin("")
		if err != nil {
			return err
		}
		st, err := admin.Status(ctx)
		if err != nil {
			return err
		}
		ids, who := []string{st.GetId()}, []string{fmt.Sprintf("%s (%s)", st.GetId(), admin.Address())}
		for _, f := range st.GetFollowers() {
			ids, who = append(ids, f.GetId()), append(who, fmt.Sprintf("%s (%s)", f.GetId(), f.GetAddress()))
		}
		if len(want) > 0 {
			ids = want
		}
		slices.Sort(ids)
		if err := a.confirm(yes, "%s is configured with the members %s.\nMake them the new group %q?", admin.Address(), strings.Join(who, ", "), st.GetGroup()); err != nil {
			return err
		}
		made, err := admin.Bootstrap(ctx, ids)
		if e := errdefs.As(err); e != nil && e.Reason == ledger.ErrUnreachable.Reason && e.Meta["address"] != admin.Address() {
			return errdefs.Newf(e.Class, "MEMBER_UNREACHABLE", "%s cannot reach the member %s: %s", admin.Address(), e.Meta["address"], whyUnreached(e)).
				WithRemedy("start all members, then do this again")
		}
		if err != nil {
			return wrapUsage(err)
		}
		if a.json() {
			return printJSON(a.out, struct {
				Members []string `json:"members"`
			}{made})
		}
		sayf(a.out, "%s of the new group: %s; they elect a leader now (`%s ledger status`)\n", plural(len(made), "member"), strings.Join(made, ", "), a.name())
		return nil
	})
}
