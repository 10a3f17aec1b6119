package main

import (
	"testing"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// TestAGroup: what is changed on the master is on the slaves, and slaves refuse changes and name the master.
func TestAGroup(t *testing.T) {
	t.Parallel()
	g := group(t, 2)
	for _, n := range g {
		n.start()
	}
	m := g[0].awaitOpen()
	m.create("TopicA", "TopicB")
	m.createGroups("GroupA")
	if got := m.commit("TopicA", "GroupA", 100); got != 100 {
		t.Errorf("committed 100, %d holds", got)
	}
	if got := m.commit("TopicA", "GroupA", 50); got != 100 {
		t.Errorf("committed 50 behind 100, %d holds", got)
	}
	m.commit("TopicB", "GroupB", 7) // the group's first is listed at once, as it is found at once
	lag, err := m.offsets().ListLag(t.Context(), &configsyncv1.ListLagRequest{Group: "GroupB"})
	if err != nil || len(lag.GetLags()) != 1 || lag.GetLags()[0].GetTopic() != "TopicB" || lag.GetLags()[0].GetOffset() != 7 {
		t.Errorf("%v, %v", lag, err)
	}
	if _, err := m.offsets().CommitDelay(t.Context(), &configsyncv1.CommitDelayRequest{Offsets: []*configsyncv1.DelayOffset{{Level: 3, Offset: 7}}}); err != nil {
		t.Error(err)
	}
	for _, s := range g[1:] {
		s.awaitOffset("TopicA", "GroupA", 100)
	}
	same(t, g...)
	_, err = g[1].offsets().Commit(t.Context(), &configsyncv1.CommitRequest{
		Offset: &configsyncv1.ConsumerOffset{Topic: "TopicA", Group: "GroupA", Offset: 200},
	})
	if info, _ := servicetest.Typed(t, "commit on a slave", err); info.GetReason() != "NOT_MASTER" || info.GetMetadata()["master"] != m.cfg.Listen {
		t.Errorf("commit on a slave: %v", err)
	}
}
