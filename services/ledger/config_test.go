package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/peercert"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// TestEveryKeyIsExplained by -print-config, and nothing else is.
func TestEveryKeyIsExplained(t *testing.T) {
	if keys, err := service.Undocumented(defaultConfig(), docs); err != nil || len(keys) > 0 {
		t.Errorf("without an explanation, or without a key: %v, %v", keys, err)
	}
}

// TestTheExampleHasEveryKey: deploy/config/ledger.yaml is what -print-config says, and loads as that; the members' files are valid.
func TestTheExampleHasEveryKey(t *testing.T) {
	servicetest.PrintsTheExample(t, childVar, "ledger")
	for _, id := range memberIDs {
		name := filepath.Join(testkit.ModuleRoot(t), "deploy", "config", "ledger-"+id+".yaml")
		if out, err := servicetest.Run(t, childVar, "-check-config", "-config", name); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestConfigNamesTheKey(t *testing.T) {
	peers := []string{"n0-a:1", "n1-b:1", "n2-c:1"}
	for key, change := range map[string]func(*Config){
		"group":                         func(c *Config) { c.Group = "" },
		"selfId":                        func(c *Config) { c.SelfID = "a-b" },
		"storePath":                     func(c *Config) { c.StorePath = "" },
		"listen":                        func(c *Config) { c.Listen = "127.0.0.1:99999" },
		"flush":                         func(c *Config) { c.Flush = "sometimes" },
		"peers":                         func(c *Config) { c.Peers = peers[:2] },
		"peers[1]":                      func(c *Config) { c.Peers = []string{peers[0], "n0-b:1"} },
		"peers[2]":                      func(c *Config) { c.Peers = []string{peers[0], peers[1], "n2-b:1"} },
		"peers[0]":                      func(c *Config) { c.Peers = []string{"a:1"} },
		"preferredLeaderIds[0]":         func(c *Config) { c.PreferredLeaderIDs = []string{"n7"} },
		"maxElectionTimeout":            func(c *Config) { c.MaxElectionTimeout = c.MinElectionTimeout },
		"heartBeatTimeInterval":         func(c *Config) { c.HeartBeatTimeInterval = c.MinElectionTimeout / 2 },
		"flushFileInterval":             func(c *Config) { c.FlushFileInterval = 0 },
		"appendTimeout":                 func(c *Config) { c.AppendTimeout = 0 },
		"mappedFileSizeForEntryData":    func(c *Config) { c.MappedFileSizeForEntryData = 4097 },
		"mappedFileSizeForEntryIndex":   func(c *Config) { c.MappedFileSizeForEntryIndex = 1 << 40 },
		"maxBodySize":                   func(c *Config) { c.MaxBodySize = 4 << 20 },
		"maxBatchEntries":               func(c *Config) { c.MaxBatchEntries = 0 },
		"maxBatchSize":                  func(c *Config) { c.MaxBatchSize = 1 << 30 },
		"maxPendingRequestsNum":         func(c *Config) { c.MaxPendingRequestsNum = 1 },
		"idempotenceWindow":             func(c *Config) { c.IdempotenceWindow = 0 },
		"maxReplySize":                  func(c *Config) { c.MaxReplySize = 1 << 20 },
		"leadershipTransferWaitTimeout": func(c *Config) { c.LeadershipTransferWaitTimeout = 0 },
		"tls.certFile":                  func(c *Config) { c.TLS.CertFile, c.TLS.KeyFile = "/missing", "/missing" },
	} {
		c := defaultConfig()
		change(c)
		e := errdefs.As(c.Validate())
		if e == nil || e.Class != errdefs.InvalidArgument || !strings.HasPrefix(e.Field, strings.TrimSuffix(key, "File")) {
			t.Errorf("%s: %v", key, e)
		}
	}
	c := defaultConfig()
	c.MappedFileSizeForEntryData, c.MaxBodySize = 64<<10, 64<<10
	if e := errdefs.As(c.Validate()); e == nil || e.Field != "mappedFileSizeForEntryData" {
		t.Errorf("files that hold no entry: %v", e)
	}
	if err := defaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// TestPeersNameThisNode: a group of two is refused, and a node that the others would look for in vain; ports may be mapped between hosts.
func TestPeersNameThisNode(t *testing.T) {
	others := []string{"n1-b:20911", "n2-c:20911"}
	for _, tc := range []struct {
		self, listen string
		peers        []string
		field, says  string // "": it is valid
	}{
		{"n0", "127.0.0.1:20911", nil, "", ""},
		{"n0", "127.0.0.1:20911", []string{"n0-127.0.0.1:20911"}, "", ""},
		{"n0", "0.0.0.0:20911", append(others, "n0-a:20911"), "", ""},
		{"n0", "0.0.0.0:20911", append(others, "n0-a:31911"), "", ""},
		{"n0", "0.0.0.0:20911", append(others, "n0-a:20911", "n3-d:20911"), "", ""},
		{"n0", "0.0.0.0:20911", []string{"n0-a:20911", "n1-b:20911", "n2-B.:020911"}, "peers[2]", "stands twice"},
		{"n9", "0.0.0.0:20911", append(others, "n0-a:20911"), "selfId", "n9 is none of the members in peers: n1-b:20911"},
		{"n1", "0.0.0.0:20911", others, "peers", "2 members"},
		{"n0", "a:20912", append(others, "n0-a:20911"), "listen", "a:20912 is not where peers say that this node is, a:20911"},
		{"n0", "0.0.0.0:20912", append(others, "n0-127.0.0.1:20911"), "listen", "the same port"},
		{"n0", "[::]:20912", append(others, "n0-localhost:20911"), "listen", "the same port"},
	} {
		c := defaultConfig()
		c.SelfID, c.Listen, c.Peers = tc.self, tc.listen, tc.peers
		err := c.Validate()
		if tc.field == "" {
			if err != nil {
				t.Errorf("%s of %v: %v", tc.self, tc.peers, err)
			}
			continue
		}
		if e := errdefs.As(err); e == nil || e.Field != tc.field || !strings.Contains(e.Error(), tc.says) {
			t.Errorf("%s of %v: %v", tc.self, tc.peers, err)
		}
	}
}

// TestBootstrapCommand: once, on an empty folder.
func TestBootstrapCommand(t *testing.T) {
	s := newGroup(t, 1)[0].bootstrap()
	if err := s.tryBootstrap(); errdefs.ReasonOf(err) != "NOT_EMPTY" {
		t.Errorf("the second time: %v", err)
	}
	if err := runBootstrap(s.fs, s.cfg, []string{"x"}, s.log); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("with an argument: %v", err)
	}
}

// TestCheckCommand: text and JSON, a sound folder of DLedger's, a damaged one, none.
func TestCheckCommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testkit.Golden(t, "dledger-0.3.1.2"), "dledger-n1")
	var out bytes.Buffer
	check := func(args ...string) error {
		t.Helper()
		out.Reset()
		return runCheck(t.Context(), vfs.OS(), defaultConfig(), args, &out)
	}
	if err := check(dir); err != nil || !strings.HasPrefix(out.String(), "SOUND") || !strings.Contains(out.String(), "entries 0 to 599 in 8 files") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := check("-json", dir); err != nil || !strings.Contains(out.String(), `"last":599`) {
		t.Errorf("%v\n%s", err, out.String())
	}
	name := filepath.Join(dir, "data", "00000000000000131072")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 7
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(dir); errdefs.ReasonOf(err) != "DAMAGED" || !strings.Contains(out.String(), "at offset 131072") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := check(t.TempDir()); errdefs.ReasonOf(err) != "NO_LEDGER" {
		t.Errorf("an empty folder: %v", err)
	}
	if err := check("a", "b"); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("two folders: %v", err)
	}
}

// TestMutualTLS: a group talks with it; whoever has no certificate gets nothing.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	name := servicetest.SelfSigned(t)
	cert, err := tls.LoadX509KeyPair(name+".crt", name+".key")
	if err != nil {
		t.Fatal(err)
	}
	g := newGroup(t, 3, func(c *Config) {
		c.TLS = peercert.Section{CertFile: name + ".crt", KeyFile: name + ".key", CAFile: name + ".crt", RequireClientCert: true}
	})
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(name + ".crt")
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(pem)
	for _, s := range g {
		s.bootstrap().start()
		if _, err := s.admin().Status(t.Context(), &ledgerv1.StatusRequest{}); err == nil {
			t.Error("plain text is served")
		}
		s.hangUp()
		s.conn, err = grpc.NewClient(s.cfg.Listen, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{cert}, RootCAs: pool, MinVersion: tls.VersionTLS13,
		})))
		if err != nil {
			t.Fatal(err)
		}
	}
	last := newClient(t).put(g, "x").GetIndex()
	for _, s := range g {
		if got := s.bodies(last); len(got) != 1 {
			t.Errorf("%v", got)
		}
	}
}

// TestCertificateOfAnotherCA: what the other members would not take is refused before the start, with the key and what to do.
func TestCertificateOfAnotherCA(t *testing.T) {
	t.Parallel()
	ours, others := servicetest.SelfSigned(t), servicetest.SelfSigned(t)
	config := func(change func(*Config)) *Config {
		c := defaultConfig()
		c.Peers = []string{"n0-127.0.0.1:20911", "n1-127.0.0.1:20921", "n2-127.0.0.1:20931"}
		c.TLS = peercert.Section{CertFile: ours + ".crt", KeyFile: ours + ".key", CAFile: ours + ".crt"}
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
		"another host": {func(c *Config) { c.Peers[0] = "n0-localhost:20911" }, peercert.ErrName},
		"another key":  {func(c *Config) { c.TLS.KeyFile = others + ".key" }, nil},
	} {
		err := config(tc.change).Validate()
		if e := errdefs.As(err); e == nil || e.Class != errdefs.InvalidArgument || e.Field != "tls.certFile" || tc.want != nil && (!errors.Is(err, tc.want) || e.Remedy == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
