package main

import (
	"testing"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// TestAFolderOfAnother: a node keeps promises in its own name, to the members that its group began with. With another name or other
// members it does not start: of three, the one that forgot the two others would be a majority by itself.
func TestAFolderOfAnother(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	c := newClient(t)
	c.put(g, "x")
	s := g[0]
	s.end()
	as := *s.cfg
	for field, change := range map[string]func(*Config){
		"peers":  func(c *Config) { c.Peers = nil },
		"group":  func(c *Config) { c.Group = "another" },
		"selfId": func(c *Config) { c.SelfID, c.Listen = g[1].cfg.SelfID, g[1].cfg.Listen; g[1].end() },
	} {
		*s.cfg = as
		change(s.cfg)
		err := s.tryStart()
		if e := errdefs.As(err); e == nil || e.Reason != "FOLDER_OF_ANOTHER" || e.Field != field || e.Remedy == "" {
			t.Errorf("another %s: %v", field, err)
		}
		if err := s.tryBootstrap(); errdefs.ReasonOf(err) != "FOLDER_OF_ANOTHER" {
			t.Errorf("bootstrap with another %s: %v", field, err)
		}
	}
	*s.cfg = as
	s.cfg.Listen = servicetest.FreeAddr(t) // the machine has a new address
	for _, o := range g {
		o.end()
		o.cfg.Peers = []string{s.cfg.SelfID + "-" + s.cfg.Listen, g[1].cfg.SelfID + "-" + g[1].cfg.Listen, g[2].cfg.SelfID + "-" + g[2].cfg.Listen}
		o.start()
	}
	hurry(g)
	c.put(g, "y")
	leader(t, g).await("a lease", (*ledgerv1.StatusResponse).GetLease)
}

// TestBootstrapAsksForNames: no group is begun where the address of a member is that of another.
func TestBootstrapAsksForNames(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	own := g[0].cfg
	peers := own.Peers
	own.Peers = []string{peers[0], "n1-" + g[2].cfg.Listen, "n2-" + g[1].cfg.Listen}
	for _, s := range g {
		s.start()
	}
	_, err := g[0].admin().Bootstrap(t.Context(), &ledgerv1.BootstrapRequest{Members: []string{"n0", "n1", "n2"}})
	if e := wantReason(t, "bootstrap", err, "WRONG_MEMBER"); e != nil && (e.Meta["member"] != "n1" || e.Meta["got"] != "n2" || e.Remedy == "") {
		t.Errorf("%v", e)
	}
	for _, s := range g {
		if s.status().GetVoter() {
			t.Errorf("%s is a voter", s.cfg.SelfID)
		}
	}
	g[0].end()
	own.Peers = peers
	g[0].start()
	if _, err := g[0].admin().Bootstrap(t.Context(), &ledgerv1.BootstrapRequest{Members: []string{"n0", "n1", "n2"}}); err != nil {
		t.Error(err)
	}
}

// TestSmallerFiles: a member whose files are too small for an entry of the group stays behind, lives on and says why.
func TestSmallerFiles(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	small := g[2]
	small.cfg.MappedFileSizeForEntryData = 64 << 10
	startAll(g[:2]) // one of the two leads
	c := newClient(t)
	x := c.put(g[:2], "x").GetIndex()
	l := leader(t, g[:2])
	small.bootstrap().start().await("x", func(st *ledgerv1.StatusResponse) bool { return st.GetCommittedIndex() >= x })
	last := c.put(g[:2], string(make([]byte, 100<<10))).GetIndex()
	l.await("why the third stays behind", func(st *ledgerv1.StatusResponse) bool {
		for _, f := range st.GetFollowers() {
			if f.GetId() == small.cfg.SelfID && f.GetMatchIndex() == last-1 && f.GetLastErrorReason() == "BAD_BATCH" {
				return true
			}
		}
		return false
	})
	if st := small.status(); st.GetLastIndex() != last-1 || st.GetReason() != "" {
		t.Errorf("%v", st)
	}
	small.end()
	small.wipe()
	small.cfg.MappedFileSizeForEntryData = g[0].cfg.MappedFileSizeForEntryData
	small.start().await("all entries", func(st *ledgerv1.StatusResponse) bool { return st.GetCommittedIndex() >= last && st.GetVoter() })
}
