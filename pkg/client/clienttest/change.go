package clienttest

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// kept is a range that was cut from the log.
type kept struct {
	rollback *storagev1.Rollback
	gaps     []*storagev1.RollbackGap
	messages []*storagev1.StoredMessage
}

// OnPromote lets f decide on each Promote; without it the node becomes master, of the next epoch.
func (s *Storage) OnPromote(f func(force bool) (*storagev1.PromoteResponse, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onPromote = f
}

// Keep adds a kept range; its raw bytes are the bodies one after the other from its first offset on.
func (s *Storage) Keep(r *storagev1.Rollback, gaps []*storagev1.RollbackGap, messages ...*storagev1.StoredMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, kept{r, gaps, messages})
}

// Promote implements StorageAdminService.
func (s *Storage) Promote(_ context.Context, req *storagev1.PromoteRequest) (*storagev1.PromoteResponse, error) {
	s.mu.Lock()
	f := s.onPromote
	s.mu.Unlock()
	if f != nil {
		return f(req.GetForce())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &storagev1.PromoteResponse{Role: storagev1.Role_ROLE_SYNC_MASTER, AlreadyOpen: s.master, StartOffset: s.first + int64(len(s.log))}
	if !s.master {
		s.master = true
		s.epoch++
	}
	resp.Epoch = s.epoch
	return resp, nil
}

// Demote implements StorageAdminService.
func (s *Storage) Demote(context.Context, *storagev1.DemoteRequest) (*storagev1.DemoteResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &storagev1.DemoteResponse{EndOffset: s.first + int64(len(s.log)), AlreadySlave: !s.master}
	s.master = false
	return resp, nil
}

// ListRollbacks implements StorageAdminService.
func (s *Storage) ListRollbacks(context.Context, *storagev1.ListRollbacksRequest) (*storagev1.ListRollbacksResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &storagev1.ListRollbacksResponse{}
	for _, k := range s.kept {
		resp.Rollbacks = append(resp.Rollbacks, k.rollback)
	}
	return resp, nil
}

// ReadRollback implements StorageAdminService.
func (s *Storage) ReadRollback(req *storagev1.ReadRollbackRequest, stream grpc.ServerStreamingServer[storagev1.ReadRollbackResponse]) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.kept, func(k kept) bool { return k.rollback.GetName() == req.GetName() })
	var k kept
	if i >= 0 {
		k = s.kept[i]
	}
	s.mu.Unlock()
	if i < 0 {
		return errdefs.New(errdefs.NotFound, "NO_SUCH_ROLLBACK", "no range of this name is kept").With("name", req.GetName())
	}
	if !req.GetRaw() {
		return stream.Send(&storagev1.ReadRollbackResponse{Messages: k.messages, Gaps: k.gaps})
	}
	at := k.rollback.GetFromOffset()
	for _, m := range k.messages {
		body := m.GetMessage().GetBody()
		if err := stream.Send(&storagev1.ReadRollbackResponse{Offset: at, Data: body}); err != nil {
			return err
		}
		at += int64(len(body))
	}
	return nil
}
