package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

const (
	defaultLedgerAddr = "127.0.0.1:20911"
	ledgerAddrVar     = "TANDEMCTL_LEDGER_ADDR"
)

func (a *app) ledgerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Append to a replicated log, read it, look after its group of nodes",
		Long: "A ledger is one log that a group of nodes keeps: they elect a leader, which takes appends; an entry counts when a\n" +
			"majority has it. Name all nodes with --addr, so that the leader is found.\n\n" +
			"New here? Run `tandemctl playground --ledger` and do what it says.",
		Example: "  tandemctl ledger append hello\n" +
			"  tandemctl ledger get --from first\n" +
			"  tandemctl ledger status -w",
		Args: a.unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	addr := defaultLedgerAddr
	if v := a.env(ledgerAddrVar); v != "" {
		addr = v
	}
	// It hides the global flag of this name.
	cmd.PersistentFlags().StringSliceVar(&a.ledgerAddr, "addr", strings.Split(addr, ","),
		"gRPC `addresses` of the ledger's nodes, host:port separated by commas (env "+ledgerAddrVar+")")
	cmd.AddCommand(a.ledgerAppendCommand(), a.ledgerGetCommand(), a.ledgerTailCommand(), a.ledgerStatusCommand(),
		a.ledgerTransferCommand(), a.ledgerBootstrapCommand(), a.ledgerBenchCommand())
	return cmd
}

// withLedger calls f with a client of --addr.
func (a *app) withLedger(f func(*ledger.Client) error) error {
	c, err := ledger.Dial(a.ledgerOptions(a.ledgerAddr...))
	if err != nil {
		return wrapUsage(err)
	}
	defer func() { _ = c.Close() }() // nothing is lost by a failed goodbye
	return mark(f(c), ledgerAdvice)
}

func (a *app) ledgerOptions(addrs ...string) ledger.Options {
	trimmed := slices.Clone(addrs)
	for i := range trimmed {
		trimmed[i] = strings.TrimSpace(trimmed[i])
	}
	return ledger.Options{Addresses: trimmed, TLS: a.tls, Timeout: a.timeout, MaxMessage: int(a.maxMessage)}
}

// ledgerAdvice is what this command line can offer beyond the error's own remedy.
func ledgerAdvice(e *errdefs.Error) []string {
	switch e.Reason {
	case ledger.ErrUnreachable.Reason:
		if strings.Contains(e.Msg, "no answer from ") {
			return nil // something is there
		}
		return []string{"is a ledger running there? `tandemctl playground --ledger` starts a group", "name other addresses with --addr or " + ledgerAddrVar}
	case ledger.ErrNoLeader.Reason:
		return []string{
			"`tandemctl ledger status` shows what each node knows; a majority of them must reach each other",
			"a brand-new group begins with `tandemctl ledger bootstrap`",
		}
	case ledger.ErrNotLeader.Reason:
		return []string{"name all nodes with --addr, separated by commas, so that the leader is found"}
	case ledger.ErrAppendUnknown.Reason:
		return []string{"look for it with `tandemctl ledger get --from -10` before appending it again"}
	case "TAKE_LEADERSHIP_FAILED", "NO_TARGET", "REFUSED":
		return []string{"`tandemctl ledger status` shows how far each follower is"}
	case ledger.ErrOutOfRange.Reason, ledger.ErrNotCommitted.Reason:
		return []string{"`tandemctl ledger status` shows the first and the committed index"}
	}
	if e.Class == errdefs.DeadlineExceeded || errors.Is(e, context.DeadlineExceeded) {
		return []string{"give it more time with --timeout; `tandemctl ledger status` shows what the group is busy with"}
	}
	return nil
}
