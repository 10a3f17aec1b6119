package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

func TestPutOne(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	ctl(t, s.Addr(), "", "put", "--topic", "demo", "--tag", "x", "--key", "k1", "--key", "k2", "--property", "a=b=c", "--acks", "2", "hello", "world").
		want(t, exitOK, `STATUS               OFFSET        SIZE     QUEUE  QUEUE OFFSET  SLAVES  MESSAGE ID
PUT_OK               0             11       0      0             2       ID0
`, "")
	m := s.Stored("demo", 0)[0].GetMessage()
	if string(m.GetBody()) != "hello world" || m.GetTag() != "x" || strings.Join(m.GetKeys(), " ") != "k1 k2" || m.GetProperties()["a"] != "b=c" {
		t.Errorf("%v", m)
	}
	ctl(t, s.Addr(), "from stdin\n", "put", "--topic", "demo", "--queue", "5", "-o", "json").want(t, exitOK,
		`{"status":"PUT_STATUS_PUT_OK","offset":"11","size":11,"queueId":5,"queueOffset":"0","offsetMessageId":"7F00000100002A9F000000000000000B",`+
			`"messageId":"ID11","storeTimestamp":"1700000000000","ackedSlaves":0,"flushedSlaves":0,"reason":""}`+"\n", "")
	if b := s.Stored("demo", 5)[0].GetMessage().GetBody(); string(b) != "from stdin\n" {
		t.Errorf("%q", b)
	}
}

// took is the part of a sum that differs from run to run.
var took = regexp.MustCompile(`in \S+ \(\d+/s\)`)

func TestPutMany(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte("one\n\ntwo\r\nthree"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, how := range [][]string{nil, {"--stream"}, {"--batch", "2"}} {
		s := clienttest.Start(t, clienttest.Options{})
		r := ctl(t, s.Addr(), "", append([]string{"put", "--topic", "t", "-f", file}, how...)...)
		r.out = took.ReplaceAllString(r.out, "in TIME")
		r.want(t, exitOK, `STATUS               OFFSET        SIZE     QUEUE  QUEUE OFFSET  SLAVES  MESSAGE ID
PUT_OK               0             3        0      0             0       ID0
PUT_OK               3             3        0      1             0       ID3
PUT_OK               6             5        0      2             0       ID6
3 messages in TIME, 3 PUT_OK
`, "")
	}
	s := clienttest.Start(t, clienttest.Options{})
	r := ctl(t, s.Addr(), "", "put", "--topic", "t", "--count", "1000", "--number", "--stream", "-q", "load")
	r.out = took.ReplaceAllString(r.out, "in TIME")
	r.want(t, exitOK, "1000 messages in TIME, 1000 PUT_OK\n", "")
	if b := s.Stored("t", 0)[999].GetMessage().GetBody(); string(b) != "load 1000" {
		t.Errorf("%q", b)
	}
	r = ctl(t, s.Addr(), "a\nb\n", "put", "--topic", "u", "-f", "-", "-o", "json")
	if r.code != exitOK || strings.Count(r.out, "\n") != 2 {
		t.Errorf("%+v", r)
	}
}

func TestPutThatIsNotOK(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	s.OnPut(func(m *client.Message) (storagev1.PutStatus, error) {
		if string(m.GetBody()) == "b" {
			return client.StatusFlushSlaveTimeout, nil
		}
		return client.StatusOK, nil
	})
	r := ctl(t, s.Addr(), "a\nb\n", "put", "--topic", "u", "-f", "-")
	r.out = took.ReplaceAllString(r.out, "in TIME")
	r.want(t, exitFailed, `STATUS               OFFSET        SIZE     QUEUE  QUEUE OFFSET  SLAVES  MESSAGE ID
PUT_OK               0             1        0      0             0       ID0
FLUSH_SLAVE_TIMEOUT  1             1        0      1             0       ID1
2 messages in TIME, 1 PUT_OK, 1 FLUSH_SLAVE_TIMEOUT
`, "tandemctl: FLUSH_SLAVE_TIMEOUT: in the master's log, fewer slaves than asked for confirmed in time\n"+
		"           the storage says: as the test says\n"+
		"  -> `tandemctl status` shows each slave's lag and what keeps it back\n")
	for _, st := range storagev1.PutStatus_value {
		if what, next := statusMeaning(client.Status(st)); what == "" || next == "" {
			t.Errorf("status %d has no meaning", st)
		}
	}
}

// Where no node takes puts, another master is offered only where none is on its way.
func TestPutWithoutAMaster(t *testing.T) {
	t.Parallel()
	const offer = "`tandemctl promote NODE`"
	a, b := clienttest.Start(t, clienttest.Options{Slave: true}), clienttest.Start(t, clienttest.Options{Slave: true})
	follows := func(state storagev1.LinkState) {
		a.OnStatus(func(st *storagev1.StatusResponse) {
			st.Upstream = &storagev1.UpstreamStatus{Address: b.Addr(), State: state}
		})
	}
	follows(storagev1.LinkState_LINK_STATE_DISCONNECTED)
	put := func() (r result) {
		for timeout := time.Second; timeout < time.Minute; timeout *= 2 { // on a busy machine some node answers too late
			if r = ctl(t, a.Addr(), "", "put", "--topic", "t", "--timeout", timeout.String(), "x"); !strings.Contains(r.err, "did not end in time") {
				break
			}
		}
		r.err = strings.NewReplacer(a.Addr(), "A", b.Addr(), "B").Replace(r.err)
		if r.code != exitFailed || !strings.Contains(r.err, "`tandemctl status` shows") {
			t.Errorf("%+v", r)
		}
		return r
	}
	if r := put(); !strings.Contains(r.err, "no node takes puts: A is a slave without a link to B, B is a slave\n") || !strings.Contains(r.err, "  -> "+offer+" makes a node the master\n") {
		t.Errorf("slaves only: %s", r.err)
	}
	follows(storagev1.LinkState_LINK_STATE_IN_SYNC)
	if r := put(); !strings.Contains(r.err, ": A is a slave of B, B is a slave\n") {
		t.Errorf("a chain: %s", r.err)
	}
	b.OnStatus(func(st *storagev1.StatusResponse) {
		st.Role, st.Reason, st.Remedy = storagev1.Role_ROLE_SYNC_MASTER, "NOT_ENOUGH_NODES", "start the other nodes"
	})
	if r := put(); !strings.Contains(r.err, "B is a master but not open (NOT_ENOUGH_NODES)") || !strings.Contains(r.err, "  -> start the other nodes\n") || strings.Contains(r.err, offer) {
		t.Errorf("a master that waits: %s", r.err)
	}
	b.Stop()
	if r := put(); !strings.Contains(r.err, "B is not reached") || !strings.Contains(r.err, "  -> start the nodes that are not reached") || !strings.Contains(r.err, offer+" makes another node") {
		t.Errorf("a node that is away: %s", r.err)
	}
}

func TestPutErrors(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{Slave: true})
	ctl(t, s.Addr(), "", "put", "--topic", "t", "--timeout", "100ms", "x").want(t, exitFailed, "",
		"tandemctl: no node takes puts: ADDR is a slave\n  -> `tandemctl status` shows each node's role and what keeps it from being master\n  -> `tandemctl promote NODE` makes a node the master\n", s.Addr())
	s.SetMaster(true, "")
	s.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		return 0, errdefs.Invalid("message.topic", "is bad")
	})
	ctl(t, s.Addr(), "", "put", "--topic", "t", "x").want(t, exitFailed, "", "tandemctl: message.topic: is bad (address=ADDR)\n", s.Addr())
	s.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		return 0, errdefs.New(errdefs.Internal, "PANIC", "the call failed inside the server")
	})
	r := ctl(t, s.Addr(), "", "put", "--topic", "t", "--stream", "x")
	if r.code != exitFailed || !strings.Contains(r.err, "may or may not be stored") || !strings.Contains(r.err, "--resend") {
		t.Errorf("%+v", r)
	}
}

func fill(t *testing.T, s *clienttest.Storage, n int) {
	t.Helper()
	for i := range n {
		r := ctl(t, s.Addr(), "", "put", "--topic", "demo", "--tag", fmt.Sprintf("t%d", i%2), "-q", fmt.Sprintf("body %d", i))
		if r.code != exitOK {
			t.Fatal(r)
		}
	}
}

func TestGet(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{Queues: 2})
	fill(t, s, 5)
	ctl(t, s.Addr(), "", "get", "--topic", "demo").want(t, exitOK, `QUEUE  QUEUE OFFSET  OFFSET        SIZE     STORED (UTC)             TAG       KEYS        BODY
0      0             0             6        2023-11-14 22:13:20.000  t0        -           body 0
0      1             12            6        2023-11-14 22:13:20.000  t0        -           body 2
0      2             24            6        2023-11-14 22:13:20.000  t0        -           body 4
1      0             6             6        2023-11-14 22:13:20.000  t1        -           body 1
1      1             18            6        2023-11-14 22:13:20.000  t1        -           body 3
`, "")
	ctl(t, s.Addr(), "", "get", "--topic", "demo", "--queue", "0", "--from", "-2", "--raw").want(t, exitOK, "body 2\nbody 4\n", "")
	ctl(t, s.Addr(), "", "get", "--topic", "demo", "--from", "1", "--max", "1", "--raw").want(t, exitOK, "body 2\nbody 3\n", "")
	ctl(t, s.Addr(), "", "get", "--topic", "demo", "--filter", "t1", "--raw").want(t, exitOK, "body 1\nbody 3\n", "")
	ctl(t, s.Addr(), "", "get", "--topic", "demo", "--from", "next").want(t, exitOK, "", "no messages there\n")
	ctl(t, s.Addr(), "", "get", "--topic", "demo", "--queue", "0", "--from", "9").want(t, exitFailed, "",
		"tandemctl: queue 0 of demo has no offset 9\n  -> read from 0 to 3\n  -> `tandemctl queues` and `tandemctl status` show what there is\n")
	ctl(t, s.Addr(), "", "get", "--topic", "demo", "--queue", "7").want(t, exitFailed, "",
		"tandemctl: topic demo has no queue 7 with messages\n  -> leave --queue out for all, or see `tandemctl queues --topic demo`\n")
	ctl(t, s.Addr(), "", "get", "--topic", "dmeo").want(t, exitFailed, "",
		"tandemctl: there is no message of topic \"dmeo\"\n  -> did you mean \"demo\"? `tandemctl queues` lists all\n")
	ctl(t, s.Addr(), "", "get", "--offset", "6", "-o", "json").want(t, exitOK,
		`{"message":{"topic":"demo","queueId":1,"body":"Ym9keSAx","properties":{},"tag":"t1","keys":[],"flag":0,"bornTimestamp":"0","sysFlag":0},`+
			`"offset":"6","size":6,"queueOffset":"0","storeTimestamp":"1700000000000","bornHost":"127.0.0.1:5000","storeHost":"127.0.0.1:10911",`+
			`"reconsumeTimes":0,"preparedTransactionOffset":"0","offsetMessageId":"7F00000100002A9F0000000000000006"}`+"\n", "")
	ctl(t, s.Addr(), "", "get", "--offset", "7").want(t, exitFailed, "",
		"tandemctl: no record starts at this offset (address=ADDR, offset=7)\n  -> `tandemctl get --topic TOPIC` shows the offset at which each record starts\n", s.Addr())
}

func TestPreview(t *testing.T) {
	for _, tc := range []struct {
		in    string
		limit int
		want  string
	}{
		{"plain", 10, "plain"},
		{"line\nbreak", 0, `"line\nbreak"`},
		{"\xff\x00", 0, `"\xff\x00"`},
		{"0123456789", 5, "0123…"},
		{strings.Repeat("é", 100), 5, "éééé…"},
	} {
		if got := preview([]byte(tc.in), tc.limit); got != tc.want {
			t.Errorf("preview(%q, %d) = %q, want %q", tc.in, tc.limit, got, tc.want)
		}
	}
}

func TestTail(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{Queues: 2})
	fill(t, s, 2)
	ctl(t, s.Addr(), "", "tail", "--topic", "demo", "--queue", "1", "--from", "first", "--max", "1", "--raw").want(t, exitOK, "body 1\n", "")

	out, errOut, stop := startCtl(t, s.Addr(), "tail", "--topic", "demo", "--from", "-1", "--raw")
	out.waitFor(t, "body 0\n")
	out.waitFor(t, "body 1\n")
	s.Stop()
	errOut.waitFor(t, "trying again in")
	s.Restart()
	if r := ctl(t, s.Addr(), "", "put", "--topic", "demo", "after the break"); r.code != exitOK {
		t.Fatal(r)
	}
	out.waitFor(t, "after the break\n")
	if code := stop(); code != exitOK {
		t.Errorf("Ctrl-C ends a tail with %d", code)
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, out)
	}
}

func TestTailWaitsForATopic(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	out, errOut, stop := startCtl(t, s.Addr(), "tail", "--topic", "later")
	errOut.waitFor(t, "no messages of topic later yet, waiting\n")
	if r := ctl(t, s.Addr(), "", "put", "--topic", "later", "hello"); r.code != exitOK {
		t.Fatal(r)
	}
	out.waitFor(t, "hello")
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestTailFromBehindTheEnd(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	fill(t, s, 1)
	ctl(t, s.Addr(), "", "tail", "--topic", "demo", "--from", "9").want(t, exitFailed, "",
		"tandemctl: the queue offset is outside of the queue (address=ADDR, max=1)\n  -> `tandemctl queues` and `tandemctl status` show what there is\n", s.Addr())
}

func TestTailSaysThatItWaits(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	fill(t, s, 1)
	_, errOut, stop := startCtl(t, s.Addr(), "tail", "--topic", "demo")
	errOut.waitFor(t, "waiting for new messages (--from first shows what is there)\n")
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	g := clienttest.StartLedger(t, 1)
	_, errOut, stop = startCtl(t, "", "ledger", "tail", "--addr", g.Nodes[0].Addr())
	errOut.waitFor(t, "waiting for new entries (--from first shows what is there)\n")
	if code := stop(); code != exitOK {
		t.Errorf("ledger: exit code %d", code)
	}
}

func TestGetOutsideOfTheLogNamesItsRange(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	s.SetLog(10, make([]byte, 20))
	for _, offset := range []string{"9", "30"} {
		r := ctl(t, s.Addr(), "", "get", "--offset", offset)
		if want := "offset " + offset + " is outside of what can be read, which is from 10 to below 30"; r.code != exitFailed || !strings.Contains(r.err, want) {
			t.Errorf("%+v", r)
		}
	}
	if r := ctl(t, s.Addr(), "", "get", "--offset", "11"); r.code != exitFailed || !strings.Contains(r.err, "no record starts at this offset") {
		t.Errorf("%+v", r)
	}
}
