package clienttest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from here: below those that the kernel gives to outgoing connections, so that nothing takes the port of a node
// that is stopped for a moment.
const firstPort, lastPort = 12000, 32000

// Listen listens on addr, or, where that is empty, on a loopback port that is free and that the same node can take again later.
func Listen(addr string) (net.Listener, error) {
	if addr != "" {
		return net.Listen("tcp", addr) //nolint:noctx // does not block
	}
	var err error
	for range 1000 {
		var ln net.Listener
		if ln, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort))); err == nil { //nolint:noctx // does not block
			return ln, nil
		}
	}
	return nil, fmt.Errorf("find a free port between %d and %d: %w", firstPort, lastPort, err)
}
