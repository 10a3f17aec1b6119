package main

import (
	"strings"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Ports that an operator has mixed up: Status says so.
func TestMixedUpPorts(t *testing.T) {
	t.Parallel()
	master := alone(t).start().awaitOpen()
	upstream := func(s *storagev1.StatusResponse) string { return s.GetUpstream().GetRemedy() }
	for name, c := range map[string]struct {
		n      *node
		remedy func(*storagev1.StatusResponse) string
		want   string
	}{
		"gRPC for a broker's raw port": {newNode(t, 1, slave, func(c *Config) {
			c.Master = Upstream{Address: master.cfg.Listen, Legacy: true}
		}), upstream, "a gRPC server answers there: is master.address the raw (HA) port"},
		"raw for gRPC": {newNode(t, 2, slave, func(c *Config) { c.Master.Address = master.cfg.HAListen }), upstream, "looks like a storage's raw port"},
		"raw for a peer": {newNode(t, 3, syncMaster, func(c *Config) {
			c.HA.Peers = []string{c.Listen, master.cfg.HAListen}
		}), func(s *storagev1.StatusResponse) string { return s.GetRemedy() }, "looks like a storage's raw port"},
	} {
		t.Run(name, func(t *testing.T) {
			c.n.start().await("the remedy", func(s *storagev1.StatusResponse) bool { return strings.Contains(c.remedy(s), c.want) })
		})
	}
	haPeer := follower(t, 4, master)
	master.halt()
	master.cfg.HAAdvertise = master.cfg.Listen
	master.start().awaitOpen()
	haPeer.start().await("the remedy", func(s *storagev1.StatusResponse) bool {
		return strings.Contains(upstream(s), "is haAdvertise of the upstream its raw (HA) port")
	})
}

// What a raw stream may meet where another server listens.
func TestWrongPort(t *testing.T) {
	t.Parallel()
	frame := errdefs.New(errdefs.OutOfRange, "FRAME_OFFSET", "x").WithRemedy("compare both logs")
	closed := errdefs.New(errdefs.Unavailable, "LINK_CLOSED", "x").WithRemedy("see the peer's log")
	for name, c := range map[string]struct {
		err          error
		legacy, mute bool
		want         string
	}{
		"HTTP/2":            {frame.With("offset", int64(0x0000_0604_0000_0000)), true, false, "a gRPC server"},
		"HTTP/2, no broker": {frame.With("offset", int64(0x0000_0604_0000_0000)), false, false, "haAdvertise"},
		"HTTP/1":            {frame.With("offset", int64(0x485454502F312E31)), true, false, "a server of text"},
		"TLS":               {frame.With("offset", int64(0x1503030002022800)), true, false, "a TLS server"},
		"another place":     {frame.With("offset", int64(1<<30)), true, false, "compare both logs"},
		"closed":            {closed, true, true, "closed without a word"},
		"closed, not mute":  {closed, true, false, "see the peer's log"},
		"closed, no broker": {closed, false, true, "see the peer's log"},
	} {
		if got := wrongPort(c.err, c.legacy, c.mute); errdefs.ReasonOf(got) != errdefs.ReasonOf(c.err) || !strings.Contains(errdefs.As(got).Remedy, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
