package grpcx

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

const (
	// DefaultMaxMessage bounds an encoded message: a body of 4 MiB fits with all that comes with it in a request or reply.
	DefaultMaxMessage = 5 << 20

	defaultTimeout = 10 * time.Second // of unary calls that come without a deadline
	defaultDrain   = 5 * time.Second
	defaultSlow    = time.Second

	streamWindow = 2 << 20 // HTTP/2's flow control
	connWindow   = 4 * streamWindow
	buffer       = 64 << 10 // of a connection, each way

	// keepaliveTime is what clients and servers ping after when nothing came; gRPC allows clients no less than 10 s. A
	// server takes pings down to minPing, so that a client with these settings is never sent away. Who does not answer within keepaliveTimeout is given up.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	minPing          = 5 * time.Second

	handshakeTimeout = 10 * time.Second
	maxStreams       = 4096
	warmStacks       = 64
	maxHeaders       = 64 << 10
)

// Errors of a server's end.
var (
	// ErrDraining ends the contexts of streams (context.Cause) and the streams themselves when their server stops.
	ErrDraining = errdefs.New(errdefs.Unavailable, "SERVER_STOPPING", "the server is stopping").
			WithRemedy("try again, or ask another node").WithRetry(minBackoff)
	// ErrHandlersRunning is what Serve returns when handlers outlive every bound: what they use must not be released.
	ErrHandlersRunning = errdefs.New(errdefs.DeadlineExceeded, "HANDLERS_RUNNING", "handlers did not end in time").
				WithRemedy("a restart recovers")
)

// ServerOptions are the settings of a Server. The zero value works: plain text, defaults, no telemetry.
type ServerOptions struct {
	TLS        TLS
	Log        *slog.Logger // nil: none
	MaxMessage int          // bytes of an encoded message in either direction; 0: DefaultMaxMessage
	// SlowCall is the duration from which a unary call is logged although it succeeded; 0: 1 s, negative: never.
	SlowCall time.Duration
	// DrainTimeout is the budget of Serve after its context has ended, of which streams get two fifths to end by themselves; 0: 5 s.
	DrainTimeout time.Duration
	Providers    Providers
}

func (o ServerOptions) orDefault() ServerOptions {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With(slog.String("component", "grpc"))
	o.MaxMessage = cmp.Or(o.MaxMessage, DefaultMaxMessage)
	o.SlowCall = cmp.Or(o.SlowCall, defaultSlow)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, defaultDrain)
	return o
}

// Server is a gRPC server with health and reflection. Hand it to the generated Register functions, then call
// Serve once.
type Server struct {
	opts   ServerOptions
	grpc   *grpc.Server
	health *health.Server
	meters *instruments
	calls  *calls

	draining context.Context //nolint:containedctx // its end is a state of the server: streams shall end
	drain    context.CancelCauseFunc
	cut      chan struct{} // closed when streams that are still open are ended from outside
	stop     func() error
}

// NewServer makes a server. It fails with ErrTLSFiles, or a field error, when the TLS settings cannot be used.
func NewServer(o ServerOptions) (*Server, error) {
	o = o.orDefault()
	meters, err := newInstruments(o.Providers.orDefault().MeterProvider, o.Log)
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	creds, err := transportCredentials(o.TLS, true, o.Log, meters)
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts: o, meters: meters, health: health.NewServer(), calls: newCalls(),
		cut: make(chan struct{}),
	}
	s.draining, s.drain = context.WithCancelCause(context.Background())
	s.stop = sync.OnceValue(s.shutdown)
	opts := []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ChainUnaryInterceptor(s.unaryInterceptors()...),
		grpc.ChainStreamInterceptor(s.streamInterceptors()...),
		grpc.NumStreamWorkers(warmStacks), // a new goroutine a call, which is what happens beyond these, copies its stack as it grows
		grpc.MaxRecvMsgSize(o.MaxMessage),
		grpc.MaxSendMsgSize(o.MaxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(buffer),
		grpc.WriteBufferSize(buffer),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
	}
	if !o.Providers.off() {
		opts = append(opts, grpc.StatsHandler(o.Providers.serverHandler()))
	}
	s.grpc = grpc.NewServer(opts...)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	return s, nil
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) { s.grpc.RegisterService(d, impl) }

// startHealth says that the server as a whole and every registered service serve.
func (s *Server) startHealth() {
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
}

// Serve answers calls that come to ln until ctx ends, then drains as the package's comment says. It returns nil when no
// handler runs any more, ErrHandlersRunning when some would not end, and the listener's error when that failed; ln is
// closed in any case.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.startHealth()
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(ln) }()
	select {
	case err := <-served:
		if stopErr := s.stop(); stopErr != nil || err == nil {
			return stopErr
		}
		return fmt.Errorf("serve grpc: %w", err)
	case <-ctx.Done():
	}
	return s.stop()
}

// shutdown ends everything in steps; each step leaves fewer calls open.
func (s *Server) shutdown() error {
	start := time.Now()
	s.health.Shutdown()
	s.drain(ErrDraining)
	graceful := make(chan struct{})
	go func() { defer close(graceful); s.grpc.GracefulStop() }()

	idle := s.calls.drained()
	hard := time.NewTimer(s.opts.DrainTimeout)
	defer hard.Stop()
	grace := time.NewTimer(s.opts.DrainTimeout * 2 / 5)
	defer grace.Stop()
	select {
	case <-graceful:
	case <-grace.C:
		close(s.cut)
		select {
		case <-graceful:
		case <-hard.C:
		}
	}
	if n, methods := s.calls.open(); n > 0 {
		s.meters.cut.Add(context.Background(), int64(n))
		s.opts.Log.Warn("calls cut at shutdown", slog.Int("calls", n), slog.Any("methods", methods))
	}
	s.grpc.Stop()
	last := time.NewTimer(s.opts.DrainTimeout / 2)
	defer last.Stop()
	select {
	case <-idle:
		s.opts.Log.Debug("grpc server stopped", slog.Duration("took", time.Since(start)))
		return nil
	case <-last.C:
		n, methods := s.calls.open()
		return ErrHandlersRunning.With("calls", n).With("methods", methods)
	}
}

// logLevel is the level at which the end of a call with this code is logged.
func logLevel(c codes.Code) slog.Level {
	switch c {
	case codes.Internal, codes.DataLoss, codes.Unknown:
		return slog.LevelError
	case codes.OK, codes.Canceled:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}
