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
	Providers  Providers
	// MinBackoff and MaxBackoff bound the pause before the next try to connect, ConnectTimeout a try; 0: 100 ms, 5 s, 5 s.
	MinBackoff, MaxBackoff, ConnectTimeout time.Duration
	// Dial makes the connections; nil: TCP, or a Unix socket for unix: addresses.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

func (o ClientOptions) orDefault() ClientOptions {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.MaxMessage = cmp.Or(o.MaxMessage, DefaultMaxMessage)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.MinBackoff = cmp.Or(o.MinBackoff, minBackoff)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, maxBackoff)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, connectTimeout)
	return o
}

// Dialer makes connections that share credentials and one telemetry handler: a program has one per set of options, not
// one per connection.
type Dialer struct {
	opts []grpc.DialOption
}

// NewDialer makes a dialer. It fails with ErrTLSFiles, or a field error, when the TLS settings cannot be used.
func NewDialer(o ClientOptions) (*Dialer, error) {
	o = o.orDefault()
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
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: o.MinBackoff, Multiplier: backoff.DefaultConfig.Multiplier, Jitter: backoff.DefaultConfig.Jitter,
				MaxDelay: o.MaxBackoff,
			},
			MinConnectTimeout: o.ConnectTimeout,
		}),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithReadBufferSize(buffer),
		grpc.WithWriteBufferSize(buffer),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(), // as the raw connections between nodes
		grpc.WithChainUnaryInterceptor(clientUnary(o)),
		grpc.WithChainStreamInterceptor(clientStream(o)),
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
	return opts
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

func clientUnary(o ClientOptions) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, ok := ctx.Deadline(); !ok && o.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.Timeout)
			defer cancel()
		}
		return clientError(invoke(ctx, method, req, reply, cc, opts...), cc, o)
	}
}

func clientStream(o ClientOptions) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		cs, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, clientError(err, cc, o)
		}
		return &clientErrors{ClientStream: cs, turn: func(err error) error { return clientError(err, cc, o) }}, nil
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
func clientError(err error, cc *grpc.ClientConn, o ClientOptions) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	err = FromStatus(err)
	if e := errdefs.As(err); e != nil && e.Reason == ReasonUnreachable && e.Meta["address"] == "" {
		if r := connectionRemedy(e.Msg, o.TLS); r != "" {
			e = e.WithRemedy("%s", r)
		}
		addr := strings.TrimPrefix(cc.Target(), "passthrough:///")
		return e.WithMsg("%s", strings.Replace(e.Msg, noAnswer, fmt.Sprintf("%s from %s within %v", noAnswer, addr, o.ConnectTimeout), 1)).With("address", addr)
	}
	return err
}
