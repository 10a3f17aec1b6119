//go:build !linux

package link

import "net"

// Take returns conn as it is.
func Take(conn net.Conn) net.Conn { return conn }
