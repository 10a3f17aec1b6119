package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/identity"
	"github.com/tandemlog/tandem/pkg/service"
)

// Master is a RocketMQ broker whose tables a slave keeps. Masters of Tandem are found among the peers.
type Master struct {
	// Follow a RocketMQ broker, as the storage does with its key of the same name, until the log has its first Tandem master.
	Legacy bool `yaml:"legacy"`
	// Its remoting port, host:10911. It is asked every syncInterval, and each answer must be there within syncTimeout.
	Address string `yaml:"address"`
	// Take its offsets also where they are lower: it has no word for a reset.
	TakeLowerOffsets bool `yaml:"takeLowerOffsets"`
}

// Remoting is for RocketMQ's slaves and name servers.
type Remoting struct {
	// Port on which RocketMQ's slaves are answered, as is the one two below it; empty: none.
	Listen string `yaml:"listen"`
	// How they reach it where that differs, and the storage's raw port.
	BrokerAddr   string `yaml:"brokerAddr"`
	HAServerAddr string `yaml:"haServerAddr"`
	// Where an open master registers; empty: nowhere.
	NameServers []string `yaml:"nameServers"`
	// Most connections, and the largest frame either way. RocketMQ takes none above 16MiB unless it is told to.
	MaxConnections int          `yaml:"maxConnections"`
	MaxFrame       service.Size `yaml:"maxFrame"`
}

func (c *Config) checkMaster() error {
	m := &c.Master
	switch {
	case !m.Legacy && (m.Address != "" || m.TakeLowerOffsets):
		return errdefs.Invalid("master.legacy", "is not set; master.address is that of a RocketMQ broker, Tandem's masters are found among the peers")
	case !m.Legacy:
		return nil
	case c.Storage.Address == "" && c.BrokerRole != slave:
		return errdefs.Invalid("master.legacy", "is for brokerRole %s only", slave)
	case m.Address == "":
		return errdefs.Invalid("master.address", "is empty; master.legacy needs the remoting address of the RocketMQ broker")
	}
	return identity.CheckAddress("master.address", m.Address)
}

func (c *Config) checkRemoting() error {
	r := &c.Remoting
	if r.MaxFrame < 64<<10 || r.MaxFrame > 1<<30 {
		return errdefs.Invalid("remoting.maxFrame", "%v is not within 64KiB and 1GiB", r.MaxFrame)
	}
	if r.MaxConnections < 1 || r.MaxConnections > 65535 {
		return errdefs.Invalid("remoting.maxConnections", "%d is not within 1 and 65535", r.MaxConnections)
	}
	if r.Listen == "" {
		if len(r.NameServers) > 0 {
			return errdefs.Invalid("remoting.listen", "is empty; who finds this node through remoting.nameServers asks there, 127.0.0.1:10931 for example")
		}
		return nil
	}
	if err := identity.CheckAddress("remoting.listen", r.Listen); err != nil {
		return err
	}
	if r.BrokerAddr == "" {
		r.BrokerAddr = r.Listen
	}
	for _, a := range []struct{ key, addr string }{{"remoting.listen", r.Listen}, {"remoting.brokerAddr", r.BrokerAddr}} {
		if err := identity.CheckAddress(a.key, a.addr); err != nil {
			return err
		}
		if _, err := vip(a.addr); err != nil {
			return errdefs.Invalid(a.key, "%v", err)
		}
	}
	if r.HAServerAddr != "" {
		if err := checkReachable("remoting.haServerAddr", r.HAServerAddr); err != nil {
			return err
		}
	}
	return c.checkNameServers()
}

func (c *Config) checkNameServers() error {
	r := &c.Remoting
	if len(r.NameServers) == 0 {
		return nil
	}
	if err := checkReachable("remoting.brokerAddr", r.BrokerAddr); err != nil {
		return err
	}
	if r.HAServerAddr == "" {
		return errdefs.Invalid("remoting.haServerAddr", "is empty; slaves that find this node need the raw address of its storage")
	}
	seen := map[string]bool{}
	for i, ns := range r.NameServers {
		field := fmt.Sprintf("remoting.nameServers[%d]", i)
		if err := identity.CheckAddress(field, ns); err != nil {
			return err
		}
		if seen[ns] {
			return errdefs.Invalid(field, "%s stands twice", ns)
		}
		seen[ns] = true
	}
	return nil
}

// checkReachable checks an address that others are told.
func checkReachable(key, addr string) error {
	if err := identity.CheckAddress(key, addr); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(addr) // checked
	ip, err := netip.ParseAddr(host)
	if host == "" || port == "0" || err == nil && ip.IsUnspecified() {
		return errdefs.Invalid(key, "%s is no address that others could reach", addr)
	}
	return nil
}

// vip returns the address two ports below: RocketMQ's slaves ask for topics there.
func vip(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 3 {
		return "", fmt.Errorf("%s has no port above 2: RocketMQ's slaves use the one two below, too", addr)
	}
	return net.JoinHostPort(host, strconv.Itoa(n-2)), nil
}
