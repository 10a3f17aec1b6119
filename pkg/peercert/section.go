package peercert

import (
	"os"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Section is `tls` in the configuration of a service: for its gRPC port, and for its calls to other nodes.
type Section struct {
	CertFile          string `yaml:"certFile"`
	KeyFile           string `yaml:"keyFile"`
	CAFile            string `yaml:"caFile"`
	RequireClientCert bool   `yaml:"requireClientCert"`
}

// TLS is what servers and clients are made with.
func (s Section) TLS() grpcx.TLS {
	return grpcx.TLS{CertFile: s.CertFile, KeyFile: s.KeyFile, CAFile: s.CAFile, RequireClientCert: s.RequireClientCert}
}

// Validate checks that the files can be read and go together, and that other nodes, which call this one at address, will take the
// certificate. Empty: there are none. The error names the key.
func (s Section) Validate(address string) error {
	if err := s.TLS().Validate(true); err != nil {
		return err
	}
	for _, file := range []struct{ key, name string }{
		{"tls.certFile", s.CertFile}, {"tls.keyFile", s.KeyFile}, {"tls.caFile", s.CAFile},
	} {
		if file.name == "" {
			continue
		}
		f, err := os.Open(file.name)
		if err != nil {
			return errdefs.Invalid(file.key, "cannot be read").Wrap(err)
		}
		_ = f.Close() // nothing was written
	}
	_, err := grpcx.NewDialer(grpcx.ClientOptions{TLS: s.TLS()}) // it reads all of them
	if err == nil && address != "" {
		err = Check(s.CertFile, s.CAFile, address)
	}
	if e := errdefs.As(err); e != nil {
		return e.WithField("tls.certFile")
	}
	return err
}
