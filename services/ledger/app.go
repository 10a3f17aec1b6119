package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
	"github.com/tandemlog/tandem/services/ledger/internal/once"
	"github.com/tandemlog/tandem/services/ledger/internal/peer"
	"github.com/tandemlog/tandem/services/ledger/internal/refusal"
	"github.com/tandemlog/tandem/services/ledger/internal/rpc"
)

// app is one ledger: the parts in the order in which they are built and started.
type app struct {
	cfg *Config
	env *service.Env
	fs  vfs.FS

	dialer    *grpcx.Dialer
	log       *entrylog.Log
	recovery  *entrylog.Recovery
	refused   *refusal.Tally
	member    *member
	transport *peer.Transport
	appender  *once.Appender
	server    *grpcx.Server
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
	for _, open := range []func() error{a.openLog, a.openMember, a.openAppends, a.openServer, a.openMetrics} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	a.env.SetReady(a.ready)
	return []service.Actor{
		{Name: "node", Run: a.member.Run},
		{Name: "peers", Run: a.transport.Run},
		{Name: "appends", Run: a.appender.Run},
		{Name: "grpc", Run: func(ctx context.Context) error { return a.server.Serve(ctx, ln) }},
		{Name: "leadership", Run: a.handOver},
	}, nil
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
const scope = "github.com/tandemlog/tandem/ledger/"

// logOptions are those of the entry log.
func (c *Config) logOptions() entrylog.Options {
	return entrylog.Options{
		DataFileSize: int64(c.MappedFileSizeForEntryData), IndexFileSize: int64(c.MappedFileSizeForEntryIndex), Async: c.Flush == flushAsync,
		BootID: bootID(), Verify: c.VerifyOnStart, Owner: &meta.Owner{Group: c.Group, Self: raft.NodeID(c.SelfID), Members: c.ids()},
	}
}

func (a *app) openLog() error {
	c := a.cfg
	var err error
	if a.log, a.recovery, err = entrylog.Open(a.fs, c.StorePath, c.logOptions()); err != nil {
		return fmt.Errorf("open the log in %s: %w", c.StorePath, err)
	}
	a.env.Defer("entrylog", func(error) error { return a.log.Close() })
	r := a.recovery
	a.env.Logger.Info("log opened", slog.Int64("first", int64(a.log.First())), slog.Int64("last", int64(a.log.Last())),
		slog.Int64("term", int64(r.Term)), slog.Bool("voter", r.Voter), slog.Bool("clean", r.Clean), slog.Int64("scanned", r.Scanned))
	if r.Torn != nil {
		a.env.Logger.Warn("an entry that was not finished was removed", slog.Any("error", r.Torn))
	}
	if r.NoVote != "" {
		a.env.Logger.Warn("the node has no vote until it has caught up", slog.String("reason", r.NoVote))
	}
	data, _ := a.log.FileSizes()
	c.MaxBodySize = min(c.MaxBodySize, service.Size(data-entryRoom)) // of the files that are there
	return nil
}

// entryRoom is what an entry with a key and the end of its file take beside a body, bytes.
const entryRoom = entry.HeaderSize + once.TrailerSize + entry.BlankSize

// bootID tells this run of the machine from others; without one every crash counts as one of the machine.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// consensus makes the core's configuration; its times are milliseconds.
func (c *Config) consensus() consensus.Config {
	ms := func(d time.Duration) raft.Ticks { return raft.Ticks(d.Milliseconds()) }
	o := consensus.DefaultConfig(raft.NodeID(c.SelfID), c.ids(), rand.NewPCG(rand.Uint64(), rand.Uint64()))
	o.ElectionMin, o.ElectionMax, o.Heartbeat = ms(c.MinElectionTimeout), ms(c.MaxElectionTimeout), ms(c.HeartBeatTimeInterval)
	o.LeaseMargin = o.ElectionMin / 5
	if !c.LeaderLease {
		o.LeaseMargin = o.ElectionMin
	}
	o.TransferTimeout, o.MaxTransferLag = ms(c.LeadershipTransferWaitTimeout), raft.Index(c.MaxLeadershipTransferWaitIndex)
	o.MaxUncommitted = raft.Index(c.MaxPendingRequestsNum)
	for i, id := range c.PreferredLeaderIDs {
		if o.Priority == nil {
			o.Priority = map[raft.NodeID]int{}
		}
		o.Priority[raft.NodeID(id)] = len(c.PreferredLeaderIDs) - i
	}
	return o
}

// Reconnecting: a member that comes back must be reached within an election.
const (
	reconnectMin = 50 * time.Millisecond
	reconnectMax = time.Second
)

func (a *app) openMember() error {
	c := a.cfg
	var err error
	if a.refused, err = refusal.New(a.env.MeterProvider.Meter(scope + "refusal")); err != nil {
		return err
	}
	a.dialer, err = grpcx.NewDialer(grpcx.ClientOptions{
		TLS: c.TLS.TLS(), Log: a.env.Logger, MaxMessage: c.maxMessage(), Providers: a.providers(),
		MinBackoff: reconnectMin, MaxBackoff: reconnectMax, ConnectTimeout: max(reconnectMax, c.MinElectionTimeout),
	})
	if err != nil {
		return err
	}
	a.member = newMember(a.log)
	data, _ := a.log.FileSizes() // what does not fit is refused to the leader, which tells it
	a.transport, err = peer.New(peer.Options{
		Group: c.Group, Self: raft.NodeID(c.SelfID), Members: c.members, Dial: a.dialer.Dial, CallTimeout: c.MinElectionTimeout,
		MaxEntry: int(min(entry.MaxSize, data-entry.BlankSize)),
		Refused:  a.refused, Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "peer"),
	}, a.log, a.member)
	if err != nil {
		return err
	}
	a.env.Defer("peers", func(error) error { return a.transport.Close() })
	a.member.make = func(s consensus.Start) (*node.Node, error) {
		return node.New(node.Options{
			Core: c.consensus(), Now: bootClock, Async: c.Flush == flushAsync, FlushInterval: c.FlushFileInterval, Log: a.env.Logger,
		}, s, a.log, a.transport)
	}
	return a.member.seat(a.recovery.Start)
}

func (a *app) openAppends() error {
	var err error
	a.appender, err = once.Open(once.Options{
		FS: a.fs, Root: a.cfg.StorePath, Window: a.cfg.IdempotenceWindow, Log: a.env.Logger,
	}, a.recovery.Start, a.member, a.log)
	return err
}

func (a *app) providers() grpcx.Providers {
	return grpcx.Providers{TracerProvider: a.env.TracerProvider, MeterProvider: a.env.MeterProvider}
}

func (a *app) openServer() error {
	c := a.cfg
	var err error
	a.server, err = grpcx.NewServer(grpcx.ServerOptions{
		TLS: c.TLS.TLS(), Log: a.env.Logger, MaxMessage: c.maxMessage(), Providers: a.providers(),
		SlowCall: -1, // an append that waits for its group is no news, one a call would flood the log
	})
	if err != nil {
		return err
	}
	t := rpc.Telemetry{Refused: a.refused, Meter: a.env.MeterProvider.Meter(scope + "rpc")}
	ledger, err := rpc.NewLedger(a.appender, a.member, a.log, c.members, rpc.Limits{
		MaxBody: int(c.MaxBodySize), MaxBatchEntries: c.MaxBatchEntries, MaxBatchBytes: int64(c.MaxBatchSize), MaxReply: int(c.MaxReplySize),
		AppendTimeout: c.AppendTimeout,
	}, t)
	if err != nil {
		return err
	}
	admin := rpc.NewAdmin(a, c.members, t)
	members := peer.NewMembers(a.transport, admin.TransferLeadership)
	ledgerv1.RegisterLedgerServiceServer(a.server, ledger)
	ledgerv1.RegisterLedgerAdminServiceServer(a.server, admin)
	ledgerv1.RegisterPushServiceServer(a.server, members)
	ledgerv1.RegisterElectionServiceServer(a.server, members)
	return nil
}
