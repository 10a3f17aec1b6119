package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/clienttest/configtest"
)

// fakeConfigSync acts as a `configsync` binary until SIGTERM: node 0 leads.
func fakeConfigSync(b []byte) int {
	var c configNodeConfig
	if err := yaml.UnmarshalWithOptions(b, &c, yaml.Strict()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if c.Storage.Address == "" || c.StorePathRootDir == "" || !slices.Contains(c.Peers, c.Listen) {
		fmt.Fprintln(os.Stderr, "configsync: something is missing")
		return 3
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	g := configtest.Start(processTB{}, 1, c.Listen)
	if c.BrokerID > 0 {
		g.Lead(-1)
		g.OnStatus(func(_ *configtest.Node, st *configsyncv1.StatusResponse) { st.MasterAddress = c.Peers[0] })
	}
	<-ctx.Done()
	g.Nodes[0].Stop()
	return 0
}

func TestPlaygroundWithConfigSync(t *testing.T) {
	t.Setenv(fakeVar, "run")
	t.Setenv("TANDEM_CONFIGSYNC_LISTEN", "must not reach the nodes")
	dir := t.TempDir()
	out, errOut, stop := startCtl(t, "", "playground", "--storage-bin", self(t), "--configsync-bin", self(t), "--slaves", "1", "--dir", dir)
	defer stop()
	out.waitFor(t, "Ctrl-C stops everything.")
	addrs := regexp.MustCompile(`export TANDEMCTL_CONFIG_ADDR=(\S+)`).FindStringSubmatch(out.String())[1]
	if r := ctl(t, "", "", "config", "status", "--addr", addrs); r.code != exitOK || strings.Count(r.out, "broker-a/") != 2 {
		t.Errorf("%+v", r)
	}
	one, other, _ := strings.Cut(addrs, ",")
	for _, want := range []string{"CONFIG SYNC OF", filepath.Join(dir, "slave-1", "data", "config"), "config diff " + one + " " + other, "topic create orders"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "slave-1", "storage.yaml"))
	if err != nil || !strings.Contains(string(b), "configsync:\n  address: "+other+"\n") {
		t.Errorf("%v\n%s", err, b)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
	out.waitFor(t, "away:   cd "+dir+" && rm -r playground.lock master slave-1\n")
	if r := ctl(t, "", "", "config", "status", "--addr", one); r.code != exitFailed {
		t.Errorf("it still runs: %+v", r)
	}
}

func TestPlaygroundWantsConfigSync(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := ctl(t, "", "", "playground", "--storage-bin", self(t))
	if r.code != exitFailed || !strings.Contains(r.err, "no `configsync` binary") || !strings.Contains(r.err, "--configsync-bin") {
		t.Errorf("%+v", r)
	}
}

func TestTableProgress(t *testing.T) {
	node := func(open bool, states ...configsyncv1.SyncState) configNode {
		st := &configsyncv1.StatusResponse{Open: open}
		for _, s := range states {
			st.Kinds = append(st.Kinds, &configsyncv1.KindStatus{Kind: 4, State: s})
		}
		return configNode{addr: "a:1", status: st}
	}
	const leading, inSync, syncing = configsyncv1.SyncState_SYNC_STATE_LEADING, configsyncv1.SyncState_SYNC_STATE_IN_SYNC, configsyncv1.SyncState_SYNC_STATE_SYNCING
	for want, all := range map[string][]configNode{
		"":                                     {node(true, leading), node(false, inSync)},
		"not all config sync nodes answer yet": {node(true, leading), {err: context.Canceled}},
		"the table of groups is not in sync at a:1 yet": {node(true, leading), node(false, inSync, syncing)},
		"no config sync node leads yet":                 {node(false, inSync)},
	} {
		if got := tableProgress(all); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
