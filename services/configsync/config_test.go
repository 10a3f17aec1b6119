package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// runMain runs the service's binary and returns what it wrote.
func runMain(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return servicetest.Run(t, childVar, args...)
}

// TestEveryKeyIsExplained by -print-config, and nothing else is.
func TestEveryKeyIsExplained(t *testing.T) {
	if keys, err := service.Undocumented(defaultConfig(), docs); err != nil || len(keys) > 0 {
		t.Errorf("without an explanation, or without a key: %v, %v", keys, err)
	}
}

// TestTheExampleHasEveryKey: deploy/config/configsync.yaml is what -print-config says, and loads as that.
func TestTheExampleHasEveryKey(t *testing.T) { servicetest.PrintsTheExample(t, childVar, "configsync") }

// TestTheExamplesAreValid: the files of deploy/config can be started with.
func TestTheExamplesAreValid(t *testing.T) {
	dir := filepath.Join(testkit.ModuleRoot(t), "deploy", "config")
	files, err := filepath.Glob(filepath.Join(dir, "configsync*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, f := range files {
		if out, err := runMain(t, "-check-config", "-config", f); err != nil {
			t.Errorf("%s: %v: %s", f, err, out)
		}
	}
}

// TestCheckOfNoTables: a folder without any table is refused, a RocketMQ folder that has one is not.
func TestCheckOfNoTables(t *testing.T) {
	dir := t.TempDir()
	out, err := runMain(t, "check", dir)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != service.ExitConfig || !strings.Contains(out, "holds no tables") || strings.Contains(out, "WHOLE") {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, configDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err = runMain(t, "check", dir); err == nil || !strings.Contains(out, "holds no tables") {
		t.Errorf("with an empty config/: %v: %s", err, out)
	}
	write(t, filepath.Join(dir, configDir, "topics.json"), `{"topicConfigTable":{},"dataVersion":{"counter":1,"timestamp":1}}`)
	if out, err = runMain(t, "check", dir); err != nil || strings.Count(out, "WHOLE") != 4 {
		t.Errorf("with one table: %v: %s", err, out)
	}
}

func TestConfigNamesTheKey(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"brokerClusterName":           func(c *Config) { c.BrokerClusterName = "" },
		"brokerName":                  func(c *Config) { c.BrokerName = "" },
		"brokerRole":                  func(c *Config) { c.BrokerRole = "BOSS" },
		"brokerId":                    func(c *Config) { c.BrokerID = -1 },
		"epoch":                       func(c *Config) { c.Epoch = 0 },
		"storePathRootDir":            func(c *Config) { c.StorePathRootDir = "" },
		"maxTopicQueueNums":           func(c *Config) { c.MaxTopicQueueNums = 70000 },
		"listen":                      func(c *Config) { c.Listen = "127.0.0.1:99999" },
		"advertise":                   func(c *Config) { c.Advertise = "here" },
		"storage.address":             func(c *Config) { c.Storage.Address = "there" },
		"storage.interval":            func(c *Config) { c.Storage.Interval = time.Millisecond },
		"storage.timeout":             func(c *Config) { c.Storage.Timeout = c.Storage.Interval },
		"peers":                       func(c *Config) { c.Peers = []string{"other:10921", "third:10921"} },
		"peers[1]":                    func(c *Config) { c.Peers = []string{c.Listen, c.Listen} },
		"master.legacy":               func(c *Config) { c.Master.Legacy, c.Master.Address = true, "there:10911" },
		"master.address":              func(c *Config) { c.Master.Legacy, c.BrokerRole = true, slave },
		"remoting.maxFrame":           func(c *Config) { c.Remoting.MaxFrame = 1 << 10 },
		"remoting.maxConnections":     func(c *Config) { c.Remoting.MaxConnections = 0 },
		"remoting.listen":             func(c *Config) { c.Remoting.NameServers = []string{"ns:9876"} },
		"remoting.brokerAddr":         func(c *Config) { c.Remoting = remotingAt("0.0.0.0:10931", "here:10912") },
		"remoting.haServerAddr":       func(c *Config) { c.Remoting = remotingAt("127.0.0.1:10931", "") },
		"remoting.nameServers[1]":     func(c *Config) { c.Remoting = remotingAt("127.0.0.1:10931", "here:10912", "ns:9876") },
		"startWait":                   func(c *Config) { c.StartWait = -1 },
		"syncInterval":                func(c *Config) { c.SyncInterval = 0 },
		"syncTimeout":                 func(c *Config) { c.SyncTimeout = 0 },
		"flushConsumerOffsetInterval": func(c *Config) { c.FlushConsumerOffsetInterval = time.Minute },
		"tls":                         func(c *Config) { c.TLS.CertFile = "/nowhere" },
		"tls.certFile":                func(c *Config) { c.TLS.CertFile, c.TLS.KeyFile = "/nowhere", "/nowhere" },
	} {
		c := defaultConfig()
		change(c)
		if err := errdefs.As(c.Validate()); err == nil || err.Field != key {
			t.Errorf("%s: %v", key, err)
		}
	}
	for name, change := range map[string]func(*Config){
		"brokerName":            func(c *Config) { c.BrokerName = "a/b" },
		"peers[1]":              func(c *Config) { c.Listen, c.Peers = "127.0.0.1:10921", []string{"127.0.0.1:10921", "localhost:10921"} },
		"master.legacy":         func(c *Config) { c.Master.Address = "there:10911" },
		"remoting.listen":       func(c *Config) { c.Remoting.Listen = "127.0.0.1:2" },
		"remoting.haServerAddr": func(c *Config) { c.Remoting = remotingAt("127.0.0.1:10931", ":10912") },
	} {
		c := defaultConfig()
		change(c)
		if err := errdefs.As(c.Validate()); err == nil || err.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := defaultConfig()
	c.Remoting = remotingAt("127.0.0.1:10931", "here:10912")
	c.Master.Legacy, c.Master.Address, c.BrokerRole = true, "there:10911", slave
	if err := c.Validate(); err != nil || c.Remoting.BrokerAddr != c.Remoting.Listen {
		t.Errorf("all of remoting: %v", err)
	}
	c = defaultConfig()
	c.BrokerRole = slave
	if err := errdefs.As(c.Validate()); err == nil || err.Field != "peers" {
		t.Errorf("a slave without a group: %v", err)
	}
	if err := defaultConfig().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
}

// remotingAt registers with one name server, and more.
func remotingAt(listen, ha string, more ...string) Remoting {
	return Remoting{
		Listen: listen, HAServerAddr: ha, NameServers: append([]string{"ns:9876"}, more...), MaxConnections: 1, MaxFrame: 1 << 20,
	}
}

func TestAnUnknownKeyIsAnError(t *testing.T) {
	name := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(name, []byte("brokerName: a\nsyncIntervall: 3s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := runMain(t, "-check-config", "-config", name)
	if err == nil || !strings.Contains(out, "syncInterval") || !strings.Contains(out, ":2") {
		t.Errorf("%v: %s", err, out)
	}
}
