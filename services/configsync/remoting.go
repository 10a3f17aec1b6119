package main

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/follow"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/register"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/serve"
	"github.com/tandemlog/tandem/services/configsync/internal/syncer"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// masters are whom a slave may follow: a RocketMQ broker, where one is configured, until the log has had a Tandem master; then the
// leading peer.
type masters struct {
	java   *follow.Follower // nil: none
	tandem *syncer.Syncer
	legacy atomic.Bool // java is followed
}

// Follow keeps the tables of a slave until ctx ends or the registry fails for good.
func (m *masters) Follow(ctx context.Context) error {
	if m.java != nil {
		m.legacy.Store(true)
		if err := m.java.Follow(ctx); !errors.Is(err, follow.ErrReign) {
			return err
		}
		m.legacy.Store(false)
	}
	return m.tandem.Follow(ctx)
}

// Master is whom the slave follows, or "".
func (m *masters) Master() string {
	if m.legacy.Load() {
		return m.java.Master()
	}
	return m.tandem.Master()
}

// Epoch is the highest reign that the node knows of.
func (m *masters) Epoch() int64 { return m.tandem.Epoch() }

// Round runs a round of the sync now.
func (m *masters) Round(ctx context.Context) error {
	if m.legacy.Load() {
		return m.java.Round(ctx)
	}
	return m.tandem.Round(ctx)
}

// Pull returns the table of a peer, or of the RocketMQ master.
func (m *masters) Pull(ctx context.Context, addr string, k entry.Kind) (*table.Table, error) {
	if m.java != nil && addr == m.java.Address() {
		return m.java.Pull(ctx, k)
	}
	return m.tandem.Pull(ctx, addr, k)
}

// State is how the sync of one kind goes.
func (m *masters) State(k entry.Kind) syncer.State {
	if m.legacy.Load() {
		return syncer.State(m.java.State(k))
	}
	return m.tandem.State(k)
}

func (a *app) openMasters() {
	a.masters = &masters{tandem: a.syncer}
	c := a.cfg
	if !c.Master.Legacy {
		return
	}
	a.masters.legacy.Store(true)
	a.masters.java = follow.New(follow.Options{
		Address: c.Master.Address, Interval: c.SyncInterval, Timeout: c.SyncTimeout, MaxFrame: int(c.Remoting.MaxFrame),
		TakeLower: c.Master.TakeLowerOffsets, Permit: a.mayFollowJava, Dial: (&net.Dialer{}).DialContext,
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "remoting/follow"),
	}, a.registry)
}

// mayFollowJava holds the tables to what the storage does with the log: it follows no RocketMQ broker any more once it knows of an
// epoch, and where nothing was heard of it yet nobody knows.
func (a *app) mayFollowJava() error {
	if a.cfg.Storage.Address == "" {
		return nil
	}
	r := a.source.Role()
	if r.Epoch > 0 {
		return follow.ErrReign.With("epoch", r.Epoch)
	}
	return r.Err
}

// openRemoting listens for RocketMQ's slaves.
func (a *app) openRemoting() error {
	c := &a.cfg.Remoting
	if c.Listen == "" {
		return nil
	}
	below, err := vip(c.Listen)
	if err != nil {
		return err
	}
	var lns []net.Listener
	for _, addr := range []string{c.Listen, below} {
		ln, err := a.listen("remoting.listen", addr)
		if err != nil {
			return err
		}
		lns = append(lns, ln)
	}
	o := serve.Options{
		BrokerAddr: c.BrokerAddr, HAServerAddr: c.HAServerAddr, MaxConns: c.MaxConnections, MaxFrame: int(c.MaxFrame),
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "remoting/serve"),
	}
	if a.cfg.Storage.Address != "" {
		o.Flushed = a.flushed
	}
	server, err := serve.New(o, a.registry, a.role)
	if err != nil {
		return err
	}
	a.remoting = append(a.remoting, service.Actor{Name: "remoting", Run: func(ctx context.Context) error { return server.Serve(ctx, lns...) }})
	if len(c.NameServers) == 0 {
		return nil
	}
	a.registrar = register.New(register.Options{
		NameServers: c.NameServers, Cluster: a.cfg.BrokerClusterName, BrokerName: a.cfg.BrokerName,
		BrokerAddr: c.BrokerAddr, HAServerAddr: c.HAServerAddr, MaxFrame: int(c.MaxFrame), Dial: (&net.Dialer{}).DialContext,
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "remoting/register"),
	}, a.registry, a.role)
	a.remoting = append(a.remoting, service.Actor{Name: "name servers", Run: a.registrar.Run})
	return nil
}

// flushed is the end of the log that is on the storage's disk.
func (a *app) flushed(ctx context.Context) (int64, error) {
	conn, err := a.conns.get(a.cfg.Storage.Address)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Storage.Timeout)
	defer cancel()
	st, err := storagev1.NewStorageAdminServiceClient(conn).Status(ctx, &storagev1.StatusRequest{})
	return st.GetWatermarks().GetFlushedOffset(), err
}
