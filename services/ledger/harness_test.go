package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// childVar makes the test binary the ledger itself.
const childVar = "LEDGER_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		main()
	}
	os.Exit(m.Run()) //nolint:forbidigo // that is what TestMain does
}

// seat is one whole ledger: in this process, on a disk in memory, or as a child that can be killed.
type seat struct {
	t   testing.TB
	cfg *Config
	fs  vfs.FS
	mem *memfs.FS           // fs, where it is in memory
	log *servicetest.Record // what it has logged

	app  *app            // in this process, while it runs
	stop func() error    // ends it and returns what Serve did
	over <-chan struct{} // closed when it has ended, by itself too

	cmd  *exec.Cmd // as a child, while it runs
	conn *grpc.ClientConn
}

// newGroup makes the configurations of a group of n in memory, not started and not bootstrapped.
func newGroup(t testing.TB, n int, change ...func(*Config)) []*seat {
	t.Helper()
	var group []*seat
	var peers []string
	for i := range n {
		mem := memfs.New()
		s := &seat{t: t, cfg: defaultConfig(), fs: mem, mem: mem, log: &servicetest.Record{}}
		c := s.cfg
		c.Group, c.SelfID, c.Listen, c.StorePath = "test", "n"+strconv.Itoa(i), servicetest.FreeAddr(t), "/n"+strconv.Itoa(i)
		c.MappedFileSizeForEntryData, c.MappedFileSizeForEntryIndex = 256<<10, 64<<10
		// Longer than a busy machine keeps a process waiting; elections are hurried, and one who is alone has nobody to lose to.
		c.MinElectionTimeout, c.MaxElectionTimeout, c.HeartBeatTimeInterval = 6*time.Second, 8*time.Second, 100*time.Millisecond
		c.LeadershipTransferWaitTimeout = 4 * time.Second
		if n == 1 {
			c.MinElectionTimeout, c.MaxElectionTimeout = 300*time.Millisecond, 400*time.Millisecond
		}
		c.Telemetry.DebugListen = "127.0.0.1:0"
		peers = append(peers, c.SelfID+"-"+c.Listen)
		group = append(group, s)
		t.Cleanup(func() {
			s.end()
			if t.Failed() {
				t.Logf("log of %s:\n%s", c.SelfID, s.log)
			}
		})
	}
	for _, s := range group {
		s.cfg.Peers = peers
		for _, f := range change {
			f(s.cfg)
		}
	}
	return group
}

// onDisk moves the folder of a node that was not started to the real disk.
func (s *seat) onDisk() *seat {
	s.fs, s.mem = vfs.OS(), nil
	s.cfg.StorePath = s.t.TempDir()
	s.t.Cleanup(s.end) // before the folder goes
	return s
}

// bootstrap makes the node a voter, as `ledger bootstrap` does.
func (s *seat) bootstrap() *seat {
	s.t.Helper()
	if err := s.tryBootstrap(); err != nil {
		s.t.Fatal(err)
	}
	return s
}

func (s *seat) tryBootstrap() error {
	cfg := *s.cfg
	return errors.Join(cfg.Validate(), runBootstrap(s.fs, &cfg, nil, s.log))
}

// startAll starts a bootstrapped group.
func startAll(group []*seat) {
	for _, s := range group {
		s.bootstrap().start()
	}
	hurry(group)
}

// quick makes a group that elects within 1 to 2 s: for tests that lose their leader and repeat what fails.
func quick(c *Config) { c.MinElectionTimeout, c.MaxElectionTimeout = time.Second, 2*time.Second }

// hurry has the first member stand for election at once, as if a leader had told it to.
func hurry(group []*seat) {
	if len(group) == 1 {
		return
	}
	s := group[0]
	s.t.Helper()
	term := s.status().GetTerm()
	_, err := s.election().TakeLeadership(s.t.Context(), &ledgerv1.TakeLeadershipRequest{
		Envelope: &ledgerv1.Envelope{Group: s.cfg.Group, From: group[1].cfg.SelfID, To: s.cfg.SelfID, Term: term},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *seat) start() *seat {
	s.t.Helper()
	if err := s.tryStart(); err != nil {
		s.t.Fatalf("start of %s: %v", s.cfg.SelfID, err)
	}
	return s
}

func (s *seat) tryStart() error {
	s.t.Helper()
	cfg := *s.cfg
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg.Telemetry.LogWriter = s.log
	a := &app{cfg: &cfg, fs: s.fs}
	running, err := servicetest.Serve("ledger", cfg.Common, func(env *service.Env) ([]service.Actor, error) {
		a.env = env
		return a.build()
	})
	if err != nil {
		return err
	}
	s.app, s.stop, s.over = a, running.Stop, running.Over()
	s.dial()
	return nil
}

// dial makes a plain gRPC client, as anybody's.
func (s *seat) dial() {
	s.t.Helper()
	s.conn = servicetest.Dial(s.t, s.cfg.Listen)
}

func (s *seat) hangUp() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// halt stops the node and returns how it ended.
func (s *seat) halt() error {
	s.hangUp()
	if s.cmd != nil {
		return s.signal(syscall.SIGTERM)
	}
	stop := s.stop
	s.stop, s.app = nil, nil
	return stop()
}

// end stops the node if it runs.
func (s *seat) end() {
	s.t.Helper()
	if s.stop == nil && s.cmd == nil {
		return
	}
	if err := s.halt(); err != nil {
		s.t.Errorf("stop of %s: %v", s.cfg.SelfID, err)
	}
}

// crash takes the node down as a power cut does: it comes back with what was synced at this moment.
func (s *seat) crash() {
	s.t.Helper()
	left := s.mem.CrashClone(memfs.OnlySynced)
	_ = s.halt()
	s.fs, s.mem = left, left
}

// wipe empties the disk of a node that does not run.
func (s *seat) wipe() {
	mem := memfs.New()
	s.fs, s.mem = mem, mem
}

// spawn starts the node as a child.
func (s *seat) spawn() *seat {
	s.t.Helper()
	s.cmd = servicetest.Command(childVar, servicetest.Settings(s.cfg, defaultConfig())...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	servicetest.Fork(s.t, s.cmd)
	s.dial()
	return s
}

// signal ends the child and returns how it did.
func (s *seat) signal(sig syscall.Signal) error {
	cmd := s.cmd
	s.cmd = nil
	return servicetest.End(s.t, cmd, sig)
}

func (s *seat) admin() ledgerv1.LedgerAdminServiceClient {
	return ledgerv1.NewLedgerAdminServiceClient(s.conn)
}

func (s *seat) ledger() ledgerv1.LedgerServiceClient { return ledgerv1.NewLedgerServiceClient(s.conn) }

func (s *seat) election() ledgerv1.ElectionServiceClient {
	return ledgerv1.NewElectionServiceClient(s.conn)
}

func (s *seat) pushes() ledgerv1.PushServiceClient { return ledgerv1.NewPushServiceClient(s.conn) }

// await asks for Status until ok says yes.
func (s *seat) await(what string, ok func(*ledgerv1.StatusResponse) bool) *ledgerv1.StatusResponse {
	s.t.Helper()
	var last *ledgerv1.StatusResponse
	poll(s.t, s.cfg.SelfID+": "+what, func(ctx context.Context) error {
		st, err := s.admin().Status(ctx, &ledgerv1.StatusRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if last = st; !ok(st) {
			return fmt.Errorf("status is %v", st) //nolint:err113 // for the test's log
		}
		return nil
	})
	return last
}

func (s *seat) status() *ledgerv1.StatusResponse {
	return s.await("a status", func(*ledgerv1.StatusResponse) bool { return true })
}

// poll repeats try until it succeeds.
func poll(t testing.TB, what string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		one, stop := context.WithTimeout(ctx, testkit.Patience/2)
		err := try(one)
		stop()
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s never came: %v; before: %v", what, err, last)
		}
	}
}

// running are the members that run.
func running(group []*seat) []*seat {
	var out []*seat
	for _, s := range group {
		if s.conn != nil {
			out = append(out, s)
		}
	}
	return out
}

// leader waits until one leads whom a majority of those that run follows.
func leader(t testing.TB, group []*seat) *seat {
	t.Helper()
	var found *seat
	poll(t, "a leader", func(ctx context.Context) error {
		votes := map[string]int{}
		for _, s := range running(group) {
			st, err := s.admin().Status(ctx, &ledgerv1.StatusRequest{})
			if err == nil && st.GetLeader() != "" {
				votes[fmt.Sprint(st.GetTerm(), " ", st.GetLeader())]++
			}
		}
		for vote, n := range votes {
			if n <= len(group)/2 {
				continue
			}
			for _, s := range running(group) {
				if strings.HasSuffix(vote, " "+s.cfg.SelfID) {
					found = s
					return nil
				}
			}
		}
		return fmt.Errorf("votes are %v", votes) //nolint:err113 // for the test's log
	})
	return found
}

// others are the members that run, without s.
func others(group []*seat, s *seat) []*seat {
	var out []*seat
	for _, o := range running(group) {
		if o != s {
			out = append(out, o)
		}
	}
	return out
}

// client appends with keys, so that what it repeats stands once.
type client struct {
	t     testing.TB
	id    []byte
	next  atomic.Uint64
	after int64
}

func newClient(t testing.TB) *client {
	c := &client{t: t, id: make([]byte, 16), after: -1}
	for i := range c.id {
		c.id[i] = byte(rand.Uint32()) //nolint:gosec // any bytes
	}
	return c
}

// put appends to whoever leads until it is committed.
func (c *client) put(group []*seat, body string) *ledgerv1.AppendResponse {
	c.t.Helper()
	key := &ledgerv1.IdempotenceKey{ClientId: c.id, Sequence: c.next.Add(1), AfterIndex: c.after}
	var got *ledgerv1.AppendResponse
	poll(c.t, "an append", func(ctx context.Context) error {
		var errs []error
		for _, s := range running(group) {
			var err error
			if got, err = s.ledger().Append(ctx, &ledgerv1.AppendRequest{Body: []byte(body), Key: key}); err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return got
}

// bodies reads what clients have appended, from a member's own view, after it has committed the entry index.
func (s *seat) bodies(index int64) []string {
	s.t.Helper()
	s.await(fmt.Sprint("commit ", index), func(st *ledgerv1.StatusResponse) bool { return st.GetCommittedIndex() >= index })
	var out []string
	for next := int64(0); next <= index; {
		r, err := s.ledger().GetRange(s.t.Context(), &ledgerv1.GetRangeRequest{
			Index: next, MaxEntries: 100, Consistency: ledgerv1.Consistency_CONSISTENCY_LOCAL,
		})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range r.GetEntries() {
			if !e.GetNoOp() && e.GetIndex() <= index {
				out = append(out, string(e.GetBody()))
			}
		}
		next = r.GetNextIndex()
	}
	return out
}

// reason is that of a call's error.
func reason(err error) string { return errdefs.ReasonOf(grpcx.FromStatus(err)) }

// wantReason fails the test unless err has the reason.
func wantReason(t testing.TB, what string, err error, want string) *errdefs.Error {
	t.Helper()
	if got := reason(err); got != want {
		t.Errorf("%s: %v has the reason %q, want %q", what, err, got, want)
		return errdefs.New(errdefs.Unknown, "", "")
	}
	return errdefs.As(grpcx.FromStatus(err))
}
