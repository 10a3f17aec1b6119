package rpc

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/repair"
)

// Care looks for damage and repairs it, one call at a time.
type Care interface {
	Scrub(ctx context.Context, s check.Scrub) (check.Scrubbed, error)
	Repair(ctx context.Context, r repair.Request) (repair.Summary, error)
}

// WithCare lets the service scrub and repair.
func (s *Admin) WithCare(c Care) *Admin {
	s.care = c
	return s
}

const (
	progressEvery = time.Second
	maxRate       = 1 << 40 // bytes a second
)

func checkRate(rate int64) error {
	if rate < 0 || rate > maxRate {
		return errdefs.Invalid("bytes_per_second", "%d is not within 0 and %d", rate, int64(maxRate))
	}
	return nil
}

// seldom returns a function that calls send at once and then about once a second.
func seldom(send func(*storagev1.ScrubProgress) error) func(offset, to int64) {
	var last time.Time
	return func(offset, to int64) {
		if now := time.Now(); now.Sub(last) >= progressEvery {
			last = now
			_ = send(&storagev1.ScrubProgress{Offset: offset, ToOffset: to}) // a stream that is gone ends the context too
		}
	}
}

// Scrub implements StorageAdminService.
func (s *Admin) Scrub(req *storagev1.ScrubRequest, stream grpc.ServerStreamingServer[storagev1.ScrubResponse]) error {
	if err := checkRate(req.GetBytesPerSecond()); err != nil {
		return err
	}
	out, err := s.care.Scrub(stream.Context(), check.Scrub{
		From: req.GetFromOffset(), To: req.GetToOffset(), Rate: req.GetBytesPerSecond(),
		Emit: func(f check.Finding) error {
			return stream.Send(&storagev1.ScrubResponse{News: &storagev1.ScrubResponse_Damage{Damage: damageToWire(f)}})
		},
		Progress: seldom(func(p *storagev1.ScrubProgress) error {
			return stream.Send(&storagev1.ScrubResponse{News: &storagev1.ScrubResponse_Progress{Progress: p}})
		}),
	})
	if err != nil {
		return err
	}
	return stream.Send(&storagev1.ScrubResponse{News: &storagev1.ScrubResponse_Summary{Summary: &storagev1.ScrubSummary{
		FromOffset: out.From, ToOffset: out.To, Records: out.Records, Units: out.Units, Damages: out.Damages, Took: durationpb.New(out.Took),
	}}})
}

// Repair implements StorageAdminService.
func (s *Admin) Repair(req *storagev1.RepairRequest, stream grpc.ServerStreamingServer[storagev1.RepairResponse]) error {
	if err := checkRepair(req); err != nil {
		return err
	}
	sum, err := s.care.Repair(stream.Context(), repair.Request{
		Source: req.GetSource(), From: req.GetFromOffset(), To: req.GetToOffset(), DryRun: req.GetDryRun(), Rate: req.GetBytesPerSecond(),
		Found: func(f check.Finding) error {
			return stream.Send(&storagev1.RepairResponse{News: &storagev1.RepairResponse_Damage{Damage: damageToWire(f)}})
		},
		Progress: seldom(func(p *storagev1.ScrubProgress) error {
			return stream.Send(&storagev1.RepairResponse{News: &storagev1.RepairResponse_Progress{Progress: p}})
		}),
		Done: func(r repair.Range) error {
			return stream.Send(&storagev1.RepairResponse{News: &storagev1.RepairResponse_Range{Range: rangeToWire(r)}})
		},
	})
	if err != nil {
		return err
	}
	return stream.Send(&storagev1.RepairResponse{News: &storagev1.RepairResponse_Summary{Summary: &storagev1.RepairSummary{
		Repaired: sum.Repaired, Left: sum.Left, ChangedBytes: sum.Changed, Units: sum.Units,
	}}})
}

func checkRepair(req *storagev1.RepairRequest) error {
	from, to := req.GetFromOffset(), req.GetToOffset()
	if _, _, err := net.SplitHostPort(req.GetSource()); err != nil {
		return errdefs.Invalid("source", "%q is not host:port", req.GetSource())
	}
	if from < 0 || to < 0 || (from != 0 || to != 0) && from >= to {
		return errdefs.Invalid("to_offset", "%d does not lie behind from_offset %d", to, from)
	}
	return checkRate(req.GetBytesPerSecond())
}

func damageToWire(f check.Finding) *storagev1.Damage {
	return &storagev1.Damage{
		Kind: storagev1.DamageKind(f.Kind), Offset: f.Offset, EndOffset: f.End, Field: f.Field, Detail: f.Detail,
		Topic: validUTF8([]byte(f.Topic)), QueueId: f.QueueID, QueueOffset: f.QueueOffset,
	}
}

func rangeToWire(r repair.Range) *storagev1.RepairedRange {
	out := &storagev1.RepairedRange{
		FromOffset: r.From, ToOffset: r.To, ChangedBytes: r.Changed, Units: int64(r.Units), Kept: r.Kept,
	}
	if r.Err == nil {
		return out
	}
	out.Reason = r.Err.Error()
	if e := errdefs.As(r.Err); e != nil {
		bare := *e
		bare.Remedy = ""
		out.Reason, out.Remedy = e.Reason+": "+bare.Error(), e.Remedy
	}
	return out
}

// maxFetch bounds what Peers.Range returns, bytes.
const maxFetch = 512 << 20

// Range returns the bytes [from, to) of the log of addr.
func (p *Peers) Range(ctx context.Context, addr string, from, to int64) ([]byte, error) {
	if to < from || to-from > maxFetch {
		return nil, errdefs.Invalid("to_offset", "%d to %d are no range of at most %d bytes", from, to, maxFetch)
	}
	conn, err := p.conn(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := storagev1.NewStorageAdminServiceClient(conn).Range(ctx, &storagev1.RangeRequest{FromOffset: from, ToOffset: to})
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, to-from)
	for int64(len(out)) < to-from {
		resp, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if resp.GetOffset() != from+int64(len(out)) || len(resp.GetData()) > cap(out)-len(out) || len(resp.GetData()) == 0 {
			return nil, errOutOfStep.With("want", from+int64(len(out))).With("got", resp.GetOffset())
		}
		out = append(out, resp.GetData()...)
	}
	return out, nil
}

var errOutOfStep = errdefs.New(errdefs.Aborted, "RANGE_OUT_OF_STEP", "the peer sent another part of its log than the next one")
