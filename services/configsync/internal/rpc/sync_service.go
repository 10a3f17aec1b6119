package rpc

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// Role says what this node may do.
type Role interface {
	// Enter returns nil when the node takes changes; until Leave its reign does not end.
	Enter() error
	Leave()
	// Reign returns the reign that the node leads in and a channel that is closed at its end; else the error of Enter.
	Reign() (int64, <-chan struct{}, error)
	// Serves returns nil when what the node has may be shown.
	Serves() error
}

// Succession is what peers tell of reigns.
type Succession interface {
	// Epoch is the highest reign that the node knows of.
	Epoch() int64
	// Fence ends a reign below epoch; Heed has a peer's offsets joined.
	Fence(ctx context.Context, peer string, epoch int64) error
	Heed(peer string)
}

// SyncTables are the node's tables as others follow them.
type SyncTables interface {
	Snapshot(k entry.Kind) *table.Table
	Whole(k entry.Kind) error
	Changes(k entry.Kind) *watermark.Mark
	Fetch(k entry.Kind, have entry.Version, sum uint64) (registry.Reply, error)
}

// Self is who this node is.
type Self struct {
	Cluster, BrokerName string
	NodeID              int64
	Address             string
	// WatchGap is the shortest time between two transfers of a watch stream (100 ms): changes in between go together.
	WatchGap time.Duration
}

// Sync implements ConfigSyncService.
type Sync struct {
	configsyncv1.UnimplementedConfigSyncServiceServer

	self     Self
	tables   SyncTables
	role     Role
	next     Succession
	watchers atomic.Int32
}

// NewSync makes the service.
func NewSync(self Self, t SyncTables, r Role, n Succession) *Sync {
	if self.WatchGap == 0 {
		self.WatchGap = 100 * time.Millisecond
	}
	return &Sync{self: self, tables: t, role: r, next: n}
}

// Errors.
var (
	errWrongGroup = errdefs.New(errdefs.FailedPrecondition, "WRONG_GROUP", "the node belongs to another broker").
			WithRemedy("correct the peers, or the brokerClusterName and brokerName of one of the two")
	errStaleEpoch = errdefs.New(errdefs.FailedPrecondition, "STALE_EPOCH", "this node's reign is over")
	errReignOver  = errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "this node leads no more").With("reason", "REIGN_OVER").
			WithRemedy("find the new master")
)

// admit checks who asks. over is closed when the node leads no more; nil for a caller who asks any role.
func (s *Sync) admit(c *configsyncv1.Caller) (epoch int64, over <-chan struct{}, err error) {
	if c.GetCluster() != s.self.Cluster || c.GetBrokerName() != s.self.BrokerName {
		return 0, nil, errWrongGroup.With("cluster", s.self.Cluster).With("broker_name", s.self.BrokerName)
	}
	epoch, over, err = s.role.Reign()
	switch {
	case c.GetAnyRole():
		return max(epoch, s.next.Epoch()), nil, nil
	case err == nil && c.GetEpoch() > epoch:
		return 0, nil, errStaleEpoch.With("epoch", epoch).With("known", c.GetEpoch())
	}
	return epoch, over, err
}

// Check implements ConfigSyncService.
func (s *Sync) Check(ctx context.Context, req *configsyncv1.CheckRequest) (*configsyncv1.CheckResponse, error) {
	c := req.GetCaller()
	if _, _, err := s.admit(c); err != nil {
		return nil, err
	}
	if c.GetOpening() {
		if err := s.next.Fence(ctx, c.GetAddress(), c.GetEpoch()); err != nil {
			return nil, err
		}
	}
	epoch, _, err := s.admit(c)
	if err != nil {
		return nil, err
	}
	resp := &configsyncv1.CheckResponse{Epoch: epoch, NodeId: s.self.NodeID}
	if reign, _, err := s.role.Reign(); err == nil {
		resp.Leading, resp.Epoch = true, reign
	}
	for i, v := range req.GetVersions() {
		k, err := wire.KindOf("versions.kind", v.GetKind())
		if err != nil {
			return nil, errdefs.As(err).With("index", i)
		}
		check := s.check(k, v)
		if req.GetDeltas() && check.GetResult() == configsyncv1.CheckResult_CHECK_RESULT_CHANGED {
			s.addDelta(k, v, check)
		}
		if check.GetResult() == configsyncv1.CheckResult_CHECK_RESULT_DIFFERENT && k.Offsets() && resp.GetLeading() {
			s.next.Heed(c.GetAddress())
		}
		resp.Kinds = append(resp.Kinds, check)
	}
	return resp, nil
}

func (s *Sync) check(k entry.Kind, v *configsyncv1.TableVersion) *configsyncv1.KindCheck {
	out := &configsyncv1.KindCheck{Kind: v.GetKind()}
	if s.tables.Whole(k) != nil {
		out.Result = configsyncv1.CheckResult_CHECK_RESULT_BROKEN
		return out
	}
	t := s.tables.Snapshot(k)
	same := t.Version().Equal(wire.VersionOf(v.GetDataVersion()))
	switch {
	case same && t.Sum() == v.GetSum():
		out.Result = configsyncv1.CheckResult_CHECK_RESULT_UNCHANGED
		return out
	case same:
		out.Result = configsyncv1.CheckResult_CHECK_RESULT_DIFFERENT
	default:
		out.Result = configsyncv1.CheckResult_CHECK_RESULT_CHANGED
	}
	out.Version = wire.TableVersion(t)
	return out
}

// maxLittle bounds a delta that comes with the answer of Check.
const maxLittle = 64 << 10

// addDelta puts what changed behind version v into an answer, where that is little.
func (s *Sync) addDelta(k entry.Kind, v *configsyncv1.TableVersion, out *configsyncv1.KindCheck) {
	r, err := s.tables.Fetch(k, wire.VersionOf(v.GetDataVersion()), v.GetSum())
	if err != nil || r.Unchanged || r.Full {
		return // Fetch will tell
	}
	for b := range r.Chunks {
		if chunk.Last(b) && len(b) <= maxLittle {
			out.Delta = b
			out.Version = &configsyncv1.TableVersion{Kind: v.GetKind(), DataVersion: wire.Version(r.Version), Sum: r.Sum}
		}
		return
	}
}

// Fetch implements ConfigSyncService.
func (s *Sync) Fetch(req *configsyncv1.FetchRequest, stream grpc.ServerStreamingServer[configsyncv1.FetchResponse]) error {
	k, err := wire.KindOf("kind", req.GetKind())
	if err != nil {
		return err
	}
	epoch, over, err := s.admit(req.GetCaller())
	if err != nil {
		return err
	}
	h, chunks, err := s.transfer(k, req.GetHave(), epoch)
	if err != nil {
		return err
	}
	return s.send(over, h, chunks, func(h *configsyncv1.TransferHeader, b []byte) error {
		return stream.Send(&configsyncv1.FetchResponse{Header: h, Chunk: b})
	})
}

// transfer is what leads from have to what the node has.
func (s *Sync) transfer(k entry.Kind, have *configsyncv1.TableVersion, epoch int64) (*configsyncv1.TransferHeader, iter.Seq[[]byte], error) {
	version, sum := wire.VersionOf(have.GetDataVersion()), have.GetSum()
	if t := s.tables.Snapshot(k); k.Offsets() && have != nil && t.Version().Equal(version) {
		// The caller's offsets may be ahead; Check finds that out. Sending all of them again would tell it nothing.
		sum = t.Sum()
	}
	r, err := s.tables.Fetch(k, version, sum)
	if err != nil {
		return nil, nil, err
	}
	if r.Unchanged && have == nil { // a table that never changed
		r.Unchanged, r.Full, r.Chunks = false, true, chunk.Split(s.tables.Snapshot(k).Full())
	}
	h := &configsyncv1.TransferHeader{
		Version: &configsyncv1.TableVersion{Kind: wire.Kind(k), DataVersion: wire.Version(r.Version), Sum: r.Sum},
		Full:    r.Full, Unchanged: r.Unchanged, Epoch: epoch,
	}
	return h, r.Chunks, nil
}

// send sends a header and, with it and behind it, chunks. It stops when over is closed.
func (s *Sync) send(over <-chan struct{}, h *configsyncv1.TransferHeader, chunks iter.Seq[[]byte], send func(*configsyncv1.TransferHeader, []byte) error) error {
	if h.GetUnchanged() {
		return send(h, nil)
	}
	for b := range chunks {
		select {
		case <-over:
			return errReignOver
		default:
		}
		if err := send(h, b); err != nil {
			return err
		}
		h = nil
	}
	return nil
}

// Watch implements ConfigSyncService.
func (s *Sync) Watch(req *configsyncv1.WatchRequest, stream grpc.ServerStreamingServer[configsyncv1.WatchResponse]) error {
	k, err := wire.KindOf("kind", req.GetKind())
	if err != nil {
		return err
	}
	epoch, over, err := s.admit(req.GetCaller())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() { // ends the wait below
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	s.watchers.Add(1)
	defer s.watchers.Add(-1)
	err = s.watch(ctx, k, req.GetHave(), epoch, over, func(h *configsyncv1.TransferHeader, b []byte) error {
		return stream.Send(&configsyncv1.WatchResponse{Header: h, Chunk: b})
	})
	select {
	case <-over:
		return errReignOver
	default:
		return err
	}
}

func (s *Sync) watch(ctx context.Context, k entry.Kind, have *configsyncv1.TableVersion, epoch int64, over <-chan struct{}, send func(*configsyncv1.TransferHeader, []byte) error) error {
	gap := time.NewTimer(0)
	defer gap.Stop()
	for first := true; ; first = false {
		changes := s.tables.Changes(k)
		seen := changes.Load()
		h, chunks, err := s.transfer(k, have, epoch)
		if err != nil {
			return err
		}
		if first || !h.GetUnchanged() {
			if err := s.send(over, h, chunks, send); err != nil {
				return err
			}
		}
		have = h.GetVersion()
		if err := changes.Wait(ctx, seen+1); err != nil {
			return err
		}
		select {
		case <-gap.C:
			gap.Reset(s.self.WatchGap)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Watchers is the number of watch streams.
func (s *Sync) Watchers() int32 { return s.watchers.Load() }
