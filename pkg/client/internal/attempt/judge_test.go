package attempt

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

func TestJudge(t *testing.T) {
	storage := func(c errdefs.Class) error {
		return grpcx.FromStatus(grpcx.ToStatus(errdefs.New(c, "SOME_REASON", "as the storage says")))
	}
	gRPC := func(c codes.Code, text string) error { return grpcx.FromStatus(status.Error(c, text)) }
	for _, tc := range []struct {
		name string
		err  error
		left bool
		want Verdict
	}{
		{"no connection", gRPC(codes.Unavailable, "connection error"), false, TryAgain},
		{"deadline before it left", gRPC(codes.DeadlineExceeded, "x"), false, NotStored},
		{"cancelled before it left", context.Canceled, false, NotStored},
		{"connection broke", gRPC(codes.Unavailable, "error reading from server: EOF"), true, Unknown},
		{"deadline passed", gRPC(codes.DeadlineExceeded, "x"), true, Unknown},
		{"cancelled", gRPC(codes.Canceled, "x"), true, Unknown},
		{"not a status", io.ErrUnexpectedEOF, true, Unknown},
		{"too large", gRPC(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 4)"), true, NotStored},
		{"no such method", gRPC(codes.Unimplemented, "unknown method"), true, NotStored},
		{"not allowed", gRPC(codes.Unauthenticated, "x"), true, NotStored},
		{"gRPC's internal", gRPC(codes.Internal, "x"), true, Unknown},
		{"not master", errdefs.New(errdefs.FailedPrecondition, ReasonNotMaster, "x"), true, TryAgain},
		{"storage: unavailable", storage(errdefs.Unavailable), true, TryAgain},
		{"storage: invalid", storage(errdefs.InvalidArgument), true, NotStored},
		{"storage: precondition", storage(errdefs.FailedPrecondition), true, NotStored},
		{"storage: internal", storage(errdefs.Internal), true, Unknown},
		{"storage: data loss", storage(errdefs.DataLoss), true, Unknown},
		{"storage: unknown", storage(errdefs.Unknown), true, Unknown},
		{"storage: deadline", storage(errdefs.DeadlineExceeded), true, Unknown},
		{"storage: cancelled", storage(errdefs.Canceled), true, Unknown},
	} {
		if got := Judge(tc.err, tc.left); got != tc.want {
			t.Errorf("%s: %d, want %d (%v)", tc.name, got, tc.want, tc.err)
		}
	}
}
