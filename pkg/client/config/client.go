package config

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

const (
	// defaultTimeout bounds a call whose context has no deadline.
	defaultTimeout = 10 * time.Second
	// defaultTry bounds one try of a call that may be repeated: a node that was stopped is not heard of otherwise.
	defaultTry = 3 * time.Second
)

// Types of the config sync's API.
type (
	// Topic is an entry of the table of topics.
	Topic = configsyncv1.Topic
	// Group is an entry of the table of subscription groups.
	Group = configsyncv1.SubscriptionGroup
	// Version is a table's version, for preconditions.
	Version = configsyncv1.DataVersion
	// Kind names a table.
	Kind = configsyncv1.Kind
	// Offset is the next queue offset that a group consumes.
	Offset = configsyncv1.ConsumerOffset
	// HeldOffset is an offset as the service has it.
	HeldOffset = configsyncv1.QueryOffset
	// Lag is where a group stands in a queue, and how much is behind it.
	Lag = configsyncv1.Lag
	// NodeStatus is everything a node tells about itself.
	NodeStatus = configsyncv1.StatusResponse
)

// Options says where the nodes are and how to talk to them.
type Options struct {
	// Addresses are gRPC addresses (host:port) of config sync nodes of one broker; the master is found among them and by what they
	// say.
	Addresses []string
	// TLS names the files for TLS and mutual TLS; the zero value is plain text.
	TLS grpcx.TLS
	// Timeout bounds each call whose context has no deadline, and each silence of a stream; 0: 10 s.
	Timeout time.Duration
	// TryTimeout bounds each single try of a call that can be repeated without harm; 0: 3 s.
	TryTimeout time.Duration
	// MaxMessage is the largest gRPC message that is taken or sent, bytes; 0: grpcx.DefaultMaxMessage.
	MaxMessage int
	// Local makes reads show what the first address that answers has, be it master or not.
	Local bool
	// OnRetry is told why a change was not made yet and how long it pauses before the next try; may be nil.
	OnRetry func(err error, pause time.Duration)
	// TracerProvider makes the spans of calls; nil: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics of the calls; nil: none.
	MeterProvider metric.MeterProvider
}

// Client speaks to the config sync nodes of one broker. All methods may be called concurrently.
type Client struct {
	o   Options
	set *set
}

// Dial makes a client. Connections are made when they are first needed.
func Dial(o Options) (*Client, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.TryTimeout <= 0 {
		o.TryTimeout = defaultTry
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = grpcx.DefaultMaxMessage
	}
	dialer, err := grpcx.NewDialer(grpcx.ClientOptions{
		TLS: o.TLS, MaxMessage: o.MaxMessage, Timeout: o.Timeout,
		Providers: grpcx.Providers{TracerProvider: o.TracerProvider, MeterProvider: o.MeterProvider},
	})
	if err != nil {
		return nil, err
	}
	all, err := newSet(o.Addresses, dialer)
	if err != nil {
		return nil, err
	}
	return &Client{o: o, set: all}, nil
}

// Close closes all connections; calls under way end with an error.
func (c *Client) Close() error { return c.set.Close() }

// Addresses returns the addresses that the client was made with.
func (c *Client) Addresses() []string { return slices.Clone(c.set.addresses) }

// FindMaster returns the address of the node that takes changes.
func (c *Client) FindMaster(ctx context.Context) (string, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	n, err := c.set.find(ctx)
	if err != nil {
		return "", err
	}
	return n.addr, nil
}

// bounded gives ctx the default deadline where it has none.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.o.Timeout)
}
