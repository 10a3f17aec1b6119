package rpc

import (
	"context"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Lineage answers peers; it is the owner of role, promise and epochs. A promise is on the disk when OnPromise returns.
type Lineage interface {
	OnPromise(ctx context.Context, r epoch.PromiseRequest) (epoch.Heard, error)
	// OnFollow calls send with the first answer and every later one, from one goroutine, until the link ends.
	OnFollow(ctx context.Context, r epoch.FollowRequest, send func(epoch.FollowAnswer) error) error
	OnRangeChecksum(ctx context.Context, from, to, stretch int64) ([]uint32, int64, error)
	// OnDrain calls send once, when no put waits any more, and holds puts back until it returns.
	OnDrain(ctx context.Context, r epoch.DrainRequest, send func(end int64) error) error
}

// Replication implements ReplicationService.
type Replication struct {
	storagev1.UnimplementedReplicationServiceServer

	lineage Lineage
}

// NewReplication makes the service.
func NewReplication(l Lineage) *Replication { return &Replication{lineage: l} }

// Promise implements ReplicationService.
func (s *Replication) Promise(ctx context.Context, req *storagev1.PromiseRequest) (*storagev1.PromiseResponse, error) {
	if req.GetEpoch() < 0 {
		return nil, errdefs.Invalid("epoch", "%d is negative", req.GetEpoch())
	}
	if (req.GetEpoch() == 0) != (req.GetId() == 0) {
		return nil, errdefs.Invalid("id", "epoch and id are both 0 (ask only) or both set")
	}
	h, err := s.lineage.OnPromise(ctx, promiseFromWire(req))
	if err != nil {
		return nil, err
	}
	return heardToWire(h), nil
}

// Follow implements ReplicationService.
func (s *Replication) Follow(req *storagev1.FollowRequest, stream grpc.ServerStreamingServer[storagev1.FollowResponse]) error {
	r, err := followFromWire(req)
	if err != nil {
		return err
	}
	return s.lineage.OnFollow(stream.Context(), r, func(a epoch.FollowAnswer) error {
		return stream.Send(answerToWire(a))
	})
}

// RangeChecksum implements ReplicationService.
func (s *Replication) RangeChecksum(ctx context.Context, req *storagev1.RangeChecksumRequest) (*storagev1.RangeChecksumResponse, error) {
	sums, to, err := s.lineage.OnRangeChecksum(ctx, req.GetFromOffset(), req.GetToOffset(), req.GetStretchSize())
	if err != nil {
		return nil, err
	}
	return &storagev1.RangeChecksumResponse{Checksums: sums, ToOffset: to}, nil
}

// Drain implements ReplicationService.
func (s *Replication) Drain(req *storagev1.DrainRequest, stream grpc.ServerStreamingServer[storagev1.DrainResponse]) error {
	return s.lineage.OnDrain(stream.Context(), epoch.DrainRequest{
		Cluster: req.GetCluster(), BrokerName: req.GetBrokerName(), NodeID: req.GetNodeId(),
		Reign: epoch.Promise{Epoch: req.GetEpoch(), ID: epoch.ID(req.GetId())},
	}, func(end int64) error { return stream.Send(&storagev1.DrainResponse{EndOffset: end}) })
}
