package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/identity"
	"github.com/tandemlog/tandem/pkg/peercert"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/once"
)

// Config is the whole configuration of a ledger. Names follow DLedger's where there is one. The zero file runs: loopback, ./data, a
// group of one, which takes appends once it was bootstrapped.
type Config struct {
	service.Common

	// The group, and which of its members this node is.
	Group  string `yaml:"group"`
	SelfID string `yaml:"selfId"`
	// All members, this node included, as DLedger writes them: n0-host:port. The same on all of them. Empty: it is alone.
	Peers []string `yaml:"peers"`
	// Members that shall lead when they can, the first one first. The same on all of them.
	PreferredLeaderIDs []string `yaml:"preferredLeaderIds"`

	// Folder of this node; DLedger's is {storeBaseDir}/dledger-{selfId}.
	StorePath string `yaml:"storePath"`
	Listen    string `yaml:"listen"`

	// sync: an entry is on the disks of a majority before it is acknowledged. async: in their page caches.
	Flush             string        `yaml:"flush"`
	FlushFileInterval time.Duration `yaml:"flushFileInterval"`
	// Files. 0: as the files that exist, else DLedger's 1 GiB and 160 MiB.
	MappedFileSizeForEntryData  service.Size `yaml:"mappedFileSizeForEntryData"`
	MappedFileSizeForEntryIndex service.Size `yaml:"mappedFileSizeForEntryIndex"`
	// Read the whole log at the start, not only what is newer than the last checkpoint.
	VerifyOnStart bool `yaml:"verifyOnStart"`

	// Elections. A follower that hears nothing stands for election after a random time between the two.
	MinElectionTimeout    time.Duration `yaml:"minElectionTimeout"`
	MaxElectionTimeout    time.Duration `yaml:"maxElectionTimeout"`
	HeartBeatTimeInterval time.Duration `yaml:"heartBeatTimeInterval"`
	// Answer reads without asking the followers while they owe the leader their silence; clocks must not differ in rate by more
	// than a tenth.
	LeaderLease                   bool          `yaml:"leaderLease"`
	LeadershipTransferWaitTimeout time.Duration `yaml:"leadershipTransferWaitTimeout"`
	// Entries that the target of a transfer may lack.
	MaxLeadershipTransferWaitIndex int `yaml:"maxLeadershipTransferWaitIndex"`

	// Appends.
	MaxBodySize     service.Size  `yaml:"maxBodySize"` // 0: what fits into an entry of 4 MiB
	MaxBatchEntries int           `yaml:"maxBatchEntries"`
	MaxBatchSize    service.Size  `yaml:"maxBatchSize"`
	AppendTimeout   time.Duration `yaml:"appendTimeout"`
	// Entries that are not committed yet, before appends are refused.
	MaxPendingRequestsNum int `yaml:"maxPendingRequestsNum"`
	// Last entries of which the idempotence keys are remembered.
	IdempotenceWindow int `yaml:"idempotenceWindow"`

	// gRPC.
	TLS peercert.Section `yaml:"tls"`
	// Largest reply.
	MaxReplySize service.Size `yaml:"maxReplySize"`

	members map[raft.NodeID]string // Peers, taken apart by Validate
}

const (
	flushSync  = "sync"
	flushAsync = "async"

	// maxBody is what fits into the largest entry.
	maxBody = entry.MaxSize - entry.HeaderSize - once.TrailerSize
	// requestRoom is what a request has besides its bodies at most, bytes.
	requestRoom = 1 << 20
)

func defaultConfig() *Config {
	return &Config{
		Common: service.Defaults("127.0.0.1:20913"),
		Group:  "default", SelfID: "n0", StorePath: "./data", Listen: "127.0.0.1:20911",
		Flush: flushSync, FlushFileInterval: 10 * time.Millisecond,
		MinElectionTimeout: time.Second, MaxElectionTimeout: 2 * time.Second, HeartBeatTimeInterval: 200 * time.Millisecond,
		LeaderLease: true, LeadershipTransferWaitTimeout: time.Second, MaxLeadershipTransferWaitIndex: 1000,
		MaxBatchEntries: 4096, MaxBatchSize: 4 << 20, AppendTimeout: 5 * time.Second, MaxPendingRequestsNum: 128 << 10,
		IdempotenceWindow: 256 << 10, MaxReplySize: grpcx.DefaultMaxMessage,
	}
}

// Validate checks every key and fills in what follows from others. The error names the key.
func (c *Config) Validate() error {
	for _, check := range []func() error{c.checkIdentity, c.checkPeers, c.checkFiles, c.checkElections, c.checkLimits, c.checkTLS} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkIdentity() error {
	switch {
	case c.Group == "":
		return errdefs.Invalid("group", "is empty")
	case c.StorePath == "":
		return errdefs.Invalid("storePath", "is empty")
	case c.Flush != flushSync && c.Flush != flushAsync:
		return errdefs.Invalid("flush", "%q is neither %s nor %s", c.Flush, flushSync, flushAsync)
	}
	if err := checkID("selfId", c.SelfID); err != nil {
		return err
	}
	return identity.CheckAddress("listen", c.Listen)
}

// checkID checks the id of a member.
func checkID(key, id string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."
	if id == "" || len(id) > 64 || strings.Trim(id, letters) != "" {
		return errdefs.Invalid(key, "%q is not made of 1 to 64 letters, digits, _ and .", id)
	}
	return nil
}

// maxPeers is what package consensus counts with.
const maxPeers = 15

func (c *Config) checkPeers() error {
	c.members = map[raft.NodeID]string{}
	if len(c.Peers) == 0 {
		c.members[raft.NodeID(c.SelfID)] = c.Listen
	}
	if len(c.Peers) > maxPeers {
		return errdefs.Invalid("peers", "has %d members, more than %d", len(c.Peers), maxPeers)
	}
	var before []identity.Own
	for i, p := range c.Peers {
		key := fmt.Sprintf("peers[%d]", i)
		id, addr, ok := strings.Cut(p, "-")
		if !ok {
			return errdefs.Invalid(key, "%q is not id-host:port", p).WithRemedy("write for example n0-127.0.0.1:20911")
		}
		if err := checkID(key, id); err != nil {
			return err
		}
		if err := identity.CheckAddress(key, addr); err != nil {
			return err
		}
		same := func(o identity.Own) bool { return o.Address == addr }
		if c.members[raft.NodeID(id)] != "" || slices.ContainsFunc(before, same) || identity.Is(addr, before) != "" {
			return errdefs.Invalid(key, "%s: its id or its address stands twice", p)
		}
		c.members[raft.NodeID(id)] = addr
		before = append(before, identity.Own{Key: key, Address: addr})
	}
	if err := c.checkSelf(); err != nil {
		return err
	}
	for i, id := range c.PreferredLeaderIDs {
		if c.members[raft.NodeID(id)] == "" || slices.Index(c.PreferredLeaderIDs, id) != i {
			return errdefs.Invalid(fmt.Sprintf("preferredLeaderIds[%d]", i), "%s is no member of peers, or stands twice", id)
		}
	}
	return nil
}

// checkSelf checks what peers say of this node, and the size of the group.
func (c *Config) checkSelf() error {
	own := c.members[raft.NodeID(c.SelfID)]
	switch {
	case own == "":
		return errdefs.Invalid("selfId", "%s is none of the members in peers: %s", c.SelfID, strings.Join(c.Peers, ", ")).
			WithRemedy("`peers` lists all members, this node too, and is the same on all of them")
	case len(c.Peers) == 2:
		return errdefs.Invalid("peers", "has 2 members: each append needs both, so that either one that stops is the end of both").
			WithRemedy("name three or more, or leave it empty for a node alone")
	case elsewhere(c.Listen, own):
		return errdefs.Invalid("listen", "%s is not where peers say that this node is, %s", c.Listen, own).WithRemedy("give both the same port")
	}
	return nil
}

// elsewhere reports whether nobody who calls own can reach listen: its port is another, and nothing between hosts can map the one to
// the other, as both are on the same.
func elsewhere(listen, own string) bool {
	host, port, err := net.SplitHostPort(listen)
	ownHost, ownPort, ownErr := net.SplitHostPort(own)
	loopback := ownHost == "localhost" || net.ParseIP(ownHost).IsLoopback()
	return err == nil && ownErr == nil && port != ownPort && (host == ownHost || loopback)
}

// ids are the members in order.
func (c *Config) ids() []raft.NodeID {
	var out []raft.NodeID
	for id := range c.members {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func (c *Config) checkFiles() error {
	for _, s := range []struct {
		key  string
		size service.Size
	}{
		{"mappedFileSizeForEntryData", c.MappedFileSizeForEntryData},
		{"mappedFileSizeForEntryIndex", c.MappedFileSizeForEntryIndex},
	} {
		if n := int64(s.size); n != 0 && (n < 4<<10 || n > 1<<31-entry.UnitSize || n%entry.UnitSize != 0) {
			return errdefs.Invalid(s.key, "%v is not a multiple of %d B within 4KiB and 2GiB", s.size, entry.UnitSize)
		}
	}
	if c.MaxBodySize == 0 {
		c.MaxBodySize = maxBody
		if f := c.MappedFileSizeForEntryData; f != 0 {
			c.MaxBodySize = min(c.MaxBodySize, f-entryRoom)
		}
	}
	if n := c.MaxBodySize; n < 1 || n > maxBody {
		return errdefs.Invalid("maxBodySize", "%v is not within 1B and %v", n, service.Size(maxBody))
	}
	if f := c.MappedFileSizeForEntryData; f != 0 && f < c.MaxBodySize+entryRoom {
		return errdefs.Invalid("mappedFileSizeForEntryData", "%v holds no entry of maxBodySize %v", f, c.MaxBodySize).
			WithRemedy("raise it, or lower maxBodySize")
	}
	return nil
}

func (c *Config) checkElections() error {
	for _, d := range []struct {
		key string
		d   time.Duration
	}{
		{"flushFileInterval", c.FlushFileInterval},
		{"minElectionTimeout", c.MinElectionTimeout},
		{"maxElectionTimeout", c.MaxElectionTimeout},
		{"heartBeatTimeInterval", c.HeartBeatTimeInterval},
		{"leadershipTransferWaitTimeout", c.LeadershipTransferWaitTimeout},
		{"appendTimeout", c.AppendTimeout},
	} {
		if d.d < time.Millisecond || d.d > time.Hour {
			return errdefs.Invalid(d.key, "%v is not within 1ms and 1h", d.d)
		}
	}
	switch {
	case c.MaxElectionTimeout < c.MinElectionTimeout+time.Millisecond:
		return errdefs.Invalid("maxElectionTimeout", "%v does not exceed minElectionTimeout %v", c.MaxElectionTimeout, c.MinElectionTimeout)
	case 3*c.HeartBeatTimeInterval > c.MinElectionTimeout:
		return errdefs.Invalid("heartBeatTimeInterval", "%v is more than a third of minElectionTimeout %v: one lost heartbeat would be an election",
			c.HeartBeatTimeInterval, c.MinElectionTimeout)
	}
	return nil
}

func (c *Config) checkLimits() error {
	for _, n := range []struct {
		key            string
		n, least, most int64
	}{
		{"maxLeadershipTransferWaitIndex", int64(c.MaxLeadershipTransferWaitIndex), 1, 1 << 30},
		{"maxBatchEntries", int64(c.MaxBatchEntries), 1, 8192},
		{"maxPendingRequestsNum", int64(c.MaxPendingRequestsNum), 8192, 1 << 24},
		{"idempotenceWindow", int64(c.IdempotenceWindow), 1, 1 << 24},
	} {
		if n.n < n.least || n.n > n.most {
			return errdefs.Invalid(n.key, "%d is not within %d and %d", n.n, n.least, n.most)
		}
	}
	if n := c.MaxBatchSize; n < 1 || n > 64<<20 {
		return errdefs.Invalid("maxBatchSize", "%v is not within 1B and 64MiB", n)
	}
	if n, least := c.MaxReplySize, c.MaxBodySize+requestRoom; n < least || n > 1<<30 {
		return errdefs.Invalid("maxReplySize", "%v is not within %v, which maxBodySize needs, and 1GiB", n, least)
	}
	return nil
}

// maxMessage lets the largest request and the largest reply through.
func (c *Config) maxMessage() int {
	return int(max(c.MaxBatchSize+requestRoom, c.MaxReplySize, grpcx.DefaultMaxMessage))
}

// checkTLS checks that the files go together, and that the other members will take the certificate.
func (c *Config) checkTLS() error {
	own := ""
	if len(c.members) > 1 {
		own = c.members[raft.NodeID(c.SelfID)]
	}
	return c.TLS.Validate(own)
}
