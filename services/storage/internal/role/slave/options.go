package slave

import (
	"context"
	"log/slog"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/peers"
	"github.com/tandemlog/tandem/services/storage/internal/role/sums"
)

// Cutter takes bytes away, durably on return.
type Cutter interface {
	// Rollback keeps [to, End) for the Truncate or Reset that follows; an error of reason ROLLBACK_FULL when more than keep
	// bytes would be kept.
	Rollback(to, epoch, keep int64) error
	Truncate(to int64) error
	Reset(start int64) error
	// Adopt gives an empty log another file size, bytes.
	Adopt(fileSize int64) error
}

// Log is the commit log of a slave. A cut closes its marks with watermark.ErrTruncated and makes new ones.
type Log interface {
	Cutter
	sums.Log
	Written() *watermark.Mark
	FileSize() int64
	// RecordStart returns the last log offset at or below offset at which a record begins or the last one ends.
	RecordStart(offset int64) (int64, error)
	SetReadable(n int64)
	// Ready returns an error while something is left to do of a cut: nothing may be appended before.
	Ready() error
	FlushNow(ctx context.Context) (int64, error)
	// MarkWhole: the node lacks nothing any more that a crash of the machine took.
	MarkWhole() error
}

// Token opens one raw connection.
type Token = [16]byte

// StreamArgs say where a raw stream comes from.
type StreamArgs struct {
	Addr string
	// Token of the upstream; nil: the upstream is RocketMQ's.
	Token *Token
	Frame int
	// EmptyReport is what an empty slave reports to RocketMQ.
	EmptyReport int64
}

// Puller receives a raw stream into the log until it ends; never nil.
type Puller interface {
	Stream(ctx context.Context, a StreamArgs) error
}

// Stand is what a Follow starts from.
type Stand struct {
	Lineage    epoch.Lineage
	Downstream []int64 // node ids below this node, itself included
	Path       []int64 // of the last upstream
}

// Owner owns lineage, links and Status. An error of ctx means that nothing was done.
type Owner interface {
	Stand(ctx context.Context) (Stand, error)
	// Save makes what change returns durable, then current.
	Save(ctx context.Context, change func(epoch.Lineage) epoch.Lineage) error
	// Adopt saves next; path is what the upstream named, nil when there is no link any more.
	Adopt(ctx context.Context, next epoch.Lineage, path []int64) error
	// Unlink says that there is no upstream now.
	Unlink(ctx context.Context) error
	// DropLinks ends the links of the slaves below.
	DropLinks(ctx context.Context, reason error) error
	// Show changes what Status says of the link; master is the address of the open master where it was learned.
	Show(change func(up *Upstream), master string)
}

// Options of a Slave; all are set.
type Options struct {
	Set           peers.Set
	Address       string // gRPC, as peers reach it
	Required      int
	AllowDataLoss bool
	RollbackKeep  int64 // bytes of all kept ranges
	MaxFrame      int32 // largest frame taken, bytes
	FileSize      int64 // of the log's files where the config names it, bytes
	SyncFlush     bool
	// MasterAddress is followed first; empty: the open master among the peers. Legacy: it is the raw address of a RocketMQ
	// broker, whose log begins at LegacyFirst where that is known.
	MasterAddress string
	Legacy        bool
	LegacyFirst   int64
	SumTimeout    time.Duration // of a RangeChecksum call
	StallAfter    time.Duration // without progress a link is called stalled
	Backoff       peers.Backoff
	Log           *slog.Logger
}

// Slave follows.
type Slave struct {
	o      Options
	owner  Owner
	log    Log
	puller Puller
	sums   sums.Sums
	slog   *slog.Logger
}

// New makes a Slave.
func New(o Options, owner Owner, log Log, puller Puller) *Slave {
	return &Slave{o: o, owner: owner, log: log, puller: puller, sums: sums.New(log), slog: o.Log}
}

// LinkState of the link to the upstream.
type LinkState uint8

// States; the numbers are those of the wire.
const (
	LinkUnset LinkState = iota
	LinkConnecting
	LinkCatchingUp
	LinkInSync
	LinkStalled
	LinkRefused
	LinkDisconnected
)

// Upstream is the link to the node that this one follows, as Status shows it.
type Upstream struct {
	Address string
	State   LinkState
	// End and Readable of the upstream as last heard, bytes.
	End, Readable int64
	// LastReceive is the time of the last answer on the control stream.
	LastReceive, ConnectedAt time.Time
	// Why the link does not replicate, and what to do.
	Reason, Remedy string
	// Connects counts the links since the start.
	Connects int64
}

// neverMaster is the remedy of ErrNoUpstream where no log has begun.
const neverMaster = "no node that was heard has any history: start the one whose config makes it master (brokerRole SYNC_MASTER or ASYNC_MASTER); " +
	"where no config does, `tandemctl promote NODE` makes a node the first master"

// Errors.
var (
	// ErrHistoryChanged ends the links below a slave whose own history changes.
	ErrHistoryChanged = errdefs.New(errdefs.Aborted, "HISTORY_CHANGED", "this slave follows another history now")
	// ErrNoUpstream: nobody to follow.
	ErrNoUpstream = errdefs.New(errdefs.Unavailable, "NO_OPEN_MASTER", "no open master is known").
			WithRemedy("look at the peers with `tandemctl status`: start the master, or what it waits for; only if it will not come back, " +
			"`tandemctl promote NODE` for the best of the others")
	// ErrForgotten: a node without a promise has not heard enough peers to follow.
	ErrForgotten = errdefs.New(errdefs.Unavailable, "TOO_FEW_PEERS_HEARD", "an empty node follows only after hearing its peers").
			WithRemedy("start more of the nodes in ha.peers")
	// ErrLegacyEpochs: a log with epochs cannot continue under a master that has none.
	ErrLegacyEpochs = errdefs.New(errdefs.FailedPrecondition, "LEGACY_WITH_EPOCHS", "this log has had Tandem masters and cannot follow a RocketMQ broker").
			WithRemedy("start with an empty folder, or unset master.legacy")
	// ErrSilent: the upstream did not answer a Follow in time.
	ErrSilent = errdefs.New(errdefs.Unavailable, "UPSTREAM_SILENT", "the upstream did not answer in time")
	// ErrLinkEnded: the control stream ended without a reason.
	ErrLinkEnded = errdefs.New(errdefs.Unavailable, "LINK_ENDED", "the upstream ended the link")
	// errCopied ends the link of a starting master that has all it wanted.
	errCopied = errdefs.New(errdefs.Canceled, "COPIED", "the log is copied")
)
