package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/peercert"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// TestCertificateOfAnotherCA: what the other nodes would not take is refused before the start, with the key and what to do.
func TestCertificateOfAnotherCA(t *testing.T) {
	ours, others := servicetest.SelfSigned(t), servicetest.SelfSigned(t)
	config := func(change func(*Config)) *Config {
		c := defaultConfig()
		c.Peers = []string{c.Listen, "127.0.0.1:10922"}
		c.TLS.CertFile, c.TLS.KeyFile, c.TLS.CAFile = ours+".crt", ours+".key", ours+".crt"
		change(c)
		return c
	}
	if err := config(func(*Config) {}).Validate(); err != nil {
		t.Error(err)
	}
	if err := config(func(c *Config) { c.Peers, c.TLS.CAFile = nil, others+".crt" }).Validate(); err != nil {
		t.Errorf("alone, for clients of another CA: %v", err)
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   error // nil: any
	}{
		"another CA":   {func(c *Config) { c.TLS.CAFile = others + ".crt" }, peercert.ErrUntrusted},
		"another host": {func(c *Config) { c.Advertise, c.Peers[0] = "10.1.2.3:10921", "10.1.2.3:10921" }, peercert.ErrName},
		"another key":  {func(c *Config) { c.TLS.KeyFile = others + ".key" }, nil},
	} {
		err := config(tc.change).Validate()
		if e := errdefs.As(err); e == nil || e.Class != errdefs.InvalidArgument || e.Field != "tls.certFile" || tc.want != nil && (!errors.Is(err, tc.want) || e.Remedy == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckConfigChecksTheCertificate: a user sees it without starting anything.
func TestCheckConfigChecksTheCertificate(t *testing.T) {
	ours, others := servicetest.SelfSigned(t), servicetest.SelfSigned(t)
	file := filepath.Join(t.TempDir(), "configsync.yaml")
	for ca, good := range map[string]bool{ours: true, others: false} {
		write(t, file, `peers: ["127.0.0.1:10921", "127.0.0.1:10922"]
tls: {certFile: `+ours+`.crt, keyFile: `+ours+`.key, caFile: `+ca+`.crt}
`)
		out, err := runMain(t, "-check-config", "-config", file)
		var exit *exec.ExitError
		switch {
		case good && err != nil:
			t.Errorf("%v: %s", err, out)
		case !good && (!errors.As(err, &exit) || exit.ExitCode() != service.ExitConfig || !strings.Contains(out, "tls.certFile") || !strings.Contains(out, "caFile")):
			t.Errorf("of another CA: %v: %s", err, out)
		}
	}
}
