package role

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/change"
	"github.com/tandemlog/tandem/services/storage/internal/role/peers"
	"github.com/tandemlog/tandem/services/storage/internal/role/slave"
)

// What the packages below declare, under the names that this package's callers use.
type (
	// Peers asks other storages.
	Peers = peers.Peers
	// FollowStream is a control stream.
	FollowStream = peers.FollowStream
	// Puller receives a raw stream into the log.
	Puller = slave.Puller
	// StreamArgs say where a raw stream comes from.
	StreamArgs = slave.StreamArgs
	// Token opens one raw connection.
	Token = slave.Token
	// Upstream is the link to the node that this one follows.
	Upstream = slave.Upstream
	// LinkState is the state of that link.
	LinkState = slave.LinkState
)

// States of the link to the upstream; the numbers are those of the wire.
const (
	LinkConnecting   = slave.LinkConnecting
	LinkCatchingUp   = slave.LinkCatchingUp
	LinkInSync       = slave.LinkInSync
	LinkStalled      = slave.LinkStalled
	LinkRefused      = slave.LinkRefused
	LinkDisconnected = slave.LinkDisconnected
)

// Remedy is that of a reason whose error names none; "" for one that is not known.
func Remedy(reason string) string { return slave.General(reason) }

// Log is the commit log.
type Log interface {
	slave.Log
	Flushed() *watermark.Mark
	Readable() *watermark.Mark
	// WholeEnd returns the end of the last whole record.
	WholeEnd() (int64, error)
	SetAhead(on bool)
}

// Grant is the permission for one link to a slave.
type Grant struct {
	NodeID  int64
	Address string
	Start   int64 // first byte to send
	Frame   int   // largest body, bytes
	Flushes bool  // the slave reports what it has flushed
	Outside bool  // the slave is none of the set, which decides who is master: it confirms nothing
}

// Links are the links to slaves, and what they confirm. Shut and Revoke return when no ended link uses the log any more.
type Links interface {
	// Prepare does what Open needs and what may take long; an error of ctx means that it was not done.
	Prepare(ctx context.Context) error
	// Open begins a reign: reports below ownStart confirm nothing. Shut ends it, all links and all waiting puts.
	Open(ownStart int64)
	Shut(reason error)
	Grant(g Grant) (token Token, gone <-chan struct{}, err error)
	Revoke(nodeID int64, reason error)
	// Acked returns the mark of what k slaves have confirmed in this reign.
	Acked(k int) *watermark.Mark
	InSync() int
	// InSyncChanged counts the changes of InSync.
	InSyncChanged() *watermark.Mark
}

// Recovery is what the recovery of the log found.
type Recovery struct {
	Clean bool  // there was no abort file
	Lost  int64 // durable bytes that are gone
}

// Options of a Manager; zero values get the defaults that are named.
type Options struct {
	FS   vfs.FS
	Root string // folder of the storage

	Cluster, BrokerName string
	NodeID              int64
	Address             string // gRPC, as peers reach it
	HAAddress           string // raw listener, as slaves reach it

	// Role that the config names. Whether a node is slave or master now, the lineage says; which kind of master, MasterRole.
	Role epoch.Role
	// MasterRole is the kind of master that the group has: Role where that is a master's, else that of a sync master, or of an
	// async one without Peers.
	MasterRole epoch.Role
	// Peers are the gRPC addresses of the other nodes of the set.
	Peers []string
	// Required acks of a put on a sync master; RefuseWithoutReplicas: no puts and no Readable with fewer slaves in sync.
	Required              int
	RefuseWithoutReplicas bool
	SyncFlush             bool
	AllowDataLoss         bool
	StartWait             time.Duration // 3 s
	RollbackKeep          int64         // bytes of all kept ranges
	MaxFrame              int32         // largest frame granted and taken, bytes
	FileSize              int64         // of the log's files where the config names it, bytes; 0: an empty log takes that of its upstream

	// MasterAddress is followed first; empty: the open master among the peers. Legacy: it is the raw address of a RocketMQ
	// broker, whose log begins at LegacyFirst where that is known.
	MasterAddress string
	Legacy        bool
	LegacyFirst   int64

	Recovery Recovery
	BootID   string

	CallTimeout time.Duration // of a call to a peer, 3 s
	SumTimeout  time.Duration // of a RangeChecksum call, 30 s
	WatchEvery  time.Duration // between an open master's looks at its peers, 5 s
	ChaseWait   time.Duration // for a node to be promoted to get close to the open master, 5 s
	DrainWait   time.Duration // for waiting puts to end, and for the promoted node to have the rest, 2 s
	HoldMost    time.Duration // that a master holds puts back, 30 s
	PromoteWait time.Duration // for a promoted node to open, 10 s
	StallAfter  time.Duration // without progress a link is called stalled, 30 s
	BackoffMin  time.Duration // 200 ms
	BackoffMax  time.Duration // 5 s

	NewID func() epoch.ID
	Log   *slog.Logger
	Meter metric.Meter
}

func (o Options) withDefaults() Options {
	o.StartWait = cmp.Or(o.StartWait, 3*time.Second)
	o.CallTimeout = cmp.Or(o.CallTimeout, 3*time.Second)
	o.SumTimeout = cmp.Or(o.SumTimeout, 30*time.Second)
	o.WatchEvery = cmp.Or(o.WatchEvery, 5*time.Second)
	o.ChaseWait = cmp.Or(o.ChaseWait, 5*time.Second)
	o.DrainWait = cmp.Or(o.DrainWait, 2*time.Second)
	o.HoldMost = cmp.Or(o.HoldMost, 30*time.Second)
	o.PromoteWait = cmp.Or(o.PromoteWait, 10*time.Second)
	o.StallAfter = cmp.Or(o.StallAfter, 30*time.Second)
	o.BackoffMin = cmp.Or(o.BackoffMin, 200*time.Millisecond)
	o.BackoffMax = cmp.Or(o.BackoffMax, 5*time.Second)
	o.MaxFrame = cmp.Or(o.MaxFrame, 256<<10)
	if o.MasterRole == epoch.RoleUnset {
		o.MasterRole = o.defaultMasterRole()
	}
	if o.NewID == nil {
		o.NewID = randomID
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) defaultMasterRole() epoch.Role {
	switch {
	case o.Role.Master():
		return o.Role
	case len(o.Peers) > 0:
		return epoch.RoleSyncMaster
	}
	return epoch.RoleAsyncMaster
}

func (o Options) validate() error {
	switch {
	case !o.MasterRole.Master(), o.Role.Master() && o.MasterRole != o.Role:
		return errdefs.Invalid("ha.masterRole", "is %s, brokerRole is %s", o.MasterRole, o.Role)
	case o.Role == epoch.RoleUnset:
		return errdefs.Invalid("brokerRole", "is not set")
	case o.Role == epoch.RoleSyncMaster && o.Required < 0, o.Required > 0 && len(o.Peers) > 0 && o.Required > len(o.Peers):
		return errdefs.Invalid("ha.required", "%d slaves are required, ha.peers has %d", o.Required, len(o.Peers))
	case slices.Contains(o.Peers, o.Address):
		return errdefs.Invalid("ha.peers", "%q is this node itself", o.Address)
	case o.Legacy && (o.MasterAddress == "" || o.Role.Master()):
		return errdefs.Invalid("master.legacy", "needs brokerRole SLAVE and master.address")
	}
	return nil
}

func (o Options) set(p Peers) peers.Set {
	return peers.Set{
		Peers: p, Others: o.Peers, Timeout: o.CallTimeout, Seen: new(sync.Map),
		Self: epoch.PromiseRequest{Cluster: o.Cluster, BrokerName: o.BrokerName, NodeID: o.NodeID},
	}
}

func (o Options) backoff() peers.Backoff {
	return peers.Backoff{Least: o.BackoffMin, Most: o.BackoffMax}
}

func (o Options) slave(set peers.Set, log *slog.Logger) slave.Options {
	return slave.Options{
		Set: set, Address: o.Address, Required: o.Required, AllowDataLoss: o.AllowDataLoss, RollbackKeep: o.RollbackKeep,
		MaxFrame: o.MaxFrame, FileSize: o.FileSize, SyncFlush: o.SyncFlush, MasterAddress: o.MasterAddress, Legacy: o.Legacy, LegacyFirst: o.LegacyFirst,
		SumTimeout: o.SumTimeout, StallAfter: o.StallAfter, Backoff: o.backoff(), Log: log,
	}
}

func (o Options) change(set peers.Set, log *slog.Logger) change.Options {
	return change.Options{
		Set: set, MasterAddress: o.MasterAddress, ChaseWait: o.ChaseWait, DrainWait: o.DrainWait, PromoteWait: o.PromoteWait, Backoff: o.backoff(), Log: log,
	}
}

// randomID returns a random id, never 0.
func randomID() epoch.ID {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		if id := epoch.ID(binary.LittleEndian.Uint64(b[:])); id != 0 {
			return id
		}
	}
}
