package rpc

import (
	"context"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/role"
	"github.com/tandemlog/tandem/services/storage/internal/rollback"
	"github.com/tandemlog/tandem/services/storage/internal/store"
)

// Operator changes the master. What it returns is durable.
type Operator interface {
	Promote(ctx context.Context, force bool) (role.Promoted, error)
	Demote(ctx context.Context) (role.Demoted, error)
}

// Rollbacks reads what was cut from the log and kept.
type Rollbacks interface {
	List() ([]commitlog.Kept, error)
	Records(ctx context.Context, name string, to rollback.Visitor) error
	Bytes(ctx context.Context, name string, piece int, to func(offset int64, b []byte) error) error
}

var wireRoles = map[epoch.Role]storagev1.Role{ //nolint:gochecknoglobals // a table
	epoch.RoleAsyncMaster: storagev1.Role_ROLE_ASYNC_MASTER, epoch.RoleSyncMaster: storagev1.Role_ROLE_SYNC_MASTER,
	epoch.RoleSlave: storagev1.Role_ROLE_SLAVE,
}

// Role is the wire form of a role.
func Role(r epoch.Role) storagev1.Role { return wireRoles[r] }

// Promote implements StorageAdminService.
func (s *Admin) Promote(ctx context.Context, req *storagev1.PromoteRequest) (*storagev1.PromoteResponse, error) {
	p, err := s.operator.Promote(ctx, req.GetForce())
	if err != nil {
		return nil, err
	}
	return &storagev1.PromoteResponse{
		Epoch: p.Epoch, StartOffset: p.Start, Role: Role(p.Role), AlreadyOpen: p.AlreadyOpen, Planned: p.Planned,
	}, nil
}

// Demote implements StorageAdminService.
func (s *Admin) Demote(ctx context.Context, _ *storagev1.DemoteRequest) (*storagev1.DemoteResponse, error) {
	d, err := s.operator.Demote(ctx)
	if err != nil {
		return nil, err
	}
	return &storagev1.DemoteResponse{EndOffset: d.End, AlreadySlave: d.AlreadySlave}, nil
}

// ListRollbacks implements StorageAdminService.
func (s *Admin) ListRollbacks(context.Context, *storagev1.ListRollbacksRequest) (*storagev1.ListRollbacksResponse, error) {
	all, err := s.rollbacks.List()
	if err != nil {
		return nil, err
	}
	return &storagev1.ListRollbacksResponse{Rollbacks: RollbacksOf(all)}, nil
}

// RollbacksOf is the wire form of kept ranges.
func RollbacksOf(all []commitlog.Kept) []*storagev1.Rollback {
	out := make([]*storagev1.Rollback, len(all))
	for i, k := range all {
		out[i] = &storagev1.Rollback{FromOffset: k.From, ToOffset: k.To, Epoch: k.Epoch, Size: k.Bytes, Name: k.Name, Whole: k.Whole}
	}
	return out
}

// ReadRollback implements StorageAdminService.
func (s *Admin) ReadRollback(req *storagev1.ReadRollbackRequest, stream grpc.ServerStreamingServer[storagev1.ReadRollbackResponse]) error {
	if req.GetRaw() {
		return s.rollbacks.Bytes(stream.Context(), req.GetName(), rangeChunk, func(offset int64, b []byte) error {
			// The bytes are copied: gRPC may still send them when they are gone.
			return stream.Send(&storagev1.ReadRollbackResponse{Offset: offset, Data: append([]byte(nil), b...)})
		})
	}
	g := &gatherer{stream: stream}
	if err := s.rollbacks.Records(stream.Context(), req.GetName(), g); err != nil {
		return err
	}
	return g.send()
}

// gatherBytes is how much of records goes into one answer, unless a single one is larger.
const gatherBytes = 256 << 10

// gatherer sends records and gaps in answers of some size.
type gatherer struct {
	stream grpc.ServerStreamingServer[storagev1.ReadRollbackResponse]
	next   *storagev1.ReadRollbackResponse // nil: nothing gathered
	bytes  int
}

// Record implements rollback.Visitor.
func (g *gatherer) Record(offset int64, v *message.View) error {
	if g.bytes > 0 && g.bytes+int(v.Size) > gatherBytes {
		if err := g.send(); err != nil {
			return err
		}
	}
	m := storedOf([]store.Record{{Offset: offset, View: *v}})[0]
	m.Message.Body = append([]byte(nil), m.GetMessage().GetBody()...) // the view's bytes are lent
	next := g.gather()
	next.Messages, g.bytes = append(next.Messages, m), g.bytes+int(v.Size)
	return nil
}

// Gap implements rollback.Visitor.
func (g *gatherer) Gap(from, to int64, reason string) error {
	next := g.gather()
	next.Gaps = append(next.Gaps, &storagev1.RollbackGap{FromOffset: from, ToOffset: to, Reason: reason})
	return nil
}

func (g *gatherer) gather() *storagev1.ReadRollbackResponse {
	if g.next == nil {
		g.next = &storagev1.ReadRollbackResponse{}
	}
	return g.next
}

func (g *gatherer) send() error {
	if g.next == nil {
		return nil
	}
	m := g.next
	g.next, g.bytes = nil, 0
	return g.stream.Send(m)
}
