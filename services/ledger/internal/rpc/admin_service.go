package rpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Operator does what operators order.
type Operator interface {
	// Status composes one Status answer.
	Status(ctx context.Context) (*ledgerv1.StatusResponse, error)
	// Bootstrap makes this node, or with all every member, a voter of a new group and returns those that are.
	Bootstrap(ctx context.Context, all bool) ([]raft.NodeID, error)
	// Transfer hands leadership to a member, or to the best one, and returns it and the term that has ended, 0 where it
	// leads already.
	Transfer(ctx context.Context, to raft.NodeID) (raft.NodeID, raft.Term, error)
}

// Admin implements LedgerAdminService.
type Admin struct {
	ledgerv1.UnimplementedLedgerAdminServiceServer

	operator  Operator
	addresses map[raft.NodeID]string
	o         Telemetry
}

// NewAdmin makes the service; addresses are those of the members.
func NewAdmin(op Operator, addresses map[raft.NodeID]string, o Telemetry) *Admin {
	return &Admin{operator: op, addresses: addresses, o: o}
}

func (s *Admin) fail(err error) error { return s.o.Refused.Count(withLeader(err, s.addresses)) }

// Status implements LedgerAdminService.
func (s *Admin) Status(ctx context.Context, _ *ledgerv1.StatusRequest) (*ledgerv1.StatusResponse, error) {
	return s.operator.Status(ctx)
}

// WatchStatus implements LedgerAdminService.
func (s *Admin) WatchStatus(req *ledgerv1.WatchStatusRequest, stream grpc.ServerStreamingServer[ledgerv1.WatchStatusResponse]) error {
	interval := time.Second
	if d := req.GetInterval(); d != nil {
		if interval = d.AsDuration(); d.CheckValid() != nil || interval < 100*time.Millisecond || interval > time.Hour {
			return s.fail(errdefs.Invalid("interval", "%v is not within 100ms and 1h", interval))
		}
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		status, err := s.operator.Status(stream.Context())
		if err == nil {
			err = stream.Send(&ledgerv1.WatchStatusResponse{Status: status})
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
	}
}

// Bootstrap implements LedgerAdminService.
func (s *Admin) Bootstrap(ctx context.Context, req *ledgerv1.BootstrapRequest) (*ledgerv1.BootstrapResponse, error) {
	var want []string
	for id := range s.addresses {
		want = append(want, string(id))
	}
	slices.Sort(want)
	got := slices.Clone(req.GetMembers())
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return nil, s.fail(errdefs.Invalid("members", "%v are not the members that this node is configured with, %v", got, want).
			WithRemedy("name all members of `peers`; it must be the same on all of them"))
	}
	made, err := s.operator.Bootstrap(ctx, !req.GetNodeOnly())
	if err != nil {
		return nil, s.fail(err)
	}
	resp := &ledgerv1.BootstrapResponse{}
	for _, id := range made {
		resp.Members = append(resp.Members, string(id))
	}
	slices.Sort(resp.Members)
	return resp, nil
}

// TransferLeadership implements ElectionService's call for operators: it is a peer.TransferFunc.
func (s *Admin) TransferLeadership(ctx context.Context, req *ledgerv1.TransferLeadershipRequest) (*ledgerv1.TransferLeadershipResponse, error) {
	if d := req.GetTimeout(); d != nil {
		timeout := d.AsDuration()
		if d.CheckValid() != nil || timeout <= 0 || timeout > time.Hour {
			return nil, s.fail(errdefs.Invalid("timeout", "%v is not above 0 and at most 1h", timeout))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	target := raft.NodeID(req.GetTarget())
	if target != "" && s.addresses[target] == "" {
		return nil, s.fail(errdefs.Invalid("target", "%q is no member of the group", target))
	}
	to, term, err := s.operator.Transfer(ctx, target)
	if err != nil {
		return nil, s.fail(err)
	}
	return &ledgerv1.TransferLeadershipResponse{Target: string(to), Address: s.addresses[to], Term: int64(term)}, nil
}
