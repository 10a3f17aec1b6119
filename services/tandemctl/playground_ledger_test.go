package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// member0 acts as a `ledger` binary: of a group whose n0 leads once it was bootstrapped there.
type member0 struct {
	ledgerv1.UnimplementedLedgerAdminServiceServer

	c    memberConfig
	made atomic.Bool
}

func fakeMember() int {
	fs := flag.NewFlagSet("ledger", flag.ContinueOnError)
	name := fs.String("config", "", "")
	if err := fs.Parse(os.Args[1:]); err != nil {
		return 2
	}
	b, err := os.ReadFile(*name)
	if err != nil {
		return 2
	}
	m := &member0{}
	if err := yaml.UnmarshalWithOptions(b, &m.c, yaml.Strict()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ln, err := net.Listen("tcp", m.c.Listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		resp, err := next(ctx, req)
		return resp, grpcx.ToStatus(err)
	}))
	ledgerv1.RegisterLedgerAdminServiceServer(server, m)
	go func() { _ = server.Serve(ln) }() // ends with Stop
	<-ctx.Done()
	server.Stop()
	return 0
}

func (m *member0) Status(ctx context.Context, _ *ledgerv1.StatusRequest) (*ledgerv1.StatusResponse, error) {
	st := &ledgerv1.StatusResponse{Id: m.c.SelfID, Group: m.c.Group, LastIndex: -1, Role: ledgerv1.Role_ROLE_FOLLOWER}
	_, first, _ := strings.Cut(m.c.Peers[0], "-")
	if m.c.SelfID != "n0" { // the others ask the first
		conn, err := grpcx.Dial(first, grpcx.ClientOptions{})
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		leader, err := ledgerv1.NewLedgerAdminServiceClient(conn).Status(ctx, &ledgerv1.StatusRequest{})
		if err != nil {
			return st, nil // no leader yet
		}
		st.Leader, st.LeaderAddress, st.Voter, st.Term = leader.GetLeader(), first, leader.GetVoter(), leader.GetTerm()
		return st, nil
	}
	for _, p := range m.c.Peers[1:] {
		id, addr, _ := strings.Cut(p, "-")
		st.Followers = append(st.Followers, &ledgerv1.Follower{Id: id, Address: addr, State: ledgerv1.PushState_PUSH_STATE_APPEND, Connected: true})
	}
	if m.made.Load() {
		st.Role, st.Leader, st.LeaderAddress, st.Voter, st.Term = ledgerv1.Role_ROLE_LEADER, "n0", first, true, 1
	}
	return st, nil
}

func (m *member0) Bootstrap(_ context.Context, req *ledgerv1.BootstrapRequest) (*ledgerv1.BootstrapResponse, error) {
	if !slices.Equal(req.GetMembers(), []string{"n0", "n1", "n2"}) || m.made.Swap(true) {
		return nil, errdefs.New(errdefs.FailedPrecondition, "GROUP_EXISTS", "it has been done")
	}
	return &ledgerv1.BootstrapResponse{Members: req.GetMembers()}, nil
}

func TestPlaygroundOfALedger(t *testing.T) {
	t.Setenv(fakeVar, "ledger")
	t.Setenv("TANDEM_LEDGER_LISTEN", "must not reach the nodes")
	dir := t.TempDir()
	out, errOut, stop := startCtl(t, "", "playground", "--ledger", "--ledger-bin", self(t), "--dir", dir)
	defer stop()
	out.waitFor(t, "Ctrl-C stops everything.")
	addrs := regexp.MustCompile(`export TANDEMCTL_LEDGER_ADDR=(\S+)`).FindStringSubmatch(out.String())[1]
	if !strings.Contains(errOut.String(), "starting 3 nodes in "+dir) || !strings.Contains(errOut.String(), "the new group elects its first leader") {
		t.Errorf("%s", errOut)
	}
	if r := ctl(t, "", "", "ledger", "status", "--addr", addrs); r.code != exitOK || strings.Count(r.out, "follower, term 1, leader n0") != 2 {
		t.Errorf("%+v", r)
	}
	b, err := os.ReadFile(filepath.Join(dir, "n1", "ledger.yaml"))
	all := strings.Split(addrs, ",")
	want := fmt.Sprintf("group: playground\nselfId: n1\npeers:\n- n0-%s\n- n1-%s\n- n2-%s\nstorePath: %s\nlisten: %s\nmappedFileSizeForEntryData: 67108864\n"+
		"mappedFileSizeForEntryIndex: 4194304\ntelemetry:\n  debugListen: ", all[0], all[1], all[2], filepath.Join(dir, "n1", "data"), all[1])
	if err != nil || !strings.HasPrefix(string(b), want) {
		t.Errorf("%v, %s\nwant %s", err, b, want)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
	out.waitFor(t, "playground --ledger --dir "+dir)
	out.waitFor(t, "rm -r playground.lock n0 n1 n2\n")
}

func TestPlaygroundOfALedgerUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--async"}, "do not go with --ledger"},
		{[]string{"--file-size", "5000"}, "not a multiple of 32"},
		{[]string{"--ledger-bin", "/does/not/exist"}, "--ledger-bin /does/not/exist is no executable file"},
	} {
		if r := ctl(t, "", "", append([]string{"playground", "--ledger"}, tc.args...)...); r.code != exitUsage || !strings.Contains(r.err, tc.want) {
			t.Errorf("%v: %+v", tc.args, r)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if r := ctl(t, "", "", "playground", "--ledger"); r.code != exitFailed || !strings.Contains(r.err, "no `ledger` binary") || !strings.Contains(r.err, "--ledger-bin") {
		t.Errorf("%+v", r)
	}
	t.Setenv(fakeVar, "broken")
	r := ctl(t, "", "", "playground", "--ledger", "--ledger-bin", self(t), "--dir", t.TempDir())
	if r.code != exitFailed || !strings.Contains(r.err, "has ended: exit status 3") {
		t.Errorf("%+v", r)
	}
}

func TestPlaygroundOfALedgerTakesNoSizesTwice(t *testing.T) {
	dir := t.TempDir()
	p := &playground{f: &playFlags{fileSize: 1 << 20}}
	p.nodes = []*playNode{{name: "n0", dir: dir, listen: "127.0.0.1:1", debugListen: "127.0.0.1:2"}}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		b, err := p.memberConfigOf(p.nodes[0])
		if err != nil || strings.Contains(string(b), "mappedFileSizeForEntryData: 1048576") != want {
			t.Errorf("%v: %v, %s", want, err, b)
		}
		if err := os.WriteFile(filepath.Join(dir, "data", "00000000000000000000"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
