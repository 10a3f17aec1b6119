package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// nodes runs units by their names.
type nodes interface {
	start(names ...string) error
	stop(names ...string) error // SIGTERM, and waits
	kill(names ...string) error // -9
	stopAll()
}

// cluster is the units and the connections to them.
type cluster struct {
	nodes
	names   []string // storages
	configs []string // the config sync nodes beside them
	ledgers []string
	ports   *faults.Ports
	units   map[string]*unit
	conns   map[string]*grpc.ClientConn
}

func newCluster(bin, compose, dir string) (*cluster, error) {
	c := &cluster{
		names: []string{"master", "slave1", "slave2"}, ledgers: []string{"ledger0", "ledger1", "ledger2"},
		ports: faults.NewPorts(), units: map[string]*unit{}, conns: map[string]*grpc.ClientConn{},
	}
	for _, n := range c.names {
		c.configs = append(c.configs, configOf(n))
		if err := errors.Join(c.add(n, "storage", filepath.Join(dir, n)), c.add(configOf(n), "configsync", filepath.Join(dir, n))); err != nil {
			return nil, err
		}
	}
	for _, n := range c.ledgers {
		if err := c.add(n, "ledger", filepath.Join(dir, n)); err != nil {
			return nil, err
		}
	}
	if compose != "" {
		c.nodes = &containers{file: compose, units: c.units}
		return c, nil
	}
	p, err := newProcesses(bin, dir, c)
	c.nodes = p
	return c, err
}

// configOf is the config sync node beside a storage.
func configOf(storage string) string { return "config-" + storage }

// add makes a unit's folder, gives it ports and connects to it.
func (c *cluster) add(name, binary, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	u := &unit{name: name, binary: binary, folder: folder}
	for _, addr := range []*string{&u.addr, &u.debug} {
		port, err := c.ports.Take(1)
		if err != nil {
			return err
		}
		*addr = faults.Loopback(port)
	}
	// One that comes back must not have to wait for the pause after the last failure to connect.
	soon := grpcx.ClientOptions{MinBackoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, ConnectTimeout: time.Second}
	conn, err := grpcx.Dial(u.addr, soon)
	c.units[name], c.conns[name] = u, conn
	return err
}

func (c *cluster) folder(name string) string { return c.units[name].folder }

func (c *cluster) addr(name string) string { return c.units[name].addr }

func (c *cluster) stopEverything() {
	for _, conn := range c.conns {
		_ = conn.Close() // nothing is sent any more
	}
	c.stopAll()
}

func (c *cluster) admin(name string) storagev1.StorageAdminServiceClient {
	return storagev1.NewStorageAdminServiceClient(c.conns[name])
}

func (c *cluster) message(name string) storagev1.MessageServiceClient {
	return storagev1.NewMessageServiceClient(c.conns[name])
}

func (c *cluster) offsets(name string) configsyncv1.OffsetServiceClient {
	return configsyncv1.NewOffsetServiceClient(c.conns[name])
}

// patience is how long whatever is awaited may take on a busy machine.
const patience = 30 * time.Second

// await asks for a status until ok says yes; ok also gets every answer to show progress.
func await[T fmt.Stringer](ctx context.Context, what string, ask func(context.Context) (T, error), ok func(T) bool) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last T
	var failed error
	for {
		st, err := ask(ctx)
		if err == nil {
			if last = st; ok(st) {
				return st, nil
			}
		} else {
			failed = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, fmt.Errorf("%s did not happen within %v; last status: %v; last error: %w", what, patience, last, errors.Join(failed, ctx.Err()))
		}
	}
}

// await waits for a storage's status.
func (c *cluster) await(ctx context.Context, name, what string, ok func(*storagev1.StatusResponse) bool) error {
	_, err := await(ctx, name+": "+what, func(ctx context.Context) (*storagev1.StatusResponse, error) {
		return c.admin(name).Status(ctx, &storagev1.StatusRequest{})
	}, ok)
	return err
}

// awaitConfig waits for a config sync node's status.
func (c *cluster) awaitConfig(ctx context.Context, name, what string, ok func(*configsyncv1.StatusResponse) bool) error {
	_, err := await(ctx, name+": "+what, func(ctx context.Context) (*configsyncv1.StatusResponse, error) {
		return configsyncv1.NewConfigAdminServiceClient(c.conns[name]).Status(ctx, &configsyncv1.StatusRequest{})
	}, ok)
	return err
}

func (c *cluster) ledgerAdmin(name string) ledgerv1.LedgerAdminServiceClient {
	return ledgerv1.NewLedgerAdminServiceClient(c.conns[name])
}

// awaitLedger waits for a ledger's status.
func (c *cluster) awaitLedger(ctx context.Context, name, what string, ok func(*ledgerv1.StatusResponse) bool) (*ledgerv1.StatusResponse, error) {
	return await(ctx, name+": "+what, func(ctx context.Context) (*ledgerv1.StatusResponse, error) {
		return c.ledgerAdmin(name).Status(ctx, &ledgerv1.StatusRequest{})
	}, ok)
}
