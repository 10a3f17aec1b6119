package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/config"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

const (
	defaultConfigAddr = "127.0.0.1:10921"
	configAddrVar     = "TANDEMCTL_CONFIG_ADDR"
)

func (a *app) configCommand() *cobra.Command {
	cmd := a.configParent(&cobra.Command{
		Use:   "config",
		Short: "Show what config sync nodes hold, compare them, move whole tables as RocketMQ's files",
		Long: "Config sync keeps four tables of a broker on its master and every slave: topics, subscription groups, consumer\n" +
			"offsets and delay offsets. `tandemctl topic`, `group` and `offset` show and change what is in them.",
		Example: "  tandemctl config status -w\n" +
			"  tandemctl config diff 10.0.0.1:10921 10.0.0.2:10921\n" +
			"  tandemctl config export --dir ./tables\n" +
			"  tandemctl config import ./tables --dry-run",
	})
	cmd.AddCommand(a.configStatusCommand(), a.configDiffCommand(), a.configExportCommand(), a.configImportCommand())
	return cmd
}

// configParent is a command whose subcommands speak to config sync nodes.
func (a *app) configParent(cmd *cobra.Command) *cobra.Command {
	cmd.Args = a.unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	addr := defaultConfigAddr
	if v := a.env(configAddrVar); v != "" {
		addr = v
	}
	// It hides the global flag of this name.
	cmd.PersistentFlags().StringSliceVar(&a.configAddr, "addr", strings.Split(addr, ","),
		"gRPC `addresses` of the config sync nodes, host:port separated by commas (env "+configAddrVar+")")
	return cmd
}

// localFlag adds --local to a command that reads.
func (a *app) localFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.local, "local", false, "what the first node of --addr that answers has, instead of the master")
	return cmd
}

func (a *app) configOptions(addrs ...string) config.Options {
	trimmed := slices.Clone(addrs)
	for i := range trimmed {
		trimmed[i] = strings.TrimSpace(trimmed[i])
	}
	var t trouble
	return config.Options{
		Addresses: trimmed, TLS: a.tls, Timeout: a.timeout, MaxMessage: int(a.maxMessage), Local: a.local,
		OnRetry: func(err error, _ time.Duration) { t.tell(a, err) },
	}
}

// withConfig calls f with a client of --addr.
func (a *app) withConfig(f func(*config.Client) error) error { return a.withConfigAt(a.configAddr, f) }

func (a *app) withConfigAt(addrs []string, f func(*config.Client) error) error {
	c, err := config.Dial(a.configOptions(addrs...))
	if err != nil {
		return wrapUsage(err)
	}
	defer func() { _ = c.Close() }() // nothing is lost by a failed goodbye
	return mark(f(c), configAdvice)
}

// configAdvice is what this command line can offer beyond the error's own remedy.
func configAdvice(e *errdefs.Error) []string {
	switch e.Reason {
	case config.ErrUnreachable.Reason:
		if strings.Contains(e.Msg, "no answer from ") {
			return nil // something is there
		}
		return []string{"is a config sync node running there? `tandemctl playground` starts one beside each storage", "name other addresses with --addr or " + configAddrVar}
	case config.ErrNoMaster.Reason:
		return []string{"`tandemctl config status` shows each node's role; it is that of its storage (`tandemctl status`, `tandemctl promote NODE`)"}
	case config.ErrNotMaster.Reason:
		if m := e.Meta["master"]; m != "" {
			return []string{"the master is " + m + ": use --addr " + m}
		}
		return []string{"name all nodes with --addr, separated by commas, so that the master is found"}
	case config.ErrOutcomeUnknown.Reason:
		return []string{"`tandemctl topic get`, `tandemctl group get` and `tandemctl offset list` show what there is"}
	case "OFFSET_BEYOND_END":
		return []string{"`tandemctl queues` shows the first and next offset of each queue"}
	}
	switch {
	case e.Class == errdefs.AlreadyExists:
		return []string{"change it with `update`"}
	case e.Class == errdefs.NotFound:
		return []string{"`list` shows what there is"}
	case e.Class == errdefs.DeadlineExceeded || errors.Is(e, context.DeadlineExceeded):
		return []string{"give it more time with --timeout; `tandemctl config status` shows what the nodes are busy with"}
	}
	return nil
}

// kindNames are the tables in words, in the order of their numbers.
var kindNames = []string{"topics", "offsets", "delays", "groups"} //nolint:gochecknoglobals // a table

// kindName is a table in words.
func kindName(k config.Kind) string {
	if k >= 1 && int(k) <= len(kindNames) {
		return kindNames[k-1]
	}
	return itoa(int32(k))
}

// kindsOf reads --tables.
func kindsOf(names []string) ([]config.Kind, error) {
	var kinds []config.Kind
	for _, n := range names {
		i := slices.Index(kindNames, n)
		if i < 0 {
			return nil, usagef("--tables %q is none of %s", n, strings.Join(kindNames, ", "))
		}
		kinds = append(kinds, config.Kind(i+1)) //nolint:gosec // one of four
	}
	return kinds, nil
}

func kindsFlag(cmd *cobra.Command, names *[]string) {
	cmd.Flags().StringSliceVar(names, "tables", nil, "only these `tables`: "+strings.Join(kindNames, ", "))
	_ = cmd.RegisterFlagCompletionFunc("tables", cobra.FixedCompletions(kindNames, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// oneName is the check of the arguments of commands about one entry.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s takes the name of one %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

// completeNames completes the name of an entry that list knows.
func (a *app) completeNames(list func(ctx context.Context, c *config.Client, prefix string, add func(string)) error) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
		defer cancel()
		var names []string
		_ = a.withConfig(func(c *config.Client) error { // nothing to offer where nobody answers
			return list(ctx, c, prefix, func(name string) { names = append(names, name) })
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) completeTopics() cobra.CompletionFunc {
	return a.completeNames(func(ctx context.Context, c *config.Client, prefix string, add func(string)) error {
		return c.Topics().List(ctx, prefix, func(t *configsyncv1.Topic) error {
			add(t.GetName())
			return nil
		})
	})
}

func (a *app) completeGroups() cobra.CompletionFunc {
	return a.completeNames(func(ctx context.Context, c *config.Client, prefix string, add func(string)) error {
		return c.Groups().List(ctx, prefix, func(g *configsyncv1.SubscriptionGroup) error {
			add(g.GetName())
			return nil
		})
	})
}

// pairs reads name=value flags.
func pairs(flag string, texts []string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("--%s %q is not name=value", flag, text)
		}
		all[name] = value
	}
	return all, nil
}

// attributeText writes attributes as name=value, by name.
func attributeText(all map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+all[name])
	}
	return orDash(strings.Join(parts, " "))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
