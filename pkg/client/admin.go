package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/client/internal/watchdog"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Admin looks after one node. All methods may be called concurrently.
type Admin struct {
	c *Client
	n *nodes.Node
}

// Checksums are the CRC-32C of consecutive stretches of a log.
type Checksums = storagev1.ChecksumResponse

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

// Status returns what the node tells about itself.
func (a *Admin) Status(ctx context.Context) (*NodeStatus, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	st, err := a.n.Admin.Status(ctx, &storagev1.StatusRequest{})
	return st, nodes.Explain(err, a.n.Addr)
}

// WatchStatus calls f with the status now and then every interval (100 ms to 1 h; 0: 1 s), until f returns an error, ctx ends
// or the stream breaks.
func (a *Admin) WatchStatus(ctx context.Context, interval time.Duration, f func(*NodeStatus) error) error {
	ctx, dog := watchdog.New(ctx, max(interval, time.Second)+a.c.o.Timeout, ErrStalled)
	defer dog.End()
	req := &storagev1.WatchStatusRequest{}
	if interval > 0 {
		req.Interval = durationpb.New(interval)
	}
	stream, err := a.n.Admin.WatchStatus(ctx, req)
	for err == nil {
		dog.Start()
		var resp *storagev1.WatchStatusResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		dog.Rest()
		if fErr := f(resp.GetStatus()); fErr != nil {
			return fErr
		}
	}
	if errors.Is(err, io.EOF) {
		return errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the storage ended the stream").With("address", a.n.Addr)
	}
	return nodes.Explain(dog.Cause(err), a.n.Addr)
}

// Checksum sums [from, to) of the node's log in stretches of that size (4 KiB to 64 MiB; 0: 1 MiB); to 0 is the log's end. The
// answer may end before to.
func (a *Admin) Checksum(ctx context.Context, from, to, stretch int64) (*Checksums, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	resp, err := a.n.Admin.Checksum(ctx, &storagev1.ChecksumRequest{FromOffset: from, ToOffset: to, StretchSize: stretch})
	return resp, nodes.Explain(err, a.n.Addr)
}

// Range writes the raw bytes [from, to) of the node's log to w and returns how many; to 0 is the log's end at the call.
func (a *Admin) Range(ctx context.Context, from, to int64, w io.Writer) (written int64, err error) {
	ctx, dog := watchdog.New(ctx, a.c.o.Timeout, ErrStalled)
	defer dog.End()
	stream, err := a.n.Admin.Range(ctx, &storagev1.RangeRequest{FromOffset: from, ToOffset: to})
	for err == nil {
		dog.Start()
		var resp *storagev1.RangeResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		dog.Rest()
		if resp.GetOffset() != from+written {
			return written, errdefs.New(errdefs.DataLoss, "RANGE_OUT_OF_STEP", "the storage sent another part of the log than the next one").
				With("want", from+written).With("got", resp.GetOffset()).With("address", a.n.Addr)
		}
		n, wErr := w.Write(resp.GetData())
		written += int64(n)
		if wErr != nil {
			return written, wErr
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return written, nodes.Explain(dog.Cause(err), a.n.Addr)
	case to > 0 && written < to-from:
		return written, errdefs.New(errdefs.Unavailable, "RANGE_SHORT", "the storage ended the range early").
			With("offset", from+written).With("to", to).With("address", a.n.Addr)
	}
	return written, nil
}

// FlushNow flushes log and queues of the node and returns the flushed offset.
func (a *Admin) FlushNow(ctx context.Context) (int64, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	resp, err := a.n.Admin.FlushNow(ctx, &storagev1.FlushNowRequest{})
	return resp.GetFlushedOffset(), nodes.Explain(err, a.n.Addr)
}

// ListQueues lists the node's queues of a topic, or all for "".
func (a *Admin) ListQueues(ctx context.Context, topic string) ([]*Queue, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	qs, err := a.n.Queues(ctx, topic)
	return qs, nodes.Explain(err, a.n.Addr)
}

// Scrub checks the node's log and queues while they are in use and calls f with everything that the node tells, the summary last.
func (a *Admin) Scrub(ctx context.Context, req *storagev1.ScrubRequest, f func(*storagev1.ScrubResponse) error) error {
	return a.n.Scrub(ctx, req, f)
}

// Repair replaces what is damaged by another node's bytes; f as in Scrub.
func (a *Admin) Repair(ctx context.Context, req *storagev1.RepairRequest, f func(*storagev1.RepairResponse) error) error {
	return a.n.Repair(ctx, req, f)
}
