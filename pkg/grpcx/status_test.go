package grpcx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

func TestErrorsSurviveTheWire(t *testing.T) {
	notMaster := errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "this node is not the master").
		With("master", "10.0.0.1:10911").WithRemedy("ask the master").WithRetry(250 * time.Millisecond)
	for name, err := range map[string]*errdefs.Error{
		"full":      notMaster,
		"field":     errdefs.Invalid("message.topic", "is longer than %d", 127).WithRemedy("shorten it"),
		"plain":     errdefs.New(errdefs.DataLoss, "ROT", "record is broken"),
		"bad utf-8": errdefs.New(errdefs.OutOfRange, "OFFSET", "a \xff b").With("k", "\xff"),
	} {
		t.Run(name, func(t *testing.T) {
			got := errdefs.As(grpcx.FromStatus(grpcx.ToStatus(fmt.Errorf("put: %w", err))))
			if got == nil || !errors.Is(got, err) {
				t.Fatalf("got %v, want %v", got, err)
			}
			if want := strings.ToValidUTF8(err.Error(), "\uFFFD"); got.Error() != want || got.RetryAfter != err.RetryAfter {
				t.Errorf("got  %v %v\nwant %v %v", got, got.RetryAfter, want, err.RetryAfter)
			}
		})
	}
}

func TestEveryClassHasItsCode(t *testing.T) {
	seen := make(map[codes.Code]bool)
	for c := errdefs.Unknown; c <= errdefs.Unauthenticated; c++ {
		code := grpcx.CodeOf(c)
		if seen[code] || grpcx.ClassOf(code) != c {
			t.Errorf("%v becomes %v and %v", c, code, grpcx.ClassOf(code))
		}
		seen[code] = true
	}
}

func TestSeveralFieldErrorsArriveTogether(t *testing.T) {
	err := grpcx.ToStatus(errors.Join(errdefs.Invalid("topic", "is empty"), errdefs.Invalid("body", "is empty")))
	if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != "topic: is empty; body: is empty" {
		t.Errorf("got %v", s)
	}
	got := grpcx.FromStatus(err)
	if got.Error() != "topic: is empty\nbody: is empty" || errdefs.As(got).Field != "topic" {
		t.Errorf("got %q", got)
	}
}

func TestStatusHasGoogleDetails(t *testing.T) {
	st := status.Convert(grpcx.ToStatus(errdefs.Invalid("topic", "is empty").With("max", 127).WithRemedy("name one").WithRetry(time.Second)))
	var info, bad, retry bool
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d.GetReason() == "INVALID_FIELD" && d.GetDomain() == "tandem" && d.GetMetadata()["max"] == "127" &&
				d.GetMetadata()["remedy"] == "name one"
		case *errdetails.BadRequest:
			bad = d.GetFieldViolations()[0].GetField() == "topic"
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration() == time.Second
		}
	}
	if !info || !bad || !retry || st.Message() != "topic: is empty; name one" {
		t.Errorf("got %v %v", st, st.Details())
	}
}

func TestPathsStayOnTheServer(t *testing.T) {
	secret := &fs.PathError{Op: "open", Path: "/secret/path", Err: syscall.ENOSPC}
	full := errdefs.New(errdefs.ResourceExhausted, "DISK_FULL", "no space")
	for _, tc := range []struct {
		err  error
		want string
	}{
		{secret, "unexpected error, see the server's log"},
		{full.Wrap(secret), "no space: no space left on device"},
		{full.Wrap(errors.New("/secret/path")), "no space"},
		{full.Wrap(errdefs.New(errdefs.Internal, "X", "inner").Wrap(io.EOF)), "no space: inner: EOF"},
	} {
		if got := status.Convert(grpcx.ToStatus(tc.err)).Message(); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestForeignErrors(t *testing.T) {
	for _, tc := range []struct {
		err    error
		class  errdefs.Class
		reason string
		is     error
	}{
		{status.Error(codes.Unavailable, "gone"), errdefs.Unavailable, grpcx.ReasonUnreachable, nil},
		{status.Error(codes.Unimplemented, "unknown method"), errdefs.Unimplemented, "RPC_UNIMPLEMENTED", nil},
		{status.Error(codes.FailedPrecondition, "x"), errdefs.FailedPrecondition, "RPC_FAILED_PRECONDITION", nil},
		{grpcx.ToStatus(context.DeadlineExceeded), errdefs.DeadlineExceeded, "RPC_DEADLINE_EXCEEDED", context.DeadlineExceeded},
		{grpcx.ToStatus(context.Canceled), errdefs.Canceled, "RPC_CANCELED", context.Canceled},
	} {
		got := grpcx.FromStatus(tc.err)
		if errdefs.ClassOf(got) != tc.class || errdefs.ReasonOf(got) != tc.reason || (tc.is != nil && !errors.Is(got, tc.is)) {
			t.Errorf("%v: got %v (%v %v)", tc.err, got, errdefs.ClassOf(got), errdefs.ReasonOf(got))
		}
	}
	if got := grpcx.FromStatus(io.EOF); got != io.EOF { //nolint:errorlint // unchanged is the point
		t.Errorf("io.EOF became %v", got)
	}
	if grpcx.FromStatus(nil) != nil || grpcx.ToStatus(nil) != nil {
		t.Error("nil became an error")
	}
}

func TestASilentServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts, as the kernel does for a stopped process, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	o := grpcx.ClientOptions{ConnectTimeout: 100 * time.Millisecond}
	for _, tls := range []grpcx.TLS{{}, {Enable: true}} {
		o.TLS = tls
		conn, err := grpcx.Dial(ln.Addr().String(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		e := errdefs.As(err)
		want := "cannot reach the server: no answer from " + ln.Addr().String() + " within 100ms"
		if e == nil || e.Reason != grpcx.ReasonUnreachable || e.Msg != want || !strings.Contains(e.Remedy, "may be stopped") {
			t.Errorf("TLS %v: got %v", tls.Enable, err)
		}
	}
}
