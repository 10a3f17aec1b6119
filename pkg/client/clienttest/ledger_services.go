package clienttest

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// appendTimeout is what a Ledger says; it never waits.
const appendTimeout = 5 * time.Second

// Append implements LedgerService.
func (n *LedgerNode) Append(_ context.Context, req *ledgerv1.AppendRequest) (*ledgerv1.AppendResponse, error) {
	return n.group.append(n, req.GetBody(), req.GetChannel(), req.GetKey())
}

// AppendBatch implements LedgerService.
func (n *LedgerNode) AppendBatch(_ context.Context, req *ledgerv1.AppendBatchRequest) (*ledgerv1.AppendBatchResponse, error) {
	out := &ledgerv1.AppendBatchResponse{}
	for i, body := range req.GetBodies() {
		r, err := n.group.append(n, body, req.GetChannel(), nth(req.GetKey(), i))
		if err != nil {
			return nil, err
		}
		out.Indexes, out.Term, out.CommittedIndex = append(out.Indexes, r.GetIndex()), r.GetTerm(), r.GetCommittedIndex()
		if r.GetRepeated() {
			out.RepeatedEntries++
		}
	}
	return out, nil
}

// nth is the key of the i-th entry behind the one of key.
func nth(key *ledgerv1.IdempotenceKey, i int) *ledgerv1.IdempotenceKey {
	if key == nil {
		return nil
	}
	return &ledgerv1.IdempotenceKey{ClientId: key.GetClientId(), Sequence: key.GetSequence() + uint64(i), AfterIndex: key.GetAfterIndex()} //nolint:gosec // small
}

// AppendStream implements LedgerService: one answer a request.
func (n *LedgerNode) AppendStream(stream grpc.BidiStreamingServer[ledgerv1.AppendStreamRequest, ledgerv1.AppendStreamResponse]) error {
	next := uint64(0)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if next != 0 && req.GetSequence() != next {
			return errdefs.Invalid("sequence", "%d does not follow, expected %d", req.GetSequence(), next)
		}
		if len(req.GetBodies()) > ledgerMaxBatch {
			return errdefs.Invalid("bodies", "are too many")
		}
		var key *ledgerv1.IdempotenceKey
		if len(req.GetClientId()) > 0 {
			key = &ledgerv1.IdempotenceKey{ClientId: req.GetClientId(), Sequence: req.GetSequence(), AfterIndex: req.GetAfterIndex()}
		}
		resp := &ledgerv1.AppendStreamResponse{}
		next = req.GetSequence()
		for i, body := range req.GetBodies() {
			r, err := n.group.append(n, body, req.GetChannel(), nth(key, i))
			if err != nil {
				if e := errdefs.As(err); e != nil && i == 0 && r == nil { // nothing of this request was taken
					return e.With("sequence", next)
				}
				return err
			}
			resp.Indexes, resp.CommittedIndex = append(resp.Indexes, r.GetIndex()), r.GetCommittedIndex()
			next++
		}
		resp.Sequence = next - 1
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// Get implements LedgerService.
func (n *LedgerNode) Get(_ context.Context, req *ledgerv1.GetRequest) (*ledgerv1.GetResponse, error) {
	all := n.group.Entries()
	switch i := req.GetIndex(); {
	case i < 0:
		return nil, errdefs.Invalid("index", "%d is negative", i)
	case i >= int64(len(all)):
		return nil, errNotCommitted.WithField("index").With("index", i).With("committed", len(all)-1)
	}
	return &ledgerv1.GetResponse{Entry: all[req.GetIndex()], CommittedIndex: int64(len(all)) - 1}, nil
}

// GetRange implements LedgerService.
func (n *LedgerNode) GetRange(_ context.Context, req *ledgerv1.GetRangeRequest) (*ledgerv1.GetRangeResponse, error) {
	all := n.group.Entries()
	most := int64(req.GetMaxEntries())
	if most == 0 {
		most = 1024
	}
	if req.GetIndex() < 0 {
		return nil, errdefs.Invalid("index", "%d is below 0", req.GetIndex())
	}
	from := min(req.GetIndex(), int64(len(all)))
	to := min(from+most, int64(len(all)))
	return &ledgerv1.GetRangeResponse{
		Entries: all[from:to], NextIndex: req.GetIndex() + to - from, CommittedIndex: int64(len(all)) - 1,
	}, nil
}

// Tail implements LedgerService: one entry an answer.
func (n *LedgerNode) Tail(req *ledgerv1.TailRequest, stream grpc.ServerStreamingServer[ledgerv1.TailResponse]) error {
	n.group.mu.Lock()
	onTail := n.group.onTail
	n.group.mu.Unlock()
	if onTail != nil {
		if err := onTail(n); err != nil {
			return err
		}
	}
	next := req.GetIndex()
	if next < 0 {
		next = int64(len(n.group.Entries()))
	}
	for {
		n.group.mu.Lock()
		all, changed := slices.Clone(n.group.entries), n.group.changed
		n.group.mu.Unlock()
		for ; next < int64(len(all)); next++ {
			if err := stream.Send(&ledgerv1.TailResponse{
				Entries: all[next : next+1], NextIndex: next + 1, CommittedIndex: int64(len(all)) - 1,
			}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// GetBounds implements LedgerService.
func (n *LedgerNode) GetBounds(context.Context, *ledgerv1.GetBoundsRequest) (*ledgerv1.GetBoundsResponse, error) {
	return n.bounds(), nil
}

// Status implements LedgerAdminService.
func (n *LedgerNode) Status(context.Context, *ledgerv1.StatusRequest) (*ledgerv1.StatusResponse, error) {
	g := n.group
	g.mu.Lock()
	st := &ledgerv1.StatusResponse{
		Group: "test", Id: n.ID, Address: n.Addr(), Role: ledgerv1.Role_ROLE_FOLLOWER, Term: g.term, Voter: true,
		LastIndex: int64(len(g.entries)) - 1, CommittedIndex: int64(len(g.entries)) - 1, SyncedIndex: int64(len(g.entries)) - 1,
		FlushMode: ledgerv1.FlushMode_FLUSH_MODE_SYNC, Version: "test",
	}
	if g.leader >= 0 {
		st.Leader, st.LeaderAddress = g.Nodes[g.leader].ID, g.Nodes[g.leader].Addr()
	}
	if g.leader == n.number {
		st.Role = ledgerv1.Role_ROLE_LEADER
		for _, f := range g.Nodes {
			if f != n {
				st.Followers = append(st.Followers, &ledgerv1.Follower{
					Id: f.ID, Address: f.Addr(), State: ledgerv1.PushState_PUSH_STATE_APPEND, MatchIndex: st.GetLastIndex(),
					NextIndex: st.GetLastIndex() + 1, CommittedIndex: st.GetCommittedIndex(), Connected: true,
				})
			}
		}
	}
	change := g.status
	g.mu.Unlock()
	if change != nil {
		change(n, st)
	}
	return st, nil
}

// WatchStatus implements LedgerAdminService.
func (n *LedgerNode) WatchStatus(req *ledgerv1.WatchStatusRequest, stream grpc.ServerStreamingServer[ledgerv1.WatchStatusResponse]) error {
	tick := time.NewTicker(max(req.GetInterval().AsDuration(), time.Millisecond))
	defer tick.Stop()
	for {
		st, err := n.Status(stream.Context(), nil)
		if err == nil {
			err = stream.Send(&ledgerv1.WatchStatusResponse{Status: st})
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Bootstrap implements LedgerAdminService: of a log that is empty.
func (n *LedgerNode) Bootstrap(_ context.Context, req *ledgerv1.BootstrapRequest) (*ledgerv1.BootstrapResponse, error) {
	if len(n.group.Entries()) > 0 {
		return nil, errdefs.New(errdefs.FailedPrecondition, "NOT_EMPTY", "the node holds entries already")
	}
	var ids []string
	for _, m := range n.group.Nodes {
		ids = append(ids, m.ID)
	}
	if !slices.Equal(slices.Sorted(slices.Values(req.GetMembers())), ids) {
		return nil, errdefs.Invalid("members", "are not those that the node is configured with")
	}
	return &ledgerv1.BootstrapResponse{Members: ids}, nil
}

// TransferLeadership implements ElectionService.
func (n *LedgerNode) TransferLeadership(_ context.Context, req *ledgerv1.TransferLeadershipRequest) (*ledgerv1.TransferLeadershipResponse, error) {
	g := n.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.mustLead(n); err != nil {
		return nil, err
	}
	if req.GetTarget() == n.ID {
		return &ledgerv1.TransferLeadershipResponse{Target: n.ID, Address: n.Addr()}, nil
	}
	for i, m := range g.Nodes {
		if m != n && (req.GetTarget() == "" || req.GetTarget() == m.ID) {
			g.leader = i
			g.term++
			return &ledgerv1.TransferLeadershipResponse{Target: m.ID, Address: m.Addr(), Term: g.term - 1}, nil
		}
	}
	return nil, errdefs.Invalid("target", "%q is no other member", req.GetTarget())
}
