package client

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
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
	// MaxMessage is the largest gRPC message that is taken or sent, bytes; 0: the default of grpcx.
	MaxMessage int
	// WaitReady makes Dial wait until one of the addresses answers.
	WaitReady bool
	// TracerProvider makes the spans of puts and calls; nil: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics of the calls; nil: none.
	MeterProvider metric.MeterProvider
}

// Client holds the connections to the nodes of one broker. All methods may be called concurrently.
type Client struct {
	o      Options
	dialer *grpcx.Dialer
	tracer trace.Tracer

	mu     sync.Mutex
	nodes  map[string]*node
	master string // address of the node that puts go to; only a guess until it has accepted one
	closed bool
}

// node is a connection to one storage.
type node struct {
	addr  string
	conn  *grpc.ClientConn
	msg   storagev1.MessageServiceClient
	admin storagev1.StorageAdminServiceClient
}

// Dial makes a client. Connections are made when they are first needed, unless WaitReady is set: then Dial returns when
// a node has answered, or with the reasons when ctx ends.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if len(o.Addresses) == 0 {
		return nil, errdefs.Invalid("addresses", "is empty").WithRemedy("name at least one storage, such as 127.0.0.1:10911")
	}
	for _, a := range o.Addresses {
		if err := checkAddress(a); err != nil {
			return nil, err
		}
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
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
	c := &Client{
		o:      o,
		dialer: dialer,
		tracer: o.TracerProvider.Tracer("github.com/tandemlog/tandem/pkg/client"),
		nodes:  map[string]*node{},
		master: o.Addresses[0],
	}
	if o.WaitReady {
		if err := c.waitReady(ctx); err != nil {
			return nil, errorsJoin(err, c.Close())
		}
	}
	return c, nil
}

func checkAddress(a string) error {
	_, port, err := net.SplitHostPort(a)
	if err != nil || port == "" {
		return errdefs.Invalid("addresses", "%q is no address", a).WithRemedy("write host:port, such as 127.0.0.1:10911")
	}
	return nil
}

// Close closes all connections; calls under way end with an error.
func (c *Client) Close() error {
	c.mu.Lock()
	nodes := c.nodes
	c.nodes, c.closed = nil, true
	c.mu.Unlock()
	var err error
	for _, n := range nodes {
		err = errorsJoin(err, n.conn.Close())
	}
	return err
}

// Addresses returns the addresses that the client was made with.
func (c *Client) Addresses() []string { return slices.Clone(c.o.Addresses) }

// node returns the connection to addr, made now if there is none.
func (c *Client) node(addr string) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if n := c.nodes[addr]; n != nil {
		return n, nil
	}
	conn, err := c.dialer.Dial(addr)
	if err != nil {
		return nil, err
	}
	n := &node{addr: addr, conn: conn, msg: storagev1.NewMessageServiceClient(conn), admin: storagev1.NewStorageAdminServiceClient(conn)}
	c.nodes[addr] = n
	return n, nil
}

// bounded gives ctx the default deadline where it has none.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.o.Timeout)
}

func (c *Client) waitReady(ctx context.Context) error {
	for try := 0; ; try++ {
		heard, err := c.survey(ctx, c.o.Addresses)
		if len(heard) > 0 {
			return nil
		}
		if !sleep(ctx, backoff(try)) {
			return err
		}
	}
}
