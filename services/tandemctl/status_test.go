package main

import (
	"bytes"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
)

// onStorages are the nodes of nowhere, to show what is known of some.
func onStorages(a *app) nodes[*client.NodeStatus] {
	return nodes[*client.NodeStatus]{app: a, draw: page.storage}
}

func TestStatusTable(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	master := &client.NodeStatus{
		Cluster: "c", BrokerName: "broker-a", Role: storagev1.Role_ROLE_SYNC_MASTER, Open: true, Version: "1.2.3",
		Watermarks: &storagev1.Watermarks{FirstOffset: 0, WrittenOffset: 5000, FlushedOffset: 4000, ReadableOffset: 4500, DispatchedOffset: 4500, AckedOffset: 4500},
		Epochs:     []*storagev1.Epoch{{Epoch: 1}, {Epoch: 2, StartOffset: 300}}, RequiredAcks: 1, InSyncSlaves: 1, DiskFree: 3 << 30, Whole: true,
		StartedAt: timestamppb.New(now.Add(-90 * time.Minute)),
		Slaves: []*storagev1.SlaveStatus{
			{NodeId: 1, Address: "10.0.0.2:5000", State: storagev1.LinkState_LINK_STATE_IN_SYNC, InSync: true, AckedOffset: 5000, LastReport: timestamppb.New(now.Add(-1500 * time.Millisecond))},
			{NodeId: -1, Legacy: true, Address: "10.0.0.3:5000", State: storagev1.LinkState_LINK_STATE_STALLED, AckedOffset: 100, LagBytes: 4900, Lag: durationpb.New(40 * time.Second), Reason: "NO_REPORT", Remedy: "look at its disk"},
		},
		FileSize:  4 << 30,
		Rollbacks: []*storagev1.Rollback{{FromOffset: 10, ToOffset: 20, Epoch: 1, Size: 10}},
		Damage: &storagev1.KnownDamage{Records: 1, Units: 2, Places: []*storagev1.DamagedPlace{
			{FromOffset: 100, ToOffset: 200, FoundBy: "recovery"}, {FromOffset: 300, ToOffset: 400, Unit: "t/1 unit 7", FoundBy: "scrub"},
		}},
	}
	slave := &client.NodeStatus{
		Cluster: "c", BrokerName: "broker-a", NodeId: 1, Role: storagev1.Role_ROLE_SLAVE, Version: "1.2.3", Reason: "SLAVE", Remedy: "put to the master",
		Watermarks: &storagev1.Watermarks{WrittenOffset: 5000, FlushedOffset: 5000, ReadableOffset: 4500, DispatchedOffset: 4500},
		Slaves: []*storagev1.SlaveStatus{ // of a chain
			{NodeId: 2, Address: "10.0.0.3:5000", State: storagev1.LinkState_LINK_STATE_IN_SYNC, InSync: true, AckedOffset: 5000},
		},
		Upstream: &storagev1.UpstreamStatus{
			Address: "10.0.0.1:10911", State: storagev1.LinkState_LINK_STATE_REFUSED, LagBytes: 2 << 20, Connects: 1,
			LastReceive: timestamppb.New(now.Add(-3 * time.Second)), Reason: "EPOCH", Remedy: "promote it",
		},
	}
	var b bytes.Buffer
	views := []storageNode{{addr: "10.0.0.1:10911", status: master}, {addr: "10.0.0.2:10911", status: slave}, {addr: "10.0.0.9:10911", err: client.ErrUnreachable}}
	if err := onStorages(&app{output: "table"}).show(&b, views, now); err != nil {
		t.Fatal(err)
	}
	want := `10.0.0.1:10911  broker-a/0  SYNC_MASTER, open  (cluster c, tandem 1.2.3, up 1h30m)
  FIRST  WRITTEN  FLUSHED  READABLE  DISPATCHED  ACKED  EPOCH  DISK FREE
  0      5000     4000     4500      4500        4500   2@300  3.0 GiB
  SLAVE     ADDRESS        STATE    IN SYNC  ACKED  LAG      LAG TIME  LAST REPORT
  1         10.0.0.2:5000  in sync  yes      5000   0 B      0s        1.5s ago
  RocketMQ  10.0.0.3:5000  stalled  no       100    4.8 KiB  40s       never
  in sync 1, required 1
  ! slave -1: NO_REPORT
    -> look at its disk
  ! 1 damaged record, 2 wrong queue units: 100 to 200 (recovery), 1 more, t/1 unit 7 (scrub)
    -> ` + "`tandemctl repair 10.0.0.1:10911 --from PEER` takes the bytes of another node;\n       `tandemctl scrub 10.0.0.1:10911` looks for more" + `
  ! the disk has no room for another log file (4.0 GiB): puts answer DISK_FULL once the last one is
    full
    -> free some space on it, or enlarge it
  ! cut from this log and kept: 10 to 20, by epoch 1, 10 B under rollback/
    -> ` + "`tandemctl rollback list --addr 10.0.0.1:10911` lists what is kept;\n       `tandemctl rollback --help` says more" + `

10.0.0.2:10911  broker-a/1  SLAVE  (cluster c, tandem 1.2.3)
  FIRST  WRITTEN  FLUSHED  READABLE  DISPATCHED  ACKED  EPOCH  DISK FREE
  0      5000     5000     4500      4500        -      0      0 B
  follows 10.0.0.1:10911: refused, how far behind is unknown, last bytes 3s ago, 1 connection so far
  ! EPOCH
    -> promote it
  SLAVE  ADDRESS        STATE    IN SYNC  ACKED  LAG  LAG TIME  LAST REPORT
  2      10.0.0.3:5000  in sync  yes      5000   0 B  0s        never
  ! the log may lack what it once had: the machine went down, files were damaged, or it is new
    -> a slave gets them from its master; until then do not make this node the master by force

10.0.0.9:10911  not reached: cannot reach the storage
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

// A slave that follows nobody says why, once.
func TestStatusOfALonelySlave(t *testing.T) {
	for name, s := range map[string]*client.NodeStatus{
		"since its start": {Reason: "NO_OPEN_MASTER", Remedy: "start it", Upstream: &storagev1.UpstreamStatus{Reason: "NO_OPEN_MASTER", Remedy: "start it"}},
		"another reason":  {Reason: "SLAVE", Remedy: "put to the master", Upstream: &storagev1.UpstreamStatus{Reason: "NO_OPEN_MASTER", Remedy: "start it"}},
		"since its link ended": {Reason: "NO_OPEN_MASTER", Remedy: "start it", Upstream: &storagev1.UpstreamStatus{
			Address: "10.0.0.1:10911", State: storagev1.LinkState_LINK_STATE_DISCONNECTED, Reason: "NO_OPEN_MASTER", Remedy: "start it",
		}},
	} {
		s.Role, s.Whole = storagev1.Role_ROLE_SLAVE, true
		var b bytes.Buffer
		if err := onStorages(&app{output: "table"}).show(&b, []storageNode{{addr: "10.0.0.2:10911", status: s}}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if strings.Count(b.String(), "! NO_OPEN_MASTER\n    -> start it\n") != 1 || strings.Contains(b.String(), "SLAVE\n") {
			t.Errorf("%s:\n%s", name, b.String())
		}
	}
}

func TestStatusExitCode(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	linked := &storagev1.UpstreamStatus{Address: "10.0.0.1:1", State: storagev1.LinkState_LINK_STATE_IN_SYNC, EndOffset: 10, Connects: 1}
	for name, tc := range map[string]struct {
		st    *storagev1.StatusResponse
		code  int
		shown string
	}{
		"an open master":     {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_SYNC_MASTER, Open: true}, exitOK, "open"},
		"a slave":            {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_SLAVE, Reason: "SLAVE", Upstream: linked}, exitOK, "0 B behind"},
		"damage":             {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_ASYNC_MASTER, Open: true, Damage: &storagev1.KnownDamage{Records: 1}}, exitOK, "! 1 damaged"},
		"not open":           {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_SYNC_MASTER, Reason: "NOT_ENOUGH_NODES"}, exitFailed, "! NOT_ENOUGH_NODES"},
		"not open, starting": {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_SYNC_MASTER}, exitFailed, "puts refused"},
		"a lonely slave":     {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_SLAVE, Reason: "NO_OPEN_MASTER"}, exitFailed, "! NO_OPEN_MASTER"},
		"a refused slave": {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_SLAVE, Reason: "SLAVE", Upstream: &storagev1.UpstreamStatus{
			Address: "10.0.0.1:1", State: storagev1.LinkState_LINK_STATE_REFUSED, Reason: "WRONG_CLUSTER", EndOffset: 5,
		}}, exitFailed, "refused, how far behind is unknown"},
		"a slave that never connected": {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_SLAVE, Reason: "SLAVE", Upstream: &storagev1.UpstreamStatus{
			Address: "10.0.0.1:1", State: storagev1.LinkState_LINK_STATE_DISCONNECTED, Reason: "UNREACHABLE", Remedy: "connection refused: `tandemctl x`",
		}}, exitFailed, "disconnected, how far behind is unknown, 0 connections so far\n  ! UNREACHABLE\n    -> connection refused: `tandemctl x`"},
		"a dead slave": {&storagev1.StatusResponse{Role: storagev1.Role_ROLE_SYNC_MASTER, Open: true, Slaves: []*storagev1.SlaveStatus{
			{NodeId: 1, AckedOffset: -1, Reason: "LINK_CLOSED"},
		}}, exitFailed, "-      unknown  0s"},
	} {
		tc.st.Whole = true
		s.OnStatus(func(st *storagev1.StatusResponse) { proto.Reset(st); proto.Merge(st, tc.st) })
		if r := ctl(t, s.Addr(), "", "status"); r.code != tc.code || !strings.Contains(r.out, tc.shown) || r.err != "" {
			t.Errorf("%s: %+v", name, r)
		}
		if r := ctl(t, s.Addr(), "", "status", "-o", "json"); r.code != tc.code {
			t.Errorf("%s, JSON: %+v", name, r)
		}
	}
	if r := ctl(t, "", "", "status", "-h"); !strings.Contains(r.out, "Exit code 0") {
		t.Errorf("%+v", r)
	}
}

func TestStatusCommand(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true})
	b.Stop()
	r := ctl(t, a.Addr()+","+b.Addr(), "", "status")
	if r.code != exitFailed || !strings.Contains(r.out, "broker-a/0  SYNC_MASTER, open") || !strings.Contains(r.out, b.Addr()+"  not reached") ||
		!strings.Contains(r.err, "connection refused") {
		t.Errorf("%+v", r)
	}
	b.Restart()
	r = ctl(t, a.Addr()+", "+b.Addr(), "", "status", "-o", "json")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != exitOK || len(lines) != 2 {
		t.Fatalf("%+v", r)
	}
	var line struct {
		Address string
		Status  struct {
			Role       string
			Watermarks struct{ WrittenOffset string }
		}
	}
	if err := json.Unmarshal([]byte(lines[1]), &line); err != nil {
		t.Fatal(err)
	}
	if line.Address != b.Addr() || line.Status.Role != "ROLE_SLAVE" || line.Status.Watermarks.WrittenOffset != "0" {
		t.Errorf("%+v", line)
	}
}

func TestStatusWatch(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	out, _, stop := startCtl(t, a.Addr(), "status", "-w", "--interval", "100ms")
	out.waitFor(t, "SYNC_MASTER, open")
	a.SetMaster(false, "")
	out.waitFor(t, "broker-a/1  SLAVE")
	a.Stop()
	out.waitFor(t, a.Addr()+"  not reached")
	a.Restart()
	if code := stop(); code != exitOK {
		t.Errorf("Ctrl-C ends it with %d", code)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("control sequences without a terminal")
	}
}

func TestDrawInPlace(t *testing.T) {
	var b bytes.Buffer
	if err := onStorages(&app{output: "table", out: &b}).drawAll([]storageNode{{addr: "x:1"}}, true, time.Second); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !strings.HasPrefix(s, "\x1b[H") || !strings.HasSuffix(s, "x:1  not reached: no answer yet\x1b[K\n\x1b[J") {
		t.Errorf("%q", s)
	}
}

func TestSizesAndDurations(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 1 << 60: "1024.0 PiB", -2048: "-2.0 KiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("sizeText(%d) = %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-1: "0s", 850 * time.Millisecond: "850ms", 2540 * time.Millisecond: "2.5s", 190 * time.Second: "3m10s", 5*time.Hour + 2*time.Minute: "5h2m",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("shortDuration(%v) = %s, want %s", d, got, want)
		}
	}
}

// TestTheFirstPictureOfAWatchIsWhole: it waits for all nodes, but not for one that never answers.
func TestTheFirstPictureOfAWatchIsWhole(t *testing.T) {
	a, slow := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true})
	away, asked := clienttest.Start(t, clienttest.Options{}), make(chan struct{})
	away.Stop()
	a.OnStatus(func(*storagev1.StatusResponse) {
		select {
		case <-asked:
		default:
			close(asked)
		}
	})
	slow.OnStatus(func(*storagev1.StatusResponse) { <-asked })
	out, _, stop := startCtl(t, strings.Join([]string{a.Addr(), slow.Addr(), away.Addr()}, ","), "status", "-w", "--interval", "1h")
	defer stop()
	out.waitFor(t, "connection refused")
	if s := out.String(); strings.Contains(s, "no answer yet") || !strings.Contains(s, "broker-a/1  SLAVE") {
		t.Errorf("the first picture:\n%s", s)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	out, _, stop = startCtl(t, a.Addr()+","+ln.Addr().String(), "status", "-w", "--interval", "1h")
	defer stop()
	out.waitFor(t, "no answer yet")
	if s := out.String(); !strings.Contains(s, "SYNC_MASTER, open") {
		t.Errorf("the first picture:\n%s", s)
	}
}
