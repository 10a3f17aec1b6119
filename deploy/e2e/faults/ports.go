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
type Ports struct{ last int }

const lowPort, highPort = 15000, 32000

// NewPorts begins anywhere, so that two runs go side by side.
func NewPorts() *Ports { return &Ports{last: lowPort + rand.IntN(highPort-lowPort)} } //nolint:gosec // any will do

// Take returns a port that is free now and that it has not returned before.
func (p *Ports) Take() (int, error) {
	for range highPort - lowPort {
		if p.last++; p.last >= highPort {
			p.last = lowPort
		}
		l, err := net.Listen("tcp", Loopback(p.last)) //nolint:noctx // does not block
		if err != nil {
			continue
		}
		return p.last, l.Close()
	}
	return 0, fmt.Errorf("no free port between %d and %d", lowPort, highPort)
}
