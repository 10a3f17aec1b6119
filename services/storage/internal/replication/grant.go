package replication

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// tokenLife is how long a token waits for its connection.
const tokenLife = 10 * time.Second

// Grant is the permission to open one stream.
type Grant struct {
	NodeID  int64  // of the slave, 0 or more
	Address string // of the slave, for the status
	Start   int64  // first byte to send; the slave's first report must be this
	Frame   int    // largest body the slave takes, bytes; 0 or less than BatchSize: BatchSize; bounded by MaxFrame
	Flushes bool   // the slave reports what it has flushed, not what it has written
	Outside bool   // its reports confirm nothing
}

type grant struct {
	Grant
	at   time.Time
	gone chan struct{}
}

// Grant makes a token for the preamble of one connection within 10 s; a token that the node got before is void. gone is closed
// when the session that came of it has ended, or the token without one.
func (m *Master) Grant(g Grant) (token [wire.TokenSize]byte, gone <-chan struct{}, err error) {
	switch {
	case g.NodeID < 0:
		return token, nil, invalid("nodeID", g.NodeID, "a node id is 0 or more")
	case g.Start < m.src.FirstOffset() || g.Start > m.src.Written().Load():
		return token, nil, link.ErrHistoryGone.With("offset", g.Start).With("first", m.src.FirstOffset()).With("end", m.src.Written().Load())
	}
	g.Frame = max(min(g.Frame, m.o.MaxFrame), m.o.BatchSize)
	if _, err := rand.Read(token[:]); err != nil {
		return token, nil, ErrStopped.Wrap(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return token, nil, ErrStopped
	}
	m.drop(func(*session) bool { return false }, func(o *grant) bool { return o.NodeID == g.NodeID })
	if m.places(g.NodeID) >= m.o.MaxSlaves {
		return token, nil, ErrTooManySlaves.With("max", m.o.MaxSlaves)
	}
	made := &grant{Grant: g, at: m.o.Now(), gone: make(chan struct{})}
	m.grants[token] = made
	return token, made.gone, nil
}

// places counts what is taken by others than node. m.mu is held.
func (m *Master) places(node int64) int {
	n := 0
	for s := range m.sessions {
		if s.legacy || s.Key.Node != node {
			n++
		}
	}
	for _, g := range m.grants {
		if g.NodeID != node {
			n++
		}
	}
	return n
}

func (m *Master) expireGrants(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(func(*session) bool { return false }, func(g *grant) bool { return now.Sub(g.at) > tokenLife })
}

// greet reads the first bytes of a connection and, when they are valid, serves it until it ends.
func (m *Master) greet(conn net.Conn) {
	p := m.lobby.Add(conn)
	if p == nil {
		m.refuse(conn, badStopping)
		return
	}
	f, bad := readFirst(conn, time.Now().Add(m.o.Housekeeping))
	m.lobby.Remove(p)
	if p.Crowded() {
		bad = badCrowded
	}
	var s *session
	if bad == badNone {
		s, bad = m.admit(conn, f)
	}
	if bad != badNone {
		m.refuse(conn, bad)
		return
	}
	m.serve(s)
}

func (m *Master) refuse(conn net.Conn, why badReason) {
	n := m.count.badFirst[why].Add(1)
	_ = conn.Close()  // nothing to be done about a connection that is given up
	if n&(n-1) == 0 { // told at 1, 2, 4, ...: a scanner does not fill the log
		m.log.Warn("connection refused", "peer", conn.RemoteAddr().String(), "reason", badNames[why], "so_far", n, "remedy", link.Remedy(badNames[why]))
	}
}

// firstBytes is what a connection begins with.
type firstBytes struct {
	tandem bool
	token  wire.Token
	report int64
}

func readFirst(conn net.Conn, deadline time.Time) (f firstBytes, bad badReason) {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return f, badShort
	}
	var b [wire.PreambleSize + wire.ReportSize]byte
	if bad := readAll(conn, b[:wire.ReportSize]); bad != badNone {
		return f, bad
	}
	switch wire.Classify(b[:wire.ReportSize]) {
	case wire.Report:
		f.report = wire.ParseReport(b[:])
		return f, badNone
	case wire.Text:
		return f, badText
	case wire.TLS:
		return f, badTLS
	case wire.Negative:
		return f, badNegative
	case wire.Preamble:
	}
	f.tandem = true
	if bad := readAll(conn, b[wire.ReportSize:]); bad != badNone {
		return f, bad
	}
	f.token = wire.Token(b[wire.ReportSize:])
	f.report = wire.ParseReport(b[wire.PreambleSize:])
	return f, badNone
}

func readAll(conn net.Conn, b []byte) badReason {
	_, err := io.ReadFull(conn, b)
	switch {
	case err == nil:
		return badNone
	case link.IsTimeout(err):
		return badSilent
	}
	return badShort
}

// admit makes a session of valid first bytes.
func (m *Master) admit(conn net.Conn, f firstBytes) (*session, badReason) {
	if err := link.Tune(conn, m.o.Congestion); err != nil && !errors.Is(err, net.ErrClosed) {
		m.log.Warn("congestion control not set", "name", m.o.Congestion, "error", err)
	}
	m.mu.Lock()
	if m.stopped {
		m.mu.Unlock()
		return nil, badStopping
	}
	admit := m.admitPlain
	if f.tandem {
		admit = m.admitTandem
	}
	s, bad := admit(f, conn)
	if bad != badNone {
		m.mu.Unlock()
		return nil, bad
	}
	var replaced []*session
	for o := range m.sessions {
		if !s.legacy && o.Key == s.Key {
			m.acks.Leave(&o.Member)
			replaced = append(replaced, o)
		}
	}
	s.attach(m, conn)
	m.sessions[s] = struct{}{}
	m.acks.Join(&s.Member, f.report, s.connectedAt, m.offline[s.Key].CaughtUpAt)
	delete(m.offline, s.Key)
	m.mu.Unlock()
	for _, o := range replaced {
		o.end(ErrReplaced)
	}
	return s, badNone
}

// admitTandem uses up a token. m.mu is held.
func (m *Master) admitTandem(f firstBytes, _ net.Conn) (*session, badReason) {
	g, ok := m.grants[f.token]
	if !ok || m.o.Now().Sub(g.at) > tokenLife {
		return nil, badToken
	}
	delete(m.grants, f.token)
	if f.report != g.Start {
		close(g.gone)
		return nil, badStart
	}
	return &session{
		Member: acks.Member{Key: acks.Key{Node: g.NodeID}, Counts: !g.Outside, Flushes: g.Flushes},
		addr:   g.Address, start: g.Start, frame: g.Frame, gone: g.gone,
	}, badNone
}

// admitPlain applies the start rules for RocketMQ's slaves. m.mu is held.
func (m *Master) admitPlain(f firstBytes, conn net.Conn) (*session, badReason) {
	first, end, start := m.src.FirstOffset(), m.src.Written().Load(), f.report
	switch {
	case !m.o.LegacySlaves:
		return nil, badLegacy
	case f.report > end:
		return nil, badBeyond
	case !m.open:
		return nil, badNotOpen
	case m.places(-1) >= m.o.MaxSlaves:
		return nil, badTooMany
	case f.report == 0 && m.o.StartFromLast:
		start = max(end-end%m.src.FileSize(), first)
	case f.report == 0:
		start = first
	case f.report < first:
		return nil, badBelowFirst
	}
	host := link.HostOf(conn)
	return &session{
		Member: acks.Member{
			Key:    acks.Key{Node: -1, Addr: host},
			Counts: !m.o.LegacyOutside && (len(m.o.LegacyPeers) == 0 || slices.Contains(m.o.LegacyPeers, host)),
		},
		legacy: true, start: start, frame: m.o.BatchSize, gone: make(chan struct{}),
	}, badNone
}

func sum(by *[numBadReasons]atomic.Int64) int64 {
	var n int64
	for i := range by {
		n += by[i].Load()
	}
	return n
}
