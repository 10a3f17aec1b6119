package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
	"github.com/tandemlog/tandem/services/storage/internal/role"
	"github.com/tandemlog/tandem/services/storage/internal/store"
	"github.com/tandemlog/tandem/services/storage/internal/topics"
)

const (
	bubbleRoot      = "/store"
	bubbleFileSize  = 16 << 10
	bubbleQueueSize = 20 * consumequeue.UnitSize
)

// bubble is a sync master and slaves in one bubble of time, on disks in memory. Log, queues, dispatch, store, role and the count of
// acks are those that run; calls between nodes and the raw streams are function calls, and a process is a context.
type bubble struct {
	t     *testing.T
	cells []*cell
	ids   atomic.Uint64
	sync  bool // flush
}

// cell is one storage: a disk and what runs on it.
type cell struct {
	b       *bubble
	id      int
	fs      *memfs.FS
	boot    int
	cut     atomic.Bool // from the others
	stalled atomic.Bool // it sends nothing to its slaves
	proc    atomic.Pointer[process]
	// hook sees each change of the disk before it happens, over all processes.
	hook func(p *process, op memfs.Op) memfs.Action
	left chan remains // of a process that has died

	promised atomic.Int64 // the highest epoch that a peer was told is promised here
	floor    int64        // what the log had when the last process began, or ended in order
}

// remains is what a dead process leaves.
type remains struct {
	fs    *memfs.FS
	keep  memfs.Keep
	why   error
	least int64 // the log has at least that much
}

// process is what runs on a cell between a start and an end. It is the links and the peers of its role.
type process struct {
	c        *cell
	ctx      context.Context //nolint:containedctx // ends with the process
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	dead     atomic.Bool
	closed   bool
	log      *commitlog.Log
	recovery *commitlog.Recovery
	queues   *consumequeue.Set
	dispatch *dispatch.Dispatcher
	tracker  *acks.Tracker
	role     *role.Manager
	store    *store.Store
	cutting  atomic.Int64 // where a cut goes that is under way, -1

	mu     sync.Mutex
	next   byte
	tokens map[role.Token]*bubbleLink
	live   map[int64]*bubbleLink
}

// bubbleLink is one link to a slave.
type bubbleLink struct {
	role.Grant
	ctx    context.Context //nolint:containedctx // ends the link
	cancel context.CancelCauseFunc
	gone   chan struct{}
	once   sync.Once
	left   chan struct{} // closed when nobody uses the log for it any more; nil: nobody does
}

func (k *bubbleLink) end(reason error) {
	k.once.Do(func() { k.cancel(reason); close(k.gone) })
	if k.left != nil {
		<-k.left
	}
}

var (
	errDead        = errors.New("the process is dead")
	errUnreachable = errors.New("connection refused")
)

func newBubble(t *testing.T, nodes int, syncFlush bool) *bubble {
	b := &bubble{t: t, sync: syncFlush}
	for i := range nodes {
		b.cells = append(b.cells, &cell{b: b, id: i, fs: memfs.New(), left: make(chan remains, 1)})
	}
	t.Cleanup(func() { // of a life that ended early
		for _, c := range b.cells {
			if p := c.proc.Load(); p != nil {
				p.cancel()
				p.wg.Wait()
			}
		}
	})
	return b
}

// start runs a process on what the disk has. An error is that of a disk that fails.
func (c *cell) start() error {
	p := &process{c: c, tokens: map[role.Token]*bubbleLink{}, live: map[int64]*bubbleLink{}}
	p.cutting.Store(-1)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	c.fs.SetHook(func(op memfs.Op) memfs.Action {
		switch {
		case !op.Kind.Mutates():
			return memfs.Proceed
		case p.dead.Load():
			return memfs.FailBefore(errDead)
		case c.hook != nil:
			return c.hook(p, op)
		}
		return memfs.Proceed
	})
	if err := p.open(); err != nil {
		p.cancel()
		p.close(false)
		return err
	}
	c.floor = p.log.End()
	c.proc.Store(p)
	for name, run := range map[string]func(context.Context) error{
		"log": p.log.Run, "queues": p.queues.Run, "dispatch": p.dispatch.Run, "role": p.role.Run,
	} {
		p.wg.Go(func() {
			if err := run(p.ctx); err != nil && p.ctx.Err() == nil {
				p.die(memfs.All, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	return nil
}

func (p *process) open() (err error) {
	c, boot := p.c, strconv.Itoa(p.c.boot)
	p.log, p.recovery, err = commitlog.Open(c.fs, bubbleRoot, commitlog.Options{FileSize: bubbleFileSize, SyncFlush: c.b.sync, BootID: boot})
	if err != nil {
		return err
	}
	p.queues, err = consumequeue.Open(c.fs, bubbleRoot, consumequeue.Options{
		FileSize: bubbleQueueSize, Clean: p.recovery.Clean, Checkpoint: p.log.Checkpoint(),
	})
	if err != nil {
		return err
	}
	if p.dispatch, err = dispatch.New(dispatch.Options{}, p.log, p.queues); err != nil {
		return err
	}
	p.tracker = acks.New(8, 1<<30, p.log.End)
	o := role.Options{
		FS: c.fs, Root: bubbleRoot, Cluster: "c", BrokerName: "b", NodeID: int64(c.id), Address: strconv.Itoa(c.id), HAAddress: strconv.Itoa(c.id),
		Role: epoch.RoleSlave, MasterRole: epoch.RoleSyncMaster, Required: 1, RefuseWithoutReplicas: true, SyncFlush: c.b.sync,
		RollbackKeep: 1 << 30, Recovery: role.Recovery{Clean: p.recovery.Clean, Lost: p.recovery.Lost}, BootID: boot,
		NewID: func() epoch.ID { return epoch.ID(c.b.ids.Add(1)) },
	}
	if c.id == 0 {
		o.Role = epoch.RoleSyncMaster
	}
	for _, x := range c.b.cells {
		if x != c {
			o.Peers = append(o.Peers, strconv.Itoa(x.id))
		}
	}
	if p.role, err = role.Open(o, bubbleLog{p.log, p}, p, p, p); err != nil {
		return err
	}
	p.store, err = store.New(store.Options{
		SyncMaster: true, SyncFlush: c.b.sync, Required: 1, RefuseWithoutReplicas: true, AppendPropCRC: true, SlaveTimeout: time.Second,
	}, p.log, p, p.queues, topics.NewStatic(2), p.role)
	return err
}

// close ends what open has opened.
func (p *process) close(clean bool) error {
	p.closed = true
	var err error
	if p.queues != nil {
		err = p.queues.Close()
	}
	if p.log != nil {
		err = errors.Join(err, p.log.Close(clean && err == nil))
	}
	return err
}

// stop ends the process in order.
func (c *cell) stop() error {
	p := c.proc.Load()
	p.cancel()
	p.wg.Wait()
	err := p.close(true)
	if !p.dead.Load() {
		c.proc.Store(nil)
		c.floor = p.log.End()
	}
	return err
}

// die ends the process here and now: nothing that it does counts any more, and keep says what the disk has.
func (p *process) die(keep memfs.Keep, why error) {
	if p.dead.Swap(true) {
		return
	}
	r := remains{keep: keep, why: why, least: p.c.floor}
	if c := p.c; c.proc.Load() == p { // else it is still opening
		if r.least = p.log.End(); keep != memfs.All {
			r.least = p.log.Flushed().Load()
		}
		if to := p.cutting.Load(); to >= 0 {
			r.least = min(r.least, to)
		}
	}
	r.fs = p.c.fs.CrashClone(keep)
	p.c.left <- r
	p.cancel()
}

// bury waits for the end of a process that has died and gives the cell the disk that it left; false: it is alive.
func (c *cell) bury(look func(p *process, r remains)) bool {
	select {
	case r := <-c.left:
		p := c.proc.Swap(nil)
		if p != nil {
			p.wg.Wait()
		}
		look(p, r)
		if p != nil {
			_ = p.close(false) // of a dead one
		}
		if c.fs = r.fs; r.keep != memfs.All {
			c.boot++
		}
		return true
	default:
		return false
	}
}

// bubbleLog is the log as role cuts it, as roleLog is; it knows of a cut that is under way.
type bubbleLog struct {
	*commitlog.Log
	p *process
}

func (l bubbleLog) Rollback(to, epoch, keep int64) error {
	_, err := l.Log.Rollback(to, epoch, keep)
	return err
}

func (l bubbleLog) Ready() error { return l.p.dispatch.Ready() }

func (l bubbleLog) RecordStart(offset int64) (int64, error) { return l.p.dispatch.RecordStart(offset) }

func (l bubbleLog) Truncate(to int64) error {
	l.p.cutting.Store(to) // and stays where it fails: the next process may finish it
	err := l.Log.Truncate(to)
	if err == nil {
		err = l.p.dispatch.Truncated(to)
	}
	if err == nil {
		l.p.cutting.Store(-1)
	}
	return err
}

func (l bubbleLog) Reset(start int64) error {
	l.p.cutting.Store(0)
	err := l.Log.Reset(start)
	if err == nil {
		err = l.p.dispatch.Reset(start)
	}
	if err == nil {
		l.p.cutting.Store(-1)
	}
	return err
}

// Prepare and the next ones are role.Links, CountAt is store.Replicas too.
func (p *process) Prepare(ctx context.Context) error {
	return p.dispatch.CatchUp(ctx, p.log.Readable().Load())
}

func (p *process) Open(ownStart int64) {
	if err := p.store.BeginReign(p.dispatch.Dispatched().Load(), p.log.End()); err != nil && !p.dead.Load() {
		p.c.b.t.Errorf("node %d: begin a reign: %v", p.c.id, err)
	}
	p.tracker.Open(ownStart)
}

func (p *process) Shut(reason error) {
	p.tracker.Shut(reason)
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, k := range p.tokens {
		k.end(reason)
		delete(p.tokens, t)
	}
	for id, k := range p.live {
		k.end(reason)
		delete(p.live, id)
	}
}

func (p *process) Revoke(id int64, reason error) {
	p.mu.Lock()
	k := p.live[id]
	delete(p.live, id)
	p.mu.Unlock()
	if k != nil {
		k.end(reason)
	}
}

func (p *process) Grant(g role.Grant) (role.Token, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	k := &bubbleLink{Grant: g, gone: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(p.ctx)
	t := role.Token{0: p.next}
	p.tokens[t] = k
	return t, k.gone, nil
}

func (p *process) Acked(k int) *watermark.Mark         { return p.tracker.Acked(k) }
func (p *process) InSync() int                         { return p.tracker.InSync() }
func (p *process) InSyncChanged() *watermark.Mark      { return p.tracker.Changes() }
func (p *process) CountAt(offset int64) (acked, f int) { return p.tracker.CountAt(offset) }

// call returns the process at an address that can be reached now.
func (p *process) call(addr string) (*process, error) {
	i, err := strconv.Atoi(addr)
	if err != nil {
		return nil, err
	}
	c := p.c.b.cells[i]
	u := c.proc.Load()
	if u == nil || u.dead.Load() || p.dead.Load() || u.ctx.Err() != nil || c.cut.Load() || p.c.cut.Load() {
		return nil, errUnreachable
	}
	return u, nil
}

// answered turns the word of a process that has died meanwhile into none.
func answered[T any](u *process, v T, err error) (T, error) {
	if u.dead.Load() {
		return *new(T), errUnreachable
	}
	return v, err
}

// take makes a token a link.
func (p *process) take(t role.Token) *bubbleLink {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.tokens[t]
	delete(p.tokens, t)
	if k != nil {
		k.left = make(chan struct{})
		p.live[k.NodeID] = k
	}
	return k
}

// Stream is the raw connection.
func (p *process) Stream(ctx context.Context, a role.StreamArgs) error {
	u, err := p.call(a.Addr)
	if err != nil {
		return err
	}
	k := u.take(*a.Token)
	if k == nil {
		return errors.New("bad token")
	}
	defer u.Revoke(k.NodeID, io.EOF)
	defer close(k.left)
	if k.Start != p.log.End() {
		return fmt.Errorf("granted from %d, own end %d", k.Start, p.log.End())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.ctx, func() { cancel(context.Cause(k.ctx)) })()
	m := &acks.Member{Key: acks.Key{Node: k.NodeID}, Counts: true, Flushes: p.c.b.sync}
	u.tracker.Join(m, p.log.End(), time.Now(), time.Time{})
	defer u.tracker.Leave(m)
	for {
		if err := p.pull(ctx, u); err != nil {
			return err
		}
		if p.dead.Load() || u.dead.Load() || p.c.cut.Load() || u.c.cut.Load() {
			return errUnreachable
		}
		u.tracker.Report(m, p.log.End(), time.Now())
	}
}

// pull fetches one frame and waits until it may be reported.
func (p *process) pull(ctx context.Context, u *process) error {
	end := p.log.End()
	if err := u.log.Written().Wait(ctx, end+1); err != nil {
		return err
	}
	for u.c.stalled.Load() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if p.c.cut.Load() || u.c.cut.Load() {
		return errUnreachable
	}
	b, release, err := u.log.View(end, 5000)
	if err != nil {
		return err
	}
	body := slices.Clone(b)
	release()
	n, err := p.log.AppendRaw(end, [][]byte{body})
	if err == nil && p.c.b.sync {
		err = p.log.Flushed().Wait(ctx, end+int64(n))
	}
	return err
}

// Promise, Follow, RangeChecksum and Drain are what rpc does over gRPC.
func (p *process) Promise(ctx context.Context, addr string, r epoch.PromiseRequest) (epoch.Heard, error) {
	u, err := p.call(addr)
	if err != nil {
		return epoch.Heard{}, err
	}
	h, err := u.role.OnPromise(ctx, r)
	if h, err = answered(u, h, err); err == nil && h.Promised {
		u.c.promised.Store(max(u.c.promised.Load(), r.Reign.Epoch))
	}
	return h, err
}

func (p *process) RangeChecksum(ctx context.Context, addr string, from, to, stretch int64) (sums []uint32, upTo int64, err error) {
	u, err := p.call(addr)
	if err != nil {
		return nil, 0, err
	}
	return u.role.OnRangeChecksum(ctx, from, to, stretch)
}

func (p *process) Drain(ctx context.Context, addr string, r epoch.DrainRequest) (int64, func(), error) {
	u, err := p.call(addr)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ends, done := make(chan int64, 1), make(chan error, 1)
	go func() {
		defer context.AfterFunc(u.ctx, cancel)()
		done <- u.role.OnDrain(ctx, r, func(end int64) error { ends <- end; return nil })
	}()
	select {
	case end := <-ends:
		return end, cancel, nil
	case err := <-done:
		cancel()
		return 0, nil, err
	}
}

// bubbleStream is a control stream.
type bubbleStream struct {
	answers chan epoch.FollowAnswer
	ctx     context.Context //nolint:containedctx // of the call
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
}

func (p *process) Follow(ctx context.Context, addr string, r epoch.FollowRequest) (role.FollowStream, error) {
	u, err := p.call(addr)
	if err != nil {
		return nil, err
	}
	s := &bubbleStream{answers: make(chan epoch.FollowAnswer), done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(ctx)
	go func() {
		defer close(s.done)
		defer context.AfterFunc(u.ctx, s.cancel)()
		s.err = u.role.OnFollow(s.ctx, r, func(a epoch.FollowAnswer) error {
			select {
			case s.answers <- a:
				return nil
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		})
	}()
	return s, nil
}

func (s *bubbleStream) Recv() (epoch.FollowAnswer, error) {
	select {
	case a := <-s.answers:
		return a, nil
	case <-s.done:
		return epoch.FollowAnswer{}, errors.Join(io.EOF, s.err)
	case <-s.ctx.Done():
		return epoch.FollowAnswer{}, s.ctx.Err()
	}
}

func (s *bubbleStream) Close() { s.cancel() }

// pass lets d of the bubble's time pass and everything settle.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (c *cell) disk() testkit.Store { return testkit.Store{FS: c.fs, Dir: bubbleRoot} }
