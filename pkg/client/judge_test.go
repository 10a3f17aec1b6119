package client

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
		want verdict
	}{
		{"no connection", gRPC(codes.Unavailable, "connection error"), false, tryAgain},
		{"deadline before it left", gRPC(codes.DeadlineExceeded, "x"), false, notStored},
		{"cancelled before it left", context.Canceled, false, notStored},
		{"connection broke", gRPC(codes.Unavailable, "error reading from server: EOF"), true, unknown},
		{"deadline passed", gRPC(codes.DeadlineExceeded, "x"), true, unknown},
		{"cancelled", gRPC(codes.Canceled, "x"), true, unknown},
		{"not a status", io.ErrUnexpectedEOF, true, unknown},
		{"too large", gRPC(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 4)"), true, notStored},
		{"no such method", gRPC(codes.Unimplemented, "unknown method"), true, notStored},
		{"not allowed", gRPC(codes.Unauthenticated, "x"), true, notStored},
		{"gRPC's internal", gRPC(codes.Internal, "x"), true, unknown},
		{"not master", errNotMaster, true, tryAgain},
		{"storage: unavailable", storage(errdefs.Unavailable), true, tryAgain},
		{"storage: invalid", storage(errdefs.InvalidArgument), true, notStored},
		{"storage: precondition", storage(errdefs.FailedPrecondition), true, notStored},
		{"storage: internal", storage(errdefs.Internal), true, unknown},
		{"storage: data loss", storage(errdefs.DataLoss), true, unknown},
		{"storage: unknown", storage(errdefs.Unknown), true, unknown},
		{"storage: deadline", storage(errdefs.DeadlineExceeded), true, unknown},
		{"storage: cancelled", storage(errdefs.Canceled), true, unknown},
	} {
		if got := judge(tc.err, tc.left); got != tc.want {
			t.Errorf("%s: %d, want %d (%v)", tc.name, got, tc.want, tc.err)
		}
	}
}
