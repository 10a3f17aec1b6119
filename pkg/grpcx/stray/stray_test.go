package stray_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tandemlog/tandem/pkg/grpcx/stray"
)

const patience = 30 * time.Second

// serve starts a plain gRPC server and returns its address and what it reports.
func serve(t *testing.T) (addr string, reports chan string) {
	t.Helper()
	reports = make(chan string, 100)
	s := grpc.NewServer(grpc.Creds(stray.Credentials(func(raw net.Conn, why error) { reports <- raw.RemoteAddr().String() + " " + why.Error() })))
	healthpb.RegisterHealthServer(s, health.NewServer())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String(), reports
}

func check(t *testing.T, addr string) {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

// say sends the parts one by one and returns when the server has hung up.
func say(t *testing.T, addr string, parts ...string) (self string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if _, err := c.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 4096)
	for err == nil {
		_, err = c.Read(buf)
	}
	return c.LocalAddr().String()
}

// TestStrangersAreReported, each once with its address and what it seems to speak; calls go on.
func TestStrangersAreReported(t *testing.T) {
	addr, reports := serve(t)
	rest := strings.Repeat("x", 100) // gRPC reads as many bytes as the preface has
	for name, tc := range map[string]struct {
		parts []string
		want  string
	}{
		"TLS":           {[]string{"\x16\x03\x01\x02\x00\x01" + rest}, "speaks TLS"},
		"TLS, in parts": {[]string{"\x16", "\x03", "\x01" + rest}, "speaks TLS"},
		"HTTP/1":        {[]string{"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"}, "speaks HTTP/1"},
		"HTTP/1, POST":  {[]string{"POST /x HTTP/1.1\r\nHost: a\r\n\r\n"}, "speaks HTTP/1"},
		"remoting":      {[]string{"\x00\x00\x00\x7d\x00\x00\x00\x69{\"code\":105}" + rest}, `first bytes are "\x00\x00\x00}`},
		"almost":        {[]string{"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"}, "first bytes are \"PRI * HTTP/2.0"},
	} {
		self := say(t, addr, tc.parts...)
		select {
		case got := <-reports:
			if !strings.HasPrefix(got, self+" ") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: %q", name, got)
			}
		case <-time.After(patience):
			t.Fatalf("%s: nothing is reported", name)
		}
		check(t, addr)
	}
	if len(reports) > 0 {
		t.Errorf("%q is reported besides", <-reports)
	}
}

// TestCallersAreNotReported: neither those that speak gRPC nor who only looks whether the port is open.
func TestCallersAreNotReported(t *testing.T) {
	addr, reports := serve(t)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		check(t, addr)
	}
	self := say(t, addr, "GET / HTTP/1.1\r\nHost: b\r\n\r\n") // whatever came before has been dealt with once this one is reported
	if got := <-reports; !strings.HasPrefix(got, self+" ") || len(reports) > 0 {
		t.Errorf("%q is reported, and %d more", got, len(reports))
	}
}
