package acks

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
)

// MaxSlaves bounds the slaves of a Tracker.
const MaxSlaves = 64

// ErrNotOpen is what waiters get outside of a reign.
var ErrNotOpen = errdefs.New(errdefs.FailedPrecondition, "NOT_OPEN", "this node is not open as a master")

// Key says which slave a session counts for: the node of a Tandem slave, the address of a plain one.
type Key struct {
	Node int64 // -1 for plain slaves
	Addr netip.Addr
}

// Member is a session in the tracker's eyes. The fields are set before Join and not changed after it.
type Member struct {
	Key     Key
	Counts  bool // towards Acked, InSync and CountAt
	Flushes bool // its reports are flushed offsets

	ack    atomic.Int64
	joined bool // guarded, as is what follows, by Tracker.mu
	times  Times
	probe  int64 // the log's end at probeAt: once it is acked, CaughtUpAt is probeAt
	at     time.Time
}

// Times of a member.
type Times struct {
	LastReport time.Time
	ProgressAt time.Time // last time that the report grew or was the log's end
	CaughtUpAt time.Time // last known time at which the slave had all that the master had then; zero: none
}

// Ack returns the last report.
func (m *Member) Ack() int64 { return m.ack.Load() }

// Tracker is the state of all slaves. All methods may be called concurrently.
type Tracker struct {
	max        int
	fallBehind int64
	written    func() int64
	changes    *watermark.Mark
	reign      atomic.Pointer[reign]
	counting   atomic.Pointer[counting] // those that count; copied on write under mu

	mu      sync.Mutex
	all     map[*Member]struct{}
	inSync  int   // as announced
	changed int64 // how often
}

// reign is the state of one Open: it begins with marks at 0 and ends with the marks closed.
type reign struct {
	ownStart int64
	marks    []*watermark.Mark // [k-1] is Acked(k); the last one, for more slaves than can be, never moves
}

// counting are the members that count, and which of them are one slave.
type counting struct {
	members []*Member
	slave   []int // of each member, 0 to slaves-1
	slaves  int
}

func newReign(ownStart int64, slaves int) *reign {
	r := &reign{ownStart: ownStart, marks: make([]*watermark.Mark, slaves+1)}
	for i := range r.marks {
		r.marks[i] = watermark.New(0)
	}
	return r
}

func (r *reign) end(err error) {
	for _, m := range r.marks {
		m.Close(err)
	}
}

// New makes a tracker for at most slaves members that is in no reign. A slave is in sync while it is less than fallBehind bytes
// behind written(), the log's end.
func New(slaves int, fallBehind int64, written func() int64) *Tracker {
	t := &Tracker{
		max: slaves, fallBehind: fallBehind, written: written,
		changes: watermark.New(0), all: make(map[*Member]struct{}),
	}
	t.counting.Store(new(counting))
	t.reign.Store(newReign(0, slaves))
	t.Shut(ErrNotOpen)
	return t
}

// Open begins a reign: reports below ownStart confirm nothing. The marks of the one before are closed.
func (t *Tracker) Open(ownStart int64) {
	t.reign.Swap(newReign(ownStart, t.max)).end(ErrNotOpen)
	t.publish()
}

// Shut ends the reign: waiters get reason.
func (t *Tracker) Shut(reason error) { t.reign.Load().end(reason) }

// Acked returns the mark of what k distinct slaves have confirmed, k from 1.
func (t *Tracker) Acked(k int) *watermark.Mark {
	return t.reign.Load().marks[min(max(k, 1), t.max+1)-1]
}

// Changes returns a mark that counts the changes of InSync.
func (t *Tracker) Changes() *watermark.Mark { return t.changes }

// Join adds m with its first report. caughtUp is what was known of the slave before; zero: nothing.
func (t *Tracker) Join(m *Member, ack int64, now, caughtUp time.Time) {
	t.mu.Lock()
	m.joined = true
	m.times.CaughtUpAt, m.times.ProgressAt = caughtUp, now
	m.ack.Store(ack)
	m.note(ack, now, t.written)
	t.all[m] = struct{}{}
	if m.Counts {
		t.setCounting(m, true)
	}
	t.mu.Unlock()
	t.publish()
}

// Leave takes m out; later reports of it are ignored.
func (t *Tracker) Leave(m *Member) {
	t.mu.Lock()
	if !m.joined {
		t.mu.Unlock()
		return
	}
	m.joined = false
	delete(t.all, m)
	t.setCounting(m, false)
	t.mu.Unlock()
	t.publish()
}

func (t *Tracker) setCounting(m *Member, add bool) {
	next := &counting{}
	slaves := make(map[Key]int)
	put := func(m *Member) {
		slave, known := slaves[m.Key]
		if !known {
			slave = len(slaves)
			slaves[m.Key] = slave
		}
		next.members = append(next.members, m)
		next.slave = append(next.slave, slave)
	}
	for _, o := range t.counting.Load().members {
		if o != m {
			put(o)
		}
	}
	if add {
		put(m)
	}
	next.slaves = min(len(slaves), MaxSlaves)
	t.counting.Store(next)
}

// Report takes m's word that it has the log up to ack, also when that is less than before, and moves the marks.
func (t *Tracker) Report(m *Member, ack int64, now time.Time) {
	t.mu.Lock()
	if !m.joined {
		t.mu.Unlock()
		return
	}
	if ack > m.ack.Load() {
		m.times.ProgressAt = now
	}
	m.ack.Store(ack)
	m.note(ack, now, t.written)
	t.mu.Unlock()
	t.publish()
}

// note keeps the times of m.
func (m *Member) note(ack int64, now time.Time, written func() int64) {
	m.times.LastReport = now
	if !m.at.IsZero() {
		if ack < m.probe {
			return
		}
		m.times.CaughtUpAt = m.at
	}
	if m.probe, m.at = written(), now; ack >= m.probe {
		m.times.CaughtUpAt = now
	}
}

// TimesOf returns the times of m.
func (t *Tracker) TimesOf(m *Member) Times {
	t.mu.Lock()
	defer t.mu.Unlock()
	return m.times
}

// Tick notices what time and the log's growth alone change. Call it every second or so.
func (t *Tracker) Tick(now time.Time) {
	end := t.written()
	t.mu.Lock()
	for m := range t.all {
		if m.ack.Load() >= end {
			m.times.ProgressAt, m.times.CaughtUpAt = now, now
		}
	}
	t.mu.Unlock()
	t.publish()
}

// publish moves the marks of the reign to what the members confirm now, and announces a change of InSync. The marks only
// grow, so it does not matter in which order concurrent calls arrive; waiters are woken outside the lock.
func (t *Tracker) publish() {
	r := t.reign.Load()
	c := t.counting.Load()
	acks := c.acks()
	for k, ack := range acks[:c.slaves] {
		if ack < r.ownStart || k == t.max {
			break
		}
		if ack > r.marks[k].Load() {
			r.marks[k].Advance(ack)
		}
	}
	t.mu.Lock()
	n := t.InSync()
	changed := n != t.inSync
	if changed {
		t.inSync = n
		t.changed++
	}
	changes := t.changed
	t.mu.Unlock()
	if changed {
		t.changes.Advance(changes)
	}
}

// InSync counts the slaves that are less than fallBehind behind. Members leave when their reports stay away.
func (t *Tracker) InSync() int {
	c := t.counting.Load()
	end, n := t.written(), 0
	if len(c.members) == c.slaves { // nobody is there twice: no need to sort for each put
		for _, m := range c.members {
			if end-m.ack.Load() < t.fallBehind {
				n++
			}
		}
		return n
	}
	return c.near(end, t.fallBehind)
}

// near counts the slaves that are less than so many bytes behind end.
func (c *counting) near(end, fallBehind int64) int {
	acks := c.acks()
	n := 0
	for n < c.slaves && end-acks[n] < fallBehind {
		n++
	}
	return n
}

// CountAt counts the slaves that have the log up to offset, and those of them that have flushed it.
func (t *Tracker) CountAt(offset int64) (acked, flushed int) {
	c := t.counting.Load()
	var has [MaxSlaves]bool
	for i, m := range c.members {
		if at := c.slave[i]; at < c.slaves && !has[at] && m.ack.Load() >= offset {
			has[at] = true
			acked++
			if m.Flushes {
				flushed++
			}
		}
	}
	return acked, flushed
}

// acks returns the best report of each slave, the highest first.
func (c *counting) acks() (acks [MaxSlaves]int64) {
	for i := range c.slaves {
		acks[i] = -1
	}
	for i, m := range c.members {
		if at := c.slave[i]; at < c.slaves {
			acks[at] = max(acks[at], m.ack.Load())
		}
	}
	for i := 1; i < c.slaves; i++ {
		for at := i; at > 0 && acks[at-1] < acks[at]; at-- {
			acks[at-1], acks[at] = acks[at], acks[at-1]
		}
	}
	return acks
}
