package main

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// checkCongestion has the kernel judge the name: it knows what it has, what it can load, and what this user may choose.
func checkCongestion(name string) error {
	if name == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errdefs.Invalid("ha.congestionControl", "cannot be checked").Wrap(err)
	}
	err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	_ = unix.Close(fd) // nothing was sent
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return errdefs.Invalid("ha.congestionControl", "%q is not allowed to this user", name).
			WithRemedy("choose one of %s, or add it to net.ipv4.tcp_allowed_congestion_control", algorithms("allowed"))
	}
	return errdefs.Invalid("ha.congestionControl", "this machine's kernel has no %q", name).
		WithRemedy("choose one of %s, or leave it empty for the system's", algorithms("available"))
}

// algorithms lists what the kernel says is available, or allowed.
func algorithms(which string) string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_" + which + "_congestion_control")
	if err != nil {
		return "those that `sysctl net.ipv4.tcp_" + which + "_congestion_control` lists"
	}
	return strings.Join(strings.Fields(string(b)), ", ")
}
