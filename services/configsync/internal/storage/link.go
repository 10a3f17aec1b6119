package storage

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
)

// Errors of the link.
var (
	ErrUnreachable = errdefs.New(errdefs.Unavailable, "STORAGE_UNREACHABLE", "the node's storage does not answer").
			WithRemedy("start it, or correct storage.address")
	ErrNotOpen = errdefs.New(errdefs.FailedPrecondition, "STORAGE_NOT_OPEN", "the node's storage is no open master")
	ErrOther   = errdefs.New(errdefs.FailedPrecondition, "OTHER_STORAGE", "the storage is another broker's").
			WithRemedy("give both the same brokerClusterName, brokerName and brokerId, or correct storage.address")
)

// ReasonStarting is the reason of a node that has not heard its storage yet.
const ReasonStarting = "STARTING"

var errStarting = errdefs.New(errdefs.Unavailable, ReasonStarting, "the node's storage has not answered yet").
	WithRemedy("try again in a moment")

// Role is what the storage says.
type Role struct {
	Master bool  // an open master
	Epoch  int64 // its reign where it is one, else the highest reign that it knows of
	// Start is the offset of the log where the reign began, bytes; -1 where there is no storage to ask.
	Start int64
	Err   error // why it is no master; nil for an ordinary slave
}

// Options of a Link. Zero times get the defaults that are named.
type Options struct {
	Cluster, BrokerName string
	NodeID              int64
	Interval            time.Duration // between two answers of the storage (250 ms)
	Timeout             time.Duration // silence after which the role is gone (3 s)
	Log                 *slog.Logger
}

// Link watches one storage.
type Link struct {
	o      Options
	client storagev1.StorageAdminServiceClient

	mu      sync.Mutex // guards role and failed
	role    Role
	failed  error // why the last stream ended; nil while one answers
	changed *watermark.Mark
}

// NewLink makes a link over conn.
func NewLink(o Options, conn grpc.ClientConnInterface) *Link {
	if o.Interval == 0 {
		o.Interval = 250 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = 3 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Link{
		o: o, client: storagev1.NewStorageAdminServiceClient(conn), changed: watermark.New(0),
		role: Role{Start: -1, Err: errStarting},
	}
}

// Role returns what the storage said last.
func (l *Link) Role() Role {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.role
}

// Changed grows with each change of the role.
func (l *Link) Changed() *watermark.Mark { return l.changed }

// Run watches until ctx ends; it returns nil.
func (l *Link) Run(ctx context.Context) error {
	silence := time.AfterFunc(l.o.Timeout, l.silent)
	defer silence.Stop()
	for ctx.Err() == nil {
		err := l.watch(ctx, silence)
		if ctx.Err() != nil {
			break
		}
		l.o.Log.Debug("the storage's status ended", slog.Any("error", err))
		l.fail(err)
		pause := time.NewTimer(l.o.Interval/2 + rand.N(l.o.Interval)) //nolint:gosec // spread, not secret
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	return nil
}

// watch follows one stream. A stream that is silent for Timeout is given up.
func (l *Link) watch(ctx context.Context, silence *time.Timer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled := time.AfterFunc(l.o.Timeout, cancel)
	defer stalled.Stop()
	stream, err := l.client.WatchStatus(ctx, &storagev1.WatchStatusRequest{Interval: durationpb.New(l.o.Interval)})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		stalled.Reset(l.o.Timeout)
		silence.Reset(l.o.Timeout)
		l.fail(nil)
		l.set(l.roleOf(resp.GetStatus()))
	}
}

// fail keeps why there is no answer, for who is told that the storage is unreachable, now or later.
func (l *Link) fail(err error) {
	if errors.Is(err, context.Canceled) { // given up for its silence, which ErrUnreachable says
		err = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	if err != nil && errors.Is(l.role.Err, ErrUnreachable) {
		l.role.Err = ErrUnreachable.Wrap(err)
	}
}

// silent is called when there was no answer for Timeout.
func (l *Link) silent() {
	l.mu.Lock()
	err := ErrUnreachable.Wrap(l.failed)
	l.mu.Unlock()
	l.lost(err)
}

func (l *Link) roleOf(st *storagev1.StatusResponse) Role {
	if st.GetCluster() != l.o.Cluster || st.GetBrokerName() != l.o.BrokerName || st.GetNodeId() != l.o.NodeID {
		return Role{Start: -1, Err: ErrOther.With("cluster", st.GetCluster()).With("broker_name", st.GetBrokerName()).With("node_id", st.GetNodeId())}
	}
	r := Role{Epoch: st.GetPromisedEpoch(), Start: -1}
	var last *storagev1.Epoch
	if es := st.GetEpochs(); len(es) > 0 {
		last = es[len(es)-1]
		r.Epoch = max(r.Epoch, last.GetEpoch())
	}
	isMaster := st.GetRole() == storagev1.Role_ROLE_ASYNC_MASTER || st.GetRole() == storagev1.Role_ROLE_SYNC_MASTER
	switch {
	case isMaster && st.GetOpen() && last != nil:
		r.Master, r.Epoch, r.Start = true, last.GetEpoch(), last.GetStartOffset()
	case isMaster:
		r.Err = ErrNotOpen.With("storage_reason", st.GetReason())
		if st.GetRemedy() != "" {
			r.Err = ErrNotOpen.With("storage_reason", st.GetReason()).WithRemedy("%s", st.GetRemedy())
		}
	}
	return r
}

// lost takes the mastership away and keeps what is known of reigns.
func (l *Link) lost(err error) {
	r := l.Role()
	l.set(Role{Epoch: r.Epoch, Start: -1, Err: err})
}

func (l *Link) set(r Role) {
	l.mu.Lock()
	old := l.role
	l.role = r
	same := old.Master == r.Master && old.Epoch == r.Epoch && old.Start == r.Start && errdefs.ReasonOf(old.Err) == errdefs.ReasonOf(r.Err)
	l.mu.Unlock()
	if same {
		return
	}
	if r.Err != nil && !errors.Is(old.Err, r.Err) {
		l.o.Log.Warn("the storage is no master", slog.Any("error", r.Err))
	}
	l.changed.Advance(l.changed.Load() + 1)
}

// Static is the role of a node that runs without a storage.
type Static struct {
	role    Role
	changed *watermark.Mark
}

// NewStatic returns the role that the configuration names.
func NewStatic(master bool, epoch int64) *Static {
	return &Static{role: Role{Master: master, Epoch: epoch, Start: -1}, changed: watermark.New(0)}
}

// Role returns the role.
func (s *Static) Role() Role { return s.role }

// Changed never grows.
func (s *Static) Changed() *watermark.Mark { return s.changed }

// Run waits for the end of ctx.
func (s *Static) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
