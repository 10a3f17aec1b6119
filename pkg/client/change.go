package client

import (
	"context"
	"errors"
	"io"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/client/internal/watchdog"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Types of a change of the master.
type (
	// Promoted says what came of a Promote.
	Promoted = storagev1.PromoteResponse
	// Demoted says what came of a Demote.
	Demoted = storagev1.DemoteResponse
	// Rollback is a range that was cut from a node's log and kept.
	Rollback = storagev1.Rollback
	// RollbackGap is a stretch of one without a whole record.
	RollbackGap = storagev1.RollbackGap
)

// FindMaster returns the address of the open master among the client's addresses and the upstreams of the slaves there.
func (c *Client) FindMaster(ctx context.Context) (string, error) {
	n, err := c.nodes.OpenMaster(ctx)
	if err != nil {
		return "", err
	}
	return n.Addr, nil
}

// Promote makes the node the open master; give ctx half a minute. An error of reason NOT_PROMOTED or BEHIND_MASTER means that
// nothing has changed, PROMOTION_HALF_WAY that puts are refused and the node goes on by itself. With force, what only other
// nodes have can be lost; see PromoteRequest.
func (a *Admin) Promote(ctx context.Context, force bool) (*Promoted, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	resp, err := a.n.Admin.Promote(ctx, &storagev1.PromoteRequest{Force: force})
	return resp, nodes.Explain(err, a.n.Addr)
}

// Demote makes the node a slave. Nobody is master then until a node is promoted.
func (a *Admin) Demote(ctx context.Context) (*Demoted, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	resp, err := a.n.Admin.Demote(ctx, &storagev1.DemoteRequest{})
	return resp, nodes.Explain(err, a.n.Addr)
}

// Rollbacks lists the ranges that were cut from the node's log and kept, by name.
func (a *Admin) Rollbacks(ctx context.Context) ([]*Rollback, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	resp, err := a.n.Admin.ListRollbacks(ctx, &storagev1.ListRollbacksRequest{})
	return resp.GetRollbacks(), nodes.Explain(err, a.n.Addr)
}

// ReadRollback calls message with each message of a kept range, in the order of the log, and gap, between them, with what is no
// whole record, until one of them returns an error.
func (a *Admin) ReadRollback(ctx context.Context, name string, message func(*StoredMessage) error, gap func(*RollbackGap) error) error {
	return a.readRollback(ctx, &storagev1.ReadRollbackRequest{Name: name}, func(resp *storagev1.ReadRollbackResponse) error {
		gaps := resp.GetGaps()
		for _, m := range resp.GetMessages() {
			for len(gaps) > 0 && gaps[0].GetFromOffset() < m.GetOffset() {
				if err := gap(gaps[0]); err != nil {
					return err
				}
				gaps = gaps[1:]
			}
			if err := message(m); err != nil {
				return err
			}
		}
		for _, g := range gaps {
			if err := gap(g); err != nil {
				return err
			}
		}
		return nil
	})
}

// CopyRollback writes the raw bytes of a kept range to w and returns how many.
func (a *Admin) CopyRollback(ctx context.Context, name string, w io.Writer) (written int64, err error) {
	next := int64(-1)
	err = a.readRollback(ctx, &storagev1.ReadRollbackRequest{Name: name, Raw: true}, func(resp *storagev1.ReadRollbackResponse) error {
		if next >= 0 && resp.GetOffset() != next {
			return errdefs.New(errdefs.DataLoss, "ROLLBACK_INCOMPLETE", "bytes are missing in the middle of the kept range").
				With("want", next).With("got", resp.GetOffset()).With("address", a.n.Addr)
		}
		n, err := w.Write(resp.GetData())
		written, next = written+int64(n), resp.GetOffset()+int64(n)
		return err
	})
	return written, err
}

func (a *Admin) readRollback(ctx context.Context, req *storagev1.ReadRollbackRequest, f func(*storagev1.ReadRollbackResponse) error) error {
	ctx, dog := watchdog.New(ctx, a.c.o.Timeout, ErrStalled)
	defer dog.End()
	stream, err := a.n.Admin.ReadRollback(ctx, req)
	for err == nil {
		dog.Start()
		var resp *storagev1.ReadRollbackResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		dog.Rest()
		if fErr := f(resp); fErr != nil {
			return fErr
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return nodes.Explain(dog.Cause(err), a.n.Addr)
}
