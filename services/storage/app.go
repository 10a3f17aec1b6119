package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/check/folder"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/damage"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/guard"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
	"github.com/tandemlog/tandem/services/storage/internal/role"
	"github.com/tandemlog/tandem/services/storage/internal/role/saved"
	"github.com/tandemlog/tandem/services/storage/internal/rollback"
	"github.com/tandemlog/tandem/services/storage/internal/rpc"
	"github.com/tandemlog/tandem/services/storage/internal/store"
	"github.com/tandemlog/tandem/services/storage/internal/topics"
)

// app is one storage: the parts in the order in which they are built and started.
type app struct {
	cfg *Config
	env *service.Env
	fs  vfs.FS

	folder   *guard.Guard
	damage   *damage.Book
	log      *commitlog.Log
	recovery *commitlog.Recovery
	queues   *consumequeue.Set
	dispatch *dispatch.Dispatcher
	master   *replication.Master
	slave    *replication.Slave
	dialer   *grpcx.Dialer
	topics   *topics.View
	peers    *rpc.Peers
	role     *role.Manager
	store    *store.Store
	server   *grpcx.Server
	built    bool
}

// build makes the service of main.
func build(_ context.Context, cfg *Config, env *service.Env) ([]service.Actor, error) {
	return (&app{cfg: cfg, env: env, fs: vfs.OS()}).build()
}

// build opens the folder and the listeners and wires the parts.
func (a *app) build() ([]service.Actor, error) {
	a.folder = guard.New(a.fs, a.cfg.StorePathRootDir)
	a.fs = a.folder
	grpcLn, err := a.listen("listen", a.cfg.Listen)
	if err != nil {
		return nil, err
	}
	haLn, err := a.listen("haListen", a.cfg.HAListen)
	if err != nil {
		return nil, err
	}
	for _, open := range []func() error{a.openLog, a.openQueues, a.openReplication, a.openTopics, a.openRole, a.openServer} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	a.env.SetReady(a.ready)
	a.built = true
	a.introduce()
	actors := []service.Actor{
		{Name: "folder", Run: a.folder.Run},
		{Name: "commitlog", Run: a.log.Run},
		{Name: "consumequeue", Run: a.queues.Run},
		{Name: "dispatch", Run: a.dispatch.Run},
		{Name: "replication", Run: func(ctx context.Context) error { return a.master.Run(ctx, haLn) }},
		{Name: "role", Run: a.role.Run},
		{Name: "grpc", Run: func(ctx context.Context) error { return a.server.Serve(ctx, grpcLn) }},
		{Name: "puts", Run: a.lastPuts},
	}
	if a.cfg.ConfigSync.Address != "" {
		actors = slices.Insert(actors, len(actors)-2, service.Actor{Name: "topics", Run: a.topics.Run}) // puts need it to the end
	}
	return actors, nil
}

// introduce logs which node this is.
func (a *app) introduce() {
	c := a.cfg
	a.env.Logger.Info("this node", slog.String("cluster", c.BrokerClusterName), slog.String("broker", c.BrokerName), slog.Int64("node", c.BrokerID),
		slog.String("role", a.role.State().Role.String()), slog.String("configured_role", c.BrokerRole), slog.String("folder", c.StorePathRootDir),
		slog.String("listen", c.Listen), slog.String("ha_listen", c.HAListen), slog.String("advertise", c.Advertise), slog.String("ha_advertise", c.HAAdvertise),
		slog.String("debug_listen", c.Telemetry.DebugListen), slog.Any("peers", c.HA.Peers), slog.String("master", c.Master.Address))
}

// lastWait is how long a stop waits for slaves to confirm what was put.
const lastWait = time.Second

// lastPuts ends the puts before the links end that they wait for. It stops first: no put is taken any more, the slaves in sync
// get a moment to confirm the last ones, and what then still waits gets its status.
func (a *app) lastPuts(ctx context.Context) error {
	<-ctx.Done()
	a.store.Stop()
	if k := min(a.master.InSync(), a.cfg.HA.Required); k > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait)
		defer cancel()
		_ = a.master.Acked(k).Wait(ctx, a.log.End()) // or the time is over, or this is no master
	}
	a.master.Shut(store.ErrStopping)
	return nil
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

func (a *app) openLog() error {
	c := a.cfg
	err := checkFolder(a.fs, "storePathRootDir", c.StorePathRootDir)
	if err != nil {
		return err
	}
	owner := saved.Broker{Cluster: c.BrokerClusterName, Name: c.BrokerName}
	if err := errors.Join(saved.New(a.fs, c.StorePathRootDir).CheckOwner(owner), folder.CheckSizes(a.fs, c.StorePathRootDir)); err != nil { // before the recovery, which changes the folder
		return fmt.Errorf("storePathRootDir %s: %w", c.StorePathRootDir, err)
	}
	a.log, a.recovery, err = commitlog.Open(a.fs, c.StorePathRootDir, commitlog.Options{
		FileSize: int64(c.MappedFileSizeCommitLog), SyncFlush: c.FlushDiskType == syncFlush,
		FlushInterval: c.FlushIntervalCommitLog, FlushLeastPages: int64(c.FlushCommitLogLeastPages),
		FlushThoroughInterval: c.FlushCommitLogThoroughInterval, BootID: bootID(),
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "commitlog"),
	})
	if err != nil {
		return fmt.Errorf("storePathRootDir %s: %w", c.StorePathRootDir, err)
	}
	a.env.Defer("commitlog", func(cause error) error {
		// A start that fails has written nothing: a folder that was closed cleanly stays so.
		return a.log.Close(cause == nil || !a.built && a.recovery.Clean)
	})
	if err := a.folder.Hold(); err != nil {
		return err
	}
	if a.damage, err = damage.NewBook(a.env.MeterProvider.Meter(scope + "damage")); err != nil {
		return err
	}
	for _, bad := range a.recovery.Rot {
		a.damage.Record(damage.ByRecovery, bad.Offset, bad.Next)
	}
	return a.checkLog()
}

// checkFolder refuses a file where a folder must be.
func checkFolder(fsys vfs.FS, key, dir string) error {
	if info, err := fsys.Stat(dir); err == nil && !info.Dir {
		return errdefs.Invalid(key, "%s is a file", dir).WithRemedy("name a folder")
	}
	return nil
}

// checkLog looks for what the configuration alone cannot show.
func (a *app) checkLog() error {
	c := a.cfg
	empty := a.log.End() == a.log.FirstOffset()
	if empty && c.Master.Legacy && c.MappedFileSizeCommitLog == 0 {
		return errdefs.Invalid("mappedFileSizeCommitLog", "a RocketMQ master does not tell the size of its files").
			WithRemedy("set it to the broker's mappedFileSizeCommitLog; RocketMQ's default is 1GiB")
	}
	if free, err := a.fs.FreeSpace(c.StorePathRootDir); err == nil && free < a.log.FileSize() {
		a.env.Logger.Warn("the disk has no room for another file of the log, puts will answer DISK_FULL",
			slog.String("folder", c.StorePathRootDir), slog.Int64("free", free), slog.Int64("file_size", a.log.FileSize()))
	}
	return nil
}

// scope is the prefix of instrumentation scopes.
const scope = "github.com/tandemlog/tandem/storage/"

// bootID tells this run of the machine from others; without one every crash counts as one of the machine.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (a *app) openQueues() error {
	c := a.cfg
	var err error
	a.queues, err = consumequeue.Open(a.fs, c.StorePathRootDir, consumequeue.Options{
		FileSize: int64(c.MappedFileSizeConsumeQueue), Clean: a.recovery.Clean, Checkpoint: a.log.Checkpoint(),
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "consumequeue"),
	})
	if err != nil {
		return fmt.Errorf("storePathRootDir %s: %w", c.StorePathRootDir, err)
	}
	a.env.Defer("consumequeue", func(error) error { return a.queues.Close() })
	a.dispatch, err = dispatch.New(dispatch.Options{
		DelayLevels: c.levels, ForeignFiles: c.Master.Legacy, Observe: a.observer(),
		Bad: func(offset, next int64) { a.damage.Record(damage.ByDispatch, offset, next) },
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "dispatch"),
	}, a.log, a.queues)
	return err
}

func (a *app) openReplication() error {
	c := a.cfg
	var legacy []netip.Addr
	for _, p := range c.HA.LegacyPeers {
		addr, err := netip.ParseAddr(p)
		if err != nil {
			return err
		}
		legacy = append(legacy, addr)
	}
	meter := a.env.MeterProvider.Meter(scope + "replication")
	a.master = replication.NewMaster(replication.MasterOptions{
		Heartbeat: c.HASendHeartbeatInterval, Housekeeping: c.HAHousekeepingInterval, BatchSize: int(c.HATransferBatchSize),
		MaxFrame: int(c.HA.FrameSize), MaxSlaves: c.HA.MaxSlaves, LegacySlaves: c.HA.LegacySlaves, LegacyPeers: legacy, LegacyOutside: len(c.HA.Peers) > 0,
		StartFromLast: c.HA.StartFrom == fromLast, FallBehindMax: int64(c.HASlaveFallbehindMax),
		Congestion: c.HA.CongestionControl, Log: a.env.Logger, Meter: meter,
	}, a.log)
	a.slave = replication.NewSlave(replication.SlaveOptions{
		Heartbeat: c.HASendHeartbeatInterval, Housekeeping: c.HAHousekeepingInterval,
		Congestion: c.HA.CongestionControl, Log: a.env.Logger, Meter: meter,
	}, sink{Log: a.log, sync: c.FlushDiskType == syncFlush})
	return nil
}

// openTopics makes what other nodes are called with, and the view of the topic table.
func (a *app) openTopics() error {
	c := a.cfg
	var err error
	a.dialer, err = grpcx.NewDialer(grpcx.ClientOptions{
		TLS: c.TLS.TLS(), Log: a.env.Logger, MaxMessage: c.maxReply(), Providers: a.providers(),
	})
	if err != nil {
		return err
	}
	if c.ConfigSync.Address == "" {
		a.topics = topics.NewStatic(c.DefaultTopicQueueNums)
		return nil
	}
	a.topics, err = topics.New(topics.Options{
		Cluster: c.BrokerClusterName, BrokerName: c.BrokerName, NodeID: c.BrokerID, Address: c.ConfigSync.Address,
		Queues: c.DefaultTopicQueueNums, AutoCreate: c.AutoCreateTopicEnable, Dial: a.dialer.Dial,
		MayCreate: func() error { return a.role.CheckOpen() },
		Log:       a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "topics"),
	})
	if err != nil {
		return err
	}
	a.env.Defer("topics", func(error) error { return a.topics.Close() })
	return nil
}

func (a *app) openRole() error {
	c := a.cfg
	var err error
	a.peers = rpc.NewPeers(a.dialer.Dial)
	a.env.Defer("peers", func(error) error { return a.peers.Close() })
	others := slices.DeleteFunc(slices.Clone(c.HA.Peers), func(p string) bool { return p == c.Advertise })
	a.role, err = role.Open(role.Options{
		FS: a.fs, Root: c.StorePathRootDir, Cluster: c.BrokerClusterName, BrokerName: c.BrokerName, NodeID: c.BrokerID,
		Address: c.Advertise, HAAddress: c.HAAdvertise, Role: roles[c.BrokerRole], MasterRole: roles[c.HA.MasterRole], Peers: others,
		Required: c.HA.Required, RefuseWithoutReplicas: c.HA.RefuseWithoutReplicas, SyncFlush: c.FlushDiskType == syncFlush,
		AllowDataLoss: c.AllowDataLoss, StartWait: c.HA.StartWait, RollbackKeep: int64(c.HA.RollbackKeep),
		MaxFrame: int32(c.HA.FrameSize), FileSize: int64(c.MappedFileSizeCommitLog), MasterAddress: c.Master.Address, Legacy: c.Master.Legacy, LegacyFirst: c.Master.FirstOffset, //nolint:gosec // bounded by Validate
		Recovery: role.Recovery{Clean: a.recovery.Clean, Lost: a.recovery.Lost}, BootID: bootID(),
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "role"),
	}, roleLog{a.log, a.dispatch, a.damage}, (*links)(a), puller{a.slave}, peerCalls{a.peers})
	if err != nil {
		return err
	}
	a.store, err = store.New(store.Options{
		StoreHost: c.storeHost(), SyncMaster: c.HA.MasterRole == syncMaster, SyncFlush: c.FlushDiskType == syncFlush,
		Required: c.HA.Required, MaxAcks: c.HA.MaxSlaves, SlaveTimeout: c.SlaveTimeout, FlushTimeout: c.SyncFlushTimeout,
		RefuseWithoutReplicas: c.HA.RefuseWithoutReplicas, AppendPropCRC: c.AppendPropCRC,
		Limits: message.Limits{MaxBody: int(c.MaxMessageSize)},
		Log:    a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "store"), Tracer: a.tracer(),
	}, a.log, a.master, a.queues, a.topics, a.role)
	return err
}

// roles are the names of the config.
var roles = map[string]epoch.Role{
	asyncMaster: epoch.RoleAsyncMaster, syncMaster: epoch.RoleSyncMaster, slave: epoch.RoleSlave,
}

func (a *app) providers() grpcx.Providers {
	return grpcx.Providers{TracerProvider: a.env.TracerProvider, MeterProvider: a.env.MeterProvider}
}

func (a *app) tracer() trace.Tracer { return a.env.TracerProvider.Tracer(scope + "store") }

func (a *app) openServer() error {
	var err error
	a.server, err = grpcx.NewServer(grpcx.ServerOptions{
		TLS: a.cfg.TLS.TLS(), Log: a.env.Logger, MaxMessage: a.maxMessage(), Providers: a.providers(),
		SlowCall: -1, // a put that waits for a slave is no news, one a message would flood the log
	})
	if err != nil {
		return err
	}
	storagev1.RegisterMessageServiceServer(a.server, rpc.NewMessage(a.store, a.dispatch.Dispatched, a.cfg.maxReply()))
	care, err := a.newCare()
	if err != nil {
		return err
	}
	storagev1.RegisterStorageAdminServiceServer(a.server, rpc.NewAdmin(a.log, flusher{a.log, a.queues}, a.status,
		a.role, rollback.New(a.fs, a.cfg.StorePathRootDir)).WithCare(care))
	storagev1.RegisterReplicationServiceServer(a.server, rpc.NewReplication(a.role))
	return nil
}

// requestRoom is what a request has besides its bodies at most, bytes.
const requestRoom = 1 << 20

// maxMessage lets the largest put and the largest reply through.
func (a *app) maxMessage() int {
	return max(int(a.cfg.MaxMessageSize)+requestRoom, a.cfg.maxReply())
}
