package client

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/client/internal/putspan"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// defaultTimeout bounds a unary call whose context has no deadline.
const defaultTimeout = 10 * time.Second

// Options says where the storages are and how to talk to them.
type Options struct {
	// Addresses are gRPC addresses (host:port) of nodes of one broker; the master is found among them.
	Addresses []string
	// TLS names the files for TLS and mutual TLS; the zero value is plain text.
	TLS grpcx.TLS
	// Timeout bounds each unary call whose context has no deadline, and each silence of a stream that should speak;
	// 0: 10 s.
	Timeout time.Duration
	// MaxMessage is the largest gRPC message that is taken or sent, bytes; 0: grpcx.DefaultMaxMessage. A body has about 1 KiB
	// less, and whatever its properties take.
	MaxMessage int
	// WaitReady makes Dial wait until one of the addresses answers.
	WaitReady bool
	// TracerProvider makes the spans of puts and calls; nil: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics of the calls; nil: none.
	MeterProvider metric.MeterProvider
}

// Client speaks to the nodes of one broker. All methods may be called concurrently.
type Client struct {
	o     Options
	nodes *nodes.Set
	spans *putspan.Maker
}

// Dial makes a client. Connections are made when they are first needed, unless WaitReady is set: then Dial returns when
// a node has answered, or with the reasons when ctx ends.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = grpcx.DefaultMaxMessage
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	dialer, err := grpcx.NewDialer(grpcx.ClientOptions{
		TLS: o.TLS, MaxMessage: o.MaxMessage, Timeout: o.Timeout,
		Providers: grpcx.Providers{TracerProvider: o.TracerProvider, MeterProvider: o.MeterProvider},
	})
	if err != nil {
		return nil, err
	}
	set, err := nodes.New(o.Addresses, dialer)
	if err != nil {
		return nil, err
	}
	if o.WaitReady {
		if err := set.WaitReady(ctx); err != nil {
			return nil, nodes.Join(err, set.Close())
		}
	}
	return &Client{o: o, nodes: set, spans: putspan.New(o.TracerProvider.Tracer("github.com/tandemlog/tandem/pkg/client"))}, nil
}

// Close closes all connections; calls under way end with an error.
func (c *Client) Close() error { return c.nodes.Close() }

// Addresses returns the addresses that the client was made with.
func (c *Client) Addresses() []string { return slices.Clone(c.nodes.Addresses()) }

// bounded gives ctx the default deadline where it has none.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.o.Timeout)
}
