package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/role"
	"github.com/tandemlog/tandem/services/configsync/internal/role/told"
	"github.com/tandemlog/tandem/services/configsync/internal/rpc"
	"github.com/tandemlog/tandem/services/configsync/internal/rpc/offset"
	"github.com/tandemlog/tandem/services/configsync/internal/storage"
	"github.com/tandemlog/tandem/services/configsync/internal/syncer"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// TestRandomSchedules runs three whole nodes, without sockets and on virtual time, through crashes at any step of saving, full disks,
// changes of the master (told or not told), cut links, lost, broken and repeated answers. On no node does a table become poorer or an
// offset go back without a reset, and in the end all have the same, with all that was answered as durable.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	count := scaled(250, 10000)
	var all counts
	for seed := range count {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, uint64(seed)) //nolint:gosec // small
			w.run()
			all.add(&w.counts)
			if t.Failed() {
				t.Logf("schedule %d:\n%s", seed, w.events.Tail())
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d schedules: %+v", count, all)
	if all.Opened < count || all.Heard < all.Opened || all.Full < count/2 || all.Crashed < count/2 || all.Changes < 5*count || all.Unsure > all.Topics/2 {
		t.Errorf("the schedules do not show what they should: %+v", all)
	}
}

// counts say what the schedules were made of.
type counts struct{ Opened, Heard, Crashed, InWrite, Full, Changes, Topics, Unsure, Offsets int }

func (c *counts) add(o *counts) {
	c.Opened += o.Opened
	c.Heard += o.Heard
	c.Crashed += o.Crashed
	c.InWrite += o.InWrite
	c.Full += o.Full
	c.Changes += o.Changes
	c.Topics += o.Topics
	c.Unsure += o.Unsure
	c.Offsets += o.Offsets
}

// world is one schedule.
type world struct {
	t    *testing.T
	seed uint64
	net  *simNet

	diceMu sync.Mutex
	rnd    *rand.Rand

	nodes [3]*simNode
	epoch int64 // the last reign given out
	owner map[int64]*simNode
	oracle
	counts counts
	events servicetest.Record
}

// simNode is a node's place: it outlives its processes.
type simNode struct {
	w    *world
	id   int
	fs   *memfs.FS
	role *simRole
	seen map[entry.Kind]*table.Table // as last looked at

	mu      sync.Mutex
	live    *simParts
	fenced  fenced
	dead    atomic.Bool // it crashed in the middle of something
	left    *memfs.FS   // what that left
	full    bool        // its disk
	wasFull bool        // once
	forgot  bool        // a restart forgot a reign that it was told of
}

// simParts are a running process.
type simParts struct {
	registry *registry.Registry
	syncer   *syncer.Syncer
	role     *role.Manager
	sync     *rpc.Sync
	topics   *rpc.Topic
	offsets  *offset.Service
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// simRole is what a node's storage says.
type simRole struct {
	mu      sync.Mutex
	role    storage.Role
	changed *watermark.Mark
}

func (r *simRole) Role() storage.Role {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.role
}

func (r *simRole) Changed() *watermark.Mark { return r.changed }

func (r *simRole) set(x storage.Role) {
	r.mu.Lock()
	r.role = x
	r.mu.Unlock()
	r.changed.Advance(r.changed.Load() + 1)
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // by seed
		owner: map[int64]*simNode{}, oracle: newOracle(),
	}
	w.net = &simNet{w: w, streams: map[*simStream]bool{}, old: map[simKey][]*simAnswer{}}
	for i := range w.nodes {
		w.nodes[i] = &simNode{w: w, id: i, fs: memfs.New(), role: &simRole{changed: watermark.New(0)}, seen: map[entry.Kind]*table.Table{}}
	}
	return w
}

// note writes down what happens.
func (w *world) note(what string, args ...any) {
	slog.New(slog.NewTextHandler(&w.events, nil)).With(args...).Info("event", slog.String("what", what))
}

// dice returns a number below n.
func (w *world) dice(n int) int {
	w.diceMu.Lock()
	defer w.diceMu.Unlock()
	return w.rnd.IntN(n)
}

func simAddr(i int) string { return fmt.Sprintf("node%d:1", i) }

// start starts the node's process on what is left of its disk.
func (n *simNode) start() {
	p := &simParts{}
	var err error
	if p.registry, err = registry.Open(n.fs, "/config", registry.Options{}); err != nil {
		n.w.t.Errorf("node %d: %v", n.id, err)
		return
	}
	tables := &simTables{p.registry, n, p}
	var peers []string
	for i := range n.w.nodes {
		if i != n.id {
			peers = append(peers, simAddr(i))
		}
	}
	log := slog.New(slog.NewTextHandler(&n.w.events, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", n.id)
	dial := func(addr string) (configsyncv1.ConfigSyncServiceClient, error) {
		for i := range n.w.nodes {
			if simAddr(i) == addr {
				return &simClient{n.w.net, n.id, i}, nil
			}
		}
		return nil, errors.New("no such node")
	}
	p.syncer = syncer.New(syncer.Options{
		Cluster: "c", BrokerName: "b", NodeID: int64(n.id), Address: simAddr(n.id), Peers: peers,
		Epoch: func() int64 { return p.role.Floor() }, Log: log,
	}, tables, dial)
	heard, err := told.Open(n.fs, "/config/tandem")
	if err != nil {
		n.w.t.Errorf("node %d: %v", n.id, err)
		return
	}
	p.role = role.New(role.Options{Address: simAddr(n.id), Peers: peers, StartWait: 3 * time.Second, Log: log}, n.role, tables, p.syncer, p.syncer, heard, nil)
	p.sync = rpc.NewSync(rpc.Self{Cluster: "c", BrokerName: "b", NodeID: int64(n.id), Address: simAddr(n.id)}, p.registry, p.role, p.role)
	p.topics = rpc.NewTopic(tables, p.role)
	p.offsets = offset.New(p.registry, p.registry, p.role, nil)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.done.Go(func() { _ = p.registry.Run(ctx) }) // a disk that died with the node
	p.done.Go(func() { _ = p.role.Run(ctx) })
	n.mu.Lock()
	n.live = p
	if heard.Reign() < n.fenced.epoch {
		if !n.wasFull {
			n.w.t.Errorf("schedule %d: node %d was told of reign %d, and knows of %d after a restart", n.w.seed, n.id, n.fenced.epoch, heard.Reign())
		}
		n.fenced, n.forgot = fenced{}, true
	}
	n.mu.Unlock()
	n.w.found(n, p.registry.Snapshot(entry.Topics))
	n.w.note("start", "node", n.id, "topics", p.registry.Snapshot(entry.Topics).Version().String(), "entries", p.registry.Snapshot(entry.Topics).Len())
	n.look() // what it has after a crash
}

func (n *simNode) parts() *simParts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.live
}

func (n *simNode) alive() bool { return n.parts() != nil && !n.dead.Load() }

// crashSoon has the node crash at one of its next steps of writing.
func (n *simNode) crashSoon() {
	at := n.fs.Ops() + 1 + n.w.dice(12)
	keep := []memfs.Keep{memfs.OnlySynced, memfs.All, memfs.Torn(uint32(n.w.dice(1 << 20)))}[n.w.dice(3)] //nolint:gosec // small
	fs := n.fs
	fs.SetHook(func(op memfs.Op) memfs.Action {
		switch {
		case n.dead.Load():
			return memfs.FailBefore(nil)
		case op.Kind.Mutates() && op.Seq >= at && n.dead.CompareAndSwap(false, true):
			n.left = fs.CrashClone(keep)
			return memfs.FailBefore(nil)
		}
		return memfs.Proceed
	})
}

// fill leaves no room on the node's disk, or makes room again.
func (n *simNode) fill(full bool) {
	n.w.note("disk", "node", n.id, "full", full)
	n.full, n.wasFull = full, n.wasFull || full
	n.fs.SetQuota(0)
	if full {
		n.w.counts.Full++
		n.fs.SetQuota(n.fs.Used())
	}
}

// kill ends the process; it is as if it had stopped at once.
func (n *simNode) kill() {
	p := n.parts()
	if p == nil {
		return
	}
	n.look()
	n.w.counts.Crashed++
	n.w.note("crash", "node", n.id)
	if n.dead.CompareAndSwap(false, true) {
		n.left = n.fs.CrashClone(memfs.All)
	}
	n.fs.SetHook(func(memfs.Op) memfs.Action { return memfs.FailBefore(nil) })
	n.w.net.sever(func(from, to int) bool { return from == n.id || to == n.id })
	p.cancel()
	p.done.Wait()
	_ = p.registry.Close() // on a dead disk
	n.mu.Lock()
	n.live = nil
	n.mu.Unlock()
	n.fs = n.left
	n.fs.SetHook(nil)
	n.dead.Store(false)
}

// promote gives the next reign to a node. Others are told unless they are left in the dark.
func (w *world) promote(to int, dark bool) {
	w.epoch++
	w.owner[w.epoch] = w.nodes[to]
	w.note("promote", "node", to, "epoch", w.epoch, "dark", dark)
	for i, n := range w.nodes {
		if i != to && (!dark || !n.role.Role().Master) {
			n.role.set(storage.Role{Epoch: w.epoch, Start: -1})
		}
	}
	w.nodes[to].mu.Lock()
	w.nodes[to].fenced = fenced{} // its own reign is the higher one
	w.nodes[to].mu.Unlock()
	w.nodes[to].role.set(storage.Role{Master: true, Epoch: w.epoch, Start: -1})
}

// act does something on a node that leads.
func (w *world) act(n *simNode) {
	p := n.parts()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	epoch, _, err := p.role.Reign()
	if err != nil {
		return
	}
	w.counts.Changes++
	name := fmt.Sprintf("Topic%d", w.dice(12))
	switch w.dice(7) {
	case 0, 1:
		var resp *configsyncv1.CreateTopicResponse
		resp, err = p.topics.CreateTopic(ctx, &configsyncv1.CreateTopicRequest{Topic: &configsyncv1.Topic{Name: name}})
		w.answered(n, name, true, err, epoch, wire.VersionOf(resp.GetTableVersion()))
	case 2:
		var resp *configsyncv1.DeleteTopicResponse
		resp, err = p.topics.DeleteTopic(ctx, &configsyncv1.DeleteTopicRequest{Name: name})
		w.answered(n, name, false, err, epoch, wire.VersionOf(resp.GetTableVersion()))
	case 3, 4:
		c := &configsyncv1.ConsumerOffset{Topic: name, Group: "G", Offset: int64(w.dice(1000))}
		durable := w.dice(2) == 0
		if _, err = p.offsets.Commit(ctx, &configsyncv1.CommitRequest{Offset: c, Durable: durable}); err == nil && durable {
			w.holds(n, name)
		}
	case 5:
		_, err = p.offsets.Reset(ctx, &configsyncv1.ResetRequest{
			Topic: name, Group: "G", QueueId: new(int32), To: &configsyncv1.ResetRequest_Offset{Offset: int64(w.dice(1000))},
		})
		if err == nil {
			w.holds(n, name)
		}
	case 6:
		level := int32(1 + w.dice(3)) //nolint:gosec // small
		d := &configsyncv1.DelayOffset{Level: level, Offset: int64(w.dice(1000))}
		if w.dice(4) == 0 {
			_, err = p.offsets.ResetDelay(ctx, &configsyncv1.ResetDelayRequest{Level: level, Offset: d.GetOffset()})
		} else {
			_, err = p.offsets.CommitDelay(ctx, &configsyncv1.CommitDelayRequest{Offsets: []*configsyncv1.DelayOffset{d}})
		}
		if err == nil {
			w.holdsDelay(n, level)
		}
	}
}

// step does one thing.
func (w *world) step() {
	n := w.nodes[w.dice(3)]
	switch w.dice(15) {
	case 0:
		if n.alive() {
			n.crashSoon()
		}
	case 1:
		n.kill()
	case 2, 3:
		w.promote(n.id, w.dice(3) == 0)
	case 4:
		to := w.dice(3)
		w.net.mu.Lock()
		w.net.cut[n.id][to] = !w.net.cut[n.id][to]
		w.net.mu.Unlock()
		w.net.sever(func(from, other int) bool { return from == n.id && other == to || from == to && other == n.id })
	case 5:
		n.fill(!n.full)
	default:
		for range 1 + w.dice(4) {
			w.act(w.nodes[w.dice(3)])
		}
	}
}

func (w *world) run() {
	for _, n := range w.nodes {
		n.start()
	}
	w.begin()
	for range 25 {
		if w.t.Failed() {
			break
		}
		w.pause(time.Duration(w.dice(2500)) * time.Millisecond)
		w.step()
	}
	w.heal()
	for range 120 {
		w.pause(time.Second)
		if w.equal() == "" || w.t.Failed() {
			break
		}
	}
	if why := w.equal(); why != "" {
		w.t.Errorf("schedule %d: two minutes after everything is well: %s", w.seed, why)
	}
	w.check()
	for _, n := range w.nodes {
		n.kill()
	}
}

// begin makes a first master and a topic that is never deleted: an empty table would be nobody's truth.
func (w *world) begin() {
	w.net.setCalm(true)
	w.promote(0, false)
	w.pause(time.Second)
	resp, err := w.nodes[0].parts().topics.CreateTopic(context.Background(), &configsyncv1.CreateTopicRequest{Topic: &configsyncv1.Topic{Name: "Base"}})
	w.answered(w.nodes[0], "Base", true, err, 1, wire.VersionOf(resp.GetTableVersion()))
	w.pause(2 * time.Second)
	if why := w.equal(); why != "" || err != nil {
		w.t.Errorf("at the beginning: %v, %s", err, why)
	}
	w.net.setCalm(false)
}

// pause lets time pass, and looks.
func (w *world) pause(d time.Duration) {
	const slice = 250 * time.Millisecond
	for ; d > 0; d -= slice {
		<-time.After(min(d, slice))
		w.judge()
		for _, n := range w.nodes {
			if n.dead.Load() {
				n.w.counts.InWrite++
				n.kill()
			}
			n.look()
			if n.parts() == nil && (w.net.calm || w.dice(8) == 0) {
				n.start()
			}
		}
	}
}

// heal makes everything well: the network, the disks, and who is master; in half of the schedules with a new reign.
func (w *world) heal() {
	w.net.mu.Lock()
	w.net.calm, w.net.cut = true, [3][3]bool{}
	w.net.mu.Unlock()
	for _, n := range w.nodes {
		if n.parts() == nil || n.dead.Load() || w.dice(3) == 0 {
			n.kill()
			n.fill(false)
			n.start()
		}
		n.fill(false)
	}
	last := slices.IndexFunc(w.nodes[:], func(n *simNode) bool { r := n.role.Role(); return r.Master && r.Epoch == w.epoch })
	if w.dice(2) == 0 || last < 0 {
		w.promote(w.dice(3), false)
		return
	}
	for i, n := range w.nodes {
		if i != last {
			n.role.set(storage.Role{Epoch: w.epoch, Start: -1})
		}
	}
}
