package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/client/clienttest"
)

func TestUsageErrors(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"stauts", `there is no command "stauts"; did you mean "status"?`},
		{"xyzzy-plugh", `there is no command "xyzzy-plugh"; there are bench, completion, config, demote, flush, get, group, ledger, offset, playground, promote, put, queues, range, repair, rollback, scrub, status, tail, topic, verify`},
		{"put --topc t x", "tandemctl put has no flag --topc; did you mean --topic?"},
		{"status --zzzzzzzz", "tandemctl status has no flag --zzzzzzzz; see tandemctl status --help"},
		{"status -z", "tandemctl status has no flag -z; see tandemctl status --help"},
		{"put --count x", `invalid argument "x" for "--count" flag: strconv.ParseInt: parsing "x": invalid syntax; see tandemctl put --help`},
		{"put hello", "--topic is missing: tandemctl put --topic TOPIC BODY"},
		{"put --topic t --count 0 x", "--count 0 is not above 0"},
		{"put --topic t --batch 5 --stream x", "give either --batch or --stream"},
		{"put --topic t --property x y", `--property "x" is not name=value`},
		{"put --topic t -f /does/not/exist", "cannot read the bodies: open /does/not/exist: no such file or directory"},
		{"put --topic t -f /", "cannot read the bodies: / is a folder"},
		{"put --topic t", "the body is empty: a message has at least one byte"},
		{"get", "--topic is missing, or --offset for the record at an offset of the log; `tandemctl queues` lists topics"},
		{"tail", "--topic is missing; `tandemctl queues` lists topics"},
		{"bench", "tandemctl bench wants one of its commands: get, put, stream; see tandemctl bench --help"},
		{"rollback", "tandemctl rollback wants one of its commands: list, replay, show; see tandemctl rollback --help"},
		{"rollback frobnicate", `there is no command "frobnicate"; there are list, replay, show`},
		{"bench sream", `there is no command "sream"; did you mean "stream"?`},
		{"get --topic t --from soon", `--from "soon" is none of first, next, a number, -N`},
		{"get --topic t --offset 5", "--offset is a byte position from 0 in the log and goes without --topic"},
		{"put --topic t --acks -5 x", "--acks -5 is negative"},
		{"put --topic t --queue -7 x", "--queue -7 is negative"},
		{"put --topic t --wait -3s x", "--wait -3s is negative"},
		{"get --topic t --queue -7", "--queue -7 is negative"},
		{"put --topic t --max-message 5 x", "--max-message 5 is not within 64KiB and 1GiB"},
		{"put --topic t --max-message big x", `invalid argument "big" for "--max-message" flag: write bytes, or a size such as 16MiB; see tandemctl put --help`},
		{"status extra", `tandemctl status takes no argument "extra"; see tandemctl status --help`},
		{"status -w --interval 1ms", "--interval 1ms is not within 100ms and 1h"},
		{"status -o yaml", `--output "yaml" is neither table nor json`},
		{"status --addr localhost", `addresses: "localhost" is no address`},
		{"verify 127.0.0.1:1", "verify takes two addresses: tandemctl verify 10.0.0.1:10911 10.0.0.2:10911"},
		{"verify --until soon 127.0.0.1:1 127.0.0.1:2", `--until "soon" is none of end, min, an offset`},
		{"range --from 5 --to 4", "--to 4 lies before --from 5"},
		{"playground --slaves 9", "--slaves 9 is not within 0 and 8"},
		{"playground --acks 3", "--acks 3 is not within 1 and the 2 slaves"},
		{"playground --storage-bin /does/not/exist", "--storage-bin /does/not/exist is no executable file"},
	} {
		r := ctl(t, "127.0.0.1:1", "", strings.Fields(tc.args)...)
		first, _, _ := strings.Cut(r.err, "\n")
		if r.code != exitUsage || first != "tandemctl: "+tc.want || r.out != "" {
			t.Errorf("%s: exit code %d\n got %s\nwant tandemctl: %s", tc.args, r.code, first, tc.want)
		}
	}
}

func TestConnectionRefusedSaysWhatToDo(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	want := `tandemctl: cannot reach the server: dial tcp ADDR: connect: connection refused
  -> is a storage running there? ` + "`tandemctl playground`" + ` starts a master and slaves
  -> name other addresses with --addr or TANDEMCTL_ADDR
`
	for _, args := range [][]string{{"queues"}, {"flush"}, {"tail", "--topic", "t"}, {"get", "--offset", "0"}, {"range"}} {
		ctl(t, addr, "", args...).want(t, exitFailed, "", want, addr)
	}
	ctl(t, addr+","+addr, "", "queues").want(t, exitFailed, "", strings.Replace(want, "  ->",
		"           cannot reach the server: dial tcp ADDR: connect: connection refused\n  ->", 1), addr)
	r := ctl(t, addr, "", "put", "--topic", "t", "--timeout", "300ms", "x")
	if r.code != exitFailed || !strings.Contains(r.err, "connection refused") || !strings.Contains(r.err, "tandemctl playground") {
		t.Errorf("put: %d\n%s", r.code, r.err)
	}
}

func TestTLSFilesThatDoNotExist(t *testing.T) {
	r := ctl(t, "127.0.0.1:1", "", "status", "--tls-ca", "/does/not/exist.pem")
	if r.code != exitUsage || !strings.Contains(r.err, "/does/not/exist.pem") || !strings.Contains(r.err, "  -> ") {
		t.Errorf("%d\n%s", r.code, r.err)
	}
}

func TestHelpAndVersion(t *testing.T) {
	if r := ctl(t, "", ""); r.code != exitOK || !strings.Contains(r.out, "tandemctl playground") || r.err != "" {
		t.Errorf("%+v", r)
	}
	if r := ctl(t, "", "", "--version"); r.code != exitOK || !strings.HasPrefix(r.out, "tandemctl ") {
		t.Errorf("%+v", r)
	}
	if r := ctl(t, "", "", "completion", "bash"); r.code != exitOK || !strings.Contains(r.out, "__start_tandemctl") {
		t.Errorf("completion: %d %s", r.code, r.err)
	}
	if r := ctl(t, "", "", "__complete", "status", "-o", ""); !strings.HasPrefix(r.out, "table\njson\n") {
		t.Errorf("completion of -o: %s", r.out)
	}
}

func TestQueuesFlushRange(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{Queues: 3})
	ctl(t, s.Addr(), "", "queues").want(t, exitOK, "", "no queues yet; `tandemctl put --topic demo hello` makes one\n")
	for range 4 {
		if r := ctl(t, s.Addr(), "", "put", "--topic", "demo", "hello"); r.code != exitOK {
			t.Fatal(r)
		}
	}
	ctl(t, s.Addr(), "", "queues").want(t, exitOK, `TOPIC  QUEUE  FIRST  NEXT  MESSAGES
demo   0      0      2     2
demo   1      0      1     1
demo   2      0      1     1
`, "")
	ctl(t, s.Addr(), "", "queues", "--topic", "demo", "-o", "json").want(t, exitOK,
		`{"topic":"demo","queueId":0,"minQueueOffset":"0","maxQueueOffset":"2"}
{"topic":"demo","queueId":1,"minQueueOffset":"0","maxQueueOffset":"1"}
{"topic":"demo","queueId":2,"minQueueOffset":"0","maxQueueOffset":"1"}
`, "")
	ctl(t, s.Addr(), "", "flush").want(t, exitOK, "ADDRESS          FLUSHED\nADDR  20\n", "", s.Addr())
	ctl(t, s.Addr(), "", "flush", "-o", "json").want(t, exitOK, `{"address":"ADDR","flushedOffset":"20"}`+"\n", "", s.Addr())
	ctl(t, s.Addr(), "", "range", "--from", "3", "--to", "12").want(t, exitOK, "lohellohe", "")
	ctl(t, s.Addr(), "", "range", "--from", "30").want(t, exitFailed, "",
		"tandemctl: the offset is outside of the log (address=ADDR, end=20, first=0, offset=30)\n  -> `tandemctl queues` and `tandemctl status` show what there is\n", s.Addr())
}

func TestRangeFile(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	s.SetLog(100, []byte("abc"))
	file := filepath.Join(t.TempDir(), "log")
	ctl(t, s.Addr(), "", "range", "--from", "101", "--file", file).want(t, exitOK, "", "2 B from offset 101 written to "+file+"\n")
	if b, err := os.ReadFile(file); err != nil || string(b) != "bc" {
		t.Errorf("%q, %v", b, err)
	}
	ctl(t, s.Addr(), "", "range", "--from", "101", "--file", file).want(t, exitUsage, "", "tandemctl: "+file+" exists; write over it with --force\n")
	if r := ctl(t, s.Addr(), "", "range", "--from", "0", "--file", file, "--force"); r.code != exitFailed {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a failed copy stays: %v", err)
	}
}

func TestClosest(t *testing.T) {
	names := []string{"status", "tail", "put", "playground"}
	for s, want := range map[string]string{"stats": "status", "tial": "tail", "play": "playground", "putt": "put", "quux": "", "": ""} {
		if got := closest(s, names); got != want {
			t.Errorf("closest(%q) = %q, want %q", s, got, want)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	errOut := newSyncBuffer()
	a := &app{in: strings.NewReader(""), out: brokenPipe{}, errOut: errOut, env: func(string) string { return s.Addr() }}
	if code := a.run(t.Context(), []string{"status"}); code != exitFailed || !strings.Contains(errOut.String(), "write the output: broken pipe") {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
}

func TestAnotherServiceAnswers(t *testing.T) {
	s, g := clienttest.Start(t, clienttest.Options{}), clienttest.StartLedger(t, 1)
	for _, tc := range []struct {
		addr, name, port string
		args             []string
	}{
		{g.Nodes[0].Addr(), "a storage", "10911", []string{"status"}},
		{g.Nodes[0].Addr(), "a storage", "10911", []string{"put", "--topic", "t", "x"}},
		{s.Addr(), "a ledger", "20911", []string{"ledger", "status"}},
		{s.Addr(), "a config sync node", "10921", []string{"topic", "list"}},
	} {
		r := ctl(t, "", "", append(tc.args, "--addr", tc.addr)...)
		if r.code != exitFailed || !strings.Contains(r.err, "this is not "+tc.name+": another service of Tandem answers there") ||
			!strings.Contains(r.err, "  -> name the gRPC port of "+tc.name+", "+tc.port+" by default\n") || strings.Contains(r.out+r.err, "unknown service") {
			t.Errorf("%v: %+v", tc.args, r)
		}
	}
}
