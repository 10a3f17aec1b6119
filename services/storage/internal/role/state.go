package role

import (
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/slave"
)

// Errors.
var (
	// ErrNotMaster: this node takes no puts. Metadata: reason, and master where its address is known.
	ErrNotMaster = errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "this node takes no puts")
	// ErrSteppedDown ends the puts and links of a master that has become a slave, ErrNewEpoch the links of a node that opens,
	// ErrPromised those of one that has promised, ErrReplaced a link that its slave makes anew.
	ErrSteppedDown = errdefs.New(errdefs.Aborted, "STEPPED_DOWN", "this node is a slave from now on")
	ErrNewEpoch    = errdefs.New(errdefs.Aborted, "NEW_EPOCH", "a new epoch begins")
	ErrPromised    = errdefs.New(errdefs.Aborted, "PROMISED", "a new master is about to open")
	ErrReplaced    = errdefs.New(errdefs.Aborted, "REPLACED", "the node follows again")
	// ErrDemoted ends the puts and links of a master that an operator has made a slave, ErrPromoting the link of a slave that is
	// about to open.
	ErrDemoted   = errdefs.New(errdefs.Aborted, "DEMOTED", "an operator has made this node a slave")
	ErrPromoting = errdefs.New(errdefs.Aborted, "PROMOTING", "this node is being promoted")
	// ErrStopping: the process ends.
	ErrStopping = errdefs.New(errdefs.Unavailable, "STOPPED", "the storage is stopping")
)

// reasonStarting is shown until the first decision, ReasonSlave on every slave.
const (
	reasonStarting = "STARTING"
	ReasonSlave    = "SLAVE"
)

// State is what Status shows.
type State struct {
	Role epoch.Role
	// Open: puts are taken. Else Reason and Remedy say why not.
	Open           bool
	Reason, Remedy string
	Lineage        epoch.Lineage
	Upstream       Upstream
	// Master is the gRPC address of the open master where it is known.
	Master string
}

// State returns a copy of the current state.
func (m *Manager) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.st
	s.Reason, s.Remedy = s.why()
	if up := &s.Upstream; up.State == LinkCatchingUp && m.log.End() >= up.End {
		up.State = LinkInSync
	}
	return s
}

// update changes the state and what CheckOpen answers.
func (m *Manager) update(f func(s *State)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.st)
	s := &m.st
	if s.Open {
		m.refusal.Store(nil)
		return
	}
	reason, remedy := s.why()
	e := ErrNotMaster.With("reason", reason).WithRemedy("%s", remedy)
	if s.Master != "" && reason != slave.ErrNoUpstream.Reason {
		e = e.With("master", s.Master)
	}
	m.refusal.Store(e)
}

// why says why the node takes no puts. Of a slave that finds no master the link knows more.
func (s *State) why() (reason, remedy string) {
	if s.Reason == ReasonSlave && s.Upstream.Reason == slave.ErrNoUpstream.Reason {
		return s.Upstream.Reason, s.Upstream.Remedy
	}
	return s.Reason, s.Remedy
}

// Show implements slave.Owner.
func (o owner) Show(change func(up *Upstream), master string) {
	o.m.update(func(s *State) {
		change(&s.Upstream)
		if master != "" {
			s.Master = master
		}
	})
}

// waits says why the node is not open.
func (m *Manager) waits(reason, remedy string) {
	changed := false
	m.update(func(s *State) {
		changed = s.Reason != reason
		s.Reason, s.Remedy = reason, remedy
	})
	if changed {
		m.slog.Warn("puts are refused", "reason", reason, "remedy", remedy)
	}
}

// CheckOpen returns nil on an open master, else ErrNotMaster with reason, remedy and, where known, the master's address.
func (m *Manager) CheckOpen() error {
	if e := m.refusal.Load(); e != nil {
		return e
	}
	return nil
}

// Enter is CheckOpen for who is about to append: until Leave, a step-down waits, so that nothing is appended behind it. Leave
// is called only after a nil.
func (m *Manager) Enter() error {
	m.gate.RLock()
	if err := m.CheckOpen(); err != nil {
		m.gate.RUnlock()
		return err
	}
	return nil
}

// Leave ends an Enter.
func (m *Manager) Leave() { m.gate.RUnlock() }

// setOpen opens or closes the node for puts; closing waits for appends on their way.
func (m *Manager) setOpen(open bool, reason, remedy string) {
	m.gate.Lock()
	defer m.gate.Unlock()
	m.open = open
	if m.hold != nil {
		close(m.hold.over)
		m.hold = nil
	}
	m.update(func(s *State) {
		s.Open, s.Reason, s.Remedy = open, reason, remedy
		if open {
			s.Master, s.Upstream = m.o.Address, Upstream{}
		} else if s.Master == m.o.Address {
			s.Master = ""
		}
	})
}
