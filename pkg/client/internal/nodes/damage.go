package nodes

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Scrub calls f with everything that the node tells, the summary last. An error of f ends the call.
func (n *Node) Scrub(ctx context.Context, req *storagev1.ScrubRequest, f func(*storagev1.ScrubResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.Admin.Scrub(ctx, req)
	return each(n.Addr, stream, err, f, func(r *storagev1.ScrubResponse) bool { return r.GetSummary() != nil })
}

// Repair is Scrub for a repair.
func (n *Node) Repair(ctx context.Context, req *storagev1.RepairRequest, f func(*storagev1.RepairResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.Admin.Repair(ctx, req)
	return each(n.Addr, stream, err, f, func(r *storagev1.RepairResponse) bool { return r.GetSummary() != nil })
}

func each[R any](addr string, stream grpc.ServerStreamingClient[R], err error, f func(*R) error, last func(*R) bool) error {
	for err == nil {
		var resp *R
		if resp, err = stream.Recv(); err != nil {
			break
		}
		if fErr := f(resp); fErr != nil || last(resp) {
			return fErr
		}
	}
	if errors.Is(err, io.EOF) {
		return errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the storage ended the stream").With("address", addr)
	}
	return Explain(err, addr)
}
