package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// started is when this process began.
var started = time.Now()

var errNotReady = errdefs.New(errdefs.Unavailable, "NOT_READY", "this node neither leads nor follows a master")

// ready says whether the node does its work: it leads, or follows a master.
func (a *app) ready(context.Context) error {
	st := a.role.State()
	if st.Open || st.MasterAddress != "" {
		return nil
	}
	return errNotReady.With("reason", st.Reason).WithRemedy("%s", st.Remedy)
}

// status composes the answer of Status.
func (a *app) status() *configsyncv1.StatusResponse {
	st := a.role.State()
	out := &configsyncv1.StatusResponse{
		Cluster: a.cfg.BrokerClusterName, BrokerName: a.cfg.BrokerName, NodeId: a.cfg.BrokerID,
		Master: st.Master, Open: st.Open, Reason: st.Reason, Remedy: st.Remedy, Epoch: st.Epoch,
		MasterAddress: st.MasterAddress, Address: a.cfg.Advertise, UnsavedCommits: int64(a.registry.Unsaved()),
		Watchers: a.sync.Watchers(), PeersUnheard: st.Unheard, StorageAddress: a.cfg.Storage.Address,
		StartedAt: timestamppb.New(started), Version: a.env.Version,
	}
	if st.StorageErr != nil {
		out.StorageError = st.StorageErr.Error()
	}
	for _, k := range entry.Kinds() {
		out.Kinds = append(out.Kinds, a.kindStatus(k, st.Open))
	}
	return out
}

func (a *app) kindStatus(k entry.Kind, leads bool) *configsyncv1.KindStatus {
	sync, disk := a.masters.State(k), a.registry.State(k)
	out := &configsyncv1.KindStatus{
		Kind: wire.Kind(k), Version: wire.TableVersion(a.registry.Snapshot(k)),
		LastSuccess: stamp(sync.LastSuccess), LastFailure: stamp(sync.LastFailure), Refused: sync.Refused, Rounds: sync.Rounds,
		SavedAt: stamp(disk.LastSave),
	}
	err := sync.LastError
	switch {
	case disk.Whole != nil:
		out.State, err = configsyncv1.SyncState_SYNC_STATE_BROKEN, disk.Whole
	case leads:
		out.State, err = configsyncv1.SyncState_SYNC_STATE_LEADING, nil
	case sync.LastError != nil:
		out.State = configsyncv1.SyncState_SYNC_STATE_FAILED
	case sync.InSync:
		out.State = configsyncv1.SyncState_SYNC_STATE_IN_SYNC
	default:
		out.State = configsyncv1.SyncState_SYNC_STATE_SYNCING
	}
	if disk.SaveError != nil && err == nil {
		err = disk.SaveError
	}
	if err != nil {
		out.LastError = err.Error()
		if e := errdefs.As(err); e != nil {
			out.Remedy = e.Remedy
		}
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
