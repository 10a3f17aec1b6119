package grpcx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

const (
	minBackoff     = 100 * time.Millisecond
	maxBackoff     = 5 * time.Second
	connectTimeout = 5 * time.Second
)

// ClientOptions are the settings of a Dialer. The zero value works: plain text, defaults, no telemetry.
type ClientOptions struct {
	TLS        TLS
	Log        *slog.Logger  // nil: none
	MaxMessage int           // bytes of an encoded message in either direction; 0: DefaultMaxMessage
	Timeout    time.Duration // given to unary calls without a deadline; 0: 10 s, negative: none
	// Keepalive is the silence after which the server is pinged; 0 and anything less: 10 s. A server that does not
	// answer within 5 s more is given up: its calls end as UNREACHABLE.
	Keepalive time.Duration
	Window    int // as in ServerOptions
	Buffer    int // as in ServerOptions
	Providers Providers
	// Dial makes the connections; nil: TCP, or a Unix socket for unix: addresses.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Extra options come last.
	Extra []grpc.DialOption
}

// Dialer makes connections that share credentials and one telemetry handler: a program has one per set of options, not
// one per connection.
type Dialer struct {
	opts []grpc.DialOption
}

// NewDialer makes a dialer. It fails with ErrTLSFiles, or a field error, when the TLS settings cannot be used.
func NewDialer(o ClientOptions) (*Dialer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.MaxMessage = cmp.Or(o.MaxMessage, DefaultMaxMessage)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Window = cmp.Or(o.Window, defaultWindow)
	o.Buffer = cmp.Or(o.Buffer, defaultBuffer)
	meters, err := newInstruments(o.Providers.orDefault().MeterProvider, o.Log)
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	creds, err := transportCredentials(o.TLS, false, o.Log, meters)
	if err != nil {
		return nil, err
	}
	return &Dialer{opts: dialOptions(o, creds)}, nil
}

func dialOptions(o ClientOptions, creds credentials.TransportCredentials) []grpc.DialOption {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(o.MaxMessage), grpc.MaxCallSendMsgSize(o.MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: max(o.Keepalive, keepaliveTime), Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: minBackoff, Multiplier: backoff.DefaultConfig.Multiplier, Jitter: backoff.DefaultConfig.Jitter,
				MaxDelay: maxBackoff,
			},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithInitialWindowSize(int32(min(o.Window, maxWindow))),         //nolint:gosec // bounded by maxWindow
		grpc.WithInitialConnWindowSize(int32(min(4*o.Window, 4*maxWindow))), //nolint:gosec // bounded by maxWindow
		grpc.WithReadBufferSize(o.Buffer),
		grpc.WithWriteBufferSize(o.Buffer),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(), // as the raw connections between nodes
		grpc.WithChainUnaryInterceptor(clientUnary(o.Timeout, o.TLS)),
		grpc.WithChainStreamInterceptor(clientStream(o.TLS)),
	}
	if !o.Providers.off() {
		opts = append(opts, grpc.WithStatsHandler(o.Providers.clientHandler()))
	}
	if o.TLS.ServerName != "" {
		opts = append(opts, grpc.WithAuthority(o.TLS.ServerName))
	}
	if o.Dial != nil {
		opts = append(opts, grpc.WithContextDialer(o.Dial))
	}
	return append(opts, o.Extra...)
}

// Dial returns a connection to addr, host:port or a gRPC target such as unix:///run/x.sock. It does not wait for the
// server. The host is looked up anew at each connect, so that a container that comes back with another address is found.
func (d *Dialer) Dial(addr string) (*grpc.ClientConn, error) {
	target := addr
	if !strings.Contains(addr, "://") && !strings.HasPrefix(addr, "unix:") {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, errdefs.Invalid("address", "%q is not host:port", addr).WithRemedy("write for example 127.0.0.1:10911")
		}
		target = "passthrough:///" + addr
	}
	conn, err := grpc.NewClient(target, d.opts...)
	if err != nil {
		return nil, errdefs.Invalid("address", "%q is no gRPC target", addr).Wrap(err)
	}
	return conn, nil
}

// Dial makes a Dialer for one connection.
func Dial(addr string, o ClientOptions) (*grpc.ClientConn, error) {
	d, err := NewDialer(o)
	if err != nil {
		return nil, err
	}
	return d.Dial(addr)
}

func clientUnary(timeout time.Duration, t TLS) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, ok := ctx.Deadline(); !ok && timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return clientError(invoke(ctx, method, req, reply, cc, opts...), cc, t)
	}
}

func clientStream(t TLS) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		cs, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, clientError(err, cc, t)
		}
		return &clientErrors{ClientStream: cs, turn: func(err error) error { return clientError(err, cc, t) }}, nil
	}
}

// clientErrors turns the errors of a stream back.
type clientErrors struct {
	grpc.ClientStream
	turn func(error) error
}

func (s *clientErrors) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, s.turn(err)
}

func (s *clientErrors) CloseSend() error { return s.turn(s.ClientStream.CloseSend()) }

func (s *clientErrors) SendMsg(m any) error { return s.turn(s.ClientStream.SendMsg(m)) }

func (s *clientErrors) RecvMsg(m any) error { return s.turn(s.ClientStream.RecvMsg(m)) }

// clientError is FromStatus with the address where the server was not reached; one that is named already is the server's.
func clientError(err error, cc *grpc.ClientConn, t TLS) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	err = FromStatus(err)
	if e := errdefs.As(err); e != nil && e.Reason == ReasonUnreachable && e.Meta["address"] == "" {
		if r := connectionRemedy(e.Msg, t); r != "" {
			e = e.WithRemedy("%s", r)
		}
		addr := strings.TrimPrefix(cc.Target(), "passthrough:///")
		return e.WithMsg("%s", strings.Replace(e.Msg, noAnswer, noAnswer+" from "+addr, 1)).With("address", addr)
	}
	return err
}
