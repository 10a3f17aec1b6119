package servicetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
)

// sources are the places that -print-config adds to values from a file.
var sources = regexp.MustCompile(`  # \S+:\d+\n`)

// PrintsTheExample fails the test unless deploy/config/service.yaml is, from its key telemetry on, what -print-config says, and
// loads as that. variable is Command's.
func PrintsTheExample(t testing.TB, variable, service string) {
	t.Helper()
	name := filepath.Join(testkit.ModuleRoot(t), "deploy", "config", service+".yaml")
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, keys, _ := strings.Cut(string(file), "\ntelemetry:")
	for _, args := range [][]string{{"-print-config"}, {"-print-config", "-config", name}} {
		out, err := Run(t, variable, args...)
		if got := sources.ReplaceAllString(out, "\n"); err != nil || got != "telemetry:"+keys {
			t.Errorf("%v: %v; it prints something else than the file:\n%s", args, err, got)
		}
	}
}

// SelfSigned makes a certificate of this machine, its own CA, and returns the path of its files without .crt and .key.
func SelfSigned(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "node")
	for ending, b := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: cert}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name+ending, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return name
}
