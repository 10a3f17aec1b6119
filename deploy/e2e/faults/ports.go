package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Loopback is the address of a port on this machine.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Ports hands out ports below those that the kernel gives to dialers: a killed process must find its own again.
type Ports struct{ next int }

const lowPort, highPort = 12000, 32000

// NewPorts begins anywhere, so that two runs go side by side.
func NewPorts() *Ports { return &Ports{next: lowPort + rand.IntN(highPort-lowPort)} } //nolint:gosec // any will do

// Take returns the first of n ports in a row that are free now and that it has not returned before.
func (p *Ports) Take(n int) (int, error) {
	for range highPort - lowPort {
		if p.next+n > highPort {
			p.next = lowPort
		}
		first := p.next
		if free(first, n) {
			p.next += n
			return first, nil
		}
		p.next++
	}
	return 0, fmt.Errorf("no %d free ports in a row between %d and %d", n, lowPort, highPort)
}

func free(first, n int) bool {
	for p := first; p < first+n; p++ {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(p)) //nolint:noctx,gosec // it is closed at once
		if err != nil {
			return false
		}
		_ = l.Close() // nobody connected
	}
	return true
}
