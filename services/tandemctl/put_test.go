package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
)

// TestPutOutlastsARestart: the master is away for longer than a second, then there but not open, then open.
func TestPutOutlastsARestart(t *testing.T) {
	for _, how := range []string{"--stream", "--resend", "--number"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := clienttest.Start(t, clienttest.Options{})
			s.Stop()
			out, errOut, wait := beginCtl(t.Context(), s.Addr(), "put", "--topic", "t", how, "x")
			errOut.waitFor(t, "connection refused; trying again for 10s in all (--timeout)\n")
			s.SetMaster(false, "")
			s.Restart()
			errOut.waitFor(t, "no node takes puts: "+s.Addr()+" is a slave; trying again")
			s.SetMaster(true, "")
			if code := wait(); code != exitOK || !strings.Contains(out.String(), "PUT_OK") {
				t.Errorf("exit code %d, %s\n%s", code, out, errOut)
			}
		})
	}
}

func TestPutGivesUpAtItsTimeout(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	s.Stop()
	began := time.Now()
	r := ctl(t, s.Addr(), "", "put", "--topic", "t", "--timeout", "1500ms", "--stream", "x")
	if took := time.Since(began); r.code != exitFailed || took < 1200*time.Millisecond || !strings.Contains(r.err, "connection refused") {
		t.Errorf("after %v: %+v", took, r)
	}
}

func TestPutAsksForMoreSlavesThanThereAre(t *testing.T) {
	for _, tc := range []struct {
		slaves int
		acks   string
		want   string
	}{
		{2, "9", "; 2 slaves are connected to the master so far, --acks asks for 9\n"},
		{0, "9", "; no slave is connected to the master so far, --acks asks for 9\n"},
		{1, "-1", "; 1 slave is connected to the master so far, ha.required asks for 3\n"},
		{9, "9", "too few slaves are in sync\n"},
	} {
		s := clienttest.Start(t, clienttest.Options{})
		s.OnPut(func(*client.Message) (storagev1.PutStatus, error) { return client.StatusSlaveNotAvailable, nil })
		s.OnStatus(func(st *storagev1.StatusResponse) {
			st.Slaves, st.RequiredAcks = make([]*storagev1.SlaveStatus, tc.slaves), 3
			for i := range st.GetSlaves() {
				st.Slaves[i] = &storagev1.SlaveStatus{NodeId: int64(i)}
			}
		})
		r := ctl(t, s.Addr(), "", "put", "--topic", "t", "--acks", tc.acks, "x")
		if r.code != exitFailed || !strings.Contains(r.err, tc.want) || strings.Contains(r.err, "which slave is missing") == (tc.slaves < 9) {
			t.Errorf("%+v: %s", tc, r.err)
		}
	}
}

// TestPutEndsWhileItWaitsForInput: one Ctrl-C is enough.
func TestPutEndsWhileItWaitsForInput(t *testing.T) {
	for _, args := range [][]string{{}, {"-f", "-"}, {"-f", "-", "--stream"}, {"-f", "-", "--batch", "2"}} {
		s := clienttest.Start(t, clienttest.Options{})
		in, w := io.Pipe()
		out, errOut := newSyncBuffer(), newSyncBuffer()
		a := &app{in: in, out: out, errOut: errOut, env: func(string) string { return s.Addr() }}
		ctx, cancel := context.WithCancel(t.Context())
		code := make(chan int, 1)
		go func() { code <- a.run(ctx, append([]string{"put", "--topic", "t"}, args...)) }()
		if _, err := fmt.Fprintln(w, "first"); err != nil { // read by now
			t.Fatal(err)
		}
		cancel()
		if c := <-code; c != exitFailed || !strings.Contains(errOut.String(), "interrupted") {
			t.Errorf("%v: exit code %d\n%s", args, c, errOut)
		}
		w.Close()
	}
}

func TestQueuesShortensTopics(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	long := strings.Repeat("topic", 38)
	for _, topic := range []string{"a", long} {
		if r := ctl(t, s.Addr(), "", "put", "--topic", topic, "x"); r.code != exitOK {
			t.Fatal(r)
		}
	}
	for line := range strings.Lines(ctl(t, s.Addr(), "", "queues", "--wide=false").out) {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("a row of %d characters: %s", n, line)
		}
	}
	for _, args := range [][]string{{}, {"--wide"}, {"-o", "json"}} { // there is no terminal
		if r := ctl(t, s.Addr(), "", append([]string{"queues"}, args...)...); !strings.Contains(r.out, long) {
			t.Errorf("%v: %s", args, r.out)
		}
	}
}

func TestVersionOfTheBuild(t *testing.T) {
	defer func(v string) { version = v }(version)
	version = "v9.8.7"
	ctl(t, "", "", "--version").want(t, exitOK, "tandemctl v9.8.7\n", "")
	version = ""
	if r := ctl(t, "", "", "--version"); strings.Contains(r.out, "(") {
		t.Errorf("%+v", r)
	}
}

// TestPutToARawPort: what hangs up before it speaks gRPC is no storage; it is not tried for all of the time.
func TestPutToARawPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 8)) // as a storage's raw port reads what it takes for an offset
			_ = conn.Close()
		}
	}()
	for _, how := range []string{"--stream", "--resend", "--number"} {
		r := ctl(t, ln.Addr().String(), "", "put", "--topic", "t", "--timeout", "10m", how, "x") // the test would time out
		said := strings.Join(strings.Fields(r.err), " ")                                         // lines are broken anywhere
		if r.code != exitFailed || !strings.Contains(said, "raw port") || strings.Contains(said, "trying again") || strings.Contains(said, "is a storage running there") {
			t.Errorf("%s: %+v", how, r)
		}
	}
}
