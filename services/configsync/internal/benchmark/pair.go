package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/rpc"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// pair is a master with topics, and a slave's side of its service, over loopback.
type pair struct {
	dir      string
	registry *registry.Registry
	names    []string
	changes  int

	sync, nothing configsyncv1.ConfigSyncServiceClient // the service, and one that does nothing
	closers       []func() error                       // in the order of opening
	slave         *table.Table                         // as of the last round
	topics        []*configsyncv1.Topic                // for those who compare
}

// caller asks any role: nobody here has a reign.
func caller() *configsyncv1.Caller {
	return &configsyncv1.Caller{Cluster: "bench", BrokerName: "bench", NodeId: 1, AnyRole: true}
}

func open(ctx context.Context, dir string, topics int) (_ *pair, err error) {
	p := &pair{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.registry, err = registry.Open(vfs.OS(), dir, registry.Options{}); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, p.registry.Close)
	b := table.NewBuilder(entry.Topics)
	for i := range topics {
		name := fmt.Sprintf("some-topic-name-%07d", i)
		p.names = append(p.names, name)
		if err := b.Add(table.Entry{Key: name, Value: entry.NewTopic(name)}); err != nil {
			return nil, err
		}
	}
	if _, err := p.registry.Join(ctx, b.Table(entry.Version{State: 1, Counter: 1, Timestamp: 1}, table.FormFull, nil)); err != nil {
		return nil, err
	}
	p.registry.SetEpoch(1)
	p.slave = p.registry.Snapshot(entry.Topics)
	if p.sync, err = p.serve(ctx, rpc.NewSync(rpc.Self{Cluster: "bench", BrokerName: "bench"}, p.registry, follower{}, follower{})); err != nil {
		return nil, err
	}
	p.nothing, err = p.serve(ctx, nothing{})
	return p, err
}

// serve serves on loopback with the interceptors that nodes have, and connects to it.
func (p *pair) serve(ctx context.Context, s configsyncv1.ConfigSyncServiceServer) (configsyncv1.ConfigSyncServiceClient, error) {
	server, err := grpcx.NewServer(grpcx.ServerOptions{})
	if err != nil {
		return nil, err
	}
	configsyncv1.RegisterConfigSyncServiceServer(server, s)
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, ln) }()
	p.closers = append(p.closers, func() error {
		cancel()
		return <-served
	})
	dialer, err := grpcx.NewDialer(grpcx.ClientOptions{})
	if err != nil {
		return nil, err
	}
	conn, err := dialer.Dial(ln.Addr().String())
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, conn.Close)
	return configsyncv1.NewConfigSyncServiceClient(conn), nil
}

// close ends all and removes the folder.
func (p *pair) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}

// change gives the master's table another version: one topic, each time another one, has other queues.
func (p *pair) change(ctx context.Context) error {
	p.changes++
	t := entry.NewTopic(p.names[p.changes*7919%len(p.names)])
	t.ReadQueues = int32(100 + p.changes%60_000) //nolint:gosec // small
	_, err := p.registry.PutTopic(ctx, t, registry.Condition{})
	return err
}

// receive takes a transfer; of the table that have stands for, or of the whole one where that is nil.
func (p *pair) receive(ctx context.Context, c configsyncv1.ConfigSyncServiceClient, have *configsyncv1.TableVersion) (*table.Delta, error) {
	stream, err := c.Fetch(ctx, &configsyncv1.FetchRequest{Caller: caller(), Kind: wire.Kind(entry.Topics), Have: have})
	if err != nil {
		return nil, err
	}
	a := chunk.NewAssembly(entry.Topics)
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return a.Delta()
		}
		if err != nil {
			return nil, err
		}
		if err := a.Add(resp.GetChunk()); err != nil {
			return nil, err
		}
	}
}

// follower is a node that has tables and does not lead.
type follower struct{}

var errNoReign = errors.New("it does not lead")

func (follower) Enter() error                               { return errNoReign }
func (follower) Leave()                                     {}
func (follower) Reign() (int64, <-chan struct{}, error)     { return 0, nil, errNoReign }
func (follower) Serves() error                              { return nil }
func (follower) Epoch() int64                               { return 1 }
func (follower) Fence(context.Context, string, int64) error { return nil }
func (follower) Heed(string)                                {}

// nothing answers at once.
type nothing struct {
	configsyncv1.UnimplementedConfigSyncServiceServer
}

// Check implements ConfigSyncService.
func (nothing) Check(context.Context, *configsyncv1.CheckRequest) (*configsyncv1.CheckResponse, error) {
	return &configsyncv1.CheckResponse{}, nil
}

// Fetch implements ConfigSyncService.
func (nothing) Fetch(_ *configsyncv1.FetchRequest, stream grpc.ServerStreamingServer[configsyncv1.FetchResponse]) error {
	return stream.Send(&configsyncv1.FetchResponse{})
}
