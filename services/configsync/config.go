package main

import (
	"slices"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/identity"
	"github.com/tandemlog/tandem/pkg/peercert"
	"github.com/tandemlog/tandem/pkg/service"
)

// Config is the whole configuration of a config sync node. Names follow RocketMQ's where there is one. The zero file runs:
// loopback, ./data, one node, no storage.
type Config struct {
	service.Common

	// Who this node is: the same as its storage.
	BrokerClusterName string `yaml:"brokerClusterName"`
	BrokerName        string `yaml:"brokerName"`
	BrokerID          int64  `yaml:"brokerId"`

	// The tables are in its folder config/, as RocketMQ's are; it may be the storage's.
	StorePathRootDir string `yaml:"storePathRootDir"`

	// Listener, and how other nodes reach it where that differs.
	Listen    string `yaml:"listen"`
	Advertise string `yaml:"advertise"`

	// gRPC addresses of the config sync nodes of the group, this one's `advertise` included; empty: it is alone.
	Peers []string `yaml:"peers"`
	// Where the role comes from.
	Storage Storage `yaml:"storage"`
	// A RocketMQ broker as master, and RocketMQ's slaves and name servers.
	Master   Master   `yaml:"master"`
	Remoting Remoting `yaml:"remoting"`
	// Without a storage: ASYNC_MASTER, SYNC_MASTER or SLAVE, and the reign of the master. The next master needs a higher one.
	BrokerRole string `yaml:"brokerRole"`
	Epoch      int64  `yaml:"epoch"`
	// How long a master that opens waits for peers that do not answer.
	StartWait time.Duration `yaml:"startWait"`

	// A slave's round, and the longest silence of a node that is asked.
	SyncInterval time.Duration `yaml:"syncInterval"`
	SyncTimeout  time.Duration `yaml:"syncTimeout"`

	// Gathered offset commits are saved at least that often; RocketMQ's JSON files are rewritten when something changed.
	FlushConsumerOffsetInterval time.Duration `yaml:"flushConsumerOffsetInterval"`
	// Most queues that a topic may have.
	MaxTopicQueueNums int `yaml:"maxTopicQueueNums"`

	TLS peercert.Section `yaml:"tls"`
}

// Storage is the node's storage.
type Storage struct {
	// gRPC address; empty: none, then brokerRole and epoch count.
	Address string `yaml:"address"`
	// Time between two looks at its role, and the silence after which a master is none any more.
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
}

// Roles as RocketMQ writes them.
const (
	asyncMaster = "ASYNC_MASTER"
	syncMaster  = "SYNC_MASTER"
	slave       = "SLAVE"
)

func defaultConfig() *Config {
	return &Config{
		Common:            service.Defaults("127.0.0.1:10923"),
		BrokerClusterName: "DefaultCluster", BrokerName: "broker-a",
		StorePathRootDir: "./data", Listen: "127.0.0.1:10921",
		Storage:    Storage{Interval: 250 * time.Millisecond, Timeout: 3 * time.Second},
		Remoting:   Remoting{MaxConnections: 256, MaxFrame: 16 << 20},
		BrokerRole: asyncMaster, Epoch: 1, StartWait: 3 * time.Second,
		SyncInterval: time.Minute, SyncTimeout: 10 * time.Second,
		FlushConsumerOffsetInterval: 5 * time.Second, MaxTopicQueueNums: 65535,
	}
}

// Validate checks every key and fills in what follows from others. The error names the key.
func (c *Config) Validate() error {
	for _, check := range []func() error{c.checkIdentity, c.checkAddresses, c.checkMaster, c.checkRemoting, c.checkTimes, c.checkTLS} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkIdentity() error {
	if err := identity.CheckName("brokerClusterName", c.BrokerClusterName); err != nil {
		return err
	}
	if err := identity.CheckName("brokerName", c.BrokerName); err != nil {
		return err
	}
	switch {
	case c.BrokerID < 0:
		return errdefs.Invalid("brokerId", "%d is negative", c.BrokerID)
	case c.StorePathRootDir == "":
		return errdefs.Invalid("storePathRootDir", "is empty")
	case !slices.Contains([]string{asyncMaster, syncMaster, slave}, c.BrokerRole):
		return errdefs.Invalid("brokerRole", "%q is none of %s, %s, %s", c.BrokerRole, asyncMaster, syncMaster, slave)
	case c.Epoch < 1:
		return errdefs.Invalid("epoch", "%d is not above 0", c.Epoch)
	case c.Storage.Address == "" && c.BrokerRole == slave && len(c.Peers) == 0 && !c.Master.Legacy:
		return errdefs.Invalid("peers", "a slave needs its group")
	case c.MaxTopicQueueNums < 1 || c.MaxTopicQueueNums > 65535:
		return errdefs.Invalid("maxTopicQueueNums", "%d is not within 1 and 65535", c.MaxTopicQueueNums)
	}
	return nil
}

func (c *Config) checkAddresses() error {
	if err := identity.CheckAddress("listen", c.Listen); err != nil {
		return err
	}
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	if err := identity.CheckAddress("advertise", c.Advertise); err != nil {
		return err
	}
	if c.Storage.Address != "" {
		if err := identity.CheckAddress("storage.address", c.Storage.Address); err != nil {
			return err
		}
	}
	return identity.CheckPeers("peers", c.Peers, c.Advertise, []identity.Own{
		{Key: "listen", Address: c.Listen}, {Key: "advertise", Address: c.Advertise},
	})
}

func (c *Config) checkTimes() error {
	for _, d := range []struct {
		key       string
		d         time.Duration
		low, high time.Duration
	}{
		{"startWait", c.StartWait, 0, time.Hour},
		{"syncInterval", c.SyncInterval, 10 * time.Millisecond, 24 * time.Hour},
		{"syncTimeout", c.SyncTimeout, 10 * time.Millisecond, time.Hour},
		{"flushConsumerOffsetInterval", c.FlushConsumerOffsetInterval, time.Millisecond, 5 * time.Second},
		{"storage.interval", c.Storage.Interval, 100 * time.Millisecond, time.Minute},
		{"storage.timeout", c.Storage.Timeout, time.Millisecond, time.Hour},
	} {
		if d.d < d.low || d.d > d.high {
			return errdefs.Invalid(d.key, "%v is not within %v and %v", d.d, d.low, d.high)
		}
	}
	if c.Storage.Timeout <= c.Storage.Interval {
		return errdefs.Invalid("storage.timeout", "%v does not exceed storage.interval %v: the role would be lost between two answers",
			c.Storage.Timeout, c.Storage.Interval)
	}
	return nil
}

// checkTLS checks that the files go together, and that the other nodes will take the certificate.
func (c *Config) checkTLS() error {
	if len(c.Peers) > 1 {
		return c.TLS.Validate(c.Advertise)
	}
	return c.TLS.Validate("")
}

// others are the peers without this node.
func (c *Config) others() []string {
	return slices.DeleteFunc(slices.Clone(c.Peers), func(p string) bool { return p == c.Advertise })
}
