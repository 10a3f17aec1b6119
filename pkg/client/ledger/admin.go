package ledger

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/group"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/client/internal/watchdog"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Admin looks after one node. All methods may be called concurrently.
type Admin struct {
	c *Client
	n *group.Node
}

// Admin returns the admin of the node at address, which need not be one of the client's own; "" is the first of these.
func (c *Client) Admin(address string) (*Admin, error) {
	if address == "" {
		address = c.nodes.Addresses()[0]
	}
	if err := nodes.CheckAddress(address); err != nil {
		return nil, err
	}
	n, err := c.nodes.Get(address)
	if err != nil {
		return nil, err
	}
	return &Admin{c: c, n: n}, nil
}

// Address returns the node's address.
func (a *Admin) Address() string { return a.n.Addr }

// Status returns the group as the node sees it.
func (a *Admin) Status(ctx context.Context) (*NodeStatus, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	st, err := a.n.Admin.Status(ctx, &ledgerv1.StatusRequest{})
	return st, nodes.Explain(err, a.n.Addr)
}

// WatchStatus calls f with the status now and then every interval (100 ms to 1 h; 0: 1 s), until f returns an error, ctx ends
// or the stream breaks.
func (a *Admin) WatchStatus(ctx context.Context, interval time.Duration, f func(*NodeStatus) error) error {
	ctx, dog := watchdog.New(ctx, max(interval, time.Second)+a.c.o.Timeout, ErrStalled)
	defer dog.End()
	req := &ledgerv1.WatchStatusRequest{}
	if interval > 0 {
		req.Interval = durationpb.New(interval)
	}
	stream, err := a.n.Admin.WatchStatus(ctx, req)
	for err == nil {
		dog.Start()
		var resp *ledgerv1.WatchStatusResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		dog.Rest()
		if fErr := f(resp.GetStatus()); fErr != nil {
			return fErr
		}
	}
	if errors.Is(err, io.EOF) {
		return errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the node ended the stream").With("address", a.n.Addr)
	}
	return nodes.Explain(dog.Cause(err), a.n.Addr)
}

// Bootstrap makes the node and the members that it is configured with a new group. All of them must answer and hold nothing.
func (a *Admin) Bootstrap(ctx context.Context, members []string) ([]string, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	resp, err := a.n.Admin.Bootstrap(ctx, &ledgerv1.BootstrapRequest{Members: members})
	return resp.GetMembers(), nodes.Explain(err, a.n.Addr)
}

// Transferred says to whom leadership was handed over.
type Transferred = ledgerv1.TransferLeadershipResponse

// Transfer hands leadership over to the member with the id target; empty: to the follower that has most of the log. It returns
// when the old leader does not lead any more; with Term 0 where the target leads already, and nothing was changed. The order goes to the leader, wherever that is; it is not repeated once it has
// left.
func (c *Client) Transfer(ctx context.Context, target string) (*Transferred, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	n, err := c.nodes.FindLeader(ctx)
	if err != nil {
		return nil, err
	}
	for hop := 0; ; hop++ {
		resp, err := n.Election.TransferLeadership(ctx, &ledgerv1.TransferLeadershipRequest{Target: target})
		if err == nil {
			return resp, nil
		}
		err = nodes.Explain(err, n.Addr)
		addr := group.Named(err)
		if addr == "" || addr == n.Addr || hop >= group.MaxHops {
			return nil, err
		}
		if n, err = c.nodes.Get(addr); err != nil {
			return nil, err
		}
	}
}
