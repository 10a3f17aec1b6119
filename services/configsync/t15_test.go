package main

import (
	"fmt"
	"testing"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

const (
	topicA = "TopicA"
	groupA = "GroupA"
)

// TestT15_AnOldMasterReturns is step 1: what was committed while it was away counts, not its old file.
func TestT15_AnOldMasterReturns(t *testing.T) {
	t.Parallel()
	g, st := withStorages(t, 2)
	for _, f := range st {
		f.set(topicA, 0, queueEnds{0, 1000, 1000})
	}
	promote(st, 0, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().commit(topicA, groupA, 100)
	g[1].awaitOffset(topicA, groupA, 100)
	g[0].halt()
	promote(st, 1, 2)
	g[1].awaitOpen().commit(topicA, groupA, 150)
	g[1].halt()
	promote(st, 0, 3)
	g[1].start()
	g[0].start().awaitOpen()
	if got := g[0].offset(topicA, groupA); got != 150 {
		t.Errorf("the old master opened with %d, not 150", got)
	}
	g[1].await("a master", func(st *configsyncv1.StatusResponse) bool { return st.GetMasterAddress() != "" })
	for range 3 {
		if _, err := g[1].admin().Sync(t.Context(), &configsyncv1.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range g {
		if got := n.offset(topicA, groupA); got != 150 {
			t.Errorf("node %d has %d after three rounds, not 150", i, got)
		}
	}
	same(t, g...)
}

// TestT15_TenSwaps is step 2: the value never falls.
func TestT15_TenSwaps(t *testing.T) {
	t.Parallel()
	g, st := withStorages(t, 2)
	for _, f := range st {
		f.set(topicA, 0, queueEnds{0, 1000, 1000})
		f.set("SCHEDULE_TOPIC_XXXX", 2, queueEnds{0, 1000, 1000})
	}
	for _, n := range g {
		n.start()
	}
	for swap := range int64(10) {
		promote(st, int(swap%2), swap+1)
		m := g[swap%2].awaitOpen()
		before := 10 * swap
		if swap > 0 {
			if got := m.offset(topicA, groupA); got != before {
				t.Fatalf("swap %d: %d, committed was %d", swap, got, before)
			}
			if got := m.delay(3); got != before {
				t.Fatalf("swap %d: delay level at %d, committed was %d", swap, got, before)
			}
		}
		m.commit(topicA, groupA, before+10)
		_, err := m.offsets().CommitDelay(t.Context(), &configsyncv1.CommitDelayRequest{
			Offsets: []*configsyncv1.DelayOffset{{Level: 3, Offset: before + 10}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	same(t, g...)
	if got := g[0].offset(topicA, groupA); got != 100 {
		t.Errorf("%d after ten swaps, not 100", got)
	}
}

// delay returns the offset of a delay level, -1 where there is none.
func (n *node) delay(level int32) int64 {
	n.t.Helper()
	resp, err := n.offsets().QueryDelay(n.t.Context(), &configsyncv1.QueryDelayRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, o := range resp.GetOffsets() {
		if o.GetLevel() == level {
			return o.GetOffset()
		}
	}
	return -1
}

// TestT15_LeadAtOnce is step 3: a node that starts as master shows and takes nothing until it has its peers' tables.
func TestT15_LeadAtOnce(t *testing.T) {
	t.Parallel()
	g, st := withStorages(t, 2)
	for _, f := range st {
		f.set(topicA, 0, queueEnds{0, 1000, 1000})
	}
	promote(st, 0, 1)
	g[0].start().awaitOpen().commit(topicA, groupA, 100)
	g[1].start().awaitOffset(topicA, groupA, 100)
	g[1].halt()
	g[0].commit(topicA, groupA, 150)
	promote(st, 1, 2)
	n := g[1].start()
	for { // from its first moment on
		resp, err := n.offsets().Query(t.Context(), &configsyncv1.QueryRequest{Topic: topicA, Group: groupA})
		if err != nil {
			if r := errdefs.ReasonOf(grpcx.FromStatus(err)); r != "OPENING" && r != grpcx.ReasonUnreachable {
				t.Fatalf("query: %v", err)
			}
			continue
		}
		if got := resp.GetOffsets(); len(got) != 1 || got[0].GetOffset() != 150 {
			t.Fatalf("it showed %v before it had heard its peer", got)
		}
		break
	}
	n.awaitOpen()
}

// TestT15_Reset is step 4: an explicit reset goes down, and stays down.
func TestT15_Reset(t *testing.T) {
	t.Parallel()
	g, st := withStorages(t, 3)
	for _, f := range st {
		f.set(topicA, 0, queueEnds{0, 1000, 1000})
		f.set("SCHEDULE_TOPIC_XXXX", 2, queueEnds{0, 1000, 1000})
	}
	promote(st, 0, 1)
	for _, n := range g {
		n.start()
	}
	m := g[0].awaitOpen()
	m.commit(topicA, groupA, 150)
	if _, err := m.offsets().CommitDelay(t.Context(), &configsyncv1.CommitDelayRequest{Offsets: []*configsyncv1.DelayOffset{{Level: 3, Offset: 150}}}); err != nil {
		t.Fatal(err)
	}
	for _, n := range g {
		n.awaitOffset(topicA, groupA, 150)
	}
	g[2].halt() // it comes back with 150
	resp, err := m.offsets().Reset(t.Context(), &configsyncv1.ResetRequest{Topic: topicA, Group: groupA, To: &configsyncv1.ResetRequest_Offset{Offset: 20}})
	if err != nil || resp.GetOffsets()[0].GetOldOffset() != 150 || resp.GetOffsets()[0].GetNewOffset() != 20 {
		t.Fatalf("reset: %v, %v", resp, err)
	}
	if _, err := m.offsets().ResetDelay(t.Context(), &configsyncv1.ResetDelayRequest{Level: 3, Offset: 20}); err != nil {
		t.Fatal(err)
	}
	g[2].start()
	promote(st, 1, 2)
	g[1].awaitOpen()
	same(t, g...)
	for i, n := range g {
		if got := n.offset(topicA, groupA); got != 20 {
			t.Errorf("node %d has %d after the reset to 20", i, got)
		}
		if got := n.delay(3); got != 20 {
			t.Errorf("node %d has delay level 3 at %d after the reset to 20", i, got)
		}
	}
	// A consumer that has not heard of the reset is told.
	epoch := uint32(0)
	_, err = g[1].offsets().Commit(t.Context(), &configsyncv1.CommitRequest{
		Offset: &configsyncv1.ConsumerOffset{Topic: topicA, Group: groupA, Offset: 151, ResetEpoch: &epoch},
	})
	if info, fields := servicetest.Typed(t, "a commit of before the reset", err); info.GetReason() != "OFFSET_WAS_RESET" || fmt.Sprint(fields) != "[offset.reset_epoch]" {
		t.Errorf("a commit of before the reset: %v, %v", err, fields)
	}
}

// TestT15_ACutLog: a master whose log is shorter than what was consumed resets those offsets, and only those.
func TestT15_ACutLog(t *testing.T) {
	t.Parallel()
	g, st := withStorages(t, 3)
	st[0].set(topicA, 0, queueEnds{0, 200, 200})
	st[0].set("TopicB", 0, queueEnds{0, 200, 200})
	promote(st, 0, 1)
	for _, n := range g {
		n.start()
	}
	m := g[0].awaitOpen()
	m.commit(topicA, groupA, 180)
	m.commit("TopicB", groupA, 90)
	for _, n := range g {
		n.awaitOffset(topicA, groupA, 180)
		n.awaitOffset("TopicB", groupA, 90)
	}
	m.commit(topicA, "GroupLate", 190) // node 2 does not hear of it before the change
	g[0].halt()
	// Node 1 was forced: its log ended at 150, and 20 messages have come since.
	st[1].set(topicA, 0, queueEnds{0, 170, 150})
	st[1].set("TopicB", 0, queueEnds{0, 100, 100})
	promote(st, 1, 2)
	g[1].awaitOpen()
	if got := g[1].offset(topicA, groupA); got != 150 {
		t.Errorf("the offset behind the cut is %d, not 150", got)
	}
	if got := g[1].offset("TopicB", groupA); got != 90 {
		t.Errorf("an offset that was not cut is %d, not 90", got)
	}
	g[1].commit(topicA, groupA, 165)
	g[0].start() // comes back with offsets of what was cut, and one that only it has
	same(t, g...)
	until(t, "the late node's offsets", g[1].heardAll)
	same(t, g...)
	for i, n := range g {
		if got := n.offset(topicA, groupA); got != 165 {
			t.Errorf("node %d: %d; 165 was committed since the cut", i, got)
		}
		if got := n.offset(topicA, "GroupLate"); got != 150 {
			t.Errorf("node %d: the late group is at %d; what it consumed was cut at 150", i, got)
		}
	}
}
