package change

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/peers"
)

// HalfWay is the reason that a promoted node shows which has asked its peers and could not open yet.
const HalfWay = "PROMOTION_HALF_WAY"

// Errors of Promote.
var (
	// ErrNotPromoted: nothing has changed. Metadata: reason.
	ErrNotPromoted = errdefs.New(errdefs.FailedPrecondition, "NOT_PROMOTED", "this node was not promoted, nothing has changed")
	// ErrHalfWay: the node is a master that is not open yet and goes on trying by itself. Metadata: reason.
	ErrHalfWay = errdefs.New(errdefs.Unavailable, HalfWay, "the promotion has begun and this node is not open yet: puts are refused")
	// ErrOvertaken: another order or another master came in between.
	ErrOvertaken = errdefs.New(errdefs.Aborted, "PROMOTION_OVERTAKEN", "the promotion ended before this node could open").
			WithRemedy("look at the Status of all nodes before promoting again")
	// ErrBehind: the node is too far behind the open master to take over from it.
	ErrBehind = errdefs.New(errdefs.FailedPrecondition, "BEHIND_MASTER", "this node was not promoted: it is behind the open master").
			WithRemedy("promote it when Status shows it in sync, or force it and lose what only the master has")
)

// Order is a Promote from the moment at which the node is a master that is not open yet.
type Order struct {
	// Force: open with the own log and with whoever answers.
	Force bool
	done  chan error
}

// Settle ends the order: nil when the node has opened. It is called once.
func (o *Order) Settle(err error) { o.done <- err }

// Promoted is what came of a Promote.
type Promoted struct {
	Epoch, Start int64 // of the reign; Start in bytes
	Role         epoch.Role
	// AlreadyOpen: there was nothing to do. Planned: an open master has handed over.
	AlreadyOpen, Planned bool
}

// Owner owns lineage and role. An error of ctx means that nothing was done.
type Owner interface {
	// Reign returns the last reign of the list, and whether this node is its open master.
	Reign(ctx context.Context) (at Promoted, open bool, err error)
	// OpenState returns what a promotion is decided on, but for what the peers say.
	OpenState(ctx context.Context) (epoch.OpenState, error)
	// Claim makes the node a master that is not open, durably, unless something has changed since s.
	Claim(ctx context.Context, s epoch.OpenState, d epoch.OpenDecision, o *Order) error
	// Yield takes the force from an order that is waited for no longer; it returns why the node is not open, "" when it is.
	Yield(ctx context.Context, o *Order) (reason, remedy string, err error)
	// Written is the end of the log.
	Written() *watermark.Mark
}

// Options of a Promoter; all are set.
type Options struct {
	Set peers.Set
	// MasterAddress is what the node follows by its config, "" for the open master among its peers.
	MasterAddress string
	ChaseWait     time.Duration // to get close to the open master, and to follow its reign
	DrainWait     time.Duration // to have the rest of a log that is held
	PromoteWait   time.Duration // for the node to open
	Backoff       peers.Backoff
	Log           *slog.Logger
}

// Promoter carries out promotions, one at a time.
type Promoter struct {
	o     Options
	owner Owner
	busy  atomic.Bool
}

// New makes a Promoter.
func New(o Options, owner Owner) *Promoter { return &Promoter{o: o, owner: owner} }

// Promote makes this node the open master by the rule of epoch.DecideOpen; force is allowDataLoss for this call. After
// ErrHalfWay the node goes on as a starting master does, also after a restart, but no longer by force.
func (p *Promoter) Promote(ctx context.Context, force bool) (Promoted, error) {
	if !p.busy.CompareAndSwap(false, true) {
		return Promoted{}, ErrNotPromoted.With("reason", "PROMOTION_RUNNING").WithRemedy("wait until the promotion that runs has ended")
	}
	defer p.busy.Store(false)
	if at, open, err := p.owner.Reign(ctx); err != nil || open {
		at.AlreadyOpen = open
		return at, err
	}
	if p.o.Set.N() == 1 && p.o.MasterAddress != "" && !force {
		return Promoted{}, ErrNotPromoted.With("reason", "NO_PEERS").
			WithRemedy("set ha.peers, so that the master at %s can be told; or stop that one for good and force this", p.o.MasterAddress)
	}
	s, r, err := p.weigh(ctx, force)
	if err != nil {
		return Promoted{}, err
	}
	planned := false
	if addr := r.OpenMaster(); addr != "" && !s.Lineage.Role.Master() {
		release, err := p.takeOver(ctx, addr, r.OpenMasterEnd())
		switch {
		case err == nil:
			planned = true
			defer release()
			if s, r, err = p.weigh(ctx, force); err != nil {
				return Promoted{}, err
			}
		case !force:
			return Promoted{}, err
		default:
			p.o.Log.Warn("the open master does not hand over, forced", "master", addr, "error", err)
		}
	}
	if err := p.open(ctx, s, r); err != nil {
		return Promoted{}, err
	}
	at, _, err := p.owner.Reign(ctx)
	at.Planned = planned
	return at, err
}

// weigh hears the peers.
func (p *Promoter) weigh(ctx context.Context, force bool) (epoch.OpenState, peers.Round, error) {
	r := p.o.Set.Hear(ctx, epoch.Promise{})
	s, err := p.owner.OpenState(ctx)
	s.Promote, s.Force, s.Waited, s.Heard = true, force, true, r.Heard
	return s, r, err
}

// takeOver has the open master at addr hold its puts back and waits until this node has all of its log.
func (p *Promoter) takeOver(ctx context.Context, addr string, end int64) (release func(), err error) {
	if err := p.chase(ctx, end, p.o.ChaseWait); err != nil {
		return nil, err
	}
	end, release, err = p.drain(ctx, addr)
	if err != nil {
		return nil, refusal(addr, err)
	}
	if err := p.chase(ctx, end, p.o.DrainWait); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// drain asks the open master. A node that does not follow its reign yet, as after a change just now, gets a while to do so.
func (p *Promoter) drain(ctx context.Context, addr string) (end int64, release func(), err error) {
	self, pause := p.o.Set.Self, p.o.Backoff
	until := time.Now().Add(p.o.ChaseWait)
	for {
		s, err := p.owner.OpenState(ctx)
		if err != nil {
			return 0, nil, err
		}
		end, release, err = p.o.Set.Drain(ctx, addr, epoch.DrainRequest{
			Cluster: self.Cluster, BrokerName: self.BrokerName, NodeID: self.NodeID, Reign: s.Lineage.Epochs.Last(),
		})
		if e := errdefs.As(err); e == nil || e.Meta["reason"] != epoch.ReasonOtherReign || time.Now().After(until) || !pause.Wait(ctx) {
			return end, release, err
		}
	}
}

// refusal says why the open master did not drain.
func refusal(addr string, err error) error {
	out := ErrNotPromoted.With("master", addr)
	e := errdefs.As(err)
	switch {
	case e == nil:
		return out.With("reason", "MASTER_UNREACHABLE").Wrap(err).WithRemedy("look at the Status of the open master")
	case e.Meta["reason"] != "": // it says all there is to say
		return out.With("reason", e.Meta["reason"]).WithRemedy("%s", e.Remedy)
	}
	return out.With("reason", e.Reason).Wrap(err).WithRemedy("look at the Status of the open master")
}

// chase waits until the log reaches end.
func (p *Promoter) chase(ctx context.Context, end int64, most time.Duration) error {
	written := p.owner.Written()
	if err := written.WaitUntil(ctx, end, time.Now().Add(most)); err != nil {
		return ErrBehind.With("bytes", end-written.Load()).Wrap(err)
	}
	return nil
}

// open claims the role, if that was decided, and waits for the rest.
func (p *Promoter) open(ctx context.Context, s epoch.OpenState, r peers.Round) error {
	d := epoch.DecideOpen(s)
	if d.Action == epoch.OpenWait {
		return ErrNotPromoted.With("reason", d.Reason).WithRemedy("%s%s", d.Remedy, r.Absent())
	}
	o := &Order{Force: s.Force, done: make(chan error, 1)}
	if err := p.owner.Claim(ctx, s, d, o); err != nil {
		return err
	}
	most := p.o.PromoteWait
	if d, ok := ctx.Deadline(); ok { // leave time for the answer
		most = min(most, time.Until(d)*9/10)
	}
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case err := <-o.done:
		if err != nil {
			return ErrOvertaken.With("reason", errdefs.ReasonOf(err)).Wrap(err)
		}
		return nil
	case <-late.C:
	case <-ctx.Done():
	}
	reason, remedy, err := p.owner.Yield(context.WithoutCancel(ctx), o)
	if err != nil || reason == "" {
		return err
	}
	return ErrHalfWay.With("reason", reason).WithRemedy("%s", remedy)
}
