package main

import (
	"bytes"
	"errors"
	"testing"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/role/told"
)

// TestAToldMasterDoesNotLeadAfterARestart: a peer is about to lead, and has heard what the old master had. That one is started again while
// nobody can tell it, with the configuration of before: what it took now would be lost. On a file that does not say whether it was told
// it does not start.
func TestAToldMasterDoesNotLeadAfterARestart(t *testing.T) {
	t.Parallel()
	g := group(t, 1)
	m := g[0].start()
	m.awaitOpen()
	caller := &configsyncv1.Caller{
		Cluster: m.cfg.BrokerClusterName, BrokerName: m.cfg.BrokerName, NodeId: 1, Address: g[1].cfg.Listen, Epoch: 2, AnyRole: true, Opening: true,
	}
	if _, err := configsyncv1.NewConfigSyncServiceClient(m.conn).Check(t.Context(), &configsyncv1.CheckRequest{Caller: caller}); err != nil {
		t.Fatal(err)
	}
	m.halt()
	m.start()
	st := m.await("its refusal", func(st *configsyncv1.StatusResponse) bool { return st.GetReason() != "STARTING" })
	if st.GetReason() != "OUTLIVED" || st.GetOpen() {
		t.Errorf("after the restart: %v", st)
	}
	m.halt()
	check := func() error { return runCheck(vfs.OS(), m.cfg.StorePathRootDir, nil, &bytes.Buffer{}) }
	if err := check(); err != nil {
		t.Error(err)
	}
	if err := durable.WriteFile(vfs.OS(), m.file("tandem/reign"), nil); err != nil {
		t.Fatal(err)
	}
	if err := check(); !errors.Is(err, told.ErrBroken) {
		t.Errorf("check says %v", err)
	}
	if err := m.tryStart(); !errors.Is(err, told.ErrBroken) {
		t.Errorf("it starts: %v", err)
	}
}
