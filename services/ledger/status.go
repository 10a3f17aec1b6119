package main

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// started is when this process began.
var started = time.Now()

var errNotReady = errdefs.New(errdefs.Unavailable, "NOT_READY", "this node does not take part in a group with a leader")

// ready says whether the node does its work: it has its vote and a leader, or leads.
func (a *app) ready(ctx context.Context) error {
	s, err := a.member.node().Status(ctx)
	if err != nil {
		return err
	}
	if reason, remedy := a.seatOf(&s); reason != "" {
		return errNotReady.With("reason", reason).WithRemedy("%s", remedy)
	}
	return nil
}

var (
	roles = map[consensus.Role]ledgerv1.Role{
		consensus.Follower: ledgerv1.Role_ROLE_FOLLOWER, consensus.PreCandidate: ledgerv1.Role_ROLE_PRE_CANDIDATE,
		consensus.Candidate: ledgerv1.Role_ROLE_CANDIDATE, consensus.Leader: ledgerv1.Role_ROLE_LEADER,
	}
	pushStates = map[push.State]ledgerv1.PushState{
		push.Comparing: ledgerv1.PushState_PUSH_STATE_COMPARE, push.Truncating: ledgerv1.PushState_PUSH_STATE_TRUNCATE,
		push.Appending: ledgerv1.PushState_PUSH_STATE_APPEND,
	}
)

// Status implements rpc.Operator.
func (a *app) Status(ctx context.Context) (*ledgerv1.StatusResponse, error) {
	s, err := a.member.node().Status(ctx)
	if err != nil {
		return nil, err
	}
	c := a.cfg
	out := &ledgerv1.StatusResponse{
		Group: c.Group, Id: c.SelfID, Address: c.members[raft.NodeID(c.SelfID)], Role: roles[s.Role], Term: int64(s.Term), Vote: string(s.Vote),
		Leader: string(s.Leader), LeaderAddress: c.members[s.Leader], Voter: s.Voter, FirstIndex: int64(a.log.First()),
		LastIndex: int64(a.log.Last()), CommittedIndex: int64(s.Committed), SyncedIndex: int64(a.log.Synced()),
		FlushMode: ledgerv1.FlushMode_FLUSH_MODE_SYNC, Lease: s.UnderLease, Transferee: string(s.Transferee), Refused: a.refused.Counts(),
		DroppedMessages: int64(s.Dropped), DiskFullRefusals: int64(s.NoRoom), LogSize: a.log.End(), //nolint:gosec // counters
		StartedAt: timestamppb.New(started), Version: a.env.Version, Elections: int64(s.Counters.Elections), //nolint:gosec // a counter
		PushRetries: int64(s.Counters.Retries), WindowStart: int64(a.appender.WindowStart()), //nolint:gosec // a counter
		DiskFullTransfers: int64(s.HandedOver), //nolint:gosec // a counter
	}
	if s.Async {
		out.FlushMode = ledgerv1.FlushMode_FLUSH_MODE_ASYNC
	}
	for r, n := range s.Counters.Refused {
		if n > 0 {
			out.Refused[strings.TrimPrefix(ledgerv1.Reason(r).String(), "REASON_")] = int64(n) //nolint:gosec // a counter
		}
	}
	out.Reason, out.Remedy = a.seatOf(&s)
	if free, err := a.fs.FreeSpace(c.StorePath); err == nil {
		out.DiskFree = free
	}
	a.followers(out, s.Peers)
	return out, nil
}

// followers adds the other members: what the links show and, on a leader, what it knows of them.
func (a *app) followers(out *ledgerv1.StatusResponse, peers []consensus.PeerStatus) {
	known := map[raft.NodeID]consensus.PeerStatus{}
	for _, p := range peers {
		known[p.ID] = p
	}
	for _, id := range a.cfg.ids() {
		if string(id) == a.cfg.SelfID {
			continue
		}
		l := a.transport.Status(id)
		f := &ledgerv1.Follower{
			Id: string(id), Address: l.Address, Connected: l.Connected, DroppedMessages: l.Dropped, MatchIndex: int64(raft.NoIndex),
			CommittedIndex: int64(raft.NoIndex),
		}
		if l.Err != nil {
			f.LastError, f.LastErrorReason, f.LastErrorTime = l.Err.Error(), errdefs.ReasonOf(l.Err), timestamppb.New(l.ErrTime)
		}
		if p, ok := known[id]; ok {
			f.State, f.MatchIndex, f.NextIndex, f.Lag = pushStates[p.State], int64(p.Match), int64(p.Next), int64(p.Lag)
			f.CommittedIndex, f.InflightEntries, f.InflightBytes = int64(p.Commit), int64(p.InflightEntries), p.InflightBytes
			f.Silent = durationpb.New(time.Duration(p.Silent) * time.Millisecond)
			f.Learner, f.Refused = p.Learner, ledgerv1.Reason(p.Refused)
		}
		out.Followers = append(out.Followers, f)
	}
}

// openMetrics makes the gauges: ledger.role (0 follower, 1 pre-candidate, 2 candidate, 3 leader), ledger.term, ledger.index.committed,
// ledger.index.last and ledger.voter of this node, ledger.leader.known; and ledger.disk_full.transfers, the leaderships that it
// handed over because its disk was full.
func (a *app) openMetrics() error {
	meter := a.env.MeterProvider.Meter(scope + "node")
	values := []struct {
		name string
		of   func(consensus.SoftState) int64
	}{
		{"ledger.role", func(s consensus.SoftState) int64 { return int64(s.Role) }},
		{"ledger.term", func(s consensus.SoftState) int64 { return int64(s.Term) }},
		{"ledger.voter", func(s consensus.SoftState) int64 { return oneIf(s.Voter) }},
		{"ledger.leader.known", func(s consensus.SoftState) int64 { return oneIf(s.Leader != "") }},
		{"ledger.index.committed", func(consensus.SoftState) int64 { mark, _ := a.member.Committed(); return mark.Load() }},
		{"ledger.index.last", func(consensus.SoftState) int64 { return int64(a.log.Last()) }},
		{"ledger.disk_full.transfers", func(consensus.SoftState) int64 { return int64(a.member.node().HandedOver()) }}, //nolint:gosec // a counter
	}
	for _, v := range values {
		_, err := meter.Int64ObservableGauge(v.name, metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(v.of(a.member.Soft()))
			return nil
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
