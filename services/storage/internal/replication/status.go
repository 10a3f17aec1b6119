package replication

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
)

const (
	// stallAfter is how long a slave may be behind without progress before it is called stalled.
	stallAfter = 30 * time.Second
	// maxOffline bounds the slaves that stay listed after they have gone; the one seen longest ago makes room.
	maxOffline = 64
)

// LinkState of a slave; the numbers are those of tandem.storage.v1.LinkState.
type LinkState uint8

// States of a link.
const (
	LinkUnspecified  LinkState = iota
	LinkConnecting             // granted, not connected yet
	LinkCatchingUp             // bytes flow, the slave has not had all since it connected, or is too far behind
	LinkInSync                 // it has all or nearly all
	LinkStalled                // connected, behind, and no progress for 30 s
	LinkRefused                // not used here: a refused slave has no link
	LinkDisconnected           // was here, is gone
)

// SlaveStatus is one slave as the master sees it.
type SlaveStatus struct {
	NodeID     int64 // -1: a plain RocketMQ slave
	Address    string
	State      LinkState
	Acked      int64 // last report, -1: none
	Sent       int64 // end of what was sent
	LagBytes   int64 // behind the log's end; 0 to the log's size
	Lag        time.Duration
	LastReport time.Time // last seen
	Connected  time.Time
	CaughtUpAt time.Time // when the slave last had all that the master had then; zero: not known
	InSync     bool      // its reports count and it is less than FallBehindMax behind
	Legacy     bool
	Flushes    bool
	Reason     string // why it does not replicate
	Remedy     string
}

// Slaves lists the slaves that are connected, expected or were here, by node id, then address.
func (m *Master) Slaves() []SlaveStatus {
	now, end, first := m.o.Now(), m.src.Written().Load(), m.src.FirstOffset()
	m.mu.Lock()
	list := make([]SlaveStatus, 0, len(m.sessions)+len(m.grants)+len(m.offline))
	for s := range m.sessions {
		list = append(list, m.statusOf(s, now))
	}
	expected := make(map[int64]bool)
	for _, g := range m.grants {
		expected[g.NodeID] = true
		list = append(list, SlaveStatus{NodeID: g.NodeID, Address: g.Address, State: LinkConnecting, Acked: -1, Sent: g.Start, Flushes: g.Flushes})
	}
	for _, s := range m.offline {
		if s.Legacy || !expected[s.NodeID] {
			list = append(list, s)
		}
	}
	m.mu.Unlock()
	for i := range list {
		list[i].lag(now, end, first)
	}
	slices.SortFunc(list, func(a, b SlaveStatus) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Address, b.Address))
	})
	return list
}

// lag fills in what depends on the log's end. Bytes before the log's first are in nobody's way.
func (s *SlaveStatus) lag(now time.Time, end, first int64) {
	have := max(s.Acked, first)
	if s.Acked < 0 {
		have = max(s.Sent, first)
	}
	if s.LagBytes = max(end-have, 0); s.LagBytes == 0 {
		return
	}
	since := s.CaughtUpAt
	if since.IsZero() {
		since = s.Connected
	}
	if !since.IsZero() {
		s.Lag = max(now.Sub(since), 0)
	}
}

// statusOf describes a session. m.mu is held.
func (m *Master) statusOf(s *session, now time.Time) SlaveStatus {
	end, times := m.src.Written().Load(), m.acks.TimesOf(&s.Member)
	st := SlaveStatus{
		NodeID: s.Key.Node, Address: s.addr, Acked: s.Ack(), Sent: s.out.Sent(), LastReport: times.LastReport,
		Connected: s.connectedAt, CaughtUpAt: times.CaughtUpAt, Legacy: s.legacy, Flushes: s.Flushes,
	}
	near := end-st.Acked < m.o.FallBehindMax
	st.InSync = s.Counts && near
	switch {
	case st.Acked < end && now.Sub(times.ProgressAt) > stallAfter:
		st.State = LinkStalled
		st.Reason, st.Remedy = explain(errNoProgress)
	case near && !times.CaughtUpAt.Before(s.connectedAt):
		st.State = LinkInSync
	default:
		st.State = LinkCatchingUp
	}
	return st
}

// keepOffline lists a session that has ended, unless another of the same slave is there. m.mu is held.
func (m *Master) keepOffline(s *session) {
	for o := range m.sessions {
		if o.Key == s.Key {
			return
		}
	}
	if len(m.offline) >= maxOffline {
		var oldest acks.Key
		var seen time.Time
		for key, st := range m.offline {
			if seen.IsZero() || st.LastReport.Before(seen) {
				oldest, seen = key, st.LastReport
			}
		}
		delete(m.offline, oldest)
	}
	st := m.statusOf(s, s.connectedAt)
	st.State, st.InSync = LinkDisconnected, false
	st.Reason, st.Remedy = explain(s.err)
	m.offline[s.Key] = st
}

// reportStalls says once that a slave has stalled, and once that it moves again.
func (m *Master) reportStalls(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.sessions {
		st := m.statusOf(s, now)
		stalled := st.State == LinkStalled
		if stalled == s.stalled {
			continue
		}
		s.stalled = stalled
		if stalled {
			m.log.Warn("slave stalled", "node", st.NodeID, "address", st.Address, "acked", st.Acked, "remedy", st.Remedy)
		} else {
			m.log.Info("slave moves again", "node", st.NodeID, "address", st.Address, "acked", st.Acked)
		}
	}
}
