package main

import (
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// TestASavedRoleIsShown: Status says so where the config names another role than the one that holds, and the node works on.
func TestASavedRoleIsShown(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, asyncMaster).start().awaitOpen()
	if st := n.status(); st.GetReason() != "" {
		t.Errorf("as configured: %v", st)
	}
	n.halt()
	n.change(func(c *Config) {
		c.BrokerRole, c.HA.Peers, c.HA.MasterRole = slave, []string{c.Listen, servicetest.FreeAddr(t)}, asyncMaster
	})
	n.start().awaitOpen()
	st := n.status()
	if st.GetReason() != reasonSavedRole || !strings.Contains(st.GetRemedy(), "brokerRole: SLAVE") || !st.GetOpen() {
		t.Errorf("open: %v", st)
	}
	for _, part := range []string{`msg="this node"`, "role=async-master", "configured_role=SLAVE", "listen=" + n.cfg.Listen, "folder=" + n.cfg.StorePathRootDir} {
		if !strings.Contains(n.log.String(), part) {
			t.Errorf("the log of the start lacks %s", part)
		}
	}
}
