package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
)

// changeTime is how long a change of the master may take unless --timeout says otherwise.
const changeTime = 30 * time.Second

// errNotConfirmed: the answer to a question was no.
var errNotConfirmed = errors.New("not confirmed, nothing was done; --yes answers yes")

// confirm asks on stderr and reads the answer.
func (a *app) confirm(yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	sayf(a.errOut, format+" [y/N] ", args...)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if err != nil {
		say(a.errOut)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// oneNode is the check of the arguments of commands about one node.
func oneNode(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes the address of one node: %s 10.0.0.2:10911", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// node calls f with the admin of the node at addr, and with more time than other calls have.
func (a *app) node(cmd *cobra.Command, addr string, f func(context.Context, *client.Client, *client.Admin) error) error {
	c, err := a.dial(cmd.Context(), addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is lost by a failed goodbye
	admin, err := c.Admin("")
	if err != nil {
		return err
	}
	return f(cmd.Context(), c, admin)
}

// changing bounds one order.
func (a *app) changing(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	most := max(a.timeout, changeTime)
	if cmd.Flags().Changed("timeout") {
		most = a.timeout
	}
	return context.WithTimeout(cmd.Context(), most)
}

func (a *app) promoteCommand() *cobra.Command {
	var force, yes bool
	cmd := &cobra.Command{
		Use:   "promote NODE",
		Short: "Make a node the open master",
		Long: "Make a node the open master, durably: it stays master over restarts, whatever brokerRole its config names.\n\n" +
			"While a master is open this is a planned change: the master holds its puts back for the moment that NODE needs to\n" +
			"have all of its log, then follows NODE as a slave. Nothing is lost and nothing is cut.\n\n" +
			"Without an open master NODE opens when it has heard enough of the nodes in ha.peers (all, or all but ha.required of\n" +
			"those that lack nothing) and when none of their logs ranks above its own. The old master, once it is back, follows\n" +
			"NODE; what only it had is cut from its log and kept (tandemctl rollback list).\n\n" +
			"--force opens NODE with its own log and with whoever answers. What only others have is cut from them when they\n" +
			"follow, and kept under their rollback/; messages that were answered PUT_OK can be among it. Use it when the nodes\n" +
			"that are missing will not come back, and for the best log that is left: tandemctl status shows epoch and end.\n\n" +
			"Exit code 1 with NOT_PROMOTED: nothing has changed. With PROMOTION_HALF_WAY: puts are refused, NODE goes on trying by\n" +
			"itself; mend what it names, or give it up with tandemctl demote NODE.",
		Example: "  tandemctl promote 10.0.0.2:10911\n" +
			"  tandemctl promote 10.0.0.2:10911 --force --yes",
		Args: oneNode,
		RunE: func(cmd *cobra.Command, args []string) error { return a.promote(cmd, args[0], force, yes) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "open with the node's own log and with whoever answers: messages can be lost")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) promote(cmd *cobra.Command, addr string, force, yes bool) error {
	return a.node(cmd, addr, func(ctx context.Context, _ *client.Client, admin *client.Admin) error {
		st, err := admin.Status(ctx)
		if err != nil {
			return err
		}
		question := promoteQuestion(addr, st, force)
		if st.GetOpen() && st.GetRole() != storagev1.Role_ROLE_SLAVE {
			yes = true // it will say that there is nothing to do
		}
		if err := a.confirm(yes, "%s", question); err != nil {
			return err
		}
		ctx, cancel := a.changing(cmd)
		defer cancel()
		p, err := admin.Promote(ctx, force)
		if err != nil {
			return err
		}
		if a.json() {
			return printProto(a.out, p)
		}
		how := "no open master had to hand over"
		switch {
		case p.GetAlreadyOpen():
			sayf(a.out, "%s is the open master already, epoch %d from offset %d\n", addr, p.GetEpoch(), p.GetStartOffset())
			return nil
		case p.GetPlanned():
			how = "the old master has handed over and follows it"
		}
		sayf(a.out, "%s is the open master (%s), epoch %d from offset %d; %s\n", addr, client.RoleName(p.GetRole()), p.GetEpoch(), p.GetStartOffset(), how)
		return nil
	})
}

// promoteQuestion says what is about to happen.
func promoteQuestion(addr string, s *client.NodeStatus, force bool) string {
	what := fmt.Sprintf("%s (%s/%d, %s) has the log up to %d.\n", addr, s.GetBrokerName(), s.GetNodeId(), client.RoleName(s.GetRole()),
		s.GetWatermarks().GetWrittenOffset())
	if u := s.GetUpstream(); u.GetAddress() != "" {
		what += fmt.Sprintf("It follows %s: %s, %s behind.\n", u.GetAddress(), linkName(u.GetState()), sizeText(u.GetLagBytes()))
	}
	if !s.GetWhole() {
		what += "It may lack messages that it once had, as its machine went down or its folder is new.\n"
	}
	if force {
		return what + "By force it opens with this log and with whoever answers: what only other nodes have is cut from them,\n" +
			"and messages that were answered PUT_OK can be lost. Force it?"
	}
	return what + "Make it the open master?"
}

func (a *app) demoteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "demote NODE",
		Short: "Make a master a slave; nobody takes puts then until a node is promoted",
		Long: "Make a master a slave, durably: puts are refused, links to slaves end, puts that still wait end as\n" +
			"FLUSH_SLAVE_TIMEOUT. No other node takes over by itself. To change the master without a pause promote the new one\n" +
			"instead. It also gives up a promotion that has stopped half-way.",
		Example: "  tandemctl demote 10.0.0.1:10911",
		Args:    oneNode,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.demote(cmd, args[0], yes) },
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) demote(cmd *cobra.Command, addr string, yes bool) error {
	return a.node(cmd, addr, func(ctx context.Context, _ *client.Client, admin *client.Admin) error {
		st, err := admin.Status(ctx)
		if err != nil {
			return err
		}
		if st.GetRole() == storagev1.Role_ROLE_SLAVE {
			yes = true
		}
		if err := a.confirm(yes, "%s (%s/%d, %s) will take no more puts, and no node takes over by itself. Demote it?", addr,
			st.GetBrokerName(), st.GetNodeId(), client.RoleName(st.GetRole())); err != nil {
			return err
		}
		ctx, cancel := a.changing(cmd)
		defer cancel()
		d, err := admin.Demote(ctx)
		switch {
		case err != nil:
			return err
		case a.json():
			return printProto(a.out, d)
		case d.GetAlreadySlave():
			sayf(a.out, "%s is a slave already, its log ends at %d\n", addr, d.GetEndOffset())
			return nil
		}
		sayf(a.out, "%s is a slave now, its log ends at %d; `tandemctl promote NODE` makes a node master\n", addr, d.GetEndOffset())
		return nil
	})
}
