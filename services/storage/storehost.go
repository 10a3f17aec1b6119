package main

import (
	"net"
	"net/netip"
	"strconv"
)

// storeHost is the address that stands in records: brokerIP1 or the advertised host where it is an IP address, else
// the loopback address, and the advertised port.
func (c *Config) storeHost() netip.AddrPort {
	host, port, err := net.SplitHostPort(c.Advertise)
	if err != nil {
		return netip.AddrPort{}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}
	}
	if c.BrokerIP1 != "" {
		host = c.BrokerIP1
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.IsUnspecified() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.AddrPortFrom(ip.Unmap().WithZone(""), uint16(n))
}
