package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client/config"
)

func (a *app) groupCommand() *cobra.Command {
	cmd := a.configParent(&cobra.Command{
		Use:   "group",
		Short: "List, show, create, change and delete consumer groups",
		Example: "  tandemctl group list\n" +
			"  tandemctl group create billing --retry-max-times 5\n" +
			"  tandemctl group update billing --consume-enable=false",
	})
	cmd.AddCommand(a.groupListCommand(), a.groupGetCommand(), a.groupCreateCommand(), a.groupUpdateCommand(), a.groupDeleteCommand())
	return cmd
}

func (a *app) groupListCommand() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List groups by name",
		Example: "  tandemctl group list --prefix bill",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.groupList(cmd.Context(), prefix) },
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only names that begin so")
	return a.localFlag(cmd)
}

func (a *app) groupList(ctx context.Context, prefix string) error {
	return a.withConfig(func(c *config.Client) error {
		var rows [][]string
		err := c.Groups().List(ctx, prefix, func(g *config.Group) error {
			if a.json() {
				return printProto(a.out, g)
			}
			rows = append(rows, groupRow(g))
			return nil
		})
		if err != nil {
			return err
		}
		if len(rows) == 0 && !a.json() {
			say(a.errOut, a.hint("no groups; `tandemctl group create demo` makes one"))
			return nil
		}
		if !a.json() {
			table(a.out, groupHeader(), rows)
		}
		return nil
	})
}

func groupHeader() []string {
	return []string{"GROUP", "CONSUMES", "BROADCAST", "ORDERLY", "RETRY QUEUES", "RETRIES", "TIMEOUT", "BROKER", "ATTRIBUTES"}
}

func groupRow(g *config.Group) []string {
	return []string{
		g.GetName(), yesNo(g.GetConsumeEnable()), yesNo(g.GetConsumeBroadcastEnable()), yesNo(g.GetConsumeMessageOrderly()),
		itoa(g.GetRetryQueues()), itoa(g.GetRetryMaxTimes()), itoa(g.GetConsumeTimeoutMinutes()) + "m", itoa(g.GetBrokerId()),
		attributeText(g.GetAttributes()),
	}
}

// showGroup writes one group.
func (a *app) showGroup(g *config.Group) error {
	if a.json() {
		return printProto(a.out, g)
	}
	table(a.out, groupHeader(), [][]string{groupRow(g)})
	if g.GetUnknownJson() != "" {
		sayf(a.out, "and kept as it is: %s\n", g.GetUnknownJson())
	}
	return nil
}

func (a *app) groupGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "get GROUP",
		Short:             "Show a group",
		Args:              oneName("group"),
		ValidArgsFunction: a.completeGroups(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withConfig(func(c *config.Client) error {
				g, err := c.Groups().Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.showGroup(g)
			})
		},
	}
	return a.localFlag(cmd)
}

// groupFlags are the fields of a group.
type groupFlags struct {
	consume, fromMin, broadcast, notify, orderly bool
	retryQueues, retries, timeout, sysFlag       int32
	broker, slowBroker                           int64
	retryPolicy                                  string
	attributes                                   []string
}

func (f *groupFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.consume, "consume-enable", true, "the group may consume")
	fs.BoolVar(&f.fromMin, "from-min", true, "it may begin at the first message")
	fs.BoolVar(&f.broadcast, "broadcast", true, "it may broadcast")
	fs.BoolVar(&f.notify, "notify", true, "its members are told who else is there")
	fs.BoolVar(&f.orderly, "orderly", false, "it consumes in order")
	fs.Int32Var(&f.retryQueues, "retry-queues", 1, "queues of the retry topic, 0 to 65535")
	fs.Int32Var(&f.retries, "retry-max-times", 16, "tries after the first one, -1: no end")
	fs.Int32Var(&f.timeout, "consume-timeout", 15, "`minutes` that a message may take")
	fs.Int32Var(&f.sysFlag, "sys-flag", 0, "RocketMQ 5's `bits`")
	fs.Int64Var(&f.broker, "broker-id", 0, "`id` of the broker that serves the group")
	fs.Int64Var(&f.slowBroker, "slow-broker-id", 1, "`id` of the broker that serves it where it is slow")
	fs.StringVar(&f.retryPolicy, "retry-policy", "", "RocketMQ 5's retry policy, a `JSON` object")
	fs.StringArrayVar(&f.attributes, "attribute", nil, "RocketMQ 5's attribute as `name=value`, may be given again; update replaces all")
}

// group makes a group of the flags that were given, and names their fields.
func (f *groupFlags) group(cmd *cobra.Command, name string) (g *config.Group, fields []string, err error) {
	g = &config.Group{Name: name}
	for _, field := range []struct {
		flag, name string
		set        func()
	}{
		{"consume-enable", "consume_enable", func() { g.ConsumeEnable = &f.consume }},
		{"from-min", "consume_from_min_enable", func() { g.ConsumeFromMinEnable = &f.fromMin }},
		{"broadcast", "consume_broadcast_enable", func() { g.ConsumeBroadcastEnable = &f.broadcast }},
		{"notify", "notify_consumer_ids_changed_enable", func() { g.NotifyConsumerIdsChangedEnable = &f.notify }},
		{"orderly", "consume_message_orderly", func() { g.ConsumeMessageOrderly = f.orderly }},
		{"retry-queues", "retry_queues", func() { g.RetryQueues = &f.retryQueues }},
		{"retry-max-times", "retry_max_times", func() { g.RetryMaxTimes = &f.retries }},
		{"consume-timeout", "consume_timeout_minutes", func() { g.ConsumeTimeoutMinutes = &f.timeout }},
		{"sys-flag", "group_sys_flag", func() { g.GroupSysFlag = f.sysFlag }},
		{"broker-id", "broker_id", func() { g.BrokerId = f.broker }},
		{"slow-broker-id", "which_broker_when_consume_slowly", func() { g.WhichBrokerWhenConsumeSlowly = &f.slowBroker }},
		{"retry-policy", "retry_policy_json", func() { g.RetryPolicyJson = f.retryPolicy }},
		{"attribute", "attributes", func() { g.Attributes, err = pairs("attribute", f.attributes) }},
	} {
		if cmd.Flags().Changed(field.flag) {
			field.set()
			fields = append(fields, field.name)
		}
	}
	return g, fields, err
}

func (a *app) groupCreateCommand() *cobra.Command {
	var f groupFlags
	cmd := &cobra.Command{
		Use:     "create GROUP",
		Short:   "Add a group; what is not given is RocketMQ's default",
		Example: "  tandemctl group create billing --retry-max-times 5 --orderly",
		Args:    oneName("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, _, err := f.group(cmd, args[0])
			if err != nil {
				return err
			}
			return a.withConfig(func(c *config.Client) error {
				if g, err = c.Groups().Create(cmd.Context(), g, nil); err != nil {
					return wrapUsage(err)
				}
				return a.showGroup(g)
			})
		},
	}
	f.register(cmd)
	return cmd
}

func (a *app) groupUpdateCommand() *cobra.Command {
	var f groupFlags
	var create bool
	var etag uint64
	cmd := &cobra.Command{
		Use:               "update GROUP",
		Short:             "Change what is given of a group",
		Example:           "  tandemctl group update billing --consume-enable=false",
		Args:              oneName("group"),
		ValidArgsFunction: a.completeGroups(),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, fields, err := f.group(cmd, args[0])
			if err != nil {
				return err
			}
			if len(fields) == 0 && !create {
				return usagef("nothing to change is given; see %s --help", cmd.CommandPath())
			}
			return a.withConfig(func(c *config.Client) error {
				if g, err = c.Groups().Update(cmd.Context(), g, fields, create, config.Condition{Etag: etag}); err != nil {
					return wrapUsage(err)
				}
				return a.showGroup(g)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&create, "create", false, "add it where it is missing")
	cmd.Flags().Uint64Var(&etag, "if-etag", 0, "only while it has this `etag` (-o json shows it)")
	return cmd
}

func (a *app) groupDeleteCommand() *cobra.Command {
	var yes bool
	var etag uint64
	cmd := &cobra.Command{
		Use:               "delete GROUP",
		Short:             "Remove a group; its offsets stay",
		Args:              oneName("group"),
		ValidArgsFunction: a.completeGroups(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withConfig(func(c *config.Client) error {
				g, err := c.Groups().Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if err := a.confirm(yes, "Delete the group %s?", g.GetName()); err != nil {
					return err
				}
				if err := c.Groups().Delete(cmd.Context(), args[0], config.Condition{Etag: etag}); err != nil {
					return err
				}
				return a.gone("group", args[0])
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().Uint64Var(&etag, "if-etag", 0, "only while it has this `etag` (-o json shows it)")
	return cmd
}
