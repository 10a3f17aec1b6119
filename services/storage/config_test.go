package main

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// TestTheExampleHasEveryKey: deploy/config/storage.yaml is what -print-config says, and loads as that.
func TestTheExampleHasEveryKey(t *testing.T) { servicetest.PrintsTheExample(t, childVar, "storage") }

// TestEveryKeyIsExplained by -print-config, and nothing else is.
func TestEveryKeyIsExplained(t *testing.T) {
	if keys, err := service.Undocumented(defaultConfig(), docs); err != nil || len(keys) > 0 {
		t.Errorf("without an explanation, or without a key: %v, %v", keys, err)
	}
	for key := range rocketMQ {
		if docs[key] != "" {
			t.Errorf("%s is a key of this service", key)
		}
	}
}

// The kernel's own algorithms pass, another name is answered with theirs.
func TestCongestionControl(t *testing.T) {
	list, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	if err != nil {
		t.Skip("only Linux lists its congestion controls in /proc, and there is nothing to hold a name against without the list: ", err)
	}
	for _, name := range strings.Fields(string(list)) {
		if err := checkCongestion(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := checkCongestion("bogus"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not offer %s: %v", name, err)
		}
	}
}

func TestConfigNamesTheKey(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"brokerRole":              func(c *Config) { c.BrokerRole = "BOSS" },
		"brokerId":                func(c *Config) { c.BrokerID = -1 },
		"listen":                  func(c *Config) { c.Listen = "127.0.0.1:99999" },
		"haListen":                func(c *Config) { c.HAListen = c.Listen },
		"brokerIP1":               func(c *Config) { c.BrokerIP1 = "here" },
		"flushDiskType":           func(c *Config) { c.FlushDiskType = "SOMETIMES" },
		"messageDelayLevel":       func(c *Config) { c.MessageDelayLevel = "1x" },
		"mappedFileSizeCommitLog": func(c *Config) { c.MappedFileSizeCommitLog = 1 << 20 },
		"haHousekeepingInterval":  func(c *Config) { c.HAHousekeepingInterval = c.HASendHeartbeatInterval },
		"slaveTimeout":            func(c *Config) { c.SlaveTimeout = 0 },
		"ha.peers":                func(c *Config) { c.HA.Peers = []string{"other:10911", "third:10911"} },
		"ha.peers[1]":             func(c *Config) { c.HA.Peers = []string{c.Listen, c.Listen} },
		"ha.required":             func(c *Config) { c.HA.Required = 2; c.HA.Peers = []string{c.Listen, "b:1"} },
		"ha.legacyPeers[0]":       func(c *Config) { c.HA.LegacyPeers = []string{"name"} },
		"master.address": func(c *Config) {
			c.BrokerRole, c.BrokerID = slave, 1
			c.HA.Peers = []string{c.Listen, "b:1"}
			c.Master.Legacy = true
		},
		"mappedFileSizeConsumeQueue": func(c *Config) { c.MappedFileSizeConsumeQueue = 21 },
		"tls.certFile":               func(c *Config) { c.TLS.CertFile, c.TLS.KeyFile = "/missing", "/missing" },
		"tls":                        func(c *Config) { c.TLS.CertFile = "/missing" },
		"ha.congestionControl":       func(c *Config) { c.HA.CongestionControl = "bogus" },
		"configsync.address":         func(c *Config) { c.ConfigSync.Address = "configsync" },
		"configsync":                 func(c *Config) { c.AutoCreateTopicEnable = false },
	} {
		c := defaultConfig()
		change(c)
		e := errdefs.As(c.Validate())
		if e == nil || e.Class != errdefs.InvalidArgument || !strings.HasPrefix(e.Field, strings.TrimSuffix(key, "File")) {
			t.Errorf("%s: %v", key, e)
		}
	}
	for text, change := range map[string]func(*Config){
		"master.address: is for brokerRole SLAVE only, and this node is ASYNC_MASTER": func(c *Config) { c.Master.Address = "a:10911" },
		"master.address: 127.0.0.1:10911 is this node itself":                         func(c *Config) { c.BrokerRole, c.BrokerID, c.Master.Address = slave, 1, c.Listen },
		"master.address: 127.0.0.1:10912 is this node itself":                         func(c *Config) { c.BrokerRole, c.BrokerID, c.Master.Address = slave, 1, c.HAListen },
		"brokerId: 0 is the master's":                                                 func(c *Config) { c.BrokerRole, c.Master.Address = slave, "a:10911" },
		"brokerRole: SLAVE needs its group":                                           func(c *Config) { c.BrokerRole, c.BrokerID = slave, 1 },
		"ha.peers: has one node only":                                                 func(c *Config) { c.BrokerRole, c.BrokerID, c.HA.Peers = slave, 1, []string{c.Listen} },
		"haSendHeartbeatInterval: 1m0s is not below haHousekeepingInterval 20s":       func(c *Config) { c.HASendHeartbeatInterval = time.Minute },
		"haHousekeepingInterval: 3s does not exceed haSendHeartbeatInterval 5s":       func(c *Config) { c.HAHousekeepingInterval = 3 * time.Second },
		"ha.required: -1 is below 1":                                                  func(c *Config) { c.HA.Required = -1 },
		"ha.required: 17 slaves cannot confirm: ha.maxSlaves lets 16 follow":          func(c *Config) { c.HA.Required = 17 },
		"ha.maxSlaves: 65 is not within 1 and 64":                                     func(c *Config) { c.HA.MaxSlaves = 65 },
		"mappedFileSizeCommitLog: 2GiB is not within 4KiB and 2147483647":             func(c *Config) { c.MappedFileSizeCommitLog = 2 << 30 },
		`brokerName: "broker a" has a ' '`:                                            func(c *Config) { c.BrokerName = "broker a" },
		`brokerName: "a/b" has a '/'`:                                                 func(c *Config) { c.BrokerName = "a/b" },
		"brokerName: is empty":                                                        func(c *Config) { c.BrokerName = "" },
		`brokerName: "a\xff" is not UTF-8`:                                            func(c *Config) { c.BrokerName = "a\xff" },
		"brokerName: has 256 bytes, more than 255":                                    func(c *Config) { c.BrokerName = strings.Repeat("a", 256) },
		`brokerClusterName: "a\n" has a '\n'`:                                         func(c *Config) { c.BrokerClusterName = "a\n" },
		"master.address: localhost:10911 is this node itself":                         func(c *Config) { c.BrokerRole, c.BrokerID, c.Master.Address = slave, 1, "localhost:10911" },
	} {
		c := defaultConfig()
		change(c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := defaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// TestAPeerIsNamedOnce: a node that stands in ha.peers twice would be asked twice, and count as two.
func TestAPeerIsNamedOnce(t *testing.T) {
	for _, tc := range []struct{ listen, advertise, peer, want string }{
		{"127.0.0.1:10911", "", "localhost:10911", "listen"},
		{"127.0.0.1:10911", "", "LocalHost.:10911", "listen"},
		{"127.0.0.1:10911", "", "127.0.0.1:010911", "stands in front"},
		{"127.0.0.1:10911", "", "[::ffff:127.0.0.1]:10911", "stands in front"},
		{"127.0.0.1:10911", "", ":10911", "listen"},
		{"localhost:10911", "", "[::1]:10911", "listen"},
		{"127.0.0.1:10911", "", "localhost:10912", "haListen"},
		{"0.0.0.0:10911", "store-1:10911", "127.0.0.1:10911", "listen"},
		{"0.0.0.0:10911", "store-1:10911", "Store-1:10911", "stands in front"},
		{"10.0.0.1:10911", "store-1:10911", "10.0.0.1:10911", "listen"},
		{"[::1]:10911", "", "[0:0:0:0:0:0:0:1]:10911", "stands in front"},

		{"127.0.0.1:10911", "", "127.0.0.2:10911", ""},
		{"127.0.0.1:10911", "", "localhost:10921", ""},
		{"10.0.0.1:10911", "", "10.0.0.2:10911", ""},
		{"0.0.0.0:10911", "store-1:10911", "store-2:10911", ""},
		{"127.0.0.1:0", "", "localhost:10911", ""},
	} {
		c := defaultConfig()
		c.Listen, c.Advertise = tc.listen, tc.advertise
		c.HA.Peers = []string{cmp.Or(tc.advertise, tc.listen), tc.peer}
		err := c.Validate()
		if tc.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", tc, err)
			}
			continue
		}
		e := errdefs.As(err)
		if e == nil || e.Field != "ha.peers[1]" || !strings.Contains(e.Error(), tc.want) || e.Remedy == "" {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	for _, name := range []string{"broker-a", "DefaultCluster", "rmq.east_1", "%CLUSTER%|2", "жур一"} {
		c := defaultConfig()
		c.BrokerName, c.BrokerClusterName = name, name
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
