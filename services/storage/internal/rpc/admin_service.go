package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/role/sums"
)

// RawLog is the log as bytes. View's bytes belong to the log until release is called.
type RawLog interface {
	FirstOffset() int64
	End() int64
	View(offset int64, limit int) (b []byte, release func(), err error)
}

// Flusher flushes log and queues and returns the log's flushed offset.
type Flusher interface {
	FlushNow(ctx context.Context) (int64, error)
}

// Admin implements StorageAdminService.
type Admin struct {
	storagev1.UnimplementedStorageAdminServiceServer

	log       RawLog
	flusher   Flusher
	status    func() *storagev1.StatusResponse
	operator  Operator
	rollbacks Rollbacks
	care      Care
}

// NewAdmin makes the service; status composes one Status answer.
func NewAdmin(log RawLog, f Flusher, status func() *storagev1.StatusResponse, o Operator, r Rollbacks) *Admin {
	return &Admin{log: log, flusher: f, status: status, operator: o, rollbacks: r}
}

// Status implements StorageAdminService.
func (s *Admin) Status(context.Context, *storagev1.StatusRequest) (*storagev1.StatusResponse, error) {
	return s.status(), nil
}

// WatchStatus implements StorageAdminService.
func (s *Admin) WatchStatus(req *storagev1.WatchStatusRequest, stream grpc.ServerStreamingServer[storagev1.WatchStatusResponse]) error {
	interval := time.Second
	if d := req.GetInterval(); d != nil {
		if interval = d.AsDuration(); d.CheckValid() != nil || interval < 100*time.Millisecond || interval > time.Hour {
			return errdefs.Invalid("interval", "%v is not within 100ms and 1h", interval)
		}
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := stream.Send(&storagev1.WatchStatusResponse{Status: s.status()}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
	}
}

// rangeChunk is the largest piece of a Range, bytes.
const rangeChunk = 1 << 20

// Range implements StorageAdminService.
func (s *Admin) Range(req *storagev1.RangeRequest, stream grpc.ServerStreamingServer[storagev1.RangeResponse]) error {
	from, to, err := s.span(req.GetFromOffset(), req.GetToOffset())
	if err != nil {
		return err
	}
	for from < to {
		b, release, err := s.log.View(from, int(min(rangeChunk, to-from)))
		if err != nil {
			return err
		}
		// The bytes are copied: gRPC may still send them when the lease is over.
		data := append([]byte(nil), b...)
		release()
		if err := stream.Send(&storagev1.RangeResponse{Offset: from, Data: data}); err != nil {
			return err
		}
		from += int64(len(data))
	}
	return nil
}

// span checks a range; to 0 is the end of the log now.
func (s *Admin) span(from, to int64) (int64, int64, error) {
	end := s.log.End()
	if to == 0 {
		to = end
	}
	switch {
	case from < s.log.FirstOffset() || from > end:
		return 0, 0, errOutside("from_offset", from, s.log.FirstOffset(), end)
	case to < from || to > end:
		return 0, 0, errOutside("to_offset", to, from, end)
	}
	return from, to, nil
}

var errOutsideLog = errdefs.New(errdefs.OutOfRange, "OFFSET_OUTSIDE", "the offset is outside of the log")

func errOutside(field string, offset, first, end int64) error {
	return errOutsideLog.WithField(field).With("offset", offset).With("first", first).With("end", end)
}

// defaultStretch is the size of a stretch where the caller names none, bytes.
const defaultStretch = 1 << 20

// Checksum implements StorageAdminService.
func (s *Admin) Checksum(ctx context.Context, req *storagev1.ChecksumRequest) (*storagev1.ChecksumResponse, error) {
	from, to, err := s.span(req.GetFromOffset(), req.GetToOffset())
	if err != nil {
		return nil, err
	}
	stretch := req.GetStretchSize()
	if stretch == 0 {
		stretch = defaultStretch
	}
	all, to, err := sums.New(s.log).Range(ctx, from, to, stretch)
	if err != nil {
		return nil, err
	}
	return &storagev1.ChecksumResponse{Checksums: all, FromOffset: from, ToOffset: to, StretchSize: stretch}, nil
}

// FlushNow implements StorageAdminService.
func (s *Admin) FlushNow(ctx context.Context, _ *storagev1.FlushNowRequest) (*storagev1.FlushNowResponse, error) {
	n, err := s.flusher.FlushNow(ctx)
	if err != nil {
		return nil, err
	}
	return &storagev1.FlushNowResponse{FlushedOffset: n}, nil
}
