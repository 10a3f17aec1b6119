package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
)

const (
	configSlaves = 8
	// Of each topic that the scale is named by there are so many others: a fifth of a group, ten offsets.
	topicsAGroup, queuesATopic = 5, 10
)

// scale is a group of nine nodes with large tables.
type scale struct {
	r       *rig
	topics  int
	dir     string
	nodes   []*configNode // the master first
	counter *counter      // what the first slave and the master say to each other
}

// atScale measures a master with so many topics and eight slaves, and so many changes, one a second.
func atScale(topics, changes int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, _ string) (_ map[string]float64, err error) {
		r.workers++
		s := &scale{r: r, topics: topics, dir: filepath.Join(r.mem, fmt.Sprint(r.workers))}
		defer func() { err = errors.Join(err, s.end()) }()
		out := map[string]float64{}
		if err := s.open(ctx, out); err != nil {
			return nil, err
		}
		if err := s.messages(ctx, out); err != nil {
			return nil, err
		}
		if err := s.change(ctx, changes, out); err != nil {
			return nil, err
		}
		if err := s.idle(ctx, out); err != nil {
			return nil, err
		}
		return out, s.memory(out)
	}
}

// open starts the master on RocketMQ's files, and all slaves at once on nothing.
func (s *scale) open(ctx context.Context, out map[string]float64) error {
	port, err := s.r.ports.Take(configSlaves + 1)
	if err != nil {
		return err
	}
	master := faults.Loopback(port)
	if s.counter, err = newCounter(ctx, master); err != nil {
		return err
	}
	for i := range configSlaves + 1 {
		role, peer := "ASYNC_MASTER", master
		if i > 0 {
			role = "SLAVE"
		}
		if i == 1 {
			peer = s.counter.ln.Addr().String()
		}
		dir := filepath.Join(s.dir, fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Join(dir, "config"), 0o755); err != nil {
			return err
		}
		if i == 0 {
			if err := s.write(filepath.Join(dir, "config")); err != nil {
				return err
			}
		}
		lines := []string{"brokerRole: " + role, fmt.Sprintf("brokerId: %d", i), fmt.Sprintf("peers: [%q, %q]", faults.Loopback(port+i), peer)}
		if i == 0 {
			lines = lines[:2] // nobody has anything that it must ask for
		}
		n, err := s.r.configNode(ctx, fmt.Sprint("configsync-", i), dir, faults.Loopback(port+i), lines...)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, n)
		if i == 0 {
			if err := n.status(ctx, "opening", func(st *configsyncv1.StatusResponse) bool { return st.GetOpen() }); err != nil {
				return err
			}
		}
	}
	began := time.Now()
	err = s.synced(ctx)
	out["first sync s"] = time.Since(began).Seconds()
	return err
}

// write makes the files of the tables.
func (s *scale) write(dir string) error {
	topics := func(i int) string {
		return fmt.Sprintf(`%q:{"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":%[1]q,"topicSysFlag":0,"writeQueueNums":8}`, topicName(i))
	}
	groups := func(i int) string { return fmt.Sprintf(`%q:{"groupName":%[1]q,"retryMaxTimes":16}`, groupName(i)) }
	offsets := func(i int) string {
		queues := make([]string, queuesATopic)
		for q := range queues {
			queues[q] = fmt.Sprintf("%d:%d", q, 1_000_000+i)
		}
		return fmt.Sprintf(`"%s@%s":{%s}`, topicName(i), groupName(i%(s.topics/topicsAGroup)), strings.Join(queues, ","))
	}
	return errors.Join(
		writeTable(filepath.Join(dir, "topics.json"), "topicConfigTable", s.topics, topics),
		writeTable(filepath.Join(dir, "subscriptionGroup.json"), "subscriptionGroupTable", s.topics/topicsAGroup, groups),
		writeTable(filepath.Join(dir, "consumerOffset.json"), "offsetTable", s.topics, offsets),
		writeTable(filepath.Join(dir, "delayOffset.json"), "offsetTable", 18, func(i int) string { return fmt.Sprintf("%d:%d", i+1, i) }),
	)
}

func topicName(i int) string { return fmt.Sprintf("some-topic-name-%07d", i) }
func groupName(i int) string { return fmt.Sprintf("some-group-name-%07d", i) }

func writeTable(name, field string, count int, entry func(int) string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	head := fmt.Sprintf(`{"dataVersion":{"counter":%d,"stateVersion":0,"timestamp":1700000000000},%q:{`, count, field)
	w.WriteString(head) //nolint:errcheck // Flush says it
	for i := range count {
		if i > 0 {
			w.WriteByte(',') //nolint:errcheck // Flush says it
		}
		w.WriteString(entry(i)) //nolint:errcheck // Flush says it
	}
	w.WriteString("}}") //nolint:errcheck // Flush says it
	return errors.Join(w.Flush(), f.Close())
}

// synced waits until all have the master's tables.
func (s *scale) synced(ctx context.Context) error {
	admin := configsyncv1.NewConfigAdminServiceClient(s.nodes[0].conn)
	for _, n := range s.nodes[1:] {
		err := n.status(ctx, "all tables", func(st *configsyncv1.StatusResponse) bool {
			m, err := admin.Status(ctx, &configsyncv1.StatusRequest{})
			if err != nil || m.GetUnsavedCommits() > 0 {
				return false
			}
			return slices.EqualFunc(m.GetKinds(), st.GetKinds(), func(a, b *configsyncv1.KindStatus) bool {
				return b.GetState() == configsyncv1.SyncState_SYNC_STATE_IN_SYNC && proto.Equal(a.GetVersion(), b.GetVersion())
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// caller may ask any node.
func caller() *configsyncv1.Caller {
	return &configsyncv1.Caller{Cluster: "DefaultCluster", BrokerName: "broker-a", NodeId: 99, AnyRole: true}
}

// messages finds the largest message of the transfers of all tables.
func (s *scale) messages(ctx context.Context, out map[string]float64) error {
	largest := 0
	for k := configsyncv1.Kind_KIND_TOPICS; k <= configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS; k++ {
		stream, err := configsyncv1.NewConfigSyncServiceClient(s.nodes[0].conn).Fetch(ctx, &configsyncv1.FetchRequest{Caller: caller(), Kind: k})
		for err == nil {
			var resp *configsyncv1.FetchResponse
			resp, err = stream.Recv()
			largest = max(largest, proto.Size(resp))
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	out["largest message MiB"] = float64(largest) / (1 << 20)
	return nil
}

// seen is a table's version on a slave, at the time at which the slave told it.
type seen struct {
	slave   int
	kind    configsyncv1.Kind
	counter int64
	at      time.Time
	err     error
}

// change makes one change a second and measures until each slave tells of it: a slave's own stream is behind its table by what
// it takes to be heard, which counts.
func (s *scale) change(ctx context.Context, changes int, out map[string]float64) error {
	ctx, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	heard := make(chan seen, 1024)
	kinds := []configsyncv1.Kind{configsyncv1.Kind_KIND_TOPICS, configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS, configsyncv1.Kind_KIND_CONSUMER_OFFSETS}
	for i, n := range s.nodes[1:] {
		for _, k := range kinds {
			watchers.Go(func() { n.watchTable(ctx, i, k, heard) })
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var took []time.Duration
	for i := range changes {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		k := kinds[i%len(kinds)]
		began := time.Now()
		counter, err := s.one(ctx, k, i)
		if err != nil {
			return err
		}
		arrived, err := awaitAll(ctx, heard, k, counter)
		if err != nil {
			return err
		}
		for _, at := range arrived {
			took = append(took, at.Sub(began))
		}
	}
	slices.Sort(took)
	at := func(p float64) float64 { return float64(took[int(p*float64(len(took)-1))].Microseconds()) / 1e3 }
	out["change p50 ms"], out["change p99 ms"], out["change max ms"] = at(0.50), at(0.99), at(1)
	return s.synced(ctx)
}

// watchTable tells what a slave tells of one of its tables.
func (n *configNode) watchTable(ctx context.Context, slave int, k configsyncv1.Kind, heard chan<- seen) {
	admin, client := configsyncv1.NewConfigAdminServiceClient(n.conn), configsyncv1.NewConfigSyncServiceClient(n.conn)
	tell := func(x seen) bool {
		select {
		case heard <- x:
			return x.err == nil
		case <-ctx.Done():
			return false
		}
	}
	st, err := admin.Status(ctx, &configsyncv1.StatusRequest{})
	if err != nil {
		tell(seen{err: err})
		return
	}
	stream, err := client.Watch(ctx, &configsyncv1.WatchRequest{Caller: caller(), Kind: k, Have: st.GetKinds()[k-1].GetVersion()})
	for {
		var resp *configsyncv1.WatchResponse
		if err == nil {
			resp, err = stream.Recv()
		}
		if err == nil && resp.GetHeader() == nil {
			continue
		}
		if !tell(seen{slave, k, resp.GetHeader().GetVersion().GetDataVersion().GetCounter(), time.Now(), err}) {
			return
		}
	}
}

// awaitAll returns when all slaves have told of a version.
func awaitAll(ctx context.Context, heard <-chan seen, k configsyncv1.Kind, counter int64) (map[int]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	arrived := map[int]time.Time{}
	for len(arrived) < configSlaves {
		select {
		case x := <-heard:
			if x.err != nil {
				return nil, x.err
			}
			if _, there := arrived[x.slave]; !there && x.kind == k && x.counter >= counter {
				arrived[x.slave] = x.at
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("version %d of %v is on %d slaves: %w", counter, k, len(arrived), ctx.Err())
		}
	}
	return arrived, nil
}

// one makes a change of a kind and returns the version that it made.
func (s *scale) one(ctx context.Context, k configsyncv1.Kind, i int) (int64, error) {
	conn := s.nodes[0].conn
	switch k {
	case configsyncv1.Kind_KIND_TOPICS:
		resp, err := configsyncv1.NewTopicServiceClient(conn).CreateTopic(ctx, &configsyncv1.CreateTopicRequest{Topic: &configsyncv1.Topic{Name: fmt.Sprint("new-topic-", i)}})
		return resp.GetTableVersion().GetCounter(), err
	case configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS:
		resp, err := configsyncv1.NewSubscriptionGroupServiceClient(conn).CreateSubscriptionGroup(ctx, &configsyncv1.CreateSubscriptionGroupRequest{
			Group: &configsyncv1.SubscriptionGroup{Name: fmt.Sprint("new-group-", i)},
		})
		return resp.GetTableVersion().GetCounter(), err
	default:
		admin := configsyncv1.NewConfigAdminServiceClient(conn)
		before, err := admin.Status(ctx, &configsyncv1.StatusRequest{})
		if err != nil {
			return 0, err
		}
		// Not durable, as consumers commit: the time until it is saved counts.
		_, err = configsyncv1.NewOffsetServiceClient(conn).Commit(ctx, &configsyncv1.CommitRequest{
			Offset: &configsyncv1.ConsumerOffset{Topic: topicName(i), Group: groupName(i % (s.topics / topicsAGroup)), Offset: 2_000_000},
		})
		return before.GetKinds()[k-1].GetVersion().GetDataVersion().GetCounter() + 1, err
	}
}

// idle measures rounds without change.
func (s *scale) idle(ctx context.Context, out map[string]float64) error {
	const rounds = 10
	admin := configsyncv1.NewConfigAdminServiceClient(s.nodes[1].conn)
	if _, err := admin.Sync(ctx, &configsyncv1.SyncRequest{}); err != nil {
		return err
	}
	before := s.counter.bytes.Load()
	for range rounds {
		if _, err := admin.Sync(ctx, &configsyncv1.SyncRequest{}); err != nil {
			return err
		}
	}
	out["idle round B"] = float64(s.counter.bytes.Load()-before) / rounds
	return nil
}

// memory is what the system counts as the processes' own; of slaves the largest.
func (s *scale) memory(out map[string]float64) error {
	for i, n := range s.nodes {
		now, err := n.memory("VmRSS")
		if err != nil {
			return err
		}
		most, err := n.memory("VmHWM")
		if err != nil {
			return err
		}
		who := "slave"
		if i == 0 {
			who = "master"
		}
		out[who+" MiB"], out[who+" most MiB"] = max(out[who+" MiB"], now), max(out[who+" most MiB"], most)
	}
	return nil
}

// memory reads a line of /proc/PID/status, in MiB.
func (c *child) memory(line string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := bytes.Cut(b, []byte(line+":"))
	fields := bytes.Fields(rest)
	if !ok || len(fields) == 0 {
		return 0, fmt.Errorf("/proc/%d/status has no %s", c.cmd.Process.Pid, line)
	}
	kib, err := strconv.ParseFloat(string(fields[0]), 64)
	return kib / 1024, err
}

func (s *scale) end() error {
	for _, n := range s.nodes {
		n.end()
	}
	if s.counter != nil {
		s.counter.end()
	}
	return os.RemoveAll(s.dir)
}
