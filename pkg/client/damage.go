package client

import (
	"context"
	"errors"
	"io"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// What Scrub and Repair tell.
type (
	// Damage is one thing that is wrong with a node's log or queues.
	Damage = storagev1.Damage
	// ScrubProgress says how far a scrub is.
	ScrubProgress = storagev1.ScrubProgress
	// ScrubSummary is the end of a scrub.
	ScrubSummary = storagev1.ScrubSummary
	// RepairedRange says what was done with one range.
	RepairedRange = storagev1.RepairedRange
	// RepairSummary is the end of a repair.
	RepairSummary = storagev1.RepairSummary
)

// ScrubRequest says what to check; zero values: all of the log, at 64 MiB a second.
type ScrubRequest struct {
	From, To       int64 // offsets; From is lowered to the start of its file
	BytesPerSecond int64
	Found          func(*Damage) error  // an error ends the scrub
	Progress       func(*ScrubProgress) // may be nil
}

// Scrub checks the node's log and queues while they are in use. It takes as long as the log is; end it with ctx.
func (a *Admin) Scrub(ctx context.Context, r ScrubRequest) (*ScrubSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.n.Admin.Scrub(ctx, &storagev1.ScrubRequest{FromOffset: r.From, ToOffset: r.To, BytesPerSecond: r.BytesPerSecond})
	for err == nil {
		var resp *storagev1.ScrubResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		if s := resp.GetSummary(); s != nil {
			return s, nil
		}
		if d := resp.GetDamage(); d != nil {
			if fErr := r.Found(d); fErr != nil {
				return nil, fErr
			}
		}
		if p := resp.GetProgress(); p != nil && r.Progress != nil {
			r.Progress(p)
		}
	}
	return nil, a.broken(err)
}

// RepairRequest says what to replace, and by whose bytes; without a range everything that a scrub finds.
type RepairRequest struct {
	Source         string // gRPC address of the node whose bytes are taken
	From, To       int64  // offsets, widened to whole records
	DryRun         bool   // fetch and judge only
	BytesPerSecond int64  // of the scrub
	Found          func(*Damage) error
	Progress       func(*ScrubProgress) // of the scrub; may be nil
	Done           func(*RepairedRange) error
}

// Repair replaces what is damaged in the node's log by another node's bytes and mends its queues.
func (a *Admin) Repair(ctx context.Context, r RepairRequest) (*RepairSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.n.Admin.Repair(ctx, &storagev1.RepairRequest{
		Source: r.Source, FromOffset: r.From, ToOffset: r.To, DryRun: r.DryRun, BytesPerSecond: r.BytesPerSecond,
	})
	for err == nil {
		var resp *storagev1.RepairResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		var fErr error
		switch n := resp.GetNews().(type) {
		case *storagev1.RepairResponse_Summary:
			return n.Summary, nil
		case *storagev1.RepairResponse_Damage:
			fErr = r.Found(n.Damage)
		case *storagev1.RepairResponse_Range:
			fErr = r.Done(n.Range)
		case *storagev1.RepairResponse_Progress:
			if r.Progress != nil {
				r.Progress(n.Progress)
			}
		}
		if fErr != nil {
			return nil, fErr
		}
	}
	return nil, a.broken(err)
}

// broken is the error of a stream that ended without a summary.
func (a *Admin) broken(err error) error {
	if errors.Is(err, io.EOF) {
		return errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the storage ended the stream").With("address", a.n.Addr)
	}
	return nodes.Explain(err, a.n.Addr)
}
