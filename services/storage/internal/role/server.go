package role

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/feed"
	"github.com/tandemlog/tandem/services/storage/internal/role/slave"
)

// ErrWrongCluster says that the caller is not of this node's set.
var ErrWrongCluster = errdefs.New(errdefs.FailedPrecondition, epoch.ReasonWrongCluster, "the caller belongs to another cluster or broker").
	WithRemedy("check cluster, brokerName and ha.peers")

// ErrTooFar says that no promotion can have led to the epoch that a caller wants promised. Metadata: epoch, known.
var ErrTooFar = errdefs.New(errdefs.OutOfRange, epoch.ReasonEpochTooFar, "the epoch lies too far above every one that this node and its peers know of").
	WithRemedy("find out who asks: a node of this group asks for one more than it has heard of. Then promote the node that is to be master")

// OnPromise answers a peer: with a reign, after the promise is on the disk, all links are closed and, on a master, after it has
// become a slave and its waiting puts have ended. An error means that nothing was promised, or that the disk may know more.
func (m *Manager) OnPromise(ctx context.Context, r epoch.PromiseRequest) (h epoch.Heard, err error) {
	if r.Cluster != m.o.Cluster || r.BrokerName != m.o.BrokerName {
		return h, ErrWrongCluster.With("cluster", m.o.Cluster).With("broker_name", m.o.BrokerName)
	}
	if r.NodeID == m.o.NodeID {
		return h, errdefs.Invalid("node_id", "%d is this node's too", r.NodeID)
	}
	h, err = m.promised(ctx, r.Reign, nil)
	if errors.Is(err, ErrTooFar) && m.set.N() > 1 {
		set := m.set
		set.Timeout /= 3 // of what the caller gives this node to answer
		h, err = m.promised(ctx, r.Reign, set.Hear(ctx, epoch.Promise{}).Heard)
	}
	return h, err
}

// promised promises p, if that is right by what the node and heard know.
func (m *Manager) promised(ctx context.Context, p epoch.Promise, heard []epoch.Heard) (h epoch.Heard, err error) {
	err = m.do(ctx, func() error {
		d := epoch.DecidePromise(m.lin, p, heard)
		if d.TooFar {
			return ErrTooFar.With("epoch", p.Epoch).With("known", epoch.Top(m.lin, heard))
		}
		if err := m.promise(d); err != nil {
			return err
		}
		h = m.tell()
		h.Promised = d.Promised
		return nil
	})
	return h, err
}

// promise carries out d: saved first, then everything ends that is older. It runs as an op.
func (m *Manager) promise(d epoch.PromiseDecision) error {
	switch {
	case d.StepDown:
		if err := m.stepDown(d.Next, ErrSteppedDown); err != nil {
			return err
		}
	case d.Changed:
		if err := m.save(d.Next); err != nil {
			return err
		}
	}
	if d.DropLinks {
		m.dropFollowers(ErrPromised)
	}
	if d.StepDown || d.DropLinks {
		m.stopWork(ErrPromised)
	}
	return nil
}

// tell returns what this node says of itself.
func (m *Manager) tell() epoch.Heard {
	return epoch.Heard{
		NodeID: m.o.NodeID, Epochs: m.lin.Epochs, Promise: m.lin.Promise, End: m.log.End(), First: m.log.FirstOffset(),
		Whole: m.lin.Whole(), OpenMaster: m.open, HAAddress: m.o.HAAddress, FileSize: m.log.FileSize(), Empty: m.lin.Empty,
	}
}

// OnRangeChecksum returns the CRC-32C of each stretch of [from, to), at most 65,536 of them, and how far they go.
func (m *Manager) OnRangeChecksum(ctx context.Context, from, to, stretch int64) ([]uint32, int64, error) {
	return m.sums.Range(ctx, from, to, stretch)
}

// follower is a slave with a link.
type follower struct {
	id         int64
	address    string
	downstream []int64
	outside    bool               // none of the set
	gone       <-chan struct{}    // closed with the raw connection
	revoke     func(reason error) // ends the control stream
}

// downstream returns the node ids below this node, itself included.
func (m *Manager) downstream() []int64 {
	ids := []int64{m.o.NodeID}
	for _, f := range m.followers {
		ids = append(ids, f.downstream...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// OnFollow answers a slave and keeps its control stream until the link ends. send is called from this goroutine only.
func (m *Manager) OnFollow(ctx context.Context, r epoch.FollowRequest, send func(epoch.FollowAnswer) error) error {
	tail, err := m.sums.Tail(ctx, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &follower{id: r.NodeID, address: r.Address, downstream: r.Downstream, revoke: cancel, outside: !m.set.Has(ctx, r.Address, r.NodeID)}
	var a epoch.FollowAnswer
	if err := m.do(ctx, func() (err error) { a, err = m.admit(r, tail, f); return err }); err != nil {
		return err
	}
	m.metrics.answered(a)
	if f.gone == nil {
		return send(a)
	}
	defer m.release(ctx, f)
	if err := send(a); err != nil {
		return err
	}
	var wg sync.WaitGroup
	joined := m.set.Joins(ctx, !f.outside, r.Address, r.NodeID, m.o.WatchEvery)
	wg.Go(func() {
		select {
		case <-f.gone:
			cancel(slave.ErrLinkEnded)
		case <-joined:
			cancel(ErrReplaced) // it asks again, and counts then
		case <-ctx.Done():
		}
	})
	err = feed.Tell(ctx, m.log, a, send)
	cancel(nil)
	wg.Wait()
	return err
}

// admit decides on r and, where it may stream, grants the link. It runs as an op.
func (m *Manager) admit(r epoch.FollowRequest, tail epoch.Tail, f *follower) (epoch.FollowAnswer, error) {
	path := m.path
	if len(path) == 0 {
		path = []int64{m.o.NodeID}
	}
	a, down := epoch.DecideFollow(epoch.Upstream{
		Cluster: m.o.Cluster, BrokerName: m.o.BrokerName, NodeID: m.o.NodeID, Lineage: m.lin, Open: m.open,
		End: m.log.End(), First: m.log.FirstOffset(), FileSize: m.log.FileSize(), MaxFrame: m.o.MaxFrame, Path: path, Tail: tail,
	}, r)
	if down {
		if err := m.stepDown(epoch.SteppedDown(m.lin), ErrSteppedDown); err != nil {
			return a, err
		}
		m.stopWork(ErrSteppedDown)
	}
	a.HAAddress, a.Readable = m.o.HAAddress, m.log.Readable().Load()
	switch a.Action {
	case epoch.ActionStream, epoch.ActionTruncate, epoch.ActionReset:
	default:
		return a, nil
	}
	if old := m.followers[r.NodeID]; old != nil {
		if old.address != r.Address {
			return epoch.FollowAnswer{
				Action: epoch.ActionRefuse, Reason: epoch.ReasonSameNode,
				Remedy: "another node with this brokerId follows already from " + old.address + ": give each node its own, or wait until that link has ended",
			}, nil
		}
		old.revoke(ErrReplaced)
		delete(m.followers, r.NodeID)
		m.links.Revoke(r.NodeID, ErrReplaced)
	}
	token, gone, err := m.links.Grant(Grant{
		NodeID: r.NodeID, Address: r.Address, Start: a.Offset, Frame: int(a.FrameSize), Flushes: r.Flushes, Outside: f.outside,
	})
	if err != nil {
		return epoch.FollowAnswer{Action: epoch.ActionRefuse, Reason: slave.Reason(err), Remedy: slave.Remedy(err)}, nil
	}
	if f.outside {
		m.slog.Warn("a slave that is not among ha.peers follows: no put is confirmed by it", "node", r.NodeID, "address", r.Address)
	}
	a.Token, f.gone = token, gone
	m.followers[r.NodeID] = f
	return a, nil
}

// release forgets f and its link, unless another has taken its place.
func (m *Manager) release(ctx context.Context, f *follower) {
	_ = m.do(context.WithoutCancel(ctx), func() error {
		if m.followers[f.id] == f {
			delete(m.followers, f.id)
			m.links.Revoke(f.id, slave.ErrLinkEnded)
		}
		return nil
	})
}
