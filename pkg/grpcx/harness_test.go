package grpcx_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tandemlog/tandem/pkg/grpcx"
)

// service is a test service whose behaviour is set per test; the default echoes.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error)
	stream func(grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error
}

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.unary != nil {
		return s.unary(ctx, r)
	}
	return &pb.SimpleResponse{Payload: r.GetPayload()}, nil
}

func (s *service) FullDuplexCall(ss grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	if s.stream != nil {
		return s.stream(ss)
	}
	for {
		r, err := ss.Recv()
		if err == io.EOF { //nolint:errorlint // grpc returns it bare
			return nil
		}
		if err != nil {
			return err
		}
		if err := ss.Send(&pb.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// fixture is a running server.
type fixture struct {
	*grpcx.Server
	ln     net.Listener
	buf    *bufconn.Listener
	stop   context.CancelFunc
	served chan error
}

// start serves on an in-memory listener, or on ln when it is given.
func start(t testing.TB, o grpcx.ServerOptions, impl *service, ln net.Listener) *fixture {
	t.Helper()
	s, err := grpcx.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterTestServiceServer(s, impl)
	f := &fixture{Server: s, ln: ln, served: make(chan error, 1)}
	if ln == nil {
		f.buf = bufconn.Listen(1 << 20)
		f.ln = f.buf
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	go func() { f.served <- s.Serve(ctx, f.ln) }()
	t.Cleanup(func() {
		cancel()
		if err, ok := <-f.served; ok && err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f
}

// end stops the server and returns what Serve returned.
func (f *fixture) end() error {
	f.stop()
	err := <-f.served
	close(f.served)
	return err
}

func (f *fixture) dial(t testing.TB, o grpcx.ClientOptions) (pb.TestServiceClient, *grpc.ClientConn) {
	t.Helper()
	addr := f.ln.Addr().String()
	if f.buf != nil {
		addr = "bufconn:1"
		if o.Dial == nil {
			o.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return f.buf.DialContext(ctx) }
		}
	}
	conn, err := grpcx.Dial(addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewTestServiceClient(conn), conn
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func payload(n int) *pb.SimpleRequest {
	return &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, n)}}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test ca"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// pair returns a certificate for name and 127.0.0.1, and its key, as PEM.
func (a *authority) pair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// files writes a pair and the CA into a fresh folder.
func (a *authority) files(t *testing.T, name string) grpcx.TLS {
	t.Helper()
	dir := t.TempDir()
	cert, key := a.pair(t, name)
	f := grpcx.TLS{
		CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), CAFile: filepath.Join(dir, "ca.pem"),
	}
	write(t, f.CertFile, cert)
	write(t, f.KeyFile, key)
	write(t, f.CAFile, a.pem)
	return f
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
