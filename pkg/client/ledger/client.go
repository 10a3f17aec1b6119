package ledger

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/group"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

const (
	// defaultTimeout bounds a call whose context has no deadline.
	defaultTimeout = 10 * time.Second
	// defaultTry bounds one try of a call that may be repeated: a node that was stopped is not heard of otherwise.
	defaultTry = 3 * time.Second
)

// Types of the ledger's API.
type (
	// Entry is a committed entry.
	Entry = ledgerv1.LedgerEntry
	// Result says where one entry stands.
	Result = ledgerv1.AppendResponse
	// BatchResult says where the entries of a batch stand.
	BatchResult = ledgerv1.AppendBatchResponse
	// Bounds tells what there is to read, and the limits of a node.
	Bounds = ledgerv1.GetBoundsResponse
	// NodeStatus is the group as one node sees it.
	NodeStatus = ledgerv1.StatusResponse
	// Consistency of a read.
	Consistency = ledgerv1.Consistency
)

// Consistencies.
const (
	// Linearizable reads see everything that was acknowledged to anybody before the call.
	Linearizable = ledgerv1.Consistency_CONSISTENCY_LINEARIZABLE
	// Local reads see what the node that answers knows to be committed.
	Local = ledgerv1.Consistency_CONSISTENCY_LOCAL
)

// Options says where the nodes are and how to talk to them.
type Options struct {
	// Addresses are gRPC addresses (host:port) of nodes of one group; the leader is found among them and by what they say.
	Addresses []string
	// TLS names the files for TLS and mutual TLS; the zero value is plain text.
	TLS grpcx.TLS
	// Timeout bounds each call whose context has no deadline, and the time that a Sender goes on without progress; 0: 10 s.
	Timeout time.Duration
	// TryTimeout bounds each single try of a call that can be repeated without harm; 0: 3 s.
	TryTimeout time.Duration
	// MaxMessage is the largest gRPC message that is taken or sent, bytes; 0: grpcx.DefaultMaxMessage.
	MaxMessage int
	// TracerProvider makes the spans of appends and calls; nil: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics of the calls; nil: none.
	MeterProvider metric.MeterProvider
}

// Client speaks to the nodes of one group. All methods may be called concurrently.
type Client struct {
	o      Options
	nodes  *group.Set
	tracer trace.Tracer

	mu     sync.Mutex
	reader int     // index of the address that reads go to
	bounds *Bounds // as last told; nil: nobody was asked yet
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
	all, err := group.New(o.Addresses, dialer)
	if err != nil {
		return nil, err
	}
	return &Client{o: o, nodes: all, tracer: o.TracerProvider.Tracer("github.com/tandemlog/tandem/pkg/client/ledger")}, nil
}

// Close closes all connections; calls under way end with an error.
func (c *Client) Close() error { return c.nodes.Close() }

// Addresses returns the addresses that the client was made with.
func (c *Client) Addresses() []string { return slices.Clone(c.nodes.Addresses()) }

// FindLeader returns the address of the leader.
func (c *Client) FindLeader(ctx context.Context) (string, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	n, err := c.nodes.FindLeader(ctx)
	if err != nil {
		return "", err
	}
	return n.Addr, nil
}

// bounded gives ctx the default deadline where it has none.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.o.Timeout)
}

// limits are the bounds as some node told them last, with an index that was committed then.
func (c *Client) limits(ctx context.Context) (*Bounds, error) {
	c.mu.Lock()
	known := c.bounds
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	b, err := c.Bounds(ctx, Local)
	if err != nil {
		return nil, err
	}
	c.keep(b)
	return b, nil
}

func (c *Client) keep(b *Bounds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bounds = b
}

// RoleName returns a role in words: leader, follower, candidate, pre-candidate.
func RoleName(r ledgerv1.Role) string { return group.RoleName(r) }

// PushStateName returns what a leader does about a follower, as DLedger names it: COMPARE, TRUNCATE, APPEND.
func PushStateName(s ledgerv1.PushState) string {
	return nodes.EnumName(s.String(), "PUSH_STATE_", int32(s))
}
