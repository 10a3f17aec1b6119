package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// ledgerCtl runs a command of ledger against all nodes of a group.
func ledgerCtl(t *testing.T, g *clienttest.Ledger, stdin string, args ...string) result {
	t.Helper()
	return ctl(t, "", stdin, append([]string{"ledger", "--addr", strings.Join(g.Addrs(), ",")}, args...)...)
}

func TestLedgerAppendAndGet(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	g.NoOp()
	ledgerCtl(t, g, "", "append", "hello", "world").want(t, exitOK, "INDEX         TERM    SIZE\n1             1       11\n", "")
	ledgerCtl(t, g, "from stdin", "append", "--channel", "7", "-o", "json").want(t, exitOK, `{"index":"2","term":"1","size":10}`+"\n", "")
	r := ledgerCtl(t, g, "", "get")
	id := regexp.MustCompile(`[0-9a-f]{8} `).FindAllString(r.out, -1)
	if len(id) != 2 || id[0] == id[1] {
		t.Fatalf("%v in\n%s", id, r.out)
	}
	r.out = regexp.MustCompile(`[0-9a-f]{8} `).ReplaceAllString(r.out, "CLIENTID ")
	r.want(t, exitOK, `INDEX       TERM   SIZE     CHANNEL   CLIENT    SEQUENCE  BODY
0           1      0        0         -         -         (opens the term)
1           1      11       0         CLIENTID  1         hello world
2           1      10       7         CLIENTID  1         from stdin
`, "")
	ledgerCtl(t, g, "", "get", "--from", "-2", "--raw").want(t, exitOK, "hello world\nfrom stdin\n", "")
	ledgerCtl(t, g, "", "get", "--raw", "--max", "2").want(t, exitOK, "hello world\n", "")
	ledgerCtl(t, g, "", "get", "2", "--raw", "--local").want(t, exitOK, "from stdin\n", "")
	ledgerCtl(t, g, "", "get", "--from", "next").want(t, exitOK, "", "no entries there\n")
	if r := ledgerCtl(t, g, "", "get", "9"); r.code != exitFailed || !strings.Contains(r.err, "no entry of this index is committed") || !strings.Contains(r.err, "-> `tandemctl ledger status`") {
		t.Errorf("%+v", r)
	}
}

func TestLedgerAppendMany(t *testing.T) {
	for _, how := range [][]string{nil, {"--stream"}, {"--batch", "10"}, {"--no-key"}} {
		g := clienttest.StartLedger(t, 3)
		r := ledgerCtl(t, g, "", append([]string{"append", "--count", "25", "--number", "load"}, how...)...)
		if r.code != exitOK || strings.Count(r.out, "\n") != 23 || !regexp.MustCompile(`\n\.\.\.\n25 of 25 committed in \S+ \(\d+/s\)\n$`).MatchString(r.out) {
			t.Errorf("%v: %+v", how, r)
		}
		if b := g.Bodies(); len(b) != 25 || b[24] != "load 25" {
			t.Errorf("%v: %v", how, b)
		}
	}
	g := clienttest.StartLedger(t, 1)
	if r := ledgerCtl(t, g, "a\n\nb\n", "append", "-f", "-", "-q"); r.code != exitOK || !strings.HasPrefix(r.out, "2 of 2 committed") || len(g.Entries()) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestLedgerAppendSaysWhatIsUnknown(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	g.AfterAppend(func(*clienttest.LedgerNode, []byte) error {
		return errdefs.New(errdefs.Unknown, "APPEND_UNKNOWN", "leadership ended before the entry was committed")
	})
	r := ledgerCtl(t, g, "", "append", "--no-key", "x")
	r.want(t, exitFailed, "", "tandemctl: leadership ended before the entry was committed (address=ADDR)\n"+
		"  -> look for it with `tandemctl ledger get --from -10` before appending it again\n", g.Nodes[0].Addr())
	var n atomic.Int32
	g.AfterAppend(func(*clienttest.LedgerNode, []byte) error {
		if n.Add(1) == 1 {
			return errdefs.New(errdefs.Unknown, "APPEND_UNKNOWN", "x")
		}
		return nil
	})
	ledgerCtl(t, g, "", "append", "y").want(t, exitOK, "INDEX         TERM    SIZE\n1             1       1         an earlier try had come through\n", "")
}

func TestLedgerAdvice(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	g.Lead(-1)
	if r := ledgerCtl(t, g, "", "append", "--timeout", "300ms", "x"); r.code != exitFailed || !strings.Contains(r.err, "no node leads the group") || !strings.Contains(r.err, "`tandemctl ledger bootstrap`") {
		t.Errorf("%+v", r)
	}
	g.Nodes[0].Stop()
	ledgerCtl(t, g, "", "get", "--timeout", "200ms").want(t, exitFailed, "",
		"tandemctl: cannot reach the server: dial tcp ADDR: connect: connection refused\n"+
			"  -> is a ledger running there? `tandemctl playground --ledger` starts a group\n"+
			"  -> name other addresses with --addr or TANDEMCTL_LEDGER_ADDR\n", g.Nodes[0].Addr())
}

func TestLedgerAddressIsItsOwn(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	s := clienttest.Start(t, clienttest.Options{})
	env := map[string]string{addrVar: s.Addr(), ledgerAddrVar: g.Nodes[0].Addr()}
	for _, args := range [][]string{{"ledger", "append", "x"}, {"put", "--topic", "t", "x"}} {
		out, errOut := newSyncBuffer(), newSyncBuffer()
		a := &app{in: strings.NewReader(""), out: out, errOut: errOut, env: func(name string) string { return env[name] }}
		if code := a.run(t.Context(), args); code != exitOK {
			t.Errorf("%v: %d, %s", args, code, errOut)
		}
	}
	if len(g.Entries()) != 1 || len(s.Log()) != 1 {
		t.Errorf("%d entries, %d bytes", len(g.Entries()), len(s.Log()))
	}
}

func TestLedgerUsage(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"apend"}, `did you mean "append"?`},
		{[]string{"append", "--count", "0", "x"}, "--count 0"},
		{[]string{"append", "--batch", "2", "--stream", "x"}, "either --batch or --stream"},
		{[]string{"append", "-f", "x", "y"}, "either a body or --file"},
		{[]string{"get", "x"}, `"x" is no index`},
		{[]string{"get", "1", "2"}, "takes one index"},
		{[]string{"get", "--from", "soon"}, "--from"},
		{[]string{"tail", "x"}, "takes no argument"},
		{[]string{"transfer", "a", "b"}, "takes the id of one member"},
		{[]string{"status", "-w", "--interval", "1ms"}, "--interval"},
		{[]string{"bench", "--callers", "0"}, "--callers"},
		{[]string{"bench", "--for", "0s"}, "--for"},
		{[]string{"bootstrap", "--yes", "--members", "n0,n7"}, "members"},
	} {
		if r := ledgerCtl(t, g, "", tc.args...); r.code != exitUsage || !strings.Contains(r.err, tc.want) {
			t.Errorf("%v: %+v", tc.args, r)
		}
	}
}

func TestLedgerTail(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	ledgerCtl(t, g, "", "append", "--count", "3", "--number", "e")
	ledgerCtl(t, g, "", "tail", "--from", "first", "--max", "2", "--raw").want(t, exitOK, "e 1\ne 2\n", "")
	out, _, stop := startCtl(t, "", "ledger", "tail", "--raw", "--from", "-1", "--addr", g.Nodes[0].Addr())
	defer stop()
	out.waitFor(t, "e 3\n")
	ledgerCtl(t, g, "", "append", "late")
	out.waitFor(t, "late\n")
	if code := stop(); code != exitOK || out.String() != "e 3\nlate\n" {
		t.Errorf("%d, %q", code, out)
	}
}

func TestLedgerStatusTable(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	leader := &ledger.NodeStatus{
		Group: "g", Id: "n0", Role: ledgerv1.Role_ROLE_LEADER, Term: 5, Leader: "n0", Lease: true, Voter: true, Version: "1.2.3",
		LastIndex: 120, CommittedIndex: 119, SyncedIndex: 120, FlushMode: ledgerv1.FlushMode_FLUSH_MODE_SYNC, LogSize: 5 << 20, DiskFree: 3 << 30,
		StartedAt: timestamppb.New(now.Add(-90 * time.Minute)), Refused: map[string]int64{"OLD_TERM": 3, "GAP": 1, "NOT_LEADER": 0},
		Followers: []*ledgerv1.Follower{
			{
				Id: "n1", Address: "10.0.0.2:20911", State: ledgerv1.PushState_PUSH_STATE_APPEND, MatchIndex: 119, NextIndex: 121, Lag: 1, CommittedIndex: 119,
				InflightEntries: 1, Silent: durationpb.New(20 * time.Millisecond), Connected: true, LastError: "old news", LastErrorTime: timestamppb.New(now.Add(-time.Hour)),
			},
			{
				Id: "n2", Address: "10.0.0.3:20911", State: ledgerv1.PushState_PUSH_STATE_COMPARE, MatchIndex: -1, Lag: 120, CommittedIndex: -1, Silent: durationpb.New(4 * time.Second),
				Learner: true, Refused: ledgerv1.Reason_REASON_CONFLICT, LastError: "connection refused (address=10.0.0.3:20911); check it", LastErrorTime: timestamppb.New(now.Add(-3 * time.Second)),
			},
		},
	}
	follower := &ledger.NodeStatus{
		Group: "g", Id: "n2", Role: ledgerv1.Role_ROLE_FOLLOWER, Term: 5, FirstIndex: 0, LastIndex: -1, CommittedIndex: -1, SyncedIndex: -1,
		FlushMode: ledgerv1.FlushMode_FLUSH_MODE_ASYNC, Reason: "it lost its disk", Remedy: "it catches up by itself", Version: "1.2.3",
	}
	var b bytes.Buffer
	all := []member{{addr: "10.0.0.1:20911", status: leader}, {addr: "10.0.0.3:20911", status: follower}, {addr: "10.0.0.9:20911", err: ledger.ErrUnreachable}}
	if err := (nodes[*ledger.NodeStatus]{app: &app{output: "table"}, draw: page.member}).show(&b, all, now); err != nil {
		t.Fatal(err)
	}
	want := `10.0.0.1:20911  n0  leader, term 5, lease  (group g, tandem 1.2.3, up 1h30m)
  FIRST  LAST  COMMITTED  SYNCED  FLUSH  LOG      DISK FREE
  0      120   119        120     sync   5.0 MiB  3.0 GiB
  FOLLOWER  ADDRESS         LINK  STATE             MATCH  LAG  COMMITTED  IN FLIGHT  SILENT
  n1        10.0.0.2:20911  up    append            119    1    119        1          20ms
  n2        10.0.0.3:20911  down  compare, no vote  -1     120  -1         0          4s
  ! n2 refused: CONFLICT
  ! n2, 3s ago: connection refused
  refused since the start: GAP 1, OLD_TERM 3

10.0.0.3:20911  n2  follower, term 5, no leader, no vote  (group g, tandem 1.2.3)
  ! it lost its disk
    -> it catches up by itself
  FIRST  LAST  COMMITTED  SYNCED  FLUSH  LOG  DISK FREE
  0      -1    -1         -1      async  0 B  0 B

10.0.0.9:20911  not reached: cannot reach the node
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

func TestLedgerStatus(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	g.Nodes[2].Stop()
	r := ledgerCtl(t, g, "", "status")
	if r.code != exitFailed || strings.Count(r.out, "term 1") != 2 || !strings.Contains(r.out, "n1  follower, term 1, leader n0") || !strings.Contains(r.out, g.Nodes[2].Addr()+"  not reached") {
		t.Errorf("%+v", r)
	}
	r = ledgerCtl(t, g, "", "status", "-o", "json")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != exitFailed || len(lines) != 3 {
		t.Fatalf("%+v", r)
	}
	for i, l := range lines {
		var line struct {
			Address, Error string
			Status         struct{ ID, Role string }
		}
		if err := json.Unmarshal([]byte(l), &line); err != nil || line.Address != g.Nodes[i].Addr() || (line.Error != "") != (i == 2) || (line.Status.ID == "") != (i == 2) {
			t.Errorf("line %d: %v, %s", i, err, l)
		}
	}
	out, _, stop := startCtl(t, "", "ledger", "status", "-w", "--interval", "100ms", "--addr", strings.Join(g.Addrs(), ","))
	defer stop()
	out.waitFor(t, "n1  follower, term 1")
	g.Lead(1)
	out.waitFor(t, "n1  leader, term 2")
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestLedgerTransferAndBootstrap(t *testing.T) {
	g := clienttest.StartLedger(t, 3)
	ledgerCtl(t, g, "", "transfer", "n2").want(t, exitOK, "term 1 has ended; n2 (ADDR) takes over\n", "", g.Nodes[2].Addr())
	ledgerCtl(t, g, "", "transfer", "n2").want(t, exitOK, "n2 (ADDR) leads already; nothing was changed\n", "", g.Nodes[2].Addr())
	ledgerCtl(t, g, "", "transfer", "-o", "json").want(t, exitOK, `{"target":"n0","address":"ADDR","term":"2"}`+"\n", "", g.Nodes[0].Addr())
	r := ledgerCtl(t, g, "", "__complete", "transfer", "")
	if r.code != exitUsage { // __complete is the root's
		t.Errorf("%+v", r)
	}
	r = ctl(t, "", "", "__complete", "ledger", "--addr", g.Nodes[0].Addr(), "transfer", "")
	if want := fmt.Sprintf("n1\t%s\nn2\t%s\n", g.Nodes[1].Addr(), g.Nodes[2].Addr()); !strings.HasPrefix(r.out, want) {
		t.Errorf("%q, want %q", r.out, want)
	}
	g.Lead(0) // the fake knows members of a leader only
	if r := ledgerCtl(t, g, "n\n", "bootstrap"); r.code != exitFailed || !strings.Contains(r.err, `Make them the new group "test"? [y/N]`) || !strings.Contains(r.err, "nothing was done") {
		t.Errorf("%+v", r)
	}
	ledgerCtl(t, g, "", "bootstrap", "--yes").want(t, exitOK, "3 members of the new group: n0, n1, n2; they elect a leader now (`tandemctl ledger status`)\n", "")
	ledgerCtl(t, g, "", "append", "x")
	if r := ledgerCtl(t, g, "", "bootstrap", "--yes", "--members", "n2,n1,n0"); r.code != exitFailed || !strings.Contains(r.err, "holds entries already") {
		t.Errorf("%+v", r)
	}
}

func TestLedgerBench(t *testing.T) {
	for _, how := range [][]string{{}, {"--batch", "4"}, {"--stream"}, {"--no-key"}} {
		g := clienttest.StartLedger(t, 1)
		r := ledgerCtl(t, g, "", append([]string{"bench", "--yes", "--for", "50ms", "--callers", "4", "--size", "10", "-o", "json"}, how...)...)
		var got ledgerBenchResult
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitOK || got.Entries == 0 || int(got.Entries) > len(g.Entries()) || got.P50Micros > got.LongestMicro {
			t.Errorf("%v: %v, %+v, %d entries", how, err, r, len(g.Entries()))
		}
	}
	g := clienttest.StartLedger(t, 1)
	g.BeforeAppend(func(*clienttest.LedgerNode, []byte) error {
		return errdefs.New(errdefs.PermissionDenied, "NOT_YOURS", "not yours")
	})
	if r := ledgerCtl(t, g, "", "bench", "--yes"); r.code != exitFailed || !strings.Contains(r.err, "not yours") || !strings.Contains(r.out, "ENTRIES/S") {
		t.Errorf("%+v", r)
	}
	if r := ledgerCtl(t, g, "", "bench"); !strings.Contains(r.err, errNotConfirmed.Error()) {
		t.Errorf("%+v", r)
	}
}

func TestMarkMarksEach(t *testing.T) {
	err := mark(errors.Join(ledger.ErrUnreachable.With("address", "a"), ledger.ErrNoLeader), ledgerAdvice)
	for _, one := range flatten(err) {
		var of *marked
		if !errors.As(one, &of) {
			t.Errorf("%v is not marked", one)
		}
	}
	if len(flatten(err)) != 2 || mark(nil, ledgerAdvice) != nil || !errors.Is(mark(errReported, ledgerAdvice), errReported) {
		t.Error(err)
	}
}

// lonely is a member of a new group whose others are away.
type lonely struct {
	ledgerv1.UnimplementedLedgerAdminServiceServer
}

func (lonely) Status(context.Context, *ledgerv1.StatusRequest) (*ledgerv1.StatusResponse, error) {
	return &ledgerv1.StatusResponse{Id: "n0", Group: "g"}, nil
}

func (lonely) Bootstrap(context.Context, *ledgerv1.BootstrapRequest) (*ledgerv1.BootstrapResponse, error) {
	return nil, ledger.ErrUnreachable.WithMsg("member n1 at 10.0.0.9:20911: cannot reach the server: connection refused").With("address", "10.0.0.9:20911")
}

func TestLedgerBootstrapOfMembersThatAreAway(t *testing.T) {
	s, err := grpcx.NewServer(grpcx.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ledgerv1.RegisterLedgerAdminServiceServer(s, lonely{})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	ctl(t, "", "", "ledger", "bootstrap", "--yes", "--addr", ln.Addr().String()).want(t, exitFailed, "",
		"tandemctl: ADDR cannot reach the member 10.0.0.9:20911: connection refused\n  -> start all members, then do this again\n", ln.Addr().String())
}
