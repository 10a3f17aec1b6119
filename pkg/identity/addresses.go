package identity

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Own is an address of this node, and the key that it is configured by.
type Own struct{ Key, Address string }

// CheckAddress checks host:port.
func CheckAddress(key, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errdefs.Invalid(key, "%q is not host:port", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errdefs.Invalid(key, "%q has no port within 0 and 65535", addr)
	}
	return nil
}

// CheckPeers checks the addresses of a group: each node is named once, for one in two spellings would have two votes, and this
// one by its advertise, word for word.
func CheckPeers(key string, peers []string, advertise string, own []Own) error {
	for i, p := range peers {
		key := fmt.Sprintf("%s[%d]", key, i)
		if err := CheckAddress(key, p); err != nil {
			return err
		}
		for _, before := range peers[:i] {
			switch a, b := endpointOf(p), endpointOf(before); {
			case p == before:
				return errdefs.Invalid(key, "%s stands twice", p)
			case a.host == b.host && a.port == b.port:
				return errdefs.Invalid(key, "%s is %s, which stands in front of it", p, before).WithRemedy("name each node once")
			}
		}
		if by := Is(p, own); by != "" && p != advertise {
			return errdefs.Invalid(key, "%s is this node itself, by its %s", p, by).
				WithRemedy("name this node once, in the words of its advertise: %s", advertise)
		}
	}
	if len(peers) > 0 && !slices.Contains(peers, advertise) {
		return errdefs.Invalid(key, "this node's own address %s (advertise, or else listen) is missing", advertise)
	}
	return nil
}

// Is returns the key of the first of own that a call to addr from this machine surely ends at; empty: none.
func Is(addr string, own []Own) string {
	for _, o := range own {
		if o.Address != "" && endpointOf(addr).reaches(endpointOf(o.Address)) {
			return o.Key
		}
	}
	return ""
}

// endpoint is an address that was checked, in one spelling: a host name in small letters without the dot at its end, an IP address
// as netip writes it.
type endpoint struct {
	host, port string
	ip         netip.Addr // of host, where it is one
}

func endpointOf(addr string) endpoint {
	host, port, _ := net.SplitHostPort(addr)
	e := endpoint{host: strings.ToLower(strings.TrimSuffix(host, ".")), port: strings.TrimLeft(port, "0")}
	if ip, err := netip.ParseAddr(host); err == nil {
		e.ip = ip.Unmap()
		e.host = e.ip.String()
	}
	return e
}

// any reports whether the address names no host: a listener takes connections on all, a call goes to the machine itself.
func (e endpoint) any() bool { return e.host == "" || e.ip.IsUnspecified() }

// here reports whether the address is one of the machine itself, whichever that is.
func (e endpoint) here() bool { return e.host == "localhost" || e.ip.IsLoopback() || e.any() }

// reaches reports whether a call to e from this machine surely ends at what own stands for. Port 0 is not known yet.
func (e endpoint) reaches(own endpoint) bool {
	switch {
	case e.port != own.port || e.port == "":
		return false
	case e.host == own.host:
		return true
	}
	loose := func(x endpoint) bool { return x.host == "localhost" || x.any() }
	return e.here() && own.here() && (loose(e) || loose(own))
}
