package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/peercert"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// secure makes the node use the pair both as server and as client, and trust it.
func (n *node) secure(t *testing.T, pair string) *node {
	t.Helper()
	n.cfg.TLS = peercert.Section{CertFile: pair + ".crt", KeyFile: pair + ".key", CAFile: pair + ".crt", RequireClientCert: true}
	return n
}

// encrypt makes the connection of the test one with TLS.
func (n *node) encrypt(t *testing.T, pair string) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(pair+".crt", pair+".key")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(pair + ".crt")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	n.hangUp()
	n.conn, err = grpc.NewClient(n.cfg.Listen, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: pool, MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
}

// TestMutualTLS: a pair talks with it; whoever lacks the right certificate is told so and gets nothing.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	ours, others := servicetest.SelfSigned(t), servicetest.SelfSigned(t)
	g := group(t, syncMaster, 1)
	for _, n := range g {
		n.secure(t, ours).start().encrypt(t, ours)
	}
	g[0].awaitOpen().awaitSlaves(1)
	g[0].fill(20)
	end := g[0].end64()
	for name, change := range map[string]func(*node){
		"plain text":        func(*node) {},
		"another authority": func(n *node) { n.secure(t, others) },
		"no certificate": func(n *node) {
			n.cfg.TLS = peercert.Section{CertFile: others + ".crt", KeyFile: others + ".key", CAFile: ours + ".crt"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := follower(t, 7, g[0])
			change(n)
			n.start()
			if n.cfg.TLS.CertFile != "" {
				n.encrypt(t, others)
			}
			up := n.await("a reason", func(st *storagev1.StatusResponse) bool { return st.GetUpstream().GetReason() != "" }).GetUpstream()
			if up.GetRemedy() == "" || up.GetConnects() != 0 {
				t.Errorf("upstream %v", up)
			}
			t.Logf("%s: %s", up.GetReason(), up.GetRemedy())
			n.halt()
		})
	}
	plain := *g[0]
	plain.conn = nil
	plain.dial()
	defer plain.hangUp()
	if _, err := plain.tryPut([]byte("in plain text")); err == nil {
		t.Error("a put in plain text was taken")
	}
	if got := g[0].end64(); got != end {
		t.Errorf("the log grew from %d to %d", end, got)
	}
	same(t, g[0], g[1])
}
