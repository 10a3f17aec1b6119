package role

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/change"
	"github.com/tandemlog/tandem/services/storage/internal/role/peers"
	"github.com/tandemlog/tandem/services/storage/internal/role/saved"
	"github.com/tandemlog/tandem/services/storage/internal/role/slave"
	"github.com/tandemlog/tandem/services/storage/internal/role/sums"
)

// Manager makes a storage master or slave.
type Manager struct {
	o        Options
	log      Log
	links    Links
	set      peers.Set
	slave    *slave.Slave
	promoter *change.Promoter
	saved    *saved.File
	sums     sums.Sums
	slog     *slog.Logger
	metrics  instruments

	ops   chan op
	ended chan struct{} // closed when Run has returned

	gate    sync.RWMutex // held for reading by who appends
	refusal atomic.Pointer[errdefs.Error]

	mu sync.Mutex // guards st
	st State

	// Owned by the goroutine of Run.
	lin       epoch.Lineage
	open      bool
	clean     bool // the last stop was clean, and nothing has happened since
	work      *task
	path      []int64 // node ids from this node to the master, while there is a link
	lastPath  []int64 // of the last upstream
	followers map[int64]*follower
	hold      *hold         // puts are held back though the node is open
	order     *change.Order // a promotion that is under way
}

// op is a change that the goroutine of Run makes.
type op struct {
	f    func() error
	done chan error
}

// task is the work of a role.
type task struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// Open reads the lineage, takes stock of how the last run ended, and saves that: afterwards a second crash cannot hide the
// first. The log has been recovered and is not in use yet.
func Open(o Options, log Log, links Links, puller Puller, calls Peers) (*Manager, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		o: o, log: log, links: links, set: o.set(calls), sums: sums.New(log), saved: saved.New(o.FS, o.Root), slog: o.Log.With("component", "role"),
		ops: make(chan op), ended: make(chan struct{}), followers: map[int64]*follower{}, clean: o.Recovery.Clean,
	}
	m.slave = slave.New(o.slave(m.set, m.slog), owner{m}, log, puller)
	m.promoter = change.New(o.change(m.set, m.slog), owner{m})
	var err error
	if m.metrics, err = newInstruments(o.Meter, m); err != nil {
		return nil, err
	}
	next, err := m.load()
	if err != nil {
		return nil, err
	}
	if err := m.saveStart(next); err != nil {
		return nil, err
	}
	m.update(func(s *State) { s.Reason, s.Remedy = reasonStarting, "wait, or look at Status again" })
	return m, nil
}

// load reads the lineage as it is after this start.
func (m *Manager) load() (epoch.Lineage, error) {
	boot := epoch.Boot{
		Role: m.o.Role, Clean: m.o.Recovery.Clean, ID: m.o.BootID, SyncFlush: m.o.SyncFlush,
		First: m.log.FirstOffset(), End: m.log.End(), Lost: m.o.Recovery.Lost > 0,
	}
	l, found, backup, err := m.saved.Read()
	if err != nil {
		return l, err
	}
	if !found {
		return epoch.NewLineage(boot), nil
	}
	if boot.Restored = backup; backup {
		m.slog.Warn("lineage restored from its backup", "promise_epoch", l.Promise.Epoch)
	}
	if m.o.SyncFlush && !l.SyncFlush {
		// What was reported under the async flush has to be as durable as what follows.
		if _, err := m.log.FlushNow(context.Background()); err != nil {
			return l, fmt.Errorf("flush log: %w", err)
		}
	}
	if lost := m.o.Recovery.Lost; lost > 0 {
		l.Held = max(l.Held, boot.End+lost)
	}
	l = epoch.Booted(l, boot)
	if l.Role.Master() != m.o.Role.Master() {
		m.slog.Warn("the saved role holds, not the configured one; promote or demote to change it",
			"role", l.Role.String(), "configured", m.o.Role.String())
	}
	if l.Role.Master() {
		l.Role = m.o.MasterRole
	}
	return l, nil
}

// saveStart saves what a start has found. After a crash a full disk does not hinder it: the abort file stays as long as this is
// not saved, so that the next start finds the same, and nothing is promised, opened or followed before.
func (m *Manager) saveStart(next epoch.Lineage) error {
	err := m.save(next)
	if err == nil || m.o.Recovery.Clean || m.o.Recovery.Lost > 0 || !m.saved.Again(err) {
		return err
	}
	m.slog.Warn("the disk is full: until there is space this node neither opens nor follows", "error", err)
	m.takes(next)
	return nil
}

// save makes next durable, then current. After an error the file may hold either, and the old one stays current: everything
// that next was to allow is left undone and tried again.
func (m *Manager) save(next epoch.Lineage) error {
	next.Held = max(next.Held, m.log.Flushed().Load())
	next.Cluster, next.BrokerName, next.FileSize = m.o.Cluster, m.o.BrokerName, m.log.FileSize()
	if err := m.saved.Write(next); err != nil {
		return err
	}
	m.takes(next)
	return nil
}

// takes makes next current.
func (m *Manager) takes(next epoch.Lineage) {
	if m.lin.Role != next.Role && m.lin.Role != epoch.RoleUnset {
		m.slog.Info("role saved", "role", next.Role.String(), "was", m.lin.Role.String())
	}
	m.lin = next
	m.update(func(s *State) { s.Role, s.Lineage = next.Role, next })
}

// Run works until ctx ends. It is called once.
func (m *Manager) Run(ctx context.Context) error {
	defer close(m.ended)
	for ctx.Err() == nil {
		m.begin(ctx)
		m.serve(ctx)
	}
	return m.finish()
}

// begin starts the work of the current role.
func (m *Manager) begin(ctx context.Context) {
	work := m.starting
	switch {
	case !m.lin.Role.Master():
		work = m.following
		m.path = nil
	case m.open:
		work = m.reigning
	default:
		m.path = nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t := &task{cancel: cancel, done: make(chan struct{})}
	m.work = t
	go func() {
		defer close(t.done)
		work(ctx)
	}()
}

// serve carries out ops until the work has ended.
func (m *Manager) serve(ctx context.Context) {
	for {
		select {
		case o := <-m.ops:
			o.done <- o.f()
		case <-m.work.done:
			m.work.cancel(nil)
			return
		case <-ctx.Done():
			m.stopWork(ErrStopping)
			return
		}
	}
}

// stopWork ends the work and waits for it. Ops that it was about to hand in are not carried out.
func (m *Manager) stopWork(reason error) {
	m.work.cancel(reason)
	<-m.work.done
}

// finish lets go of everybody at the end of the process; the role stays.
func (m *Manager) finish() error {
	m.settle(ErrStopping)
	m.setOpen(false, ErrStopping.Reason, "start the storage again")
	m.dropFollowers(ErrStopping)
	m.log.SetAhead(false)
	return m.save(m.lin)
}

// do has the goroutine of Run carry out f. An error of ctx means that f was not begun.
func (m *Manager) do(ctx context.Context, f func() error) error {
	o := op{f: f, done: make(chan error, 1)}
	select {
	case m.ops <- o:
		return <-o.done
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.ended:
		return ErrStopping
	}
}

// lineage returns the current lineage to a work.
func (m *Manager) lineage(ctx context.Context) (l epoch.Lineage, err error) {
	err = m.do(ctx, func() error { l = m.lin; return nil })
	return l, err
}

// following is the work of a slave.
func (m *Manager) following(ctx context.Context) {
	m.update(func(s *State) { s.Reason, s.Remedy = ReasonSlave, "send puts to the open master" })
	m.slave.Run(ctx)
}

// stepDown makes the node a slave: durably first, then puts and links end. It runs as an op; unless the work asked for it, the
// caller ends that too before it answers anybody.
func (m *Manager) stepDown(next epoch.Lineage, reason error) error {
	if err := m.save(next); err != nil {
		return err
	}
	m.clean = false
	m.settle(reason)
	m.setOpen(false, errdefs.ReasonOf(reason), "send puts to the open master")
	m.log.SetAhead(false)
	m.dropFollowers(reason)
	m.metrics.changed(next.Role)
	m.slog.Info("stepped down", "promise_epoch", next.Promise.Epoch, "reason", errdefs.ReasonOf(reason))
	return nil
}

// dropFollowers ends all links to slaves and all puts that wait for them.
func (m *Manager) dropFollowers(reason error) {
	for id, f := range m.followers {
		f.revoke(reason)
		delete(m.followers, id)
	}
	m.links.Shut(reason)
}
