package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

func TestWrap(t *testing.T) {
	for _, tc := range []struct {
		lead, text string
		limit      int
		want       string
	}{
		{"  -> ", "one two three four", 14, "  -> one two\n     three\n     four"},
		{"  -> ", "one /a/very/long/path two", 14, "  -> one\n     /a/very/long/path\n     two"},
		{"> ", "see `tandemctl status -w` now", 12, "> see\n  `tandemctl status -w`\n  now"},
		{"tandemctl: ", "has ended\n    its last words", 100, "tandemctl: has ended\n    its last words"},
		{"", "", 10, ""},
	} {
		if got := wrap(tc.lead, tc.text, tc.limit); got != tc.want {
			t.Errorf("wrap(%q, %q, %d) =\n%s\nwant\n%s", tc.lead, tc.text, tc.limit, got, tc.want)
		}
	}
}

func TestALongRemedyIsWrapped(t *testing.T) {
	errOut := newSyncBuffer()
	a := &app{errOut: errOut}
	a.tell(errdefs.New(errdefs.Internal, "X", "what").WithRemedy("%s", strings.Repeat("do this and that ", 24)))
	for line := range strings.Lines(errOut.String()) {
		if len(line) > plainWidth+1 {
			t.Errorf("a line of %d characters:\n%s", len(line), errOut)
		}
	}
}

func TestMiddle(t *testing.T) {
	long := strings.Repeat("a", 100) + "END"
	if got := middle(long, 40); len([]rune(got)) != 40 || !strings.HasPrefix(got, "aaa") || !strings.HasSuffix(got, "aEND") || !strings.Contains(got, "…") {
		t.Error(got)
	}
	if got := middle("short", 40); got != "short" {
		t.Error(got)
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]string{"16MiB": "16MiB", "16m": "16MiB", "16 MB": "16MiB", "1048577": "1048577", "2g": "2GiB", "64KiB": "64KiB", "0": "0"} {
		var s byteSize
		if err := s.Set(text); err != nil || s.String() != want {
			t.Errorf("%s: %v, %v", text, &s, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "9999999999999g", "5 TB"} {
		if err := new(byteSize).Set(text); err == nil {
			t.Errorf("%q passed", text)
		}
	}
}

func TestHintsNameTheProgramAsItWasStarted(t *testing.T) {
	for self, want := range map[string]string{"": "`tandemctl status`", "bin/tandemctl": "`bin/tandemctl status`", "/my dir/ctl": "`'/my dir/ctl' status`"} {
		a := &app{self: self}
		if got := a.hint("`tandemctl status`"); got != want {
			t.Errorf("%q: %s, want %s", self, got, want)
		}
	}
}

func TestTLSRemediesNameFlags(t *testing.T) {
	for _, args := range [][]string{{"--tls-cert", "/x.pem"}, {"--tls-ca", "/does/not/exist.pem"}} {
		r := ctl(t, "127.0.0.1:1", "", append([]string{"status"}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, args[0]) || strings.Contains(r.err, "File") || strings.Contains(r.err, "_file") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	s := clienttest.Start(t, clienttest.Options{}) // plain text
	if r := ctl(t, s.Addr(), "", "status", "--tls"); !strings.Contains(r.err, "--tls flags out") || strings.Contains(r.err, "is a storage running there") {
		t.Errorf("%+v", r)
	}
	for _, remedy := range []string{
		"the server wants a client certificate: set certFile and keyFile", "check caFile and the name that the server's certificate was made for",
		"the client's certificate is not signed by a CA that the server trusts (the server's caFile): set certFile and keyFile to a pair that is",
	} {
		_, next := explain(client.ErrUnreachable.WithRemedy("%s", remedy))
		if len(next) == 0 || !strings.Contains(next[0], "--tls-c") || strings.Contains(strings.ReplaceAll(next[0], "the server's caFile", ""), "File") {
			t.Errorf("%s: %v", remedy, next)
		}
	}
	if _, next := explain(errdefs.New(errdefs.Internal, "X", "x").WithRemedy("set caFile")); next[0] != "set caFile" {
		t.Errorf("a remedy for the storage's configuration was changed: %v", next)
	}
}

func TestMaxMessage(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{}) // takes gRPC's 4 MiB
	body := strings.Repeat("x", 3<<20)
	for _, how := range []string{"--stream", "--number"} { // over a stream, and one call
		r := ctl(t, s.Addr(), body, "put", "--topic", "t", "--max-message", "1MiB", how)
		if r.code != exitFailed || !strings.Contains(r.err, "this command's limit is 1048576\n") || !strings.Contains(r.err, "  -> allow more with --max-message 4MiB\n") {
			t.Errorf("%s: %+v", how, r)
		}
		if r := ctl(t, s.Addr(), body, "put", "--topic", "t", "--max-message", "4MiB", how); r.code != exitOK {
			t.Errorf("%s: %+v", how, r)
		}
		r = ctl(t, s.Addr(), body+body, "put", "--topic", "t", "--max-message", "16MiB", how)
		if r.code != exitFailed || !strings.Contains(r.err, "too large for the storage") || !strings.Contains(r.err, "  -> raise maxMessageSize in the storage's configuration") {
			t.Errorf("%s: %+v", how, r)
		}
	}
	if r := ctl(t, s.Addr(), "", "get", "--topic", "t", "--max", "1", "--max-message", "1MiB"); r.code != exitFailed || !strings.Contains(r.err, "--max-message 4MiB") {
		t.Errorf("%+v", r)
	}
	a := &app{maxMessage: 4 << 20}
	reply := errdefs.New(errdefs.ResourceExhausted, grpcx.ReasonMessageTooLarge, "trying to send message larger than max (9000000 vs. 5242880)")
	if _, next, ok := a.tooLarge(reply); !ok || !strings.Contains(next[0], "maxReplySize") {
		t.Errorf("%v", next)
	}
}

func TestInputEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	in := &input{ctx: ctx, r: r}
	go func() { _, _ = w.Write([]byte("hello")) }()
	b := make([]byte, 3)
	for _, want := range []string{"hel", "lo"} {
		if n, err := in.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("%q, %v", b[:n], err)
		}
	}
	read := make(chan error, 1)
	go func() {
		_, err := in.Read(b)
		read <- err
	}()
	cancel()
	if err := <-read; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
