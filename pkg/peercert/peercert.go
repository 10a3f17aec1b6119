package peercert

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"strings"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Errors; the metadata names the files.
var (
	ErrUntrusted = errdefs.New(errdefs.InvalidArgument, "CERT_NOT_OF_CA", "the certificate does not come from the CA by which the nodes of a group check each other").
			WithField("tls.certFile").WithRemedy("set certFile to a certificate that caFile's CA has signed, for servers and for clients, or add its CA to caFile on all nodes")
	ErrName = errdefs.New(errdefs.InvalidArgument, "CERT_NOT_OF_HOST", "the certificate does not name the host at which the other nodes call this one").
		WithField("tls.certFile")
)

// Check checks the certificate in certFile against the CAs in caFile, where one is named, and against the host of the
// address at which others call this node. Without a certFile there is nothing to check.
func Check(certFile, caFile, address string) error {
	if certFile == "" {
		return nil
	}
	chain, err := read(certFile)
	if err != nil {
		return err
	}
	if caFile != "" {
		if err := verify(chain, caFile); err != nil {
			return ErrUntrusted.Wrap(err).With("cert_file", certFile).With("ca_file", caFile)
		}
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return nil //nolint:nilerr // who calls the node by which name is not known
	}
	if chain[0].VerifyHostname(host) != nil {
		return ErrName.With("host", host).With("cert_file", certFile).With("names", cmp.Or(names(chain[0]), "none")).
			WithRemedy("have a certificate issued that names %s (subject alternative name), or set the node's address to a name that this one has", host)
	}
	return nil
}

// read returns the certificates of a file, the node's own first.
func read(name string) (chain []*x509.Certificate, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, errdefs.Invalid("tls.certFile", "cannot be read").Wrap(err)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errdefs.Invalid("tls.certFile", "%s holds a certificate that cannot be read", name).Wrap(err)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, errdefs.Invalid("tls.certFile", "%s holds no certificate in PEM", name)
	}
	return chain, nil
}

// verify checks the chain as a caller of this node does, and as a node that this one calls does.
func verify(chain []*x509.Certificate, caFile string) error {
	data, err := os.ReadFile(caFile)
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	now := time.Now()
	if now.After(chain[0].NotAfter) {
		now = chain[0].NotAfter
	} else if now.Before(chain[0].NotBefore) {
		now = chain[0].NotBefore
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := chain[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		}); err != nil {
			return err
		}
	}
	return nil
}

func names(c *x509.Certificate) string {
	all := c.DNSNames
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	return strings.Join(all, " ")
}
