package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/config"
)

func (a *app) topicCommand() *cobra.Command {
	cmd := a.configParent(&cobra.Command{
		Use:   "topic",
		Short: "List, show, create, change and delete topics",
		Example: "  tandemctl topic list\n" +
			"  tandemctl topic create orders --queues 8\n" +
			"  tandemctl topic update orders --perm r",
	})
	cmd.AddCommand(a.topicListCommand(), a.topicGetCommand(), a.topicCreateCommand(), a.topicUpdateCommand(), a.topicDeleteCommand())
	return cmd
}

func (a *app) topicListCommand() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List topics by name",
		Example: "  tandemctl topic list --prefix order\n  tandemctl topic list --local --addr 10.0.0.2:10921   # as a slave has them",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.topicList(cmd.Context(), prefix) },
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only names that begin so")
	return a.localFlag(cmd)
}

func (a *app) topicList(ctx context.Context, prefix string) error {
	return a.withConfig(func(c *config.Client) error {
		var rows [][]string
		err := c.Topics().List(ctx, prefix, func(t *config.Topic) error {
			if a.json() {
				return printProto(a.out, t)
			}
			rows = append(rows, topicRow(t))
			return nil
		})
		if err != nil {
			return err
		}
		if len(rows) == 0 && !a.json() {
			say(a.errOut, a.hint("no topics; `tandemctl topic create demo` makes one"))
			return nil
		}
		if !a.json() {
			table(a.out, topicHeader(), rows)
		}
		return nil
	})
}

func topicHeader() []string {
	return []string{"TOPIC", "READ QUEUES", "WRITE QUEUES", "PERM", "FILTER", "ORDER", "ATTRIBUTES"}
}

func topicRow(t *config.Topic) []string {
	return []string{
		t.GetName(), itoa(t.GetReadQueues()), itoa(t.GetWriteQueues()), permText(t.GetPerm()),
		strings.TrimPrefix(t.GetFilterType().String(), "TOPIC_FILTER_TYPE_"), yesNo(t.GetOrder()), attributeText(t.GetAttributes()),
	}
}

// showTopic writes one topic.
func (a *app) showTopic(t *config.Topic) error {
	if a.json() {
		return printProto(a.out, t)
	}
	table(a.out, topicHeader(), [][]string{topicRow(t)})
	if t.GetUnknownJson() != "" {
		sayf(a.out, "and kept as it is: %s\n", t.GetUnknownJson())
	}
	return nil
}

func (a *app) topicGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "get TOPIC",
		Short:             "Show a topic",
		Args:              oneName("topic"),
		ValidArgsFunction: a.completeTopics(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withConfig(func(c *config.Client) error {
				t, err := c.Topics().Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.showTopic(t)
			})
		},
	}
	return a.localFlag(cmd)
}

// topicFlags are the fields of a topic.
type topicFlags struct {
	queues, read, write int32
	perm, filter        string
	sysFlag             int32
	order               bool
	attributes          []string
}

func (f *topicFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Int32Var(&f.queues, "queues", 0, "queues for readers and for writers, 1 to 65535")
	fs.Int32Var(&f.read, "read-queues", 0, "queues for readers, where they differ")
	fs.Int32Var(&f.write, "write-queues", 0, "queues for writers, where they differ")
	fs.StringVar(&f.perm, "perm", "rw", "`permission`: rw, r, w, - for none, or RocketMQ's number")
	fs.StringVar(&f.filter, "filter-type", "SINGLE_TAG", "`type` of tags: SINGLE_TAG or MULTI_TAG")
	fs.Int32Var(&f.sysFlag, "sys-flag", 0, "RocketMQ's `bits`: 1 unit, 2 unit-sub")
	fs.BoolVar(&f.order, "order", false, "an ordered topic")
	fs.StringArrayVar(&f.attributes, "attribute", nil, "RocketMQ 5's attribute as `name=value`, may be given again; update replaces all")
	_ = cmd.RegisterFlagCompletionFunc("perm", cobra.FixedCompletions([]string{"rw", "r", "w", "-"}, cobra.ShellCompDirectiveNoFileComp))              // the flag exists
	_ = cmd.RegisterFlagCompletionFunc("filter-type", cobra.FixedCompletions([]string{"SINGLE_TAG", "MULTI_TAG"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// topic makes a topic of the flags that were given, and names their fields.
func (f *topicFlags) topic(cmd *cobra.Command, name string) (t *config.Topic, fields []string, err error) {
	t = &config.Topic{Name: name}
	given := cmd.Flags().Changed
	if given("queues") && (given("read-queues") || given("write-queues")) {
		return nil, nil, usagef("give either --queues or --read-queues and --write-queues")
	}
	for _, q := range []struct {
		flag  string
		n     int32
		field string
		to    *int32
	}{
		{"queues", f.queues, "read_queues", &t.ReadQueues},
		{"queues", f.queues, "write_queues", &t.WriteQueues},
		{"read-queues", f.read, "read_queues", &t.ReadQueues},
		{"write-queues", f.write, "write_queues", &t.WriteQueues},
	} {
		if !given(q.flag) {
			continue
		}
		if q.n < 1 || q.n > 65535 {
			return nil, nil, usagef("--%s %d is not within 1 and 65535", q.flag, q.n)
		}
		*q.to = q.n
		fields = append(fields, q.field)
	}
	if given("perm") {
		perm, err := parsePerm(f.perm)
		if err != nil {
			return nil, nil, err
		}
		t.Perm = &perm
		fields = append(fields, "perm")
	}
	if given("filter-type") {
		n, ok := configsyncv1.TopicFilterType_value["TOPIC_FILTER_TYPE_"+strings.ToUpper(f.filter)]
		if !ok || n == 0 {
			return nil, nil, usagef("--filter-type %q is neither SINGLE_TAG nor MULTI_TAG", f.filter)
		}
		t.FilterType = configsyncv1.TopicFilterType(n)
		fields = append(fields, "filter_type")
	}
	if given("sys-flag") {
		t.SysFlag = f.sysFlag
		fields = append(fields, "sys_flag")
	}
	if given("order") {
		t.Order = f.order
		fields = append(fields, "order")
	}
	if given("attribute") {
		if t.Attributes, err = pairs("attribute", f.attributes); err != nil {
			return nil, nil, err
		}
		fields = append(fields, "attributes")
	}
	return t, fields, nil
}

// Bits of a permission, as RocketMQ has them.
const permInherit, permWrite, permRead = 1, 2, 4

// parsePerm reads rw, r, w, -, or a number.
func parsePerm(text string) (int32, error) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return int32(n), nil // the node says which ones there are
	}
	perm := int32(0)
	for _, r := range text {
		switch r {
		case 'r':
			perm |= permRead
		case 'w':
			perm |= permWrite
		case 'i':
			perm |= permInherit
		case '-':
		default:
			return 0, usagef("--perm %q is none of rw, r, w, -, a number", text)
		}
	}
	return perm, nil
}

func permText(perm int32) string {
	text := ""
	for _, bit := range []struct {
		bit  int32
		text string
	}{{permRead, "r"}, {permWrite, "w"}, {permInherit, "i"}} {
		if perm&bit.bit != 0 {
			text += bit.text
		}
	}
	return orDash(text)
}

func (a *app) topicCreateCommand() *cobra.Command {
	var f topicFlags
	cmd := &cobra.Command{
		Use:   "create TOPIC",
		Short: "Add a topic; what is not given is RocketMQ's default",
		Example: "  tandemctl topic create orders --queues 8\n" +
			"  tandemctl topic create delayed --attribute message.type=DELAY",
		Args: oneName("topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, _, err := f.topic(cmd, args[0])
			if err != nil {
				return err
			}
			return a.withConfig(func(c *config.Client) error {
				if t, err = c.Topics().Create(cmd.Context(), t, nil); err != nil {
					return wrapUsage(err)
				}
				return a.showTopic(t)
			})
		},
	}
	f.register(cmd)
	return cmd
}

func (a *app) topicUpdateCommand() *cobra.Command {
	var f topicFlags
	var create bool
	var etag uint64
	cmd := &cobra.Command{
		Use:   "update TOPIC",
		Short: "Change what is given of a topic",
		Example: "  tandemctl topic update orders --queues 16\n" +
			"  tandemctl topic update orders --perm r --create",
		Args:              oneName("topic"),
		ValidArgsFunction: a.completeTopics(),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, fields, err := f.topic(cmd, args[0])
			if err != nil {
				return err
			}
			if len(fields) == 0 && !create {
				return usagef("nothing to change is given; see %s --help", cmd.CommandPath())
			}
			return a.withConfig(func(c *config.Client) error {
				if t, err = c.Topics().Update(cmd.Context(), t, fields, create, config.Condition{Etag: etag}); err != nil {
					return wrapUsage(err)
				}
				return a.showTopic(t)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&create, "create", false, "add it where it is missing")
	cmd.Flags().Uint64Var(&etag, "if-etag", 0, "only while it has this `etag` (-o json shows it)")
	return cmd
}

func (a *app) topicDeleteCommand() *cobra.Command {
	var yes bool
	var etag uint64
	cmd := &cobra.Command{
		Use:               "delete TOPIC",
		Short:             "Remove a topic; its messages and its groups' offsets stay",
		Args:              oneName("topic"),
		ValidArgsFunction: a.completeTopics(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withConfig(func(c *config.Client) error {
				t, err := c.Topics().Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if err := a.confirm(yes, "%s has %d queues for writers, permission %s. Delete it?", t.GetName(), t.GetWriteQueues(), permText(t.GetPerm())); err != nil {
					return err
				}
				if err := c.Topics().Delete(cmd.Context(), args[0], config.Condition{Etag: etag}); err != nil {
					return err
				}
				return a.gone("topic", args[0])
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().Uint64Var(&etag, "if-etag", 0, "only while it has this `etag` (-o json shows it)")
	return cmd
}

// gone says that an entry was removed.
func (a *app) gone(what, name string) error {
	if a.json() {
		return printJSON(a.out, map[string]string{"deleted": name})
	}
	sayf(a.out, "the %s %s is deleted\n", what, name)
	return nil
}
