package config_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/clienttest/configtest"
	"github.com/tandemlog/tandem/pkg/client/config"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// dial makes a client of some addresses of the group, or of all.
func dial(t *testing.T, g *configtest.Group, o config.Options, addrs ...string) *config.Client {
	t.Helper()
	if o.Addresses = addrs; len(addrs) == 0 {
		o.Addresses = g.Addrs()
	}
	c, err := config.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestTopics(t *testing.T) {
	c := dial(t, configtest.Start(t, 2), config.Options{})
	ctx, topics := t.Context(), c.Topics()
	for _, name := range []string{"b", "a1", "a3", "a2"} {
		if _, err := topics.Create(ctx, &config.Topic{Name: name, Order: true}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := topics.Create(ctx, &config.Topic{Name: "b"}, nil); errdefs.ClassOf(err) != errdefs.AlreadyExists {
		t.Errorf("twice: %v", err)
	}
	var names []string
	err := topics.List(ctx, "a", func(e *config.Topic) error {
		names = append(names, e.GetName())
		return nil
	})
	if err != nil || !slices.Equal(names, []string{"a1", "a2", "a3"}) {
		t.Errorf("%v, %v", names, err)
	}
	enough := errors.New("enough")
	if err := topics.List(ctx, "", func(*config.Topic) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	old, err := topics.Get(ctx, "b")
	if err != nil || old.GetReadQueues() != 16 || old.GetEtag() == 0 {
		t.Fatalf("%v, %v", old, err)
	}
	// Order is in the mask and not set; attributes are set and not in it.
	e, err := topics.Update(ctx, &config.Topic{Name: "b", Attributes: map[string]string{"x": "y"}}, []string{"order"}, false, config.Condition{Etag: old.GetEtag()})
	if err != nil || e.GetOrder() || len(e.GetAttributes()) != 0 || e.GetReadQueues() != 16 {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := topics.Update(ctx, &config.Topic{Name: "b", Order: true}, nil, false, config.Condition{Etag: old.GetEtag()}); errdefs.ClassOf(err) != errdefs.FailedPrecondition {
		t.Errorf("an old etag: %v", err)
	}
	if _, err := topics.Update(ctx, &config.Topic{Name: "c"}, nil, true, config.Condition{}); err != nil {
		t.Errorf("allow missing: %v", err)
	}
	if err := topics.Delete(ctx, "c", config.Condition{}); err != nil {
		t.Error(err)
	}
	if _, err := topics.Get(ctx, "c"); errdefs.ClassOf(err) != errdefs.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestGroups(t *testing.T) {
	c := dial(t, configtest.Start(t, 1), config.Options{})
	ctx, groups := t.Context(), c.Groups()
	for _, name := range []string{"g2", "g1", "g3"} {
		if e, err := groups.Create(ctx, &config.Group{Name: name}, nil); err != nil || !e.GetConsumeEnable() {
			t.Fatalf("%v, %v", e, err)
		}
	}
	if e, err := groups.Update(ctx, &config.Group{Name: "g1", ConsumeEnable: new(false)}, nil, false, config.Condition{}); err != nil || e.GetConsumeEnable() {
		t.Errorf("%v, %v", e, err)
	}
	if err := groups.Delete(ctx, "g2", config.Condition{}); err != nil {
		t.Error(err)
	}
	var names []string
	err := groups.List(ctx, "", func(e *config.Group) error {
		names = append(names, e.GetName())
		return nil
	})
	if err != nil || !slices.Equal(names, []string{"g1", "g3"}) {
		t.Errorf("%v, %v", names, err)
	}
	if e, err := groups.Get(ctx, "g1"); err != nil || e.GetConsumeEnable() {
		t.Errorf("%v, %v", e, err)
	}
}

func offset(n int64) *config.Offset { return &config.Offset{Group: "g", Topic: "t", Offset: n} }

func TestOffsets(t *testing.T) {
	g := configtest.Start(t, 1)
	g.SetEnd("t", 0, 100)
	c := dial(t, g, config.Options{})
	ctx, offsets := t.Context(), c.Offsets()
	for _, tc := range []struct{ commit, want int64 }{{10, 10}, {5, 10}, {20, 20}} {
		if held, err := offsets.Commit(ctx, offset(tc.commit), false); err != nil || held != tc.want {
			t.Errorf("commit %d: %d, %v", tc.commit, held, err)
		}
	}
	if _, err := offsets.CommitBatch(ctx, []*config.Offset{offset(30), offset(101)}, true); errdefs.ClassOf(err) != errdefs.OutOfRange || g.Offset(configtest.Key{Group: "g", Topic: "t"}) != 20 {
		t.Errorf("all or none: %v", err)
	}
	if held, err := offsets.CommitBatch(ctx, []*config.Offset{offset(30), {Group: "g", Topic: "t", QueueId: 1, Offset: 7}}, true); err != nil || !slices.Equal(held, []int64{30, 7}) {
		t.Errorf("%v, %v", held, err)
	}
	var lags []int64
	err := offsets.Lag(ctx, "g", "t", func(l *config.Lag) error {
		lags = append(lags, l.GetLag())
		return nil
	})
	if err != nil || !slices.Equal(lags, []int64{70, -1}) {
		t.Errorf("%v, %v", lags, err)
	}
	req := &config.ResetRequest{Group: "g", Topic: "t", QueueId: new(int32), To: &configsyncv1.ResetRequest_Earliest{Earliest: true}, DryRun: true}
	for _, dry := range []bool{true, false} {
		req.DryRun = dry
		if r, err := offsets.Reset(ctx, req); err != nil || len(r) != 1 || r[0].GetOldOffset() != 30 || r[0].GetNewOffset() != 0 {
			t.Errorf("%v, %v", r, err)
		}
	}
	stale := offset(40)
	stale.ResetEpoch = new(uint32)
	if _, err := offsets.Commit(ctx, stale, false); !errors.Is(err, config.ErrWasReset) {
		t.Errorf("a commit of before the reset: %v", err)
	}
	if h, err := offsets.Query(ctx, "g", "t"); err != nil || len(h) != 2 || h[0].GetOffset() != 0 || h[0].GetResetEpoch() != 1 {
		t.Errorf("%v, %v", h, err)
	}
	if held, err := offsets.CommitDelay(ctx, []*config.DelayOffset{{Level: 3, Offset: 9}}); err != nil || !slices.Equal(held, []int64{9}) {
		t.Errorf("%v, %v", held, err)
	}
	if old, err := offsets.ResetDelay(ctx, 3, 2); err != nil || old != 9 {
		t.Errorf("%d, %v", old, err)
	}
	if d, err := offsets.QueryDelay(ctx); err != nil || len(d) != 1 || d[0].GetOffset() != 2 {
		t.Errorf("%v, %v", d, err)
	}
}

func TestChangesFindTheMaster(t *testing.T) {
	g := configtest.Start(t, 3)
	g.Lead(2)
	c := dial(t, g, config.Options{}, g.Nodes[0].Addr()) // the third is only named by the first
	if addr, err := c.FindMaster(t.Context()); err != nil || addr != g.Nodes[2].Addr() {
		t.Errorf("%s, %v", addr, err)
	}
	if _, err := c.Offsets().Commit(t.Context(), offset(1), false); err != nil {
		t.Error(err)
	}
	g.Lead(1) // NOT_MASTER names it
	if _, err := c.Offsets().Commit(t.Context(), offset(2), false); err != nil || g.Nodes[1].Calls("Commit") != 1 {
		t.Errorf("%v after %d calls", err, g.Nodes[1].Calls("Commit"))
	}
}

func TestChangesOutlastAMasterThatIsKilled(t *testing.T) {
	g := configtest.Start(t, 2)
	var retries atomic.Int32
	c := dial(t, g, config.Options{OnRetry: func(err error, pause time.Duration) {
		if err == nil || pause <= 0 {
			t.Errorf("%v, %v", err, pause)
		}
		if retries.Add(1) == 2 {
			g.Lead(1)
		}
	}})
	if _, err := c.Offsets().Commit(t.Context(), offset(1), false); err != nil {
		t.Fatal(err)
	}
	g.Nodes[0].Stop()
	if held, err := c.Offsets().Commit(t.Context(), offset(2), false); err != nil || held != 2 || retries.Load() < 2 {
		t.Errorf("%d, %v after %d retries", held, err, retries.Load())
	}
	if _, err := c.Topics().Create(t.Context(), &config.Topic{Name: "t"}, nil); err != nil {
		t.Error(err)
	}
}

// TestALostAnswerIsToldAsSuch: a commit is sent again, a change is not.
func TestALostAnswerIsToldAsSuch(t *testing.T) {
	g := configtest.Start(t, 1)
	var lose atomic.Bool
	c := dial(t, g, config.Options{})
	g.AfterCall(func(_ *configtest.Node, method string) error {
		if method != "Status" && lose.Swap(false) {
			return errdefs.New(errdefs.Internal, "RPC_INTERNAL", "the answer is lost")
		}
		return nil
	})
	lose.Store(true)
	if _, err := c.Topics().Create(t.Context(), &config.Topic{Name: "b"}, nil); !errors.Is(err, config.ErrOutcomeUnknown) || g.Nodes[0].Calls("CreateTopic") != 1 {
		t.Errorf("%v after %d calls", err, g.Nodes[0].Calls("CreateTopic"))
	}
	lose.Store(true)
	if held, err := c.Offsets().Commit(t.Context(), offset(3), false); err != nil || held != 3 || g.Nodes[0].Calls("Commit") != 2 {
		t.Errorf("%d, %v after %d calls", held, err, g.Nodes[0].Calls("Commit"))
	}
}

func TestReads(t *testing.T) {
	g := configtest.Start(t, 2)
	g.Lead(1)
	c, local := dial(t, g, config.Options{}), dial(t, g, config.Options{Local: true})
	if _, err := c.Topics().Create(t.Context(), &config.Topic{Name: "t"}, nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		c    *config.Client
		node int
	}{{c, 1}, {local, 0}} {
		before := g.Nodes[tc.node].Calls("GetTopic")
		if _, err := tc.c.Topics().Get(t.Context(), "t"); err != nil || g.Nodes[tc.node].Calls("GetTopic") != before+1 {
			t.Errorf("node %d was not asked: %v", tc.node, err)
		}
	}
	g.Lead(-1)
	g.Nodes[1].Stop() // nobody leads, and the old master is gone: the slave has it
	for range 2 {
		if _, err := c.Topics().Get(t.Context(), "t"); err != nil {
			t.Error(err)
		}
	}
	g.Nodes[0].Stop()
	if _, err := c.Topics().Get(t.Context(), "t"); !errors.Is(err, config.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

func TestNoMasterSaysWhy(t *testing.T) {
	g := configtest.Start(t, 2)
	g.Lead(-1)
	g.OnStatus(func(n *configtest.Node, st *configsyncv1.StatusResponse) {
		if n == g.Nodes[0] {
			st.Master, st.Reason, st.Remedy = true, "HEARING_PEERS", "start the others"
		}
	})
	g.Nodes[1].Stop()
	c := dial(t, g, config.Options{Timeout: 300 * time.Millisecond})
	_, err := c.Topics().Create(t.Context(), &config.Topic{Name: "t"}, nil)
	if !errors.Is(err, config.ErrNoMaster) || errdefs.As(err).Remedy != "start the others" ||
		!strings.Contains(err.Error(), "is a master but not open (HEARING_PEERS)") || !strings.Contains(err.Error(), g.Nodes[1].Addr()+" is not reached") {
		t.Errorf("got %v", err)
	}
}

func TestAdmin(t *testing.T) {
	g := configtest.Start(t, 2)
	c := dial(t, g, config.Options{})
	ctx := t.Context()
	if _, err := c.Topics().Create(ctx, &config.Topic{Name: "some-topic"}, nil); err != nil {
		t.Fatal(err)
	}
	a, err := c.Admin("")
	if err != nil || a.Address() != g.Nodes[0].Addr() {
		t.Fatal(err)
	}
	if st, err := a.Status(ctx); err != nil || !st.GetOpen() || len(st.GetKinds()) != 4 {
		t.Errorf("%v, %v", st, err)
	}
	if kinds, err := a.Sync(ctx); err != nil || len(kinds) != 4 {
		t.Errorf("%v, %v", kinds, err)
	}
	files, err := a.Export(ctx)
	if err != nil || len(files) != 4 || files[0].Name != "topics.json" || !strings.Contains(string(files[0].Data), `"some-topic"`) || string(files[3].Data) != "{}\n" {
		t.Errorf("%v, %v", files, err)
	}
	if one, err := a.Export(ctx, configsyncv1.Kind_KIND_DELAY_OFFSETS); err != nil || len(one) != 1 || one[0].Name != "delayOffset.json" {
		t.Errorf("%v, %v", one, err)
	}
	files[1].Data = make([]byte, 3<<20)
	r, err := a.Import(ctx, files, true, true)
	if err != nil || len(r) != 4 || r[1].GetUnchanged() != 3<<20 || r[3].GetUnchanged() != 3 {
		t.Errorf("%v, %v", r, err)
	}
	slave, err := c.Admin(g.Nodes[1].Addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slave.Import(ctx, files, false, false); !errors.Is(err, config.ErrNotMaster) {
		t.Errorf("got %v", err)
	}
	g.SetDiff(&config.Difference{Kind: 1, Key: "t", Field: "perm", Here: "6", There: "4"})
	var keys []string
	sums, err := a.Diff(ctx, slave.Address(), 0, nil, func(d *config.Difference) error {
		keys = append(keys, d.GetKey())
		return nil
	})
	if err != nil || len(sums) != 4 || sums[0].GetDifferent() != 1 || !slices.Equal(keys, []string{"t"}) {
		t.Errorf("%v, %v, %v", sums, keys, err)
	}
	g.Nodes[1].Stop()
	if _, err := slave.Export(ctx); !errors.Is(err, config.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

func TestBadInput(t *testing.T) {
	for _, addrs := range [][]string{nil, {"nowhere"}} {
		if _, err := config.Dial(config.Options{Addresses: addrs}); errdefs.ClassOf(err) != errdefs.InvalidArgument {
			t.Errorf("%v: %v", addrs, err)
		}
	}
	c := dial(t, configtest.Start(t, 1), config.Options{})
	if _, err := c.Admin("nowhere"); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("got %v", err)
	}
	if _, err := c.Topics().Create(t.Context(), &config.Topic{}, nil); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Topics().Get(t.Context(), "t"); !errors.Is(err, config.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Offsets().Commit(t.Context(), offset(1), false); !errors.Is(err, config.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestGivenUpCallsLeaveNothingBehind: calls that nobody answers end with all that belonged to them.
func TestGivenUpCallsLeaveNothingBehind(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	g := configtest.Start(t, 2)
	block := make(chan struct{})
	g.BeforeCall(func(_ *configtest.Node, method string) error {
		if method != "Status" {
			<-block
		}
		return nil
	})
	c := dial(t, g, config.Options{TryTimeout: 10 * time.Millisecond})
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if _, err := c.Offsets().Commit(ctx, offset(1), false); err == nil {
			t.Error("the commit ended well")
		}
		if _, err := c.Offsets().Query(ctx, "g", "t"); err == nil {
			t.Error("the query ended well")
		}
		cancel()
	}
	close(block)
}
