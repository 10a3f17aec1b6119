package main

import (
	"context"
	"slices"
	"testing"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// TestCheckBringsALittleDelta: only where it is asked for, and is neither large nor the whole table.
func TestCheckBringsALittleDelta(t *testing.T) {
	t.Parallel()
	m := newNode(t, 0, asyncMaster).start().awaitOpen()
	m.create("TopicA")
	client := configsyncv1.NewConfigSyncServiceClient(m.conn)
	check := func(have *configsyncv1.TableVersion, deltas bool) *configsyncv1.KindCheck {
		t.Helper()
		resp, err := client.Check(t.Context(), &configsyncv1.CheckRequest{
			Caller:   &configsyncv1.Caller{Cluster: m.cfg.BrokerClusterName, BrokerName: m.cfg.BrokerName, NodeId: 5, AnyRole: true},
			Versions: []*configsyncv1.TableVersion{have}, Deltas: deltas,
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetKinds()[0]
	}
	none := &configsyncv1.TableVersion{Kind: configsyncv1.Kind_KIND_TOPICS}
	have := check(none, true)
	if len(have.GetDelta()) > 0 {
		t.Errorf("the whole table comes with Check: %v", have)
	}
	m.create("TopicB")
	if c := check(have.GetVersion(), false); len(c.GetDelta()) > 0 || c.GetVersion() == nil {
		t.Errorf("nobody asked for it: %v", c)
	}
	c := check(have.GetVersion(), true)
	a := chunk.NewAssembly(entry.Topics)
	if err := a.Add(c.GetDelta()); err != nil {
		t.Fatal(err)
	}
	d, err := a.Delta()
	if err != nil || d.Full || len(d.Entries) != 1 || d.Entries[0].Key != "TopicB" || d.Sum != c.GetVersion().GetSum() ||
		d.To != wire.VersionOf(c.GetVersion().GetDataVersion()) || d.From != wire.VersionOf(have.GetVersion().GetDataVersion()) {
		t.Errorf("%v brings %+v, %v", c, d, err)
	}
	if c := check(c.GetVersion(), true); c.GetResult() != configsyncv1.CheckResult_CHECK_RESULT_UNCHANGED || len(c.GetDelta()) > 0 {
		t.Errorf("nothing has changed, but %v", c)
	}
}

// TestARoundTakesTheDeltaOfCheck: it needs no Fetch then; where the delta does not begin at what the slave has, the table comes all
// the same.
func TestARoundTakesTheDeltaOfCheck(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	v := entry.Version{State: 1, Counter: 10, Timestamp: 1000}
	for _, k := range entry.Kinds() {
		f.tables[k] = decoded(t, k, v, 50)
	}
	s := newNode(t, 1, slave, func(c *Config) { c.SyncTimeout, c.SyncInterval = time.Second, 50*time.Millisecond })
	s.cfg.Peers = []string{s.cfg.Listen, f.addr}
	s.start()
	has := func(want *table.Table) func(*configsyncv1.StatusResponse) bool {
		return func(st *configsyncv1.StatusResponse) bool {
			return slices.ContainsFunc(st.GetKinds(), func(k *configsyncv1.KindStatus) bool {
				return k.GetKind() == wire.Kind(want.Kind()) && k.GetVersion().GetSum() == want.Sum() &&
					wire.VersionOf(k.GetVersion().GetDataVersion()) == want.Version()
			})
		}
	}
	for _, k := range entry.Kinds() {
		s.await("the first sync", has(f.tables[k]))
	}
	next := func(from *table.Table, name string) (*table.Table, *configsyncv1.KindCheck) {
		t.Helper()
		e := from.Edit(1, 2000)
		if err := e.Put(entry.NewTopic(name)); err != nil {
			t.Fatal(err)
		}
		to, d := e.Done()
		c := &configsyncv1.KindCheck{Kind: configsyncv1.Kind_KIND_TOPICS, Result: configsyncv1.CheckResult_CHECK_RESULT_CHANGED, Version: wire.TableVersion(to)}
		for b := range chunk.Split(d) {
			c.Delta = b
		}
		return to, c
	}
	answer := func(topics *configsyncv1.KindCheck) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.check = func(k entry.Kind, deltas bool) *configsyncv1.KindCheck {
			if k == entry.Topics && deltas {
				return topics
			}
			return &configsyncv1.KindCheck{Kind: wire.Kind(k), Result: configsyncv1.CheckResult_CHECK_RESULT_UNCHANGED}
		}
	}
	silent := func(ctx context.Context, _ entry.Kind, _ *table.Table, _ sender) error {
		<-ctx.Done()
		return ctx.Err()
	}
	f.now(silent)
	second, c := next(f.tables[entry.Topics], "TopicX")
	answer(c)
	s.await("the delta of the answer", has(second))

	third, _ := next(second, "TopicY")
	fourth, gap := next(third, "TopicZ")
	f.mu.Lock()
	f.tables[entry.Topics] = fourth
	f.mu.Unlock()
	answer(gap)
	f.now(func(ctx context.Context, k entry.Kind, tab *table.Table, send sender) error {
		if k == entry.Topics {
			return whole(ctx, k, tab, send)
		}
		return silent(ctx, k, tab, send)
	})
	s.await("the table behind a gap", has(fourth))
}
