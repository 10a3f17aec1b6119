package role

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Marks are the ends of the log, bytes. A cut closes the three watermarks with watermark.ErrTruncated and makes new ones.
type Marks interface {
	Written() *watermark.Mark
	Flushed() *watermark.Mark
	Readable() *watermark.Mark
	FirstOffset() int64
	End() int64
	FileSize() int64
}

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

// Log is the commit log.
type Log interface {
	Marks
	Cutter
	// View returns bytes of one file from offset; release is called exactly once.
	View(offset int64, limit int) (b []byte, release func(), err error)
	// WholeEnd returns the end of the last whole record.
	WholeEnd() (int64, error)
	FlushNow(ctx context.Context) (int64, error)
	// MarkWhole: the node lacks nothing any more that a crash of the machine took.
	MarkWhole() error
	SetReadable(n int64)
	SetAhead(on bool)
}

// Token opens one raw connection.
type Token = [16]byte

// Grant is the permission for one link to a slave.
type Grant struct {
	NodeID  int64
	Address string
	Start   int64 // first byte to send
	Frame   int   // largest body, bytes
}

// Links are the links to slaves, and what they confirm. Shut and Revoke return when no ended link uses the log any more.
type Links interface {
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

// FollowStream is a control stream. Recv ends when ctx of Follow does, or after Close.
type FollowStream interface {
	Recv() (epoch.FollowAnswer, error)
	Close()
}

// Peers asks other storages.
type Peers interface {
	Promise(ctx context.Context, addr string, p epoch.PromiseRequest) (epoch.Heard, error)
	Follow(ctx context.Context, addr string, r epoch.FollowRequest) (FollowStream, error)
	RangeChecksum(ctx context.Context, addr string, from, to, stretch int64) (sums []uint32, upTo int64, err error)
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

	// Role that the config names. What the node has become since beats it.
	Role epoch.Role
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
	o.StallAfter = cmp.Or(o.StallAfter, 30*time.Second)
	o.BackoffMin = cmp.Or(o.BackoffMin, 200*time.Millisecond)
	o.BackoffMax = cmp.Or(o.BackoffMax, 5*time.Second)
	o.MaxFrame = cmp.Or(o.MaxFrame, 256<<10)
	if o.NewID == nil {
		o.NewID = randomID
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	switch {
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
