package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// debug asks the node's debug listener.
func (n *node) debug(path string) (int, string) {
	n.t.Helper()
	resp, err := http.Get("http://" + n.app.env.DebugAddr().String() + path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (n *node) readyz() (int, string) { n.t.Helper(); return n.debug("/readyz") }

func (n *node) metrics() string {
	n.t.Helper()
	_, body := n.debug("/metrics")
	return body
}

// A group whose configs make no node master says what makes one.
func TestAGroupOfSlavesOnly(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1)
	for _, n := range g {
		n.change(func(c *Config) { c.BrokerRole, c.BrokerID = slave, c.BrokerID+5 })
		n.start()
	}
	for _, n := range g {
		n.await("the reason", func(st *storagev1.StatusResponse) bool {
			return st.GetReason() == "NO_OPEN_MASTER" && strings.Contains(st.GetRemedy(), "brokerRole SYNC_MASTER") && !strings.Contains(st.GetRemedy(), "no answer")
		})
	}
}

// A slave that no master is there for says so, in Status, to who puts, and at /readyz, and says what to do.
func TestASlaveWithoutAMaster(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().put([]byte("one"))
	g[1].awaitEnd(g[0].end64())
	if code, body := g[1].readyz(); code != http.StatusOK {
		t.Errorf("a slave that follows: %d %s", code, body)
	}
	for _, how := range []string{"the master stops", "the slave starts alone"} {
		if how == "the master stops" {
			g[0].halt()
		} else {
			g[1].halt()
			g[1].start()
		}
		st := g[1].await("the reason", func(st *storagev1.StatusResponse) bool { return st.GetReason() == "NO_OPEN_MASTER" })
		if r := st.GetRemedy(); !strings.Contains(r, "tandemctl promote") || !strings.Contains(r, g[0].cfg.Listen) {
			t.Errorf("%s: remedy %s", how, r)
		}
		if code, body := g[1].readyz(); code != http.StatusServiceUnavailable || !strings.Contains(body, "NO_OPEN_MASTER") || !strings.Contains(body, "tandemctl promote") {
			t.Errorf("%s: /readyz %d %s", how, code, body)
		}
		_, err := g[1].tryPut([]byte("two"))
		if e := asError(err); e.Reason != "NOT_MASTER" || e.Meta["reason"] != "NO_OPEN_MASTER" || !strings.Contains(e.Remedy, "tandemctl promote") || e.Meta["master"] != "" {
			t.Errorf("%s: a put: %v", how, err)
		}
	}
	g[0].start().awaitOpen()
	g[1].await("the link", func(st *storagev1.StatusResponse) bool { return st.GetReason() == "SLAVE" })
}
