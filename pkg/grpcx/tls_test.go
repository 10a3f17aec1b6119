package grpcx_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// call makes one connection and one call.
func call(t *testing.T, f *fixture, files grpcx.TLS) error {
	t.Helper()
	conn, err := grpcx.Dial(f.ln.Addr().String(), grpcx.ClientOptions{TLS: files, Timeout: 3 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = pb.NewTestServiceClient(conn).UnaryCall(t.Context(), payload(1))
	return err
}

// L07: every pairing of plain text, TLS and mutual TLS works or says what to change.
func TestL07_TLSMatrix(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	files := ca.files(t, "node")
	oneWay := grpcx.TLS{CertFile: files.CertFile, KeyFile: files.KeyFile}
	mutual := files
	mutual.RequireClientCert = true
	caOnly := grpcx.TLS{CAFile: files.CAFile}
	foreign := other.files(t, "node")
	foreign.CAFile = files.CAFile // trusts the server, shows a certificate of another CA
	for _, tc := range []struct {
		name           string
		server, client grpcx.TLS
		want           string // part of the error; "" is success
	}{
		{"plain, plain", grpcx.TLS{}, grpcx.TLS{}, ""},
		{"tls, tls", oneWay, caOnly, ""},
		{"mutual, mutual", mutual, files, ""},
		{"optional, without", files, caOnly, ""},
		{"optional, with", files, files, ""},
		{"server name", oneWay, grpcx.TLS{CAFile: files.CAFile, ServerName: "node"}, ""},
		{"plain, tls", grpcx.TLS{}, caOnly, "the server speaks plain text"},
		{"tls, plain", oneWay, grpcx.TLS{}, "if the server speaks TLS, set the TLS settings here too. Else it looks like"},
		{"mutual, without", mutual, caOnly, "set certFile and keyFile"},
		{"mutual, foreign", mutual, foreign, "certificate is not signed by a CA that the server trusts"},
		{"tls, wrong ca", oneWay, grpcx.TLS{CAFile: other.files(t, "x").CAFile}, "check caFile"},
		{"tls, wrong name", oneWay, grpcx.TLS{CAFile: files.CAFile, ServerName: "elsewhere"}, "check caFile and the name"},
		{"tls, system roots", oneWay, grpcx.TLS{Enable: true}, "check caFile"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := start(t, grpcx.ServerOptions{TLS: tc.server}, &service{}, listen(t))
			err := call(t, f, tc.client)
			switch {
			case tc.want == "":
				if err != nil {
					t.Error(err)
				}
			case err == nil || !strings.Contains(err.Error(), tc.want):
				t.Errorf("got %v, want %q", err, tc.want)
			case errdefs.ReasonOf(err) != grpcx.ReasonUnreachable:
				t.Errorf("reason %q", errdefs.ReasonOf(err))
			}
			if err := grpcx.CheckLocal(t.Context(), f.ln.Addr().String(), tc.server); err != nil {
				t.Errorf("local health: %v", err)
			}
		})
	}
}

func TestBadTLSSettings(t *testing.T) {
	ca := newAuthority(t)
	good := ca.files(t, "node")
	another := ca.files(t, "another")
	mixed := grpcx.TLS{CertFile: good.CertFile, KeyFile: another.KeyFile}
	_, err := grpcx.NewServer(grpcx.ServerOptions{TLS: mixed})
	if !errors.Is(err, grpcx.ErrTLSFiles) || !strings.Contains(err.Error(), good.CertFile) || !strings.Contains(err.Error(), another.KeyFile) {
		t.Errorf("files that do not match: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	write(t, empty, nil)
	for name, files := range map[string]grpcx.TLS{
		"missing":  {CertFile: good.CertFile, KeyFile: good.KeyFile + ".none"},
		"empty ca": {CertFile: good.CertFile, KeyFile: good.KeyFile, CAFile: empty},
	} {
		if _, err := grpcx.NewServer(grpcx.ServerOptions{TLS: files}); !errors.Is(err, grpcx.ErrTLSFiles) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := grpcx.NewDialer(grpcx.ClientOptions{TLS: files}); !errors.Is(err, grpcx.ErrTLSFiles) {
			t.Errorf("%s, client: %v", name, err)
		}
	}
	for name, files := range map[string]grpcx.TLS{
		"certificate alone": {CertFile: good.CertFile},
		"ca alone":          {CAFile: good.CAFile},
		"no ca to require":  {CertFile: good.CertFile, KeyFile: good.KeyFile, RequireClientCert: true},
		"require alone":     {RequireClientCert: true},
	} {
		if _, err := grpcx.NewServer(grpcx.ServerOptions{TLS: files}); errdefs.ReasonOf(err) != "INVALID_FIELD" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// served returns the name in the certificate that a new connection is shown.
func served(t *testing.T, f *fixture) string {
	t.Helper()
	conn, err := tls.Dial("tcp", f.ln.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func TestCertificatesAreReadAgain(t *testing.T) {
	ca := newAuthority(t)
	files := ca.files(t, "first")
	var log logBuffer
	reader := metric.NewManualReader()
	f := start(t, grpcx.ServerOptions{
		TLS: files, Log: log.logger(), Providers: grpcx.Providers{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))},
	}, &service{}, listen(t))
	if got := served(t, f); got != "first" {
		t.Fatalf("serves %q", got)
	}

	cert, key := ca.pair(t, "second")
	write(t, files.CertFile, cert) // half of the change: the key does not match yet
	for range 5 {
		if got := served(t, f); got != "first" {
			t.Fatalf("with half a change it serves %q", got)
		}
	}
	if n := strings.Count(log.String(), "keeping the last good"); n != 1 {
		t.Errorf("reported %d times: %s", n, log.String())
	}
	write(t, files.KeyFile, key)
	if got := served(t, f); got != "second" {
		t.Errorf("after the change it serves %q", got)
	}

	if err := os.Remove(files.KeyFile); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := served(t, f); got != "second" {
			t.Errorf("without its key file it serves %q", got)
		}
	}
	third := ca.files(t, "third") // replaced by rename, as secrets are
	for _, move := range [][2]string{{third.CertFile, files.CertFile}, {third.KeyFile, files.KeyFile}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	if got := served(t, f); got != "third" {
		t.Errorf("after the rename it serves %q", got)
	}
	if counts, _ := sums(t, reader); counts["grpcx.tls.reload.failures"] != 2 {
		t.Errorf("counted %v, log %s", counts, log.String())
	}
}

// A client follows its files too: the next connection uses the new CA.
func TestClientFollowsItsFiles(t *testing.T) {
	old, fresh := newAuthority(t), newAuthority(t)
	files := fresh.files(t, "node")
	f := start(t, grpcx.ServerOptions{TLS: files}, &service{}, listen(t))
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	write(t, caFile, old.pem)
	dialer, err := grpcx.NewDialer(grpcx.ClientOptions{TLS: grpcx.TLS{CAFile: caFile}})
	if err != nil {
		t.Fatal(err)
	}
	try := func() error {
		conn, err := dialer.Dial(f.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = pb.NewTestServiceClient(conn).UnaryCall(t.Context(), payload(1))
		return err
	}
	if err := try(); err == nil {
		t.Error("trusted a CA that it does not have")
	}
	write(t, caFile, append(old.pem, fresh.pem...))
	if err := try(); err != nil {
		t.Errorf("after the change: %v", err)
	}
}

// A stranger on a TLS port is counted, told once a minute, and harms nobody; who comes for another reason is told too.
func TestStrangersAreCounted(t *testing.T) {
	files := newAuthority(t).files(t, "node")
	var log logBuffer
	reader := metric.NewManualReader()
	f := start(t, grpcx.ServerOptions{
		TLS: files, Log: log.logger(), Providers: grpcx.Providers{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))},
	}, &service{}, listen(t))
	for range 20 {
		if err := call(t, f, grpcx.TLS{}); err == nil {
			t.Fatal("plain text was served on a TLS port")
		}
	}
	if err := call(t, f, grpcx.TLS{CAFile: files.CAFile}); err != nil {
		t.Error(err)
	}
	counted := func() int64 { counts, _ := sums(t, reader); return counts["grpcx.handshake.failures"] }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for counted() < 20 { // the stranger sees the end of the connection before it is counted
		select {
		case <-ctx.Done():
			t.Fatalf("counted %v", counted())
		case <-time.After(time.Millisecond):
		}
	}
	if n := strings.Count(log.String(), "handshake failed"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if err := call(t, f, grpcx.TLS{CAFile: newAuthority(t).files(t, "other").CAFile}); err == nil {
		t.Fatal("a client that does not trust the server was served")
	}
	for strings.Count(log.String(), "handshake failed") < 2 {
		select {
		case <-ctx.Done():
			t.Fatalf("another kind of failure was not told:\n%s", log.String())
		case <-time.After(time.Millisecond):
		}
	}
}

// A TLS client on a plain port is counted and told of, and harms nobody.
func TestStrangersOnAPlainPort(t *testing.T) {
	var log logBuffer
	reader := metric.NewManualReader()
	f := start(t, grpcx.ServerOptions{
		Log: log.logger(), Providers: grpcx.Providers{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))},
	}, &service{}, listen(t))
	if err := call(t, f, grpcx.TLS{CAFile: newAuthority(t).files(t, "node").CAFile}); err == nil {
		t.Fatal("TLS was served on a plain port")
	}
	if err := call(t, f, grpcx.TLS{}); err != nil {
		t.Error(err)
	}
	if counts, _ := sums(t, reader); counts["grpcx.handshake.failures"] == 0 { // counted before the server hangs up
		t.Error("not counted")
	}
	if !strings.Contains(log.String(), "the caller speaks TLS") {
		t.Errorf("not told:\n%s", log.String())
	}
}

// Who speaks TLS to a server that hangs up is told of certificates first: a server of TLS 1.3 that misses the client's does
// that, and its alert may be lost.
func TestHangUpsBehindTLS(t *testing.T) {
	files := newAuthority(t).files(t, "node")
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
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
			_, _ = conn.Read(make([]byte, 1)) // what matters is that the handshake was made
			_ = conn.Close()
		}
	}()
	for _, tc := range []struct {
		client grpcx.TLS
		want   string
	}{
		{files, "the server hung up, as it does where the client's certificate is not signed by a CA that the server trusts"},
		{grpcx.TLS{CAFile: files.CAFile}, "the server hung up, as it does where the server wants a client certificate: set certFile and keyFile. Else it looks like"},
	} {
		if err := call(t, &fixture{ln: ln}, tc.client); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

// The address of an error that the server has met with another is not replaced by its own.
func TestAnotherServerUnreached(t *testing.T) {
	err := error(errdefs.New(errdefs.Unavailable, grpcx.ReasonUnreachable, "cannot reach the server: away").With("address", "10.0.0.9:1"))
	f := start(t, grpcx.ServerOptions{}, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return nil, err
	}}, listen(t))
	if e := errdefs.As(call(t, f, grpcx.TLS{})); e == nil || e.Meta["address"] != "10.0.0.9:1" {
		t.Errorf("got %v", e)
	}
}
