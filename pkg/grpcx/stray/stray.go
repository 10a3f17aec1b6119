package stray

import (
	"bytes"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// preface is what an HTTP/2 client says first.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Credentials are those of a plain-text server. report is called at most once a connection, by the goroutine that reads it, and
// must not block.
func Credentials(report func(raw net.Conn, why error)) credentials.TransportCredentials {
	return &plain{insecure.NewCredentials(), report}
}

type plain struct {
	credentials.TransportCredentials
	report func(net.Conn, error)
}

func (p *plain) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, info, err := p.TransportCredentials.ServerHandshake(raw)
	return &looked{Conn: raw, report: p.report}, info, err
}

func (p *plain) Clone() credentials.TransportCredentials { c := *p; return &c }

// looked is a connection whose first bytes are looked at as they are read; one goroutine reads.
type looked struct {
	net.Conn
	report func(net.Conn, error)
	first  []byte
	done   bool
}

func (l *looked) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if !l.done {
		l.look(b[:n])
	}
	return n, err
}

func (l *looked) look(b []byte) {
	l.first = append(l.first, b[:min(len(b), len(preface)-len(l.first))]...)
	switch {
	case string(l.first) == preface:
	case !bytes.HasPrefix([]byte(preface), l.first):
		if len(l.first) < leastKnown {
			return // for a word about who it is
		}
		l.report(l.Conn, Guess(l.first))
	default:
		return
	}
	l.first, l.done = nil, true
}

// leastKnown bytes tell one protocol from another.
const leastKnown = 5

// Guess says what speaks, by its first bytes.
func Guess(first []byte) error {
	switch {
	case first[0] == 0x16 && first[1] == 3:
		return fmt.Errorf("the caller speaks TLS, this port is plain text")
	case bytes.HasPrefix(first, []byte("GET ")), bytes.HasPrefix(first, []byte("POST ")), bytes.HasPrefix(first, []byte("HEAD ")), bytes.HasPrefix(first, []byte("PUT ")):
		return fmt.Errorf("the caller speaks HTTP/1, this port gRPC")
	}
	return fmt.Errorf("the caller does not speak gRPC: its first bytes are %q", first)
}
