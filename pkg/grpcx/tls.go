package grpcx

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx/stray"
)

// ErrTLSFiles says that certificate, key or CA file cannot be used together; the metadata names them.
var ErrTLSFiles = errdefs.New(errdefs.InvalidArgument, "TLS_FILES", "the TLS files cannot be used")

// TLS names the files of one end. The zero value is plain text. The files are read again when they change, at the next
// handshake; connections that stand are left alone.
type TLS struct {
	// CertFile and KeyFile are this end's PEM certificate chain and key: a server must have them, a client may.
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
	// CAFile holds the PEM certificates that the other end's must come from; a client without one uses the system's.
	CAFile string `yaml:"caFile"`
	// RequireClientCert makes a server refuse clients without a certificate from CAFile.
	RequireClientCert bool `yaml:"requireClientCert"`
	// ServerName is the name that a client expects in the server's certificate; empty: the host that it dials.
	ServerName string `yaml:"serverName"`
	// Enable makes a client speak TLS although no file is named.
	Enable bool `yaml:"enable"`
}

// Enabled reports whether this end speaks TLS.
func (t TLS) Enabled() bool { return t.Enable || t.CertFile != "" || t.KeyFile != "" || t.CAFile != "" }

// Validate checks the settings without reading a file.
func (t TLS) Validate(server bool) error {
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""):
		return errdefs.Invalid("tls", "certFile and keyFile go together").WithRemedy("set both or neither")
	case server && t.Enabled() && t.CertFile == "":
		return errdefs.Invalid("tls.certFile", "a server cannot speak TLS without a certificate").
			WithRemedy("set certFile and keyFile")
	case t.RequireClientCert && t.CAFile == "":
		return errdefs.Invalid("tls.caFile", "client certificates are required and no CA is named to check them").
			WithRemedy("set caFile")
	}
	return nil
}

func (t TLS) files() [3]string { return [3]string{t.CertFile, t.KeyFile, t.CAFile} }

// stamp tells whether a file is the one that was read.
type stamp struct {
	inode uint64
	size  int64
	mtime time.Time
}

// settled is the age below which a file's time stamp cannot tell two writes apart.
const settled = time.Second

// keyring holds the last good TLS configuration of one end.
type keyring struct {
	files  TLS
	server bool
	log    *slog.Logger
	meters *instruments

	mu     sync.Mutex
	config *tls.Config
	creds  credentials.TransportCredentials // made of config
	seen   [3]stamp                         // of the files when they were read last
	fresh  bool                             // they were then too young for seen to tell
	faulty bool                             // they could not be used then
}

// openKeyring reads the files; files that do not match are an error here, later they are reported and the old ones kept.
func openKeyring(files TLS, server bool, log *slog.Logger, m *instruments) (*keyring, error) {
	if err := files.Validate(server); err != nil {
		return nil, err
	}
	k := &keyring{files: files, server: server, log: log, meters: m}
	seen, fresh, err := k.stamps()
	if err == nil {
		k.config, err = k.load()
	}
	if err != nil {
		return nil, k.fault(err)
	}
	k.creds, k.seen, k.fresh = credentials.NewTLS(k.config), seen, fresh
	return k, nil
}

func (k *keyring) fault(err error) error {
	e := ErrTLSFiles.Wrap(err).WithRemedy("name a certificate, its own key and a CA, all PEM and readable by this user")
	for i, name := range k.files.files() {
		if name != "" {
			e = e.With([...]string{"cert_file", "key_file", "ca_file"}[i], name)
		}
	}
	return e
}

func (k *keyring) stamps() (out [3]stamp, fresh bool, err error) {
	now := time.Now()
	for i, name := range k.files.files() {
		if name == "" {
			continue
		}
		fi, err := os.Stat(name)
		if err != nil {
			return out, false, err
		}
		out[i] = stamp{size: fi.Size(), mtime: fi.ModTime()}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			out[i].inode = st.Ino
		}
		fresh = fresh || now.Sub(fi.ModTime()) < settled
	}
	return out, fresh, nil
}

func (k *keyring) load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: k.files.ServerName}
	if k.files.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(k.files.CertFile, k.files.KeyFile)
		if err != nil {
			return nil, err
		}
		if pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter) {
			k.log.Warn("tls certificate has expired", slog.String("cert_file", k.files.CertFile),
				slog.Time("not_after", pair.Leaf.NotAfter))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if k.files.CAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(k.files.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in the CA file")
	}
	if !k.server {
		c.RootCAs = pool
		return c, nil
	}
	c.ClientCAs, c.ClientAuth = pool, tls.VerifyClientCertIfGiven
	if k.files.RequireClientCert {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// current returns the credentials for one handshake. Files that changed and do not match leave the last good ones in
// place; they are reported once and tried again at each handshake.
func (k *keyring) current() credentials.TransportCredentials {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen, fresh, err := k.stamps()
	same := seen == k.seen
	if err == nil && same && !k.fresh && !k.faulty {
		return k.creds
	}
	var c *tls.Config
	if err == nil {
		c, err = k.load()
	}
	if err != nil {
		if !k.faulty || !same {
			k.meters.tlsReloadFailed()
			k.log.Error("tls files changed and cannot be used, keeping the last good ones",
				slog.String("error", k.fault(err).Error()))
		}
		k.seen, k.fresh, k.faulty = seen, fresh, true
		return k.creds
	}
	k.seen, k.fresh, k.faulty = seen, fresh, false
	if !sameConfig(k.config, c) { // a file that was only touched keeps its session tickets
		k.config, k.creds = c, credentials.NewTLS(c)
		k.log.Info("tls files read again", slog.String("cert_file", k.files.CertFile))
	}
	return k.creds
}

func sameConfig(a, b *tls.Config) bool {
	same := func(x, y tls.Certificate) bool { return slices.EqualFunc(x.Certificate, y.Certificate, bytes.Equal) }
	return slices.EqualFunc(a.Certificates, b.Certificates, same) && samePool(a.RootCAs, b.RootCAs) && samePool(a.ClientCAs, b.ClientCAs)
}

func samePool(a, b *x509.CertPool) bool { return (a == nil) == (b == nil) && (a == nil || a.Equal(b)) }

// following is the transport credentials of a keyring: each handshake takes the configuration of its moment.
type following struct {
	ring *keyring
	name string // overrides the server name, see OverrideServerName
}

func (f *following) now() credentials.TransportCredentials {
	c := f.ring.current()
	if f.name != "" {
		c = c.Clone()
		_ = c.OverrideServerName(f.name) //nolint:staticcheck // deprecated, and still part of the interface; it never fails here
	}
	return c
}

func (f *following) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return f.now().ClientHandshake(ctx, authority, raw)
}

func (f *following) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := f.now().ServerHandshake(raw)
	if err != nil {
		f.ring.meters.handshakeFailed(raw, err)
	}
	return conn, info, err
}

func (f *following) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (f *following) Clone() credentials.TransportCredentials { c := *f; return &c }

func (f *following) OverrideServerName(name string) error { f.name = name; return nil }

func transportCredentials(t TLS, server bool, log *slog.Logger, m *instruments) (credentials.TransportCredentials, error) {
	if !t.Enabled() {
		if t.RequireClientCert {
			return nil, t.Validate(server)
		}
		if server {
			return stray.Credentials(m.handshakeFailed), nil
		}
		return insecure.NewCredentials(), nil
	}
	ring, err := openKeyring(t, server, log, m)
	if err != nil {
		return nil, fmt.Errorf("open tls files: %w", err)
	}
	return &following{ring: ring}, nil
}
