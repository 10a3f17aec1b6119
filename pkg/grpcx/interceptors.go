package grpcx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

var errPanic = errdefs.New(errdefs.Internal, "PANIC", "the call failed inside the server").
	WithRemedy("the server's log has the stack")

func (s *Server) unaryInterceptors() []grpc.UnaryServerInterceptor {
	r := &reporter{log: s.opts.Log, slow: s.opts.SlowCall}
	return []grpc.UnaryServerInterceptor{
		s.trackUnary,
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			resp, err := next(ctx, req)
			return resp, ToStatus(err)
		},
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			start := time.Now()
			resp, err := next(ctx, req)
			r.ended(ctx, info.FullMethod, err, time.Since(start))
			return resp, err
		},
		recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(s.recovered)),
		withDeadline,
	}
}

func (s *Server) streamInterceptors() []grpc.StreamServerInterceptor {
	r := &reporter{log: s.opts.Log, slow: -1}
	return []grpc.StreamServerInterceptor{
		s.trackStream,
		func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			err := next(srv, ss)
			if err != nil && errors.Is(context.Cause(ss.Context()), ErrDraining) && isCanceled(err) {
				err = ErrDraining
			}
			return ToStatus(err)
		},
		func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			start := time.Now()
			err := next(srv, ss)
			r.ended(ss.Context(), info.FullMethod, err, time.Since(start))
			return err
		},
		recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(s.recovered)),
	}
}

func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

func (s *Server) recovered(ctx context.Context, p any) error {
	method, _ := grpc.Method(ctx)
	s.meters.panicked(ctx, method)
	s.opts.Log.ErrorContext(ctx, "handler panicked", slog.String("method", method), slog.String("panic", fmt.Sprint(p)),
		slog.String("stack", string(debug.Stack())))
	return errPanic
}

func withDeadline(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	return next(ctx, req)
}

// reportsPerSecond bounds the log lines about calls; a client in a loop must not fill the disk.
const reportsPerSecond = 10

// reporter logs calls that failed or took long.
type reporter struct {
	log  *slog.Logger
	slow time.Duration // negative: off

	mu         sync.Mutex
	second     int64
	lines      int
	suppressed int
}

// allow reports whether one more line may be written, and how many were not since the last.
func (r *reporter) allow(now time.Time) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := now.Unix(); s != r.second {
		r.second, r.lines = s, 0
	}
	if r.lines >= reportsPerSecond {
		r.suppressed++
		return 0, false
	}
	r.lines++
	n := r.suppressed
	r.suppressed = 0
	return n, true
}

// ended is told of the end of each call.
func (r *reporter) ended(ctx context.Context, method string, err error, took time.Duration) {
	slow := r.slow >= 0 && took >= r.slow
	if (err == nil && !slow) || errors.Is(err, errPanic) {
		return
	}
	code := callCode(err)
	level := logLevel(code)
	if slow {
		level = max(level, slog.LevelInfo)
	}
	if !r.log.Enabled(ctx, level) {
		return
	}
	suppressed, ok := r.allow(time.Now())
	if !ok {
		return
	}
	attrs := []slog.Attr{slog.String("method", method), slog.String("code", code.String()), slog.Duration("took", took)}
	if p, ok := peer.FromContext(ctx); ok {
		attrs = append(attrs, slog.String("peer", p.Addr.String()))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	if err == nil {
		r.log.LogAttrs(ctx, level, "slow call", attrs...)
		return
	}
	r.log.LogAttrs(ctx, level, "call failed", append(attrs, slog.String("error", err.Error()))...)
}

func callCode(err error) codes.Code {
	if e := errdefs.As(err); e != nil {
		return CodeOf(e.Class)
	}
	return status.Code(ToStatus(err))
}
