package peercert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/peercert"
)

// issuer signs certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	der  []byte
}

func issue(t *testing.T, c *x509.Certificate, by *issuer) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	if by == nil {
		by = &issuer{cert: c, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{cert, key, der}
}

func ca(name string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}
}

func file(t *testing.T, certs ...*issuer) string {
	t.Helper()
	name, data := filepath.Join(t.TempDir(), "x.pem"), []byte(nil)
	for _, c := range certs {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.der})...)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCheck(t *testing.T) {
	leaf := func(usages ...x509.ExtKeyUsage) *x509.Certificate {
		return &x509.Certificate{DNSNames: []string{"node0"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}, ExtKeyUsage: usages}
	}
	expired := leaf()
	expired.NotBefore, expired.NotAfter = time.Now().Add(-10*time.Minute), time.Now().Add(-time.Minute)
	ours, theirs := issue(t, ca("ours"), nil), issue(t, ca("theirs"), nil)
	between := issue(t, ca("between"), ours)
	below := issue(t, leaf(), between)
	own := issue(t, leaf(), ours)
	trust := file(t, ours)
	for name, c := range map[string]struct {
		cert, ca, address string
		want              error
	}{
		"by name":            {file(t, own), trust, "node0:10911", nil},
		"by IP address":      {file(t, own), trust, "10.0.0.1:10911", nil},
		"no host":            {file(t, own), trust, ":10911", nil},
		"another host":       {file(t, own), trust, "node1:10911", peercert.ErrName},
		"another IP address": {file(t, own), trust, "127.0.0.1:10911", peercert.ErrName},
		"host, no CA":        {file(t, own), "", "node1:10911", peercert.ErrName},
		"no CA":              {file(t, own), "", "node0:10911", nil},
		"another CA":         {file(t, own), file(t, theirs), "node0:10911", peercert.ErrUntrusted},
		"two CAs":            {file(t, own), file(t, theirs, ours), "node0:10911", nil},
		"whole chain":        {file(t, below, between), trust, "node0:10911", nil},
		"chain with a gap":   {file(t, below), trust, "node0:10911", peercert.ErrUntrusted},
		"for both ends":      {file(t, issue(t, leaf(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth), ours)), trust, "node0:1", nil},
		"for servers only":   {file(t, issue(t, leaf(x509.ExtKeyUsageServerAuth), ours)), trust, "node0:1", peercert.ErrUntrusted},
		"for clients only":   {file(t, issue(t, leaf(x509.ExtKeyUsageClientAuth), ours)), trust, "node0:1", peercert.ErrUntrusted},
		"expired":            {file(t, issue(t, expired, ours)), trust, "node0:1", nil},
		"plain text":         {"", "", "node0:1", nil},
	} {
		if err := peercert.Check(c.cert, c.ca, c.address); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	err := peercert.Check(file(t, own), trust, "node1:10911")
	if e := errdefs.As(err); e == nil || e.Field != "tls.certFile" || e.Remedy == "" || !strings.Contains(err.Error(), "node0 10.0.0.1") {
		t.Errorf("field, remedy or the names are missing: %v", err)
	}
	for name, file := range map[string]string{"missing": filepath.Join(t.TempDir(), "none"), "empty": file(t)} {
		if e := errdefs.As(peercert.Check(file, "", "node0:1")); e == nil || e.Class != errdefs.InvalidArgument || e.Field != "tls.certFile" {
			t.Errorf("%s file: %v", name, e)
		}
	}
}

func TestSection(t *testing.T) {
	ours, theirs := issue(t, ca("ours"), nil), issue(t, ca("theirs"), nil)
	own := issue(t, &x509.Certificate{DNSNames: []string{"node0"}}, ours)
	good := peercert.Section{CertFile: file(t, own), KeyFile: keyFile(t, own), CAFile: file(t, ours)}
	for name, c := range map[string]struct {
		change  func(*peercert.Section)
		address string
		field   string // "": it is valid
	}{
		"plain text":               {func(s *peercert.Section) { *s = peercert.Section{} }, "node0:1", ""},
		"all three":                {func(*peercert.Section) {}, "node0:1", ""},
		"alone, clients' other CA": {func(s *peercert.Section) { s.CAFile = file(t, theirs) }, "", ""},
		"another CA":               {func(s *peercert.Section) { s.CAFile = file(t, theirs) }, "node0:1", "tls.certFile"},
		"another host":             {func(*peercert.Section) {}, "node1:1", "tls.certFile"},
		"another's key":            {func(s *peercert.Section) { s.KeyFile = keyFile(t, ours) }, "", "tls.certFile"},
		"no key":                   {func(s *peercert.Section) { s.KeyFile = "" }, "", "tls"},
		"no CA to ask for":         {func(s *peercert.Section) { s.CAFile, s.RequireClientCert = "", true }, "", "tls.caFile"},
		"a key that is not there":  {func(s *peercert.Section) { s.KeyFile += "x" }, "", "tls.keyFile"},
		"a CA that is not there":   {func(s *peercert.Section) { s.CAFile += "x" }, "", "tls.caFile"},
	} {
		s := good
		c.change(&s)
		err := s.Validate(c.address)
		if e := errdefs.As(err); (err == nil) != (c.field == "") || err != nil && (e == nil || e.Class != errdefs.InvalidArgument || e.Field != c.field) {
			t.Errorf("%s: %v, want field %q", name, err, c.field)
		}
	}
}

func keyFile(t *testing.T, i *issuer) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x.key")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
