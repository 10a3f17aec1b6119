package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/damage"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
	"github.com/tandemlog/tandem/services/storage/internal/role"
	"github.com/tandemlog/tandem/services/storage/internal/rpc"
	"github.com/tandemlog/tandem/services/storage/internal/topics"
)

// started is when this process began.
var started = time.Now()

var errNotReady = errdefs.New(errdefs.Unavailable, "NOT_READY", "this node neither takes puts nor follows a master")

// ready says whether the node does its work: an open master, or a slave with a link.
func (a *app) ready(context.Context) error {
	st := a.role.State()
	if st.Open || st.Upstream.State == role.LinkInSync || st.Upstream.State == role.LinkCatchingUp {
		return nil
	}
	reason, remedy := st.Reason, st.Remedy
	if !st.Role.Master() {
		reason = cmp.Or(st.Upstream.Reason, "CONNECTING")
		remedy = cmp.Or(st.Upstream.Remedy, "wait: a master is looked for")
	}
	return errNotReady.With("reason", reason).WithRemedy("%s", remedy)
}

// reasonSavedRole hinders nothing: what the config says of the role is not what holds.
const reasonSavedRole = "ROLE_NOT_AS_CONFIGURED"

// status composes the answer of Status.
func (a *app) status() *storagev1.StatusResponse {
	st := a.role.State()
	out := &storagev1.StatusResponse{
		Cluster: a.cfg.BrokerClusterName, BrokerName: a.cfg.BrokerName, NodeId: a.cfg.BrokerID,
		Role: rpc.Role(st.Role), Open: st.Open, Reason: st.Reason, Remedy: st.Remedy,
		Watermarks: &storagev1.Watermarks{
			FirstOffset: a.log.FirstOffset(), WrittenOffset: a.log.End(), FlushedOffset: a.log.Flushed().Load(),
			ReadableOffset: a.log.Readable().Load(), DispatchedOffset: a.dispatch.Dispatched().Load(),
		},
		Epochs: rpc.Epochs(st.Lineage.Epochs), PromisedEpoch: st.Lineage.Promise.Epoch, Whole: st.Lineage.Whole(),
		FileSize: a.log.FileSize(), StartedAt: timestamppb.New(started), Version: a.env.Version,
	}
	if saved := st.Role.Master(); saved != roles[a.cfg.BrokerRole].Master() && (out.GetReason() == "" || out.GetReason() == role.ReasonSlave) {
		is, other := slave, "promote"
		if saved {
			is, other = a.cfg.HA.MasterRole, "demote"
		}
		out.Reason, out.Remedy = reasonSavedRole, fmt.Sprintf("the saved role holds, that of the last promote or demote: this node is a %s; `brokerRole: %s` counts for an empty folder only. If all is as it should be, set `brokerRole: %[1]s` to end this hint; else `tandemctl %[3]s NODE`", is, a.cfg.BrokerRole, other)
	}
	if st.Role.Master() {
		out.RequiredAcks = int32(a.cfg.HA.Required) //nolint:gosec // a handful of slaves
		out.InSyncSlaves = int32(a.master.InSync()) //nolint:gosec // as above
		out.Watermarks.AckedOffset = a.master.Acked(a.cfg.HA.Required).Load()
	} else {
		out.Upstream = a.upstream(st.Upstream)
	}
	for _, s := range a.master.Slaves() {
		if !st.Role.Master() && s.State == replication.LinkDisconnected {
			continue // it was this node's slave when that was a master; one behind a slave tells itself that it follows nobody
		}
		out.Slaves = append(out.Slaves, slaveStatus(s))
	}
	kept, err := commitlog.ListRollbacks(a.fs, a.cfg.StorePathRootDir)
	if err != nil {
		a.env.Logger.Warn("kept ranges cannot be listed", slog.Any("error", err))
	}
	out.Rollbacks = rpc.RollbacksOf(kept)
	out.Damage = knownDamage(a.damage.Known())
	out.TopicTable = topicTable(a.topics.State())
	if free, err := a.fs.FreeSpace(a.cfg.StorePathRootDir); err == nil {
		out.DiskFree = free
	}
	return out
}

func (a *app) upstream(u role.Upstream) *storagev1.UpstreamStatus {
	raw := a.slave.Status()
	out := &storagev1.UpstreamStatus{
		Address: u.Address, State: storagev1.LinkState(u.State), EndOffset: u.End, ReadableOffset: u.Readable,
		LagBytes: max(u.End-a.log.End(), 0), Reason: u.Reason, Remedy: u.Remedy, Connects: u.Connects,
		LastReceive: stamp(raw.LastReceive), ConnectedAt: stamp(raw.ConnectedAt),
	}
	if out.Reason == "" && raw.Reason != "" && !raw.Connected {
		out.Reason, out.Remedy = raw.Reason, cmp.Or(raw.Remedy, role.Remedy(raw.Reason))
	}
	return out
}

func slaveStatus(s replication.SlaveStatus) *storagev1.SlaveStatus {
	return &storagev1.SlaveStatus{
		NodeId: s.NodeID, Address: s.Address, State: storagev1.LinkState(s.State), AckedOffset: s.Acked, SentOffset: s.Sent,
		LagBytes: s.LagBytes, Lag: durationpb.New(s.Lag), LastReport: stamp(s.LastReport), ConnectedAt: stamp(s.Connected),
		InSync: s.InSync, Legacy: s.Legacy, Reason: s.Reason, Remedy: cmp.Or(s.Remedy, role.Remedy(s.Reason)),
	}
}

// topicTable is nil without a configsync.
func topicTable(st topics.State) *storagev1.TopicTableStatus {
	if st.Address == "" {
		return nil
	}
	return &storagev1.TopicTableStatus{
		Address: st.Address, Current: st.Current, Known: st.Known, Topics: int64(st.Topics), UpdatedAt: stamp(st.Updated),
		Reason: st.Reason, Remedy: st.Remedy,
	}
}

// knownDamage is nil when there is none.
func knownDamage(k damage.Known) *storagev1.KnownDamage {
	if k.Records+k.Units == 0 {
		return nil
	}
	out := &storagev1.KnownDamage{Records: k.Records, Units: k.Units}
	for _, p := range k.Places {
		out.Places = append(out.Places, &storagev1.DamagedPlace{FromOffset: p.From, ToOffset: p.To, Unit: p.Unit, FoundBy: p.By})
	}
	return out
}

// stamp is nil for the zero time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
