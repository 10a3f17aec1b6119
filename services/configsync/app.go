package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/disk"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/register"
	"github.com/tandemlog/tandem/services/configsync/internal/role"
	"github.com/tandemlog/tandem/services/configsync/internal/role/told"
	"github.com/tandemlog/tandem/services/configsync/internal/rpc"
	"github.com/tandemlog/tandem/services/configsync/internal/rpc/offset"
	"github.com/tandemlog/tandem/services/configsync/internal/storage"
	"github.com/tandemlog/tandem/services/configsync/internal/syncer"
)

// app is one config sync node: the parts in the order in which they are built and started.
type app struct {
	cfg *Config
	env *service.Env
	fs  vfs.FS

	registry *registry.Registry
	conns    *conns
	source   source
	queues   *storage.Queues // nil: no storage
	syncer   *syncer.Syncer
	role     *role.Manager
	masters  *masters
	sync     *rpc.Sync
	server   *grpcx.Server

	registrar *register.Registrar // nil: none
	remoting  []service.Actor     // what RocketMQ's slaves and name servers need
}

// source says the node's role: its storage, or the configuration.
type source interface {
	role.Source
	Run(ctx context.Context) error
}

// build makes the service of main.
func build(_ context.Context, cfg *Config, env *service.Env) ([]service.Actor, error) {
	return (&app{cfg: cfg, env: env, fs: vfs.OS()}).build()
}

// build opens the folder and the listener and wires the parts.
func (a *app) build() ([]service.Actor, error) {
	ln, err := a.listen("listen", a.cfg.Listen)
	if err != nil {
		return nil, err
	}
	for _, open := range []func() error{a.openTables, a.openConns, a.openStorage, a.openRole, a.openServer, a.openRemoting} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	a.env.SetReady(a.ready)
	return append([]service.Actor{
		{Name: "registry", Run: a.registry.Run},
		{Name: "storage", Run: a.source.Run},
		{Name: "role", Run: a.role.Run},
		{Name: "grpc", Run: func(ctx context.Context) error { return a.server.Serve(ctx, ln) }},
	}, a.remoting...), nil
}

// listen opens a listener. Whoever serves it closes it; a build that fails does.
func (a *app) listen(key, addr string) (net.Listener, error) {
	ln, err := service.Listen(context.Background(), key, addr)
	if err != nil {
		return nil, err
	}
	a.env.Defer(key, func(error) error {
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return ln, nil
}

// scope is the prefix of instrumentation scopes.
const scope = "github.com/tandemlog/tandem/configsync/"

// configDir is RocketMQ's name of the folder of the tables.
const configDir = "config"

func (a *app) openTables() error {
	dir := filepath.Join(a.cfg.StorePathRootDir, configDir)
	if err := durable.MkdirAll(a.fs, dir); err != nil {
		return err
	}
	var err error
	a.registry, err = registry.Open(a.fs, dir, registry.Options{
		SaveInterval: a.cfg.FlushConsumerOffsetInterval, MaxQueues: int32(a.cfg.MaxTopicQueueNums), //nolint:gosec // bounded by Validate
		Logger: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "registry"),
	})
	if err != nil {
		return fmt.Errorf("open the tables in %s: %w", dir, err)
	}
	a.env.Defer("registry", func(error) error { return a.registry.Close() })
	return nil
}

func (a *app) openConns() error {
	dialer, err := grpcx.NewDialer(grpcx.ClientOptions{TLS: a.cfg.TLS.TLS(), Log: a.env.Logger, Providers: a.providers()})
	if err != nil {
		return err
	}
	a.conns = &conns{dial: dialer.Dial, open: map[string]*grpc.ClientConn{}}
	a.env.Defer("connections", func(error) error { return a.conns.Close() })
	return nil
}

func (a *app) openStorage() error {
	c := a.cfg
	if c.Storage.Address == "" {
		a.source = storage.NewStatic(c.BrokerRole != slave, c.Epoch)
		return nil
	}
	conn, err := a.conns.get(c.Storage.Address)
	if err != nil {
		return err
	}
	a.source = storage.NewLink(storage.Options{
		Cluster: c.BrokerClusterName, BrokerName: c.BrokerName, NodeID: c.BrokerID,
		Interval: c.Storage.Interval, Timeout: c.Storage.Timeout, Log: a.env.Logger,
	}, conn)
	a.queues = storage.NewQueues(conn)
	return nil
}

func (a *app) openRole() error {
	c := a.cfg
	a.syncer = syncer.New(syncer.Options{
		Cluster: c.BrokerClusterName, BrokerName: c.BrokerName, NodeID: c.BrokerID, Address: c.Advertise, Peers: c.others(),
		Interval: c.SyncInterval, Timeout: c.SyncTimeout, Epoch: func() int64 { return a.role.Floor() },
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "syncer"),
	}, a.registry, a.client)
	a.openMasters()
	heard, err := told.Open(a.fs, filepath.Join(c.StorePathRootDir, configDir, disk.OwnDir)) // the registry has it locked
	if err != nil {
		return err
	}
	a.role = role.New(role.Options{
		Address: c.Advertise, Peers: c.others(), StartWait: c.StartWait, Log: a.env.Logger,
	}, a.source, a.registry, a.syncer, a.masters, heard, a.roleQueues())
	return nil
}

// roleQueues is a nil interface where there is no storage.
func (a *app) roleQueues() role.Queues {
	if a.queues == nil {
		return nil
	}
	return a.queues
}

func (a *app) client(addr string) (configsyncv1.ConfigSyncServiceClient, error) {
	conn, err := a.conns.get(addr)
	if err != nil {
		return nil, err
	}
	return configsyncv1.NewConfigSyncServiceClient(conn), nil
}

func (a *app) providers() grpcx.Providers {
	return grpcx.Providers{TracerProvider: a.env.TracerProvider, MeterProvider: a.env.MeterProvider}
}

func (a *app) openServer() error {
	var err error
	a.server, err = grpcx.NewServer(grpcx.ServerOptions{TLS: a.cfg.TLS.TLS(), Log: a.env.Logger, Providers: a.providers()})
	if err != nil {
		return err
	}
	var queues offset.Queues
	if a.queues != nil {
		queues = a.queues
	}
	a.sync = rpc.NewSync(rpc.Self{
		Cluster: a.cfg.BrokerClusterName, BrokerName: a.cfg.BrokerName, NodeID: a.cfg.BrokerID, Address: a.cfg.Advertise,
	}, a.registry, a.role, a.role)
	configsyncv1.RegisterConfigSyncServiceServer(a.server, a.sync)
	configsyncv1.RegisterTopicServiceServer(a.server, rpc.NewTopic(a.registry, a.role))
	configsyncv1.RegisterSubscriptionGroupServiceServer(a.server, rpc.NewGroup(a.registry, a.role))
	configsyncv1.RegisterOffsetServiceServer(a.server, offset.New(a.registry, a.registry, a.role, queues))
	configsyncv1.RegisterConfigAdminServiceServer(a.server, rpc.NewAdmin(a.registry, a.role, a.masters, a.status))
	return nil
}

// conns are the connections to other nodes, made on first use and kept. Safe for concurrent use.
type conns struct {
	dial func(addr string) (*grpc.ClientConn, error)

	mu   sync.Mutex // guards open
	open map[string]*grpc.ClientConn
}

func (c *conns) get(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[addr]; conn != nil {
		return conn, nil
	}
	conn, err := c.dial(addr)
	if err != nil {
		return nil, err
	}
	c.open[addr] = conn
	return conn, nil
}

// Close closes all connections.
func (c *conns) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, conn := range c.open {
		errs = append(errs, conn.Close())
	}
	clear(c.open)
	return errors.Join(errs...)
}
