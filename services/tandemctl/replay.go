package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Properties of replayed messages.
const (
	propUniqKey = "UNIQ_KEY"
	// propOrigin says where a replayed message was kept: broker/node/rollback/name@offset.
	propOrigin = "ROLLBACK_ORIGIN"
)

// replayFlags are those of rollback replay.
type replayFlags struct {
	yes, dry bool
	look     int
}

func (a *app) rollbackReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay NODE NAME",
		Short: "Put the messages of a kept range again, to the open master",
		Long: "Put the messages of a kept range again, in their order, to the open master that NODE knows: as new messages with\n" +
			"new offsets, of the same topic, queue, properties and birth. Each gets the property " + propOrigin + " that says where it\n" +
			"was kept. What the master's log has already, told by " + propUniqKey + " among the messages behind the cut, is skipped, so that\n" +
			"replay may be repeated after an error.",
		Example: "  tandemctl rollback replay 10.0.0.1:10911 4096-8192-3 --dry-run\n" +
			"  tandemctl rollback replay 10.0.0.1:10911 4096-8192-3",
		Args: nodeAndName,
		RunE: func(cmd *cobra.Command, args []string) error { return a.rollbackReplay(cmd, &f, args[0], args[1]) },
	}
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().IntVar(&f.look, "look", 100_000, "look at `messages` of each queue behind the cut for those that are there already; 0: put all")
	return cmd
}

func (a *app) rollbackReplay(cmd *cobra.Command, f *replayFlags, addr, name string) error {
	if f.look < 0 {
		return usagef("--look %d is negative", f.look)
	}
	return a.node(cmd, addr, func(ctx context.Context, c *client.Client, admin *client.Admin) error {
		st, err := admin.Status(ctx)
		if err != nil {
			return err
		}
		master, err := c.FindMaster(ctx)
		if err != nil {
			return err
		}
		m, err := a.dial(ctx, master)
		if err != nil {
			return err
		}
		defer func() { _ = m.Close() }() // nothing is lost by a failed goodbye
		r := &replayer{
			a: a, f: f, master: master, reader: m.Reader(), have: map[string]bool{},
			producer: m.Producer(client.ProducerOptions{}),
			origin:   fmt.Sprintf("%s/%d/rollback/%s", st.GetBrokerName(), st.GetNodeId(), name),
		}
		if err := r.survey(ctx, admin, name); err != nil {
			return err
		}
		if err := r.confirm(); err != nil {
			return err
		}
		if !f.dry && r.missing > 0 {
			err = admin.ReadRollback(ctx, name, func(m *client.StoredMessage) error { return r.put(ctx, m) }, func(*client.RollbackGap) error { return nil })
		}
		return r.end(err)
	})
}

// replayer puts what one kept range has again.
type replayer struct {
	a        *app
	f        *replayFlags
	origin   string
	master   string
	reader   *client.Reader
	producer *client.Producer

	kept, missing, present int
	have                   map[string]bool // keys that the master has

	done, weak int
	refused    []string
}

// survey reads the range once: how many messages there are, and which of them the master has.
func (r *replayer) survey(ctx context.Context, admin *client.Admin, name string) error {
	keys, topics, from := map[string]bool{}, map[string]bool{}, int64(-1)
	var order []string
	err := admin.ReadRollback(ctx, name, func(m *client.StoredMessage) error {
		r.kept++
		if from < 0 {
			from = m.GetOffset()
		}
		topics[m.GetMessage().GetTopic()] = true
		key := m.GetMessage().GetProperties()[propUniqKey]
		order = append(order, key)
		keys[key] = true
		return nil
	}, r.a.sayGap)
	if err != nil {
		return err
	}
	delete(keys, "")
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		if r.f.look == 0 || len(keys) == 0 {
			break
		}
		queues, err := r.reader.Queues(ctx, topic)
		if err != nil {
			return err
		}
		for _, q := range queues {
			if err := r.lookInto(ctx, q, from, keys); err != nil {
				return err
			}
		}
	}
	for _, key := range order {
		if r.have[key] {
			r.present++
		}
	}
	r.missing = r.kept - r.present
	return nil
}

// lookInto finds which keys a queue of the master has behind the cut.
func (r *replayer) lookInto(ctx context.Context, q *client.Queue, from int64, keys map[string]bool) error {
	at, err := r.firstBehind(ctx, q, from)
	for left := r.f.look; err == nil && at < q.GetMaxQueueOffset(); {
		if left <= 0 {
			sayf(r.a.errOut, "queue %d of %s has more than %d messages behind the cut: those from %d on were not looked at (--look)\n",
				q.GetQueueId(), q.GetTopic(), r.f.look, at)
			return nil
		}
		var resp *client.GetResponse
		if resp, err = r.get(ctx, q, at, min(left, 256)); err != nil {
			break
		}
		for _, m := range resp.GetMessages() {
			if key := m.GetMessage().GetProperties()[propUniqKey]; keys[key] {
				r.have[key] = true
			}
		}
		if resp.GetNextQueueOffset() <= at {
			return nil
		}
		left -= int(resp.GetNextQueueOffset() - at)
		at = resp.GetNextQueueOffset()
	}
	return err
}

// firstBehind returns the queue offset of the first message at or behind a log offset.
func (r *replayer) firstBehind(ctx context.Context, q *client.Queue, from int64) (int64, error) {
	lo, hi := q.GetMinQueueOffset(), q.GetMaxQueueOffset()
	for lo < hi {
		mid := lo + (hi-lo)/2
		resp, err := r.get(ctx, q, mid, 1)
		if err != nil {
			return 0, err
		}
		if ms := resp.GetMessages(); len(ms) > 0 && ms[0].GetOffset() < from {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

func (r *replayer) get(ctx context.Context, q *client.Queue, at int64, n int) (*client.GetResponse, error) {
	return r.reader.Get(ctx, &client.GetRequest{
		Topic: q.GetTopic(), QueueId: q.GetQueueId(), QueueOffset: at, MaxMessages: int32(n), //nolint:gosec // bounded by the caller
	})
}

func (r *replayer) confirm() error {
	if r.kept == 0 || r.missing == 0 || r.f.dry {
		return nil
	}
	return r.a.confirm(r.f.yes, "%s kept, %d of them are in the log of the master %s already. Put %s again?",
		plural(r.kept, "message"), r.present, r.master, plural(r.missing, "message"))
}

// put puts one message again, unless the master has it.
func (r *replayer) put(ctx context.Context, m *client.StoredMessage) error {
	old := m.GetMessage()
	key := old.GetProperties()[propUniqKey]
	if key != "" && r.have[key] {
		return nil
	}
	props := maps.Clone(old.GetProperties())
	if props == nil {
		props = map[string]string{}
	}
	props[propOrigin] = fmt.Sprintf("%s@%d", r.origin, m.GetOffset())
	again := &client.Message{ // tag and keys are properties
		Topic: old.GetTopic(), QueueId: old.QueueId, Body: old.GetBody(), Properties: props, Flag: old.GetFlag(),
		BornTimestamp: old.GetBornTimestamp(), SysFlag: old.GetSysFlag(),
	}
	res, err := r.producer.Put(ctx, again)
	switch class := errdefs.ClassOf(err); {
	case err != nil && (class == errdefs.InvalidArgument || class == errdefs.Unimplemented):
		r.refused = append(r.refused, fmt.Sprintf("%d: %v", m.GetOffset(), err))
		return nil
	case err != nil:
		return err
	case res.GetStatus() == client.StatusMessageIllegal:
		r.refused = append(r.refused, fmt.Sprintf("%d: %s", m.GetOffset(), res.GetReason()))
		return nil
	case !client.Stored(res.GetStatus()):
		name := client.StatusName(res.GetStatus())
		return errdefs.Newf(errdefs.FailedPrecondition, name, "%s: a message was not stored", name).
			With("kept_offset", m.GetOffset()).WithRemedy("%s; then replay again: what is there is skipped", res.GetReason())
	case res.GetStatus() != client.StatusOK:
		r.weak++
	}
	if key != "" {
		r.have[key] = true
	}
	r.done++
	return nil
}

// replayed is rollback replay's JSON.
type replayed struct {
	Master  string   `json:"master"`
	Kept    int      `json:"kept"`
	Present int      `json:"present"`
	Put     int      `json:"put"`
	NotOK   int      `json:"notOk"`
	Refused []string `json:"refused"`
	DryRun  bool     `json:"dryRun"`
}

func (r *replayer) end(err error) error {
	a := r.a
	switch {
	case a.json():
		if jsonErr := printJSON(a.out, replayed{r.master, r.kept, r.present, r.done, r.weak, append([]string{}, r.refused...), r.f.dry}); jsonErr != nil {
			return jsonErr
		}
	case r.f.dry:
		sayf(a.out, "%s kept, %d in the log of the master %s already, %d would be put\n", plural(r.kept, "message"), r.present, r.master, r.missing)
	default:
		sayf(a.out, "%s kept, %d in the log of the master %s already, %d put again\n", plural(r.kept, "message"), r.present, r.master, r.done)
	}
	for _, line := range r.refused {
		sayf(a.errOut, "cannot be put again: message at %s\n", line)
	}
	if r.weak > 0 {
		sayf(a.errOut, "%s stored, but not PUT_OK: `tandemctl status` shows the slaves\n", plural(r.weak, "message"))
	}
	if err == nil && len(r.refused)+r.weak > 0 {
		return errReported
	}
	return err
}
