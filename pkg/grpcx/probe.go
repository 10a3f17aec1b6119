package grpcx

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// ErrNotServing is the answer of a server that lives and does not serve.
var ErrNotServing = errdefs.New(errdefs.Unavailable, "NOT_SERVING", "the server does not serve at the moment").
	WithRemedy("see its log and its Status")

// CheckLocal asks the server on this machine that listens on the address listen with the TLS files t whether it serves, as a
// container's health command does: nil when so, ErrNotServing when not, else why it could not be asked. It shows the pair in t as
// its own, in case the server wants one, and does not check the server's: nothing is told to it, its names do not cover a loopback
// address, and a certificate that is being replaced must not make a working server look dead.
func CheckLocal(ctx context.Context, listen string, t TLS) error {
	addr, err := loopback(listen)
	if err != nil {
		return err
	}
	creds := insecure.NewCredentials()
	if t.Enabled() {
		c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // see above
		if pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err == nil {
			c.Certificates = []tls.Certificate{pair}
		}
		creds = credentials.NewTLS(c)
	}
	d := &Dialer{opts: dialOptions(ClientOptions{}.orDefault(), creds)}
	conn, err := d.Dial(addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost by a failed goodbye
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return ErrNotServing.With("status", resp.GetStatus())
	}
	return nil
}

// loopback returns where a local client reaches a server that listens on listen.
func loopback(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", errdefs.Invalid("address", "%q is not host:port", listen).Wrap(err)
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}
