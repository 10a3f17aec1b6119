package rpc

import (
	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Epochs is the wire form of an epoch list.
func Epochs(l epoch.List) []*storagev1.Epoch {
	out := make([]*storagev1.Epoch, len(l))
	for i, e := range l {
		out[i] = &storagev1.Epoch{Epoch: e.Epoch, StartOffset: e.Start, Id: uint64(e.ID)}
	}
	return out
}

// epochsFromWire returns ErrBadList for a list that no storage can have.
func epochsFromWire(es []*storagev1.Epoch) (epoch.List, error) {
	l := make(epoch.List, len(es))
	for i, e := range es {
		l[i] = epoch.Entry{Epoch: e.GetEpoch(), Start: e.GetStartOffset(), ID: epoch.ID(e.GetId())}
	}
	return l, l.Check()
}

func heardToWire(h epoch.Heard) *storagev1.PromiseResponse {
	return &storagev1.PromiseResponse{
		NodeId: h.NodeID, Epochs: Epochs(h.Epochs), PromisedEpoch: h.Promise.Epoch, PromisedId: uint64(h.Promise.ID),
		EndOffset: h.End, FirstOffset: h.First, Whole: h.Whole, Promised: h.Promised, OpenMaster: h.OpenMaster,
		HaAddress: h.HAAddress, FileSize: h.FileSize, Empty: h.Empty,
	}
}

func heardFromWire(r *storagev1.PromiseResponse) (epoch.Heard, error) {
	l, err := epochsFromWire(r.GetEpochs())
	return epoch.Heard{
		NodeID: r.GetNodeId(), Epochs: l, Promise: epoch.Promise{Epoch: r.GetPromisedEpoch(), ID: epoch.ID(r.GetPromisedId())},
		End: r.GetEndOffset(), First: r.GetFirstOffset(), Whole: r.GetWhole(), Promised: r.GetPromised(),
		OpenMaster: r.GetOpenMaster(), HAAddress: r.GetHaAddress(), FileSize: r.GetFileSize(), Empty: r.GetEmpty(),
	}, err
}

func promiseToWire(p epoch.PromiseRequest) *storagev1.PromiseRequest {
	return &storagev1.PromiseRequest{
		Cluster: p.Cluster, BrokerName: p.BrokerName, NodeId: p.NodeID, Epoch: p.Reign.Epoch, Id: uint64(p.Reign.ID),
	}
}

func promiseFromWire(r *storagev1.PromiseRequest) epoch.PromiseRequest {
	return epoch.PromiseRequest{
		Cluster: r.GetCluster(), BrokerName: r.GetBrokerName(), NodeID: r.GetNodeId(),
		Reign: epoch.Promise{Epoch: r.GetEpoch(), ID: epoch.ID(r.GetId())},
	}
}

func followToWire(r epoch.FollowRequest) *storagev1.FollowRequest {
	return &storagev1.FollowRequest{
		Cluster: r.Cluster, BrokerName: r.BrokerName, NodeId: r.NodeID, Address: r.Address, Epochs: Epochs(r.Epochs),
		PromisedEpoch: r.Promise.Epoch, PromisedId: uint64(r.Promise.ID), EndOffset: r.End, FirstOffset: r.First,
		FileSize: r.FileSize, TailChecksum: r.TailChecksum, TailSize: r.TailSize, MaxFrameSize: r.MaxFrame,
		Flushes: r.Flushes, Downstream: r.Downstream, ComparedTo: r.ComparedTo,
	}
}

func followFromWire(r *storagev1.FollowRequest) (epoch.FollowRequest, error) {
	l, err := epochsFromWire(r.GetEpochs())
	return epoch.FollowRequest{
		Cluster: r.GetCluster(), BrokerName: r.GetBrokerName(), NodeID: r.GetNodeId(), Address: r.GetAddress(), Epochs: l,
		Promise: epoch.Promise{Epoch: r.GetPromisedEpoch(), ID: epoch.ID(r.GetPromisedId())},
		End:     r.GetEndOffset(), First: r.GetFirstOffset(), FileSize: r.GetFileSize(), TailChecksum: r.GetTailChecksum(),
		TailSize: r.GetTailSize(), MaxFrame: r.GetMaxFrameSize(), Flushes: r.GetFlushes(),
		Downstream: r.GetDownstream(), ComparedTo: r.GetComparedTo(),
	}, err
}

func answerToWire(a epoch.FollowAnswer) *storagev1.FollowResponse {
	return &storagev1.FollowResponse{
		Action: storagev1.FollowAction(a.Action), Offset: a.Offset, Reason: a.Reason, Remedy: a.Remedy,
		Epochs: Epochs(a.Epochs), FileSize: a.FileSize, FrameSize: a.FrameSize, Token: a.Token[:], HaAddress: a.HAAddress,
		ReadableOffset: a.Readable, EndOffset: a.End, OpenMaster: a.OpenMaster, Upstream: a.Path, FirstOffset: a.First,
	}
}

func answerFromWire(r *storagev1.FollowResponse) (epoch.FollowAnswer, error) {
	l, err := epochsFromWire(r.GetEpochs())
	if err != nil {
		return epoch.FollowAnswer{}, err
	}
	a := epoch.FollowAnswer{
		Action: epoch.Action(r.GetAction()), Offset: r.GetOffset(), Reason: r.GetReason(), Remedy: r.GetRemedy(), //nolint:gosec // unknown numbers are refused by DecideAnswer
		Epochs: l, FileSize: r.GetFileSize(), FrameSize: r.GetFrameSize(), HAAddress: r.GetHaAddress(),
		Readable: r.GetReadableOffset(), End: r.GetEndOffset(), OpenMaster: r.GetOpenMaster(), Path: r.GetUpstream(), First: r.GetFirstOffset(),
	}
	if t := r.GetToken(); len(t) != 0 && len(t) != len(a.Token) {
		return a, errdefs.Invalid("token", "has %d bytes, want %d", len(t), len(a.Token))
	}
	copy(a.Token[:], r.GetToken())
	return a, nil
}
