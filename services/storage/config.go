package main

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/identity"
	"github.com/tandemlog/tandem/pkg/peercert"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
)

// Config is the whole configuration of a storage. Names follow RocketMQ's where there is one. The zero file runs: loopback,
// ./data, one node.
type Config struct {
	service.Common

	// Who this node is.
	BrokerClusterName string `yaml:"brokerClusterName"`
	BrokerName        string `yaml:"brokerName"`
	BrokerID          int64  `yaml:"brokerId"`
	// ASYNC_MASTER, SYNC_MASTER or SLAVE; what the node has become since beats it.
	BrokerRole string `yaml:"brokerRole"`
	// Host of this store in records and message ids; empty: the host of `advertise` where it is an IP address.
	BrokerIP1 string `yaml:"brokerIP1"`

	StorePathRootDir string `yaml:"storePathRootDir"`

	// Listeners, and how other nodes reach the first two where that differs.
	Listen      string `yaml:"listen"`
	HAListen    string `yaml:"haListen"`
	Advertise   string `yaml:"advertise"`
	HAAdvertise string `yaml:"haAdvertise"`

	// Files. 0: as the files that exist, else RocketMQ's sizes.
	MappedFileSizeCommitLog    service.Size `yaml:"mappedFileSizeCommitLog"`
	MappedFileSizeConsumeQueue service.Size `yaml:"mappedFileSizeConsumeQueue"`

	// SYNC_FLUSH or ASYNC_FLUSH.
	FlushDiskType                  string        `yaml:"flushDiskType"`
	FlushIntervalCommitLog         time.Duration `yaml:"flushIntervalCommitLog"`
	FlushCommitLogLeastPages       int           `yaml:"flushCommitLogLeastPages"`
	FlushCommitLogThoroughInterval time.Duration `yaml:"flushCommitLogThoroughInterval"`
	SyncFlushTimeout               time.Duration `yaml:"syncFlushTimeout"`

	// Messages.
	MaxMessageSize service.Size `yaml:"maxMessageSize"`
	// Queues of a topic that a put creates. Without configsync.address, and until it has answered, every topic has so many.
	DefaultTopicQueueNums int `yaml:"defaultTopicQueueNums"`
	// A put to a topic that is not in the topic table creates it; else it is refused.
	AutoCreateTopicEnable bool   `yaml:"autoCreateTopicEnable"`
	MessageDelayLevel     string `yaml:"messageDelayLevel"`
	AppendPropCRC         bool   `yaml:"enabledAppendPropCRC"`

	// Replication.
	HASendHeartbeatInterval time.Duration `yaml:"haSendHeartbeatInterval"`
	HAHousekeepingInterval  time.Duration `yaml:"haHousekeepingInterval"`
	HATransferBatchSize     service.Size  `yaml:"haTransferBatchSize"`
	HASlaveFallbehindMax    service.Size  `yaml:"haSlaveFallbehindMax"`
	SlaveTimeout            time.Duration `yaml:"slaveTimeout"`
	HA                      HA            `yaml:"ha"`
	Master                  Upstream      `yaml:"master"`
	// Only an operator may say so: a slave cuts what does not fit under rollback/; a starting master opens with its own log
	// and with whoever answers. For a single promotion there is `tandemctl promote NODE --force`.
	AllowDataLoss bool `yaml:"allowDataLoss"`

	// The topic table.
	ConfigSync ConfigSync `yaml:"configsync"`

	// gRPC.
	TLS peercert.Section `yaml:"tls"`
	// Largest reply; 0: what the largest message needs.
	MaxReplySize service.Size `yaml:"maxReplySize"`

	levels message.DelayLevels `yaml:"-"` // of MessageDelayLevel; Validate reads it
}

// HA is what Tandem adds to RocketMQ's replication settings.
type HA struct {
	// gRPC addresses of all nodes of the group, this one's `advertise` included; other slaves confirm no puts. Empty: it is alone.
	Peers []string `yaml:"peers"`
	// SYNC_MASTER or ASYNC_MASTER: what a node of this group becomes when it is promoted; the same on all of them. Empty:
	// brokerRole where that is a master's, else SYNC_MASTER with peers and ASYNC_MASTER without.
	MasterRole string `yaml:"masterRole"`
	// Slaves that PUT_OK on a sync master needs.
	Required int `yaml:"required"`
	// Refuse puts while fewer than `required` slaves are in sync.
	RefuseWithoutReplicas bool `yaml:"refuseWithoutReplicas"`
	// How long a starting async master waits for its peers.
	StartWait time.Duration `yaml:"startWait"`
	// Bytes of the log that may be kept under rollback/.
	RollbackKeep service.Size `yaml:"rollbackKeep"`
	// Largest frame granted to a Tandem slave.
	FrameSize service.Size `yaml:"frameSize"`
	// Slaves served at a time.
	MaxSlaves int `yaml:"maxSlaves"`
	// Serve plain RocketMQ slaves; legacyPeers names the addresses that they may come from.
	LegacySlaves bool     `yaml:"legacySlaves"`
	LegacyPeers  []string `yaml:"legacyPeers"`
	// Where an empty plain RocketMQ slave starts: first or last file.
	StartFrom string `yaml:"startFrom"`
	// The kernel's congestion control for replication links; empty: the system's.
	CongestionControl string `yaml:"congestionControl"`
}

// Upstream is the master of a slave.
type Upstream struct {
	// gRPC address of a Tandem storage, or the raw address of a RocketMQ broker with legacy; empty: the open master among
	// the peers.
	Address string `yaml:"address"`
	// The master is a RocketMQ broker.
	Legacy bool `yaml:"legacy"`
	// First offset of that broker's log where it is known to be later than 0.
	FirstOffset int64 `yaml:"firstOffset"`
}

// ConfigSync is the config sync service of this node.
type ConfigSync struct {
	// gRPC address; empty: none, every legal topic can be used.
	Address string `yaml:"address"`
}

// Roles and flush types as RocketMQ writes them.
const (
	asyncMaster = "ASYNC_MASTER"
	syncMaster  = "SYNC_MASTER"
	slave       = "SLAVE"
	syncFlush   = "SYNC_FLUSH"
	asyncFlush  = "ASYNC_FLUSH"
	fromFirst   = "first"
	fromLast    = "last"
)

func defaultConfig() *Config {
	return &Config{
		Common:            service.Defaults("127.0.0.1:10913"),
		BrokerClusterName: "DefaultCluster", BrokerName: "broker-a", BrokerRole: asyncMaster,
		StorePathRootDir: "./data",
		Listen:           "127.0.0.1:10911", HAListen: "127.0.0.1:10912",
		FlushDiskType: asyncFlush, FlushIntervalCommitLog: 500 * time.Millisecond, FlushCommitLogLeastPages: 4,
		FlushCommitLogThoroughInterval: 10 * time.Second, SyncFlushTimeout: 5 * time.Second,
		MaxMessageSize: message.DefaultMaxBody, DefaultTopicQueueNums: 8, AutoCreateTopicEnable: true,
		MessageDelayLevel:       message.DefaultDelayLevels,
		AppendPropCRC:           true,
		HASendHeartbeatInterval: 5 * time.Second, HAHousekeepingInterval: 20 * time.Second,
		HATransferBatchSize: 32 << 10, HASlaveFallbehindMax: 256 << 20, SlaveTimeout: 5 * time.Second,
		HA: HA{
			Required: 1, StartWait: 3 * time.Second, RollbackKeep: 1 << 30, FrameSize: 256 << 10, MaxSlaves: 16, StartFrom: fromFirst,
		},
	}
}

// Validate checks every key and fills in what follows from others. The error names the key.
func (c *Config) Validate() error {
	for _, check := range []func() error{c.checkIdentity, c.checkListeners, c.checkFiles, c.checkTimes, c.checkPeers, c.checkTLS} {
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
	case !slices.Contains([]string{asyncMaster, syncMaster, slave}, c.BrokerRole):
		return errdefs.Invalid("brokerRole", "%q is none of %s, %s, %s", c.BrokerRole, asyncMaster, syncMaster, slave)
	case !slices.Contains([]string{asyncFlush, syncFlush}, c.FlushDiskType):
		return errdefs.Invalid("flushDiskType", "%q is neither %s nor %s", c.FlushDiskType, asyncFlush, syncFlush)
	case !slices.Contains([]string{fromFirst, fromLast}, c.HA.StartFrom):
		return errdefs.Invalid("ha.startFrom", "%q is neither %s nor %s", c.HA.StartFrom, fromFirst, fromLast)
	case c.StorePathRootDir == "":
		return errdefs.Invalid("storePathRootDir", "is empty")
	}
	return c.checkMaster()
}

// checkMaster checks what a slave follows.
func (c *Config) checkMaster() error {
	switch {
	case c.BrokerRole == slave && c.BrokerID == 0:
		return errdefs.Invalid("brokerId", "0 is the master's; %s needs one of its own", slave).WithRemedy("give each node of a broker another brokerId, as 1, 2, ...")
	case c.BrokerRole == slave && c.Master.Address == "" && len(c.HA.Peers) == 0:
		return errdefs.Invalid("brokerRole", "%s needs its group, ha.peers, or a master.address to follow", slave)
	case c.BrokerRole == slave && c.Master.Address == "" && len(c.HA.Peers) == 1:
		return errdefs.Invalid("ha.peers", "has one node only: there is nobody whom this %s could follow", slave).WithRemedy("name all nodes of the group")
	case c.BrokerRole != slave && c.Master.Address != "" && !c.Master.Legacy:
		return errdefs.Invalid("master.address", "is for brokerRole %s only, and this node is %s", slave, c.BrokerRole).
			WithRemedy("set brokerRole: %s, or leave master.address out", slave)
	case c.Master.Legacy && c.Master.Address == "":
		return errdefs.Invalid("master.address", "is empty; master.legacy needs the raw address of the RocketMQ broker")
	case c.Master.Legacy && c.BrokerRole != slave:
		return errdefs.Invalid("master.legacy", "is for brokerRole %s only", slave)
	case c.Master.FirstOffset < 0:
		return errdefs.Invalid("master.firstOffset", "%d is negative", c.Master.FirstOffset)
	}
	return nil
}

func (c *Config) checkListeners() error {
	for _, l := range []struct{ key, addr string }{
		{"listen", c.Listen},
		{"haListen", c.HAListen},
		{"advertise", c.Advertise},
		{"haAdvertise", c.HAAdvertise},
		{"master.address", c.Master.Address},
		{"configsync.address", c.ConfigSync.Address},
	} {
		if l.addr == "" && l.key != "listen" && l.key != "haListen" {
			continue
		}
		if err := identity.CheckAddress(l.key, l.addr); err != nil {
			return err
		}
	}
	if c.ConfigSync.Address == "" && !c.AutoCreateTopicEnable {
		return errdefs.Invalid("configsync.address", "is empty; without a topic table and with autoCreateTopicEnable: false no topic could be used").
			WithRemedy("name the config sync service, or leave autoCreateTopicEnable true")
	}
	if identity.Is(c.HAListen, c.own()[:1]) != "" {
		return errdefs.Invalid("haListen", "%s is also the address of listen: gRPC and the raw stream need one each", c.HAListen)
	}
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	if c.HAAdvertise == "" {
		c.HAAdvertise = c.HAListen
	}
	if c.Master.Address != "" && identity.Is(c.Master.Address, c.own()) != "" {
		return errdefs.Invalid("master.address", "%s is this node itself", c.Master.Address).WithRemedy("name the node to follow")
	}
	if c.BrokerIP1 != "" {
		if _, err := netip.ParseAddr(c.BrokerIP1); err != nil {
			return errdefs.Invalid("brokerIP1", "%q is not an IP address", c.BrokerIP1)
		}
	}
	return nil
}

// own are the addresses of this node.
func (c *Config) own() []identity.Own {
	return []identity.Own{
		{Key: "listen", Address: c.Listen},
		{Key: "haListen", Address: c.HAListen},
		{Key: "advertise", Address: c.Advertise},
		{Key: "haAdvertise", Address: c.HAAdvertise},
	}
}

func (c *Config) checkFiles() error {
	for _, s := range []struct {
		key      string
		size     service.Size
		low, top int64
		zero     bool
	}{
		{"mappedFileSizeCommitLog", c.MappedFileSizeCommitLog, 4 << 10, math.MaxInt32, true}, // a blank record must be able to close it
		{"mappedFileSizeConsumeQueue", c.MappedFileSizeConsumeQueue, 20, 1 << 30, true},
		{"maxMessageSize", c.MaxMessageSize, 1, 64 << 20, false},
		{"haTransferBatchSize", c.HATransferBatchSize, 1 << 10, 4<<20 - 12, false},
		{"haSlaveFallbehindMax", c.HASlaveFallbehindMax, 1, 1 << 50, false},
		{"ha.frameSize", c.HA.FrameSize, 1 << 10, 4<<20 - 12, false},
		{"ha.rollbackKeep", c.HA.RollbackKeep, 0, 1 << 50, true},
		{"maxReplySize", c.MaxReplySize, 1 << 20, 1 << 30, true},
	} {
		if n := int64(s.size); (n != 0 || !s.zero) && (n < s.low || n > s.top) {
			return errdefs.Invalid(s.key, "%v is not within %v and %v", s.size, service.Size(s.low), service.Size(s.top))
		}
	}
	if n := c.MappedFileSizeConsumeQueue; n%20 != 0 {
		return errdefs.Invalid("mappedFileSizeConsumeQueue", "%v is not a multiple of 20, the size of a unit", n)
	}
	if n := c.DefaultTopicQueueNums; n < 1 || n > 65535 {
		return errdefs.Invalid("defaultTopicQueueNums", "%d is not within 1 and 65535", n)
	}
	if n := c.FlushCommitLogLeastPages; n < 0 || n > 1<<20 {
		return errdefs.Invalid("flushCommitLogLeastPages", "%d is not within 0 and %d", n, 1<<20)
	}
	var err error
	if c.levels, err = message.ParseDelayLevels(c.MessageDelayLevel); err != nil {
		return err
	}
	if f := c.MappedFileSizeCommitLog; f != 0 && f <= c.MaxMessageSize {
		return errdefs.Invalid("mappedFileSizeCommitLog", "%v holds no message of maxMessageSize %v", f, c.MaxMessageSize).
			WithRemedy("raise it, or lower maxMessageSize")
	}
	return nil
}

// maxReply is the largest reply, bytes.
func (c *Config) maxReply() int {
	if c.MaxReplySize > 0 {
		return int(c.MaxReplySize)
	}
	return max(int(c.MaxMessageSize)+requestRoom, grpcx.DefaultMaxMessage)
}

func (c *Config) checkTimes() error {
	for _, d := range []struct {
		key  string
		d    time.Duration
		zero bool
	}{
		{"flushIntervalCommitLog", c.FlushIntervalCommitLog, false},
		{"flushCommitLogThoroughInterval", c.FlushCommitLogThoroughInterval, false},
		{"syncFlushTimeout", c.SyncFlushTimeout, false},
		{"haSendHeartbeatInterval", c.HASendHeartbeatInterval, false},
		{"haHousekeepingInterval", c.HAHousekeepingInterval, false},
		{"slaveTimeout", c.SlaveTimeout, false},
		{"ha.startWait", c.HA.StartWait, true},
	} {
		if d.d < 0 || (d.d == 0 && !d.zero) {
			return errdefs.Invalid(d.key, "%v is not above 0", d.d)
		}
	}
	if beat, keep := c.HASendHeartbeatInterval, c.HAHousekeepingInterval; keep <= beat {
		if keep == defaultConfig().HAHousekeepingInterval { // the other one was set
			return errdefs.Invalid("haSendHeartbeatInterval", "%v is not below haHousekeepingInterval %v: links would be dropped between two heartbeats", beat, keep)
		}
		return errdefs.Invalid("haHousekeepingInterval", "%v does not exceed haSendHeartbeatInterval %v: links would be dropped between two heartbeats", keep, beat)
	}
	return nil
}

func (c *Config) checkPeers() error {
	if err := identity.CheckPeers("ha.peers", c.HA.Peers, c.Advertise, c.own()); err != nil {
		return err
	}
	if err := c.checkMasterRole(); err != nil {
		return err
	}
	if c.HA.MaxSlaves < 1 || c.HA.MaxSlaves > acks.MaxSlaves {
		return errdefs.Invalid("ha.maxSlaves", "%d is not within 1 and %d", c.HA.MaxSlaves, acks.MaxSlaves)
	}
	others := max(len(c.HA.Peers)-1, 0)
	switch {
	case c.HA.Required < 1:
		return errdefs.Invalid("ha.required", "%d is below 1", c.HA.Required)
	case c.HA.Required > c.HA.MaxSlaves:
		return errdefs.Invalid("ha.required", "%d slaves cannot confirm: ha.maxSlaves lets %d follow", c.HA.Required, c.HA.MaxSlaves)
	case others > 0 && c.HA.Required > others:
		return errdefs.Invalid("ha.required", "%d slaves cannot confirm: ha.peers names %d beside this node", c.HA.Required, others)
	}
	for i, p := range c.HA.LegacyPeers {
		if _, err := netip.ParseAddr(p); err != nil {
			return errdefs.Invalid(fmt.Sprintf("ha.legacyPeers[%d]", i), "%q is not an IP address", p)
		}
	}
	return checkCongestion(c.HA.CongestionControl)
}

func (c *Config) checkMasterRole() error {
	switch {
	case c.HA.MasterRole == "" && c.BrokerRole != slave:
		c.HA.MasterRole = c.BrokerRole
	case c.HA.MasterRole == "" && len(c.HA.Peers) > 0:
		c.HA.MasterRole = syncMaster
	case c.HA.MasterRole == "":
		c.HA.MasterRole = asyncMaster
	case c.HA.MasterRole != syncMaster && c.HA.MasterRole != asyncMaster:
		return errdefs.Invalid("ha.masterRole", "%q is neither %s nor %s", c.HA.MasterRole, syncMaster, asyncMaster)
	case c.BrokerRole != slave && c.HA.MasterRole != c.BrokerRole:
		return errdefs.Invalid("ha.masterRole", "%s contradicts brokerRole %s", c.HA.MasterRole, c.BrokerRole)
	}
	return nil
}

// checkTLS checks that the files go together, and that the other nodes will take the certificate.
func (c *Config) checkTLS() error {
	if len(c.HA.Peers) > 1 {
		return c.TLS.Validate(c.Advertise)
	}
	return c.TLS.Validate("")
}
