package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

// Errors of what operators order.
var (
	errGroupExists = errdefs.New(errdefs.FailedPrecondition, "GROUP_EXISTS", "a member has taken part in a group already; nothing was changed").
			WithRemedy("a node that lost its disk needs no bootstrap: start it, it catches up from the others")
	errWrongMember = errdefs.New(errdefs.FailedPrecondition, "WRONG_MEMBER", "another node answers at the address of a member; nothing was changed").
			WithRemedy("compare selfId and group there with `peers` here")
	errNoTarget = errdefs.New(errdefs.FailedPrecondition, "NO_TARGET", "no other member could take over now")
)

// Transfer implements rpc.Operator.
func (a *app) Transfer(ctx context.Context, to raft.NodeID) (raft.NodeID, raft.Term, error) {
	n := a.member.node()
	s := n.Soft()
	if to == raft.NodeID(a.cfg.SelfID) && s.Role == consensus.Leader {
		if s.Transferee != "" {
			return "", 0, node.ErrTransferring
		}
		return to, 0, nil // as was wanted; no term ends
	}
	if to == "" && s.Role == consensus.Leader {
		status, err := n.Status(ctx)
		if err != nil {
			return "", 0, err
		}
		if to = a.best(status.Peers); to == "" {
			return "", 0, errNoTarget
		}
	}
	return to, s.Term, n.Transfer(ctx, to)
}

// best is the follower that has most of the log, of those that are there; empty when none could take over.
func (a *app) best(peers []consensus.PeerStatus) raft.NodeID {
	var id raft.NodeID
	most := raft.NoIndex - 1
	for _, p := range peers {
		answers := a.transport.Status(p.ID).Connected && time.Duration(p.Silent)*time.Millisecond < a.cfg.MinElectionTimeout
		if answers && !p.Learner && p.State == push.Appending && p.Match > most {
			id, most = p.ID, p.Match
		}
	}
	return id
}

// handOver gives leadership away before the node stops, so that nobody has to wait for an election.
func (a *app) handOver(ctx context.Context) error {
	<-ctx.Done()
	if a.member.Soft().Role != consensus.Leader || len(a.cfg.members) == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*a.cfg.LeadershipTransferWaitTimeout)
	defer cancel()
	to, term, err := a.Transfer(ctx, "")
	if errors.Is(err, errNoTarget) {
		a.env.Logger.Info("nobody is there to take leadership over")
		return nil
	}
	if err != nil {
		a.env.Logger.Warn("leadership was not handed over, the others will elect", slog.Any("error", err))
		return nil
	}
	a.env.Logger.Info("leadership handed over", slog.String("to", string(to)), slog.Int64("term", int64(term)))
	return nil
}

// Bootstrap implements rpc.Operator.
func (a *app) Bootstrap(ctx context.Context, all bool) ([]raft.NodeID, error) {
	self := raft.NodeID(a.cfg.SelfID)
	if !all {
		return []raft.NodeID{self}, a.member.Bootstrap(ctx)
	}
	if err := a.allEmpty(ctx); err != nil {
		return nil, err
	}
	var ids []string
	for _, id := range a.cfg.ids() {
		ids = append(ids, string(id))
	}
	made, err := a.everyOther(ctx, func(ctx context.Context, _ raft.NodeID, client ledgerv1.LedgerAdminServiceClient) error {
		_, err := client.Bootstrap(ctx, &ledgerv1.BootstrapRequest{Members: ids, NodeOnly: true})
		return err
	})
	if err == nil || len(made) > 0 {
		if own := a.member.Bootstrap(ctx); own == nil {
			made = append(made, self)
		} else if !isNotEmpty(own) {
			err = errors.Join(err, own)
		}
	}
	if err == nil {
		a.env.Logger.Info("a new group was begun", slog.Any("members", made))
	}
	return made, err
}

// isNotEmpty: the first members of a new group were faster. This one catches up, as one does that was added empty.
func isNotEmpty(err error) bool { return errdefs.ReasonOf(err) == entrylog.ErrNotEmpty.Reason }

// allEmpty asks all members whether they are who they should be and hold anything.
func (a *app) allEmpty(ctx context.Context) error {
	if s := a.member.Soft(); s.Term != 0 || a.log.Last() != raft.NoIndex {
		return errGroupExists.With("member", a.cfg.SelfID).With("term", s.Term).With("last", a.log.Last())
	}
	_, err := a.everyOther(ctx, func(ctx context.Context, id raft.NodeID, client ledgerv1.LedgerAdminServiceClient) error {
		st, err := client.Status(ctx, &ledgerv1.StatusRequest{})
		if err == nil && (st.GetId() != string(id) || st.GetGroup() != a.cfg.Group) {
			return errWrongMember.With("got", st.GetId()).With("got_group", st.GetGroup())
		}
		if err == nil && (st.GetTerm() != 0 || st.GetLastIndex() != int64(raft.NoIndex)) {
			err = errGroupExists.With("member", st.GetId()).With("term", st.GetTerm()).With("last", st.GetLastIndex())
		}
		return err
	})
	return err
}

// everyOther calls do for each other member at the same time and returns those for which it succeeded.
func (a *app) everyOther(ctx context.Context, do func(context.Context, raft.NodeID, ledgerv1.LedgerAdminServiceClient) error) ([]raft.NodeID, error) {
	var mu sync.Mutex
	var done []raft.NodeID
	failed := map[raft.NodeID]error{}
	var wg sync.WaitGroup
	for id, addr := range a.cfg.members {
		if id == raft.NodeID(a.cfg.SelfID) {
			continue
		}
		wg.Go(func() {
			err := a.dial(addr, func(conn *grpc.ClientConn) error { return do(ctx, id, ledgerv1.NewLedgerAdminServiceClient(conn)) })
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done = append(done, id)
			case !isNotEmpty(err):
				failed[id] = ofMember(id, addr, err)
			}
		})
	}
	wg.Wait()
	if len(failed) == 0 {
		return done, nil
	}
	return done, failed[slices.Min(slices.Collect(maps.Keys(failed)))]
}

// ofMember names the member whose error it is, in a way that reaches the caller of a call.
func ofMember(id raft.NodeID, addr string, err error) error {
	e := errdefs.As(grpcx.FromStatus(err))
	if e == nil {
		return fmt.Errorf("member %s at %s: %w", id, addr, err)
	}
	return e.WithMsg("member %s at %s: %s", id, addr, e.Msg).With("member", id).With("member_address", addr)
}

// dial lends a connection.
func (a *app) dial(addr string, use func(*grpc.ClientConn) error) error {
	conn, err := a.dialer.Dial(addr)
	if err != nil {
		return err
	}
	return errors.Join(use(conn), conn.Close())
}

// seatOf says why this node takes no appends or has no vote, and what to do about it.
func (a *app) seatOf(s *node.Status) (reason, remedy string) {
	switch {
	case a.log.Err() != nil:
		return a.log.Err().Error(), "look at the disk, then restart: what is on it is recovered"
	case s.DiskFull != nil, s.NoSpace != nil:
		return "the disk is full", "make room: the node goes on by itself"
	case !s.Voter && s.Term == 0 && s.Leader == "":
		return "the node is empty and belongs to no group that has a leader", "for a new group: tandemctl ledger bootstrap; else it joins by itself as soon as it reaches the leader"
	case !s.Voter && a.recovery.NoVote != "":
		return "the node has no vote until it has caught up: " + a.recovery.NoVote, "wait until it has; all members must be up"
	case !s.Voter:
		return "the node has no vote until it has caught up", "wait until it has; all members must be up"
	case s.Leader == "":
		return "no leader is known", "an election takes a moment; a majority of the members must be up and reach each other"
	}
	return "", ""
}
