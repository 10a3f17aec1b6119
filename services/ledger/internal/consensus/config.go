package consensus

import (
	"errors"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Errors of New. Each means that the node must not start.
var (
	ErrConfig = errors.New("consensus: configuration cannot work")
	ErrPeers  = errors.New("consensus: peer list is empty, too long, holds a node twice or lacks this node")
	ErrStart  = errors.New("consensus: state on disk contradicts itself")
)

// maxPeers bounds a group, so that quorums are counted in fixed arrays.
const maxPeers = 15

// Config of a Core. Every limit must be positive.
type Config struct {
	push.Limits

	ID    raft.NodeID
	Peers []raft.NodeID // all members, this node too; the same on all of them
	// Priority of members (DLedger's preferredLeaderIds): a leader hands over to one of a higher number that has caught up.
	// Who is not named has 0. The same on all members.
	Priority map[raft.NodeID]int

	ElectionMin, ElectionMax raft.Ticks // a follower waits for a random time between; nobody votes before ElectionMin
	Heartbeat                raft.Ticks // between heartbeats; at most a third of ElectionMin
	LeaseMargin              raft.Ticks // how much sooner than ElectionMin the lease ends, for clocks that differ; ElectionMin: no lease
	TransferTimeout          raft.Ticks
	PriorityInterval         raft.Ticks // between looks for a better leader

	MaxTransferLag  raft.Index // entries a transfer's target may lack
	MaxUncommitted  raft.Index // entries behind the commit index before proposals are refused
	MaxPendingBytes int64      // in one Ready
	MaxEntryBytes   int        //
	MaxPendingReads int        //
	NoOpBytes       int        // what the entry that opens a term takes in the log

	Random Source // seeded anew at every start: it also tells the lives of a node apart
}

// DefaultConfig has DLedger's limits where it has them and times in milliseconds that suit a local network.
func DefaultConfig(id raft.NodeID, peers []raft.NodeID, random Source) Config {
	return Config{
		ID: id, Peers: peers, Random: random,
		ElectionMin: 1000, ElectionMax: 2000, Heartbeat: 200, LeaseMargin: 200, TransferTimeout: 1000, PriorityInterval: 10_000,
		MaxTransferLag: 1000,
		Limits: push.Limits{
			Retry: 1000, MaxBatchEntries: 4096, MaxBatchBytes: 128 << 10, MaxInflightEntries: 64 << 10, MaxInflightBytes: 4 << 20, MaxInflightBatches: 256,
		},
		MaxUncommitted: 128 << 10, MaxPendingBytes: 16 << 20, MaxEntryBytes: 4 << 20, MaxPendingReads: 16 << 10, NoOpBytes: 48,
	}
}

func (c *Config) check() error {
	ids := make(map[raft.NodeID]bool, len(c.Peers))
	for _, id := range c.Peers {
		if id == "" || ids[id] {
			return ErrPeers
		}
		ids[id] = true
	}
	if !ids[c.ID] || len(c.Peers) > maxPeers {
		return ErrPeers
	}
	least := min(int64(c.ElectionMin), int64(c.Heartbeat), int64(c.Retry), int64(c.TransferTimeout), int64(c.PriorityInterval),
		int64(c.MaxTransferLag), int64(c.MaxBatchEntries), c.MaxBatchBytes, int64(c.MaxInflightEntries), c.MaxInflightBytes,
		int64(c.MaxInflightBatches), int64(c.MaxUncommitted), c.MaxPendingBytes, int64(c.MaxEntryBytes), int64(c.MaxPendingReads), int64(c.NoOpBytes))
	if least <= 0 || c.ElectionMax <= c.ElectionMin || 3*c.Heartbeat > c.ElectionMin || c.LeaseMargin < 0 || c.LeaseMargin > c.ElectionMin || c.Random == nil {
		return ErrConfig
	}
	return nil
}
