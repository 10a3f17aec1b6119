package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/telemetry"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// childVar makes the test binary the service itself.
const childVar = "CONFIGSYNC_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		main()
	}
	os.Exit(m.Run()) //nolint:forbidigo // that is what TestMain does
}

// patience bounds every single wait. CI's machine has two cores, which other tests keep busy under the race detector.
const patience = 3 * time.Minute

// scaled is short, or full in a soak.
func scaled[T any](short, full T) T {
	if os.Getenv("TANDEM_SOAK") != "" {
		return full
	}
	return short
}

// node is one whole config sync node, in this process or as a child that can be killed.
type node struct {
	t   testing.TB
	cfg *Config
	fs  vfs.FS
	log *servicetest.Record

	app  *app
	stop func() error

	cmd  *exec.Cmd // as a child, while it runs
	conn *grpc.ClientConn
}

// newNode makes the configuration of a node in a fresh folder, without a storage.
func newNode(t testing.TB, id int64, role string, change ...func(*Config)) *node {
	t.Helper()
	n := &node{t: t, cfg: defaultConfig(), fs: vfs.OS(), log: &servicetest.Record{}}
	c := n.cfg
	c.BrokerID, c.BrokerRole = id, role
	c.Listen = servicetest.FreeAddr(t)
	c.StorePathRootDir = filepath.Join(t.TempDir(), "store")
	c.Telemetry.DebugListen = "127.0.0.1:0"
	c.Telemetry.LogLevel = telemetry.Debug
	c.StartWait = 2 * time.Second
	c.Storage.Interval, c.Storage.Timeout = 100*time.Millisecond, 2*time.Second
	for _, f := range change {
		f(c)
	}
	t.Cleanup(func() {
		n.end()
		if t.Failed() {
			t.Logf("log of node %d:\n%s", id, n.log.Tail())
		}
	})
	return n
}

// group makes a master and slaves that know each other, without storages.
func group(t testing.TB, slaves int, change ...func(*Config)) []*node {
	t.Helper()
	nodes := []*node{newNode(t, 0, asyncMaster, change...)}
	for i := range slaves {
		nodes = append(nodes, newNode(t, int64(i+1), slave, change...))
	}
	return know(nodes)
}

// know makes nodes peers.
func know(nodes []*node) []*node {
	var peers []string
	for _, n := range nodes {
		peers = append(peers, n.cfg.Listen)
	}
	for _, n := range nodes {
		n.cfg.Peers = peers
	}
	return nodes
}

// start starts the node in this process and fails the test where that fails.
func (n *node) start() *node {
	n.t.Helper()
	if err := n.tryStart(); err != nil {
		n.t.Fatalf("start: %v", err)
	}
	return n
}

func (n *node) tryStart() error {
	n.t.Helper()
	cfg := *n.cfg
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg.Telemetry.LogWriter = n.log
	a := &app{cfg: &cfg, fs: n.fs}
	running, err := servicetest.Serve("configsync", cfg.Common, func(env *service.Env) ([]service.Actor, error) {
		a.env = env
		return a.build()
	})
	if err != nil {
		return err
	}
	n.app, n.stop = a, running.Stop
	n.dial()
	return nil
}

// dial makes a plain gRPC client, as anybody's.
func (n *node) dial() {
	n.t.Helper()
	n.conn = servicetest.Dial(n.t, n.cfg.Listen)
}

func (n *node) hangUp() {
	if n.conn != nil {
		_ = n.conn.Close()
		n.conn = nil
	}
}

// halt stops the node and fails the test unless it does so cleanly.
func (n *node) halt() {
	n.t.Helper()
	n.hangUp()
	if n.cmd != nil {
		if err := n.signal(syscall.SIGTERM); err != nil {
			n.t.Errorf("stop of node %d: %v", n.cfg.BrokerID, err)
		}
		return
	}
	stop := n.stop
	n.stop, n.app = nil, nil
	if err := stop(); err != nil {
		n.t.Errorf("stop of node %d: %v", n.cfg.BrokerID, err)
	}
}

// end stops the node if it runs.
func (n *node) end() {
	n.t.Helper()
	if n.stop != nil || n.cmd != nil {
		n.halt()
	}
}

// spawn starts the node as a child and waits until it answers.
func (n *node) spawn() *node {
	n.t.Helper()
	cmd := servicetest.Command(childVar, servicetest.Settings(n.cfg, defaultConfig())...)
	cmd.Stdout, cmd.Stderr = n.log, n.log
	servicetest.Fork(n.t, cmd)
	n.cmd = cmd
	n.dial()
	n.await("an answer", func(*configsyncv1.StatusResponse) bool { return true })
	return n
}

// kill ends the child with -9.
func (n *node) kill() {
	n.t.Helper()
	n.hangUp()
	if err := n.signal(syscall.SIGKILL); err == nil {
		n.t.Error("a killed child left with exit code 0")
	}
}

// signal ends the child and returns how it did.
func (n *node) signal(s syscall.Signal) error {
	n.t.Helper()
	cmd := n.cmd
	n.cmd = nil
	return servicetest.End(n.t, cmd, s)
}

func (n *node) admin() configsyncv1.ConfigAdminServiceClient {
	return configsyncv1.NewConfigAdminServiceClient(n.conn)
}

func (n *node) topics() configsyncv1.TopicServiceClient {
	return configsyncv1.NewTopicServiceClient(n.conn)
}

func (n *node) groups() configsyncv1.SubscriptionGroupServiceClient {
	return configsyncv1.NewSubscriptionGroupServiceClient(n.conn)
}

func (n *node) offsets() configsyncv1.OffsetServiceClient {
	return configsyncv1.NewOffsetServiceClient(n.conn)
}

// await asks for Status until ok says yes.
func (n *node) await(what string, ok func(*configsyncv1.StatusResponse) bool) *configsyncv1.StatusResponse {
	n.t.Helper()
	var last *configsyncv1.StatusResponse
	until(n.t, fmt.Sprintf("node %d: %s", n.cfg.BrokerID, what), func(ctx context.Context) (bool, string) {
		st, err := n.admin().Status(ctx, &configsyncv1.StatusRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return false, err.Error()
		}
		last = st
		return ok(st), st.String()
	})
	return last
}

// until tries f until it says yes, and fails the test with what it said last beyond patience.
func until(t testing.TB, what string, f func(ctx context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last string
	for {
		ok, now := f(ctx)
		if ok {
			return
		}
		if ctx.Err() == nil {
			last = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s never came: %s", what, last)
		}
	}
}

func (n *node) awaitOpen() *node {
	n.t.Helper()
	n.await("opening", func(st *configsyncv1.StatusResponse) bool { return st.GetOpen() })
	return n
}

// versions are those of all tables, by kind.
func versions(st *configsyncv1.StatusResponse) map[configsyncv1.Kind]string {
	out := map[configsyncv1.Kind]string{}
	for _, k := range st.GetKinds() {
		v := k.GetVersion()
		out[k.GetKind()] = fmt.Sprint(v.GetDataVersion(), v.GetSum())
	}
	return out
}

// same waits until all nodes have the tables of the first one.
func same(t testing.TB, nodes ...*node) {
	t.Helper()
	until(t, "the same tables everywhere", func(ctx context.Context) (bool, string) {
		var all []map[configsyncv1.Kind]string
		for _, n := range nodes {
			st, err := n.admin().Status(ctx, &configsyncv1.StatusRequest{})
			if err != nil {
				return false, err.Error()
			}
			if st.GetUnsavedCommits() > 0 {
				return false, "commits are not saved yet"
			}
			all = append(all, versions(st))
		}
		for _, v := range all {
			for k, s := range v {
				if s != all[0][k] {
					return false, fmt.Sprint(all, nodes[0].diff(nodes[1:]))
				}
			}
		}
		return true, ""
	})
}

// create creates topics or fails the test.
func (n *node) create(names ...string) {
	n.t.Helper()
	for _, name := range names {
		if _, err := n.topics().CreateTopic(n.t.Context(), &configsyncv1.CreateTopicRequest{Topic: &configsyncv1.Topic{Name: name}}); err != nil {
			n.t.Fatalf("create %s: %v", name, err)
		}
	}
}

func (n *node) createGroups(names ...string) {
	n.t.Helper()
	for _, name := range names {
		req := &configsyncv1.CreateSubscriptionGroupRequest{Group: &configsyncv1.SubscriptionGroup{Name: name}}
		if _, err := n.groups().CreateSubscriptionGroup(n.t.Context(), req); err != nil {
			n.t.Fatalf("create %s: %v", name, err)
		}
	}
}

// commit commits an offset of queue 0 and returns the one that holds.
func (n *node) commit(topic, grp string, offset int64) int64 {
	n.t.Helper()
	got, err := n.tryCommit(topic, grp, offset)
	if err != nil {
		n.t.Fatalf("commit %d: %v", offset, err)
	}
	return got
}

func (n *node) tryCommit(topic, grp string, offset int64) (int64, error) {
	resp, err := n.offsets().Commit(n.t.Context(), &configsyncv1.CommitRequest{
		Offset: &configsyncv1.ConsumerOffset{Topic: topic, Group: grp, Offset: offset},
	})
	return resp.GetOffset(), grpcx.FromStatus(err)
}

// offset queries queue 0; -1 where there is none.
func (n *node) offset(topic, grp string) int64 {
	n.t.Helper()
	resp, err := n.offsets().Query(n.t.Context(), &configsyncv1.QueryRequest{Topic: topic, Group: grp})
	if err != nil {
		n.t.Fatalf("query: %v", err)
	}
	for _, o := range resp.GetOffsets() {
		if o.GetQueueId() == 0 {
			return o.GetOffset()
		}
	}
	return -1
}

// awaitOffset waits until a node has an offset.
func (n *node) awaitOffset(topic, grp string, want int64) {
	n.t.Helper()
	until(n.t, fmt.Sprintf("node %d: offset %d", n.cfg.BrokerID, want), func(ctx context.Context) (bool, string) {
		resp, err := n.offsets().Query(ctx, &configsyncv1.QueryRequest{Topic: topic, Group: grp})
		if err != nil {
			return false, err.Error()
		}
		return len(resp.GetOffsets()) > 0 && resp.GetOffsets()[0].GetOffset() == want, resp.String()
	})
}

// names lists all topics of a node.
func (n *node) names() []string {
	n.t.Helper()
	var out []string
	req := &configsyncv1.ListTopicsRequest{}
	for {
		resp, err := n.topics().ListTopics(n.t.Context(), req)
		if err != nil {
			n.t.Fatalf("list: %v", err)
		}
		for _, t := range resp.GetTopics() {
			out = append(out, t.GetName())
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return out
		}
	}
}

// export returns a node's files.
func (n *node) export() map[string]string {
	n.t.Helper()
	stream, err := n.admin().Export(n.t.Context(), &configsyncv1.ExportRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]string{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			n.t.Fatalf("export: %v", err)
		}
		out[resp.GetFileName()] += string(resp.GetData())
	}
}

// heardAll says whether a master has heard all its peers.
func (n *node) heardAll(ctx context.Context) (bool, string) {
	st, err := n.admin().Status(ctx, &configsyncv1.StatusRequest{})
	return err == nil && st.GetOpen() && len(st.GetPeersUnheard()) == 0, fmt.Sprint(st, err)
}

// diff says in words what others have differently.
func (n *node) diff(others []*node) string {
	var out strings.Builder
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, o := range others {
		stream, err := n.admin().Diff(ctx, &configsyncv1.DiffRequest{Address: o.cfg.Listen, Limit: 5})
		for err == nil {
			var resp *configsyncv1.DiffResponse
			if resp, err = stream.Recv(); err == nil {
				fmt.Fprintf(&out, "\nnode %d: %v", o.cfg.BrokerID, resp.GetDifferences())
			}
		}
	}
	return out.String()
}
