package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// childVar makes the test binary the storage itself.
const childVar = "STORAGE_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		main()
	}
	os.Exit(m.Run()) //nolint:forbidigo // that is what TestMain does
}

// soak says whether the full length is asked for.
func soak() bool { return os.Getenv("TANDEM_SOAK") != "" }

// scaled is short, or full in a soak.
func scaled[T any](short, full T) T {
	if soak() {
		return full
	}
	return short
}

// node is one whole storage: in this process, or as a child that can be killed.
type node struct {
	t   testing.TB
	cfg *Config
	fs  vfs.FS              // where its folder is
	log *servicetest.Record // what it has logged

	// In this process, while it runs.
	app  *app
	stop func() error // ends it and returns what Serve did

	cmd  *exec.Cmd // as a child, while it runs
	conn *grpc.ClientConn
}

// small are sizes and times that make everything come soon: log files of 256 KiB, queue files of 100 units.
func small(c *Config) {
	c.MappedFileSizeCommitLog, c.MappedFileSizeConsumeQueue, c.MaxMessageSize = 256<<10, 2000, 128<<10
	c.FlushIntervalCommitLog = 20 * time.Millisecond
	c.HASendHeartbeatInterval, c.HAHousekeepingInterval = 100*time.Millisecond, 2*time.Second
	c.HA.StartWait = 50 * time.Millisecond
	c.Telemetry.DebugListen = "127.0.0.1:0"
}

// newNode makes the configuration of a storage in a fresh folder.
func newNode(t testing.TB, id int64, role string, change ...func(*Config)) *node {
	t.Helper()
	n := &node{t: t, cfg: defaultConfig(), fs: vfs.OS(), log: &servicetest.Record{}}
	small(n.cfg)
	n.cfg.BrokerID, n.cfg.BrokerRole = id, role
	n.cfg.Listen, n.cfg.HAListen = servicetest.FreeAddr(t), servicetest.FreeAddr(t)
	n.cfg.StorePathRootDir = filepath.Join(t.TempDir(), "store")
	n.change(change...)
	t.Cleanup(func() {
		n.end()
		if t.Failed() {
			t.Logf("log of node %d:\n%s", id, n.log.Tail())
		}
	})
	return n
}

// change changes the configuration for the next start.
func (n *node) change(change ...func(*Config)) {
	for _, f := range change {
		f(n.cfg)
	}
}

// group makes a master of that role and slaves that know each other.
func group(t testing.TB, role string, slaves int, change ...func(*Config)) []*node {
	t.Helper()
	nodes := []*node{newNode(t, 0, role, change...)}
	for i := range slaves {
		nodes = append(nodes, newNode(t, int64(i+1), slave, change...))
	}
	var peers []string
	for _, n := range nodes {
		peers = append(peers, n.cfg.Listen)
	}
	for _, n := range nodes {
		n.cfg.HA.Peers = peers
	}
	return nodes
}

// follower makes a slave that follows up and knows nobody else.
func follower(t testing.TB, id int64, up *node, change ...func(*Config)) *node {
	t.Helper()
	n := newNode(t, id, slave, change...)
	n.cfg.Master.Address = up.cfg.Listen
	return n
}

// alone makes an async master without peers.
func alone(t testing.TB, change ...func(*Config)) *node {
	t.Helper()
	return newNode(t, 0, asyncMaster, change...)
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
	running, err := servicetest.Serve("storage", cfg.Common, func(env *service.Env) ([]service.Actor, error) {
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
	cmd := n.command()
	cmd.Stdout, cmd.Stderr = n.log, n.log
	servicetest.Fork(n.t, cmd)
	n.cmd = cmd
	n.dial()
	n.await("an answer", func(*storagev1.StatusResponse) bool { return true })
	return n
}

// command is the child that is not started yet.
func (n *node) command(args ...string) *exec.Cmd {
	return servicetest.Command(childVar, append(servicetest.Settings(n.cfg, defaultConfig()), args...)...)
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

func (n *node) admin() storagev1.StorageAdminServiceClient {
	return storagev1.NewStorageAdminServiceClient(n.conn)
}

func (n *node) message() storagev1.MessageServiceClient {
	return storagev1.NewMessageServiceClient(n.conn)
}

func (n *node) store() testkit.Store { return testkit.Store{FS: n.fs, Dir: n.cfg.StorePathRootDir} }

// status returns the node's Status.
func (n *node) status() *storagev1.StatusResponse {
	n.t.Helper()
	st, err := n.admin().Status(n.t.Context(), &storagev1.StatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatalf("status of node %d: %v", n.cfg.BrokerID, err)
	}
	return st
}

// await asks for Status until ok says yes.
func (n *node) await(what string, ok func(*storagev1.StatusResponse) bool) *storagev1.StatusResponse {
	n.t.Helper()
	return n.awaitLong(testkit.Patience, what, ok)
}

func (n *node) awaitLong(patience time.Duration, what string, ok func(*storagev1.StatusResponse) bool) *storagev1.StatusResponse {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last *storagev1.StatusResponse
	var err error
	for {
		var st *storagev1.StatusResponse
		if st, err = n.admin().Status(ctx, &storagev1.StatusRequest{}, grpc.WaitForReady(true)); err == nil {
			if last = st; ok(st) {
				return st
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.t.Fatalf("node %d: %s never came (%v); last status: %v", n.cfg.BrokerID, what, err, last)
		}
	}
}

func (n *node) awaitOpen() *node {
	n.t.Helper()
	n.await("opening", func(st *storagev1.StatusResponse) bool { return st.GetOpen() })
	return n
}

// awaitEnd waits until the node has, has made readable and has dispatched the log up to offset.
func (n *node) awaitEnd(offset int64) {
	n.t.Helper()
	n.await(fmt.Sprintf("the log up to %d", offset), func(st *storagev1.StatusResponse) bool {
		w := st.GetWatermarks()
		return w.GetWrittenOffset() >= offset && w.GetDispatchedOffset() >= offset && w.GetReadableOffset() >= offset
	})
}

// awaitSlaves waits until that many slaves are in sync.
func (n *node) awaitSlaves(count int32) {
	n.t.Helper()
	n.await(fmt.Sprintf("%d slaves in sync", count), func(st *storagev1.StatusResponse) bool {
		return st.GetInSyncSlaves() == count
	})
}

func (n *node) end64() int64 {
	n.t.Helper()
	return n.status().GetWatermarks().GetWrittenOffset()
}

// same waits until all slaves have the master's log and its queues, stops everybody, slaves first, and compares the folders.
func same(t testing.TB, master *node, slaves ...*node) {
	t.Helper()
	end := master.end64()
	master.awaitEnd(end)
	for _, s := range slaves {
		s.awaitEnd(end)
	}
	for _, s := range slaves {
		s.halt()
	}
	master.halt()
	for _, s := range slaves {
		if c := testkit.Same(t, master.store(), s.store()); c.EndA != c.EndB {
			t.Errorf("the log of node %d ends at %d, the master's at %d", s.cfg.BrokerID, c.EndB, c.EndA)
		}
	}
}

// put puts one message on a master and fails the test where that is an error.
func (n *node) put(body []byte, change ...func(*storagev1.PutRequest)) *storagev1.PutResult {
	n.t.Helper()
	r, err := n.tryPut(body, change...)
	if err != nil {
		n.t.Fatalf("put: %v", err)
	}
	return r
}

func (n *node) tryPut(body []byte, change ...func(*storagev1.PutRequest)) (*storagev1.PutResult, error) {
	req := &storagev1.PutRequest{Message: &storagev1.Message{Topic: "TopicTest", Body: body, Tag: "TagA"}}
	for _, f := range change {
		f(req)
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), testkit.Patience)
	defer cancel()
	r, err := n.message().Put(ctx, req)
	return r.GetResult(), grpcx.FromStatus(err)
}

// fill puts count messages of random size, all stored.
func (n *node) fill(count int) {
	n.t.Helper()
	r := rand.New(rand.NewPCG(uint64(n.end64()), uint64(count))) //nolint:gosec // reproducible
	for left := count; left > 0; {
		req := &storagev1.PutBatchRequest{}
		queue := r.Int32N(8)
		for range min(left, 50) {
			req.Messages = append(req.Messages, &storagev1.Message{Topic: "TopicFill", QueueId: &queue, Body: noise(100 + r.IntN(1900)), Tag: "TagA"})
		}
		left -= len(req.GetMessages())
		resp, err := n.message().PutBatch(n.t.Context(), req)
		if err != nil {
			n.t.Fatalf("put batch: %v", err)
		}
		for _, res := range resp.GetResults() {
			if s := res.GetStatus(); s != storagev1.PutStatus_PUT_STATUS_PUT_OK && s != storagev1.PutStatus_PUT_STATUS_SLAVE_NOT_AVAILABLE {
				n.t.Fatalf("put batch: %v", res)
			}
		}
	}
}
