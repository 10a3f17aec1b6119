package role

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/configsync/internal/storage"
	"github.com/tandemlog/tandem/services/configsync/internal/syncer"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Source says what the node is.
type Source interface {
	Role() storage.Role
	Changed() *watermark.Mark
}

// Tables are the node's tables. What they return nil for is saved and published.
type Tables interface {
	Snapshot(k entry.Kind) *table.Table
	Whole(k entry.Kind) error
	Join(ctx context.Context, peer *table.Table) (table.Report, error)
	ClampOffsets(ctx context.Context, limit func(topic string, queue int32) (int64, bool)) (int, error)
	// SetEpoch stamps later changes with a reign; Lead all tables, topics first: an error where one is not whole. Resign ends that.
	SetEpoch(epoch int64)
	Lead(ctx context.Context, epoch int64) error
	Resign()
	// Flush saves what was gathered.
	Flush(ctx context.Context) error
	// Fault returns why nothing can be saved any more, or nil.
	Fault() error
}

// Peers are asked whatever their role.
type Peers interface {
	Ask(ctx context.Context, addr string, opening bool) (syncer.Answer, error)
	Pull(ctx context.Context, addr string, k entry.Kind) (*table.Table, error)
}

// Follower keeps the tables of a slave until ctx ends.
type Follower interface {
	Follow(ctx context.Context) error
	// Master is whom it follows, or "". Epoch is the highest reign that it knows of.
	Master() string
	Epoch() int64
}

// Queues are those of the node's storage.
type Queues interface {
	List(ctx context.Context, topic string, below int64) (storage.Ends, error)
	Forget()
}

// Told is the highest reign that a peer told of, over restarts.
type Told interface {
	Reign() int64
	// Save has saved the reign, or a higher one, when it returns nil.
	Save(reign int64) error
}

// Options of a Manager.
type Options struct {
	Address   string   // of this node
	Peers     []string // the other nodes
	StartWait time.Duration
	// MinBackoff and MaxBackoff bound the pause before a peer is asked again (200 ms, 30 s).
	MinBackoff, MaxBackoff time.Duration
	Log                    *slog.Logger
}

// Errors.
var (
	// ErrNotMaster: this node takes no changes. Metadata: reason, and master where its address is known.
	ErrNotMaster = errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "this node takes no changes")
	// ErrNewerReign: a peer leads in a reign that is not below this node's.
	ErrNewerReign = errdefs.New(errdefs.FailedPrecondition, "ANOTHER_MASTER", "a peer leads already").
			WithRemedy("make one of the two a slave; without a storage: give the next master a higher epoch")
	// ErrOutlived: there is a higher reign: a peer is about to lead in it, or the tables carry it.
	ErrOutlived = errdefs.New(errdefs.FailedPrecondition, "OUTLIVED", "there is a higher reign than this node's").
			WithRemedy("nothing, this node follows its master; without a storage, to lead: a higher epoch")
	// ErrTooFar: no change of the master can have led to the reign that a caller names.
	ErrTooFar = errdefs.New(errdefs.OutOfRange, "EPOCH_TOO_FAR", "the reign lies too far above every one that this node knows of").
			WithRemedy("find out who calls in the name of this peer")
	// ErrOpening: the node is about to lead, and its tables may not be complete yet.
	ErrOpening = errdefs.New(errdefs.Unavailable, "OPENING", "this node is about to lead and answers nothing until it has heard its peers").
			WithRetry(200 * time.Millisecond)
)

// Reasons of a node that is not open.
const (
	reasonStarting = storage.ReasonStarting
	reasonSlave    = "SLAVE"
	reasonHearing  = "HEARING_PEERS"
	reasonStopping = "STOPPING"
)

// State is what Status shows.
type State struct {
	Master, Open   bool
	Epoch          int64 // its own where open, else the highest known of
	Reason, Remedy string
	MasterAddress  string // whom a slave follows, or this node
	Unheard        []string
	StorageErr     error
}

// Manager holds the role. Run is called once.
type Manager struct {
	o        Options
	source   Source
	tables   Tables
	peers    Peers
	follower Follower
	told     Told
	queues   Queues // nil: none

	refusal atomic.Pointer[errdefs.Error] // nil while open
	gate    sync.RWMutex                  // held for reading by changes on their way

	mu      sync.Mutex // guards the following
	st      State
	over    chan struct{} // closed at the end of the reign; nil while not open
	opening bool          // about to lead
	unheard map[string]bool
	fence   int64 // this node leads in no reign below
	now     *being

	asked  chan struct{} // a peer was added to unheard
	reigns *watermark.Mark
}

// being is what the node is for a while: the master of a reign, or a slave.
type being struct {
	role  storage.Role
	floor int64 // the fence when it began: a slave follows no lower reign
	end   context.CancelFunc
	ended chan struct{} // closed when it changes nothing any more
}

// New makes a manager; queues may be nil.
func New(o Options, s Source, t Tables, p Peers, f Follower, told Told, q Queues) *Manager {
	if o.MinBackoff == 0 {
		o.MinBackoff = 200 * time.Millisecond
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		o: o, source: s, tables: t, peers: p, follower: f, told: told, queues: q, fence: told.Reign(),
		st: State{Reason: reasonStarting}, unheard: map[string]bool{}, asked: make(chan struct{}, 1),
		reigns: watermark.New(0), now: &being{ended: make(chan struct{})},
	}
	close(m.now.ended) // nothing yet
	m.refuse(reasonStarting, "try again in a moment")
	return m
}

// Run leads or follows as the source says until ctx ends or the tables fail for good.
func (m *Manager) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		seen := m.source.Changed().Load()
		rctx, cancel := context.WithCancel(ctx)
		b := m.begin(cancel)
		var watching sync.WaitGroup
		watching.Go(func() {
			defer cancel()
			m.awaitChange(rctx, seen, b.role)
		})
		err := m.be(rctx, b.role)
		cancel()
		watching.Wait()
		close(b.ended)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (m *Manager) begin(end context.CancelFunc) *being {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = &being{role: m.due(), floor: m.fence, end: end, ended: make(chan struct{})}
	return m.now
}

// role is what the source says, unless the reign is over.
func (m *Manager) role() storage.Role {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.due()
}

// due is role, with m.mu held.
func (m *Manager) due() storage.Role {
	r := m.source.Role()
	if r.Master && r.Epoch < m.fence {
		return storage.Role{Epoch: m.fence, Start: -1, Err: ErrOutlived.With("epoch", r.Epoch).With("next", m.fence)}
	}
	return r
}

// awaitChange returns when the node's role is not r any more.
func (m *Manager) awaitChange(ctx context.Context, seen int64, r storage.Role) {
	for m.source.Changed().Wait(ctx, seen+1) == nil {
		seen = m.source.Changed().Load()
		now := m.role()
		if now.Master != r.Master || r.Master && now.Epoch != r.Epoch {
			return
		}
		if !now.Master {
			m.refuseSlave(now)
		}
	}
}

// be is the node in role r. An error is fatal.
func (m *Manager) be(ctx context.Context, r storage.Role) error {
	if m.queues != nil {
		m.queues.Forget()
	}
	if r.Master {
		if err := m.lead(ctx, r); err != nil {
			return err
		}
		return m.resign(ctx)
	}
	m.refuseSlave(r)
	return m.follower.Follow(ctx)
}

func (m *Manager) refuseSlave(r storage.Role) {
	if r.Err != nil {
		m.refuse(reasonOf(r.Err), remedyOf(r.Err))
		return
	}
	m.refuse(reasonSlave, "ask the master")
}

// farthest is how far a reign may lie above every one that a node knows of for it to be believed: the number of microseconds since 1970
// may be one where no storage counts them. Believed, a few calls with more would use up the numbers.
const farthest = 1 << 53

// Fence tells that a peer is about to lead in a reign. When it returns, a node of a lower one takes no changes any more, nor what
// another of a lower one sends, and what it took is saved and to be seen; that holds over restarts,
// unless the disk takes nothing. Others than peers are not heeded, and a reign beyond all bounds is ErrTooFar.
func (m *Manager) Fence(ctx context.Context, peer string, epoch int64) error {
	if !slices.Contains(m.o.Peers, peer) {
		return nil
	}
	m.mu.Lock()
	b := m.now
	if known := max(m.fence, b.floor, b.role.Epoch); epoch-known > farthest {
		m.mu.Unlock()
		return ErrTooFar.With("epoch", epoch).With("known", known).With("peer", peer)
	}
	m.fence = max(m.fence, epoch)
	m.mu.Unlock()
	if err := m.told.Save(epoch); err != nil { // what the node has is worth more to the peer than that it holds for good
		m.o.Log.Warn("a later reign cannot be saved, a restart forgets it", slog.Int64("epoch", epoch), slog.Any("error", err))
	}
	if b.floor >= epoch || b.role.Master && b.role.Epoch >= epoch {
		return nil
	}
	select {
	case <-b.ended:
	default:
		b.end() // and it follows
	}
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// State returns what Status shows.
func (m *Manager) State() State {
	r, master, epoch := m.role(), m.follower.Master(), m.Epoch()
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.st
	st.Master, st.StorageErr = r.Master, r.Err
	if !st.Open {
		st.Epoch, st.MasterAddress = epoch, master
	}
	for _, p := range m.o.Peers {
		if m.unheard[p] {
			st.Unheard = append(st.Unheard, p)
		}
	}
	return st
}

// begun reports whether the reign has begun before: Lead came to its end, or near it. Offsets carry the reign earlier, as they are
// joined and reset before it begins.
func (m *Manager) begun(epoch int64) bool {
	return max(m.tables.Snapshot(entry.Topics).Version().State, m.tables.Snapshot(entry.Groups).Version().State) >= epoch
}

// Epoch is the highest reign that this node knows of.
func (m *Manager) Epoch() int64 { return max(m.Floor(), m.follower.Epoch()) }

// Floor is the lowest reign that this node may follow: its storage has promised it, or a peer that is about to lead has told of it
// and has heard what this node had until then.
func (m *Manager) Floor() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.source.Role().Epoch, m.fence)
}

// Serves returns nil when the node's tables may be shown: it leads, or is a slave. A node that is about to lead waits for its peers.
func (m *Manager) Serves() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.st.Open && (m.st.Reason == reasonStarting || m.opening) {
		return ErrOpening.With("reason", m.st.Reason)
	}
	return nil
}

// Enter returns nil when this node takes changes; until Leave the reign does not end. Else it is ErrNotMaster with reason, remedy
// and, where known, the master's address.
func (m *Manager) Enter() error {
	m.gate.RLock()
	if e := m.refusal.Load(); e != nil {
		m.gate.RUnlock()
		return m.withMaster(e)
	}
	return nil
}

// Leave ends an Enter that returned nil.
func (m *Manager) Leave() { m.gate.RUnlock() }

func (m *Manager) withMaster(e *errdefs.Error) error {
	if master := m.follower.Master(); master != "" {
		return e.With("master", master)
	}
	return e
}

// Reign returns the reign that this node leads in and a channel that is closed at its end; else the error of Enter.
func (m *Manager) Reign() (int64, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.refusal.Load(); e != nil {
		return 0, nil, m.withMaster(e)
	}
	return m.st.Epoch, m.over, nil
}

// refuse says why changes are refused.
func (m *Manager) refuse(reason, remedy string) {
	m.mu.Lock()
	changed := m.st.Reason != reason
	m.st.Reason, m.st.Remedy = reason, remedy
	m.mu.Unlock()
	m.refusal.Store(ErrNotMaster.With("reason", reason).WithRemedy("%s", remedy))
	if changed {
		m.o.Log.Info("changes are refused", slog.String("reason", reason), slog.String("remedy", remedy))
	}
}

// open begins to take changes, unless a peer has told of a later reign meanwhile.
func (m *Manager) open(epoch int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch < m.fence {
		return false
	}
	m.opening = false
	m.st.Open, m.st.Epoch, m.st.MasterAddress, m.st.Reason, m.st.Remedy = true, epoch, m.o.Address, "", ""
	m.over = make(chan struct{})
	m.refusal.Store(nil)
	m.reigns.Advance(m.reigns.Load() + 1)
	m.o.Log.Info("leads", slog.Int64("epoch", epoch))
	return true
}

// Reigns grows each time this node begins to lead.
func (m *Manager) Reigns() *watermark.Mark { return m.reigns }

// shut ends the reign: when it returns no change is on its way.
func (m *Manager) shut() {
	m.mu.Lock()
	epoch := m.st.Epoch
	m.mu.Unlock()
	if r := m.role(); r.Master && r.Epoch == epoch {
		m.refuse(reasonStopping, "ask again when the node has started")
	} else {
		m.refuseSlave(r)
	}
	m.gate.Lock()
	defer m.gate.Unlock()
	m.mu.Lock()
	m.st.Open = false
	close(m.over)
	m.over = nil
	clear(m.unheard)
	m.mu.Unlock()
}

// resign is for after a reign, be it that the node only was about to lead: when it returns, what was gathered is saved, if the disk has
// room, and nothing is saved as the reign's any more. An error is fatal.
func (m *Manager) resign(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := m.tables.Flush(ctx)
	m.tables.Resign()
	if err != nil && m.tables.Fault() == nil {
		// The registry goes on trying, and the next master asks for offsets that are ahead of its own.
		m.o.Log.Warn("offsets that were gathered are not saved yet", slog.Any("error", err))
		_ = m.tables.Flush(ctx) // what is being saved as this reign's is, or is not any more
	}
	return m.tables.Fault()
}
