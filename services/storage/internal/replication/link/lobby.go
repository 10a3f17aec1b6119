package link

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// Lobby holds the connections of a listener that have not said anything valid yet. When it is full the oldest one is closed,
// so that who speaks at once gets in however many are silent.
type Lobby struct {
	max    int
	mu     sync.Mutex
	closed bool
	guests []*Guest // oldest first
}

// Guest is one connection in a Lobby.
type Guest struct {
	conn net.Conn
	out  atomic.Bool
}

// Crowded says whether the connection was closed to make room.
func (g *Guest) Crowded() bool { return g.out.Load() }

// NewLobby makes a lobby for at most size connections.
func NewLobby(size int) *Lobby { return &Lobby{max: size} }

// Open lets connections in, again after Close.
func (l *Lobby) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = false
}

// Close closes all connections and lets none in.
func (l *Lobby) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, g := range l.guests {
		_ = g.conn.Close() // who reads from it finds out
	}
}

// Add lets conn in; nil when the lobby is closed.
func (l *Lobby) Add(conn net.Conn) *Guest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if len(l.guests) >= l.max {
		l.guests[0].out.Store(true)
		_ = l.guests[0].conn.Close() // who reads from it finds out
		l.guests = slices.Delete(l.guests, 0, 1)
	}
	g := &Guest{conn: conn}
	l.guests = append(l.guests, g)
	return g
}

// Remove takes g out, whether it was crowded out or not. After it the lobby does not close the connection any more.
func (l *Lobby) Remove(g *Guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.guests, g); i >= 0 {
		l.guests = slices.Delete(l.guests, i, i+1)
	}
}
