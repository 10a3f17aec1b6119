package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// led makes one open master whose storage has queues 0 and 1 of TopicA, from 5 to 100.
func led(t *testing.T) (*node, *fakeStorage) {
	t.Helper()
	g, st := withStorages(t, 1)
	g[0].cfg.Peers = nil
	for q := range 2 {
		st[0].set(topicA, q, queueEnds{5, 100, 100})
	}
	promote(st, 0, 1)
	return g[0].start().awaitOpen(), st[0]
}

// TestBadInput: the error names the field, nothing has changed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	m, _ := led(t)
	m.create(topicA)
	m.createGroups(groupA)
	m.commit(topicA, groupA, 50)
	same(t, m)
	before := m.export()
	topic := func(f func(*configsyncv1.Topic)) *configsyncv1.CreateTopicRequest {
		x := &configsyncv1.Topic{Name: "TopicB"}
		f(x)
		return &configsyncv1.CreateTopicRequest{Topic: x}
	}
	at := func(f func(*configsyncv1.ConsumerOffset)) *configsyncv1.CommitRequest {
		x := &configsyncv1.ConsumerOffset{Topic: topicA, Group: groupA, Offset: 60}
		f(x)
		return &configsyncv1.CommitRequest{Offset: x}
	}
	ctx := t.Context()
	for _, c := range []struct {
		what, reason, field string
		call                func() error
	}{
		{"a topic without a name", "INVALID_NAME", "topic", func() error {
			return second(m.topics().CreateTopic(ctx, topic(func(x *configsyncv1.Topic) { x.Name = "" })))
		}},
		{"a topic of letters that RocketMQ has not", "INVALID_NAME", "topic", func() error {
			return second(m.topics().CreateTopic(ctx, topic(func(x *configsyncv1.Topic) { x.Name = "a/b" })))
		}},
		{"a long topic", "INVALID_NAME", "topic", func() error {
			return second(m.topics().CreateTopic(ctx, topic(func(x *configsyncv1.Topic) { x.Name = strings.Repeat("x", 128) })))
		}},
		{"too many queues", "INVALID_CONFIG", "topic", func() error {
			return second(m.topics().CreateTopic(ctx, topic(func(x *configsyncv1.Topic) { x.ReadQueues = 65536 })))
		}},
		{"no queues", "INVALID_CONFIG", "topic", func() error {
			return second(m.topics().UpdateTopic(ctx, &configsyncv1.UpdateTopicRequest{
				Topic: &configsyncv1.Topic{Name: topicA}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"write_queues"}},
			}))
		}},
		{"an unknown permission", "INVALID_CONFIG", "topic", func() error {
			return second(m.topics().CreateTopic(ctx, topic(func(x *configsyncv1.Topic) { x.Perm = proto.Int32(99) })))
		}},
		{"an unknown filter type", "INVALID_FIELD", "topic.filter_type", func() error {
			return second(m.topics().CreateTopic(ctx, topic(func(x *configsyncv1.Topic) { x.FilterType = 9 })))
		}},
		{"an unknown path", "INVALID_FIELD", "update_mask", func() error {
			return second(m.topics().UpdateTopic(ctx, &configsyncv1.UpdateTopicRequest{
				Topic: &configsyncv1.Topic{Name: topicA}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"colour"}},
			}))
		}},
		{"a topic that is there", "ENTRY_EXISTS", "", func() error {
			return second(m.topics().CreateTopic(ctx, topic(func(x *configsyncv1.Topic) { x.Name = topicA })))
		}},
		{"an update of a topic that is not there", "ENTRY_NOT_FOUND", "topic.name", func() error {
			return second(m.topics().UpdateTopic(ctx, &configsyncv1.UpdateTopicRequest{Topic: &configsyncv1.Topic{Name: "TopicB"}}))
		}},
		{"an update with another etag", "PRECONDITION_FAILED", "", func() error {
			return second(m.topics().UpdateTopic(ctx, &configsyncv1.UpdateTopicRequest{Topic: &configsyncv1.Topic{Name: topicA, ReadQueues: 3}, IfEtag: 1}))
		}},
		{"a deletion from another version", "PRECONDITION_FAILED", "version", func() error {
			return second(m.topics().DeleteTopic(ctx, &configsyncv1.DeleteTopicRequest{Name: topicA, IfTableVersion: &configsyncv1.DataVersion{Counter: 99}}))
		}},
		{"a group with negative retries", "INVALID_CONFIG", "group", func() error {
			return second(m.groups().UpdateSubscriptionGroup(ctx, &configsyncv1.UpdateSubscriptionGroupRequest{
				Group: &configsyncv1.SubscriptionGroup{Name: groupA, RetryQueues: proto.Int32(-1)},
			}))
		}},
		{"a retry policy that is no JSON", "INVALID_FIELD", "group.retry_policy_json", func() error {
			return second(m.groups().CreateSubscriptionGroup(ctx, &configsyncv1.CreateSubscriptionGroupRequest{
				Group: &configsyncv1.SubscriptionGroup{Name: "GroupB", RetryPolicyJson: "{"},
			}))
		}},
		{"a page token of nobody", "INVALID_FIELD", "page_token", func() error {
			return second(m.topics().ListTopics(ctx, &configsyncv1.ListTopicsRequest{PageToken: "%%"}))
		}},
		{"a negative offset", "INVALID_OFFSET", "offset.offset", func() error {
			return second(m.offsets().Commit(ctx, at(func(x *configsyncv1.ConsumerOffset) { x.Offset = -1 })))
		}},
		{"an offset beyond the end", "OFFSET_BEYOND_END", "offset.offset", func() error {
			return second(m.offsets().Commit(ctx, at(func(x *configsyncv1.ConsumerOffset) { x.Offset = 101 })))
		}},
		{"an offset of a queue that is not there", "OFFSET_BEYOND_END", "offset.offset", func() error {
			return second(m.offsets().Commit(ctx, at(func(x *configsyncv1.ConsumerOffset) { x.QueueId = 9 })))
		}},
		{"a batch with one bad offset", "OFFSET_BEYOND_END", "offsets[1].offset", func() error {
			return second(m.offsets().CommitBatch(ctx, &configsyncv1.CommitBatchRequest{Offsets: []*configsyncv1.ConsumerOffset{
				{Topic: topicA, Group: groupA, Offset: 70}, {Topic: topicA, Group: groupA, QueueId: 1, Offset: 1000},
			}}))
		}},
		{"a reset to nothing", "INVALID_FIELD", "to", func() error {
			return second(m.offsets().Reset(ctx, &configsyncv1.ResetRequest{Topic: topicA, Group: groupA}))
		}},
		{"a reset beyond the end", "OFFSET_BEYOND_END", "offset", func() error {
			return second(m.offsets().Reset(ctx, &configsyncv1.ResetRequest{Topic: topicA, Group: groupA, To: &configsyncv1.ResetRequest_Offset{Offset: 101}}))
		}},
		{"delay level 0", "INVALID_FIELD", "offsets[0].level", func() error {
			return second(m.offsets().CommitDelay(ctx, &configsyncv1.CommitDelayRequest{Offsets: []*configsyncv1.DelayOffset{{Offset: 1}}}))
		}},
		{"an empty file", "BROKEN_JSON", "data", func() error { return second(m.importText(configsyncv1.Kind_KIND_TOPICS, merge, "")) }},
		{"half a file", "BROKEN_JSON", "data", func() error {
			text := before["topics.json"]
			return second(m.importText(configsyncv1.Kind_KIND_TOPICS, merge, text[:len(text)/2]))
		}},
		{"a file of another shape", "UNKNOWN_SHAPE", "data", func() error {
			return second(m.importText(configsyncv1.Kind_KIND_TOPICS, merge, `{"topicConfigTable":["TopicZ"]}`))
		}},
		{"an empty table in place of one with entries", "EMPTY_TABLE", "", func() error {
			return second(m.importText(configsyncv1.Kind_KIND_TOPICS, configsyncv1.ImportMode_IMPORT_MODE_REPLACE, `{"topicConfigTable":{}}`))
		}},
		{"no mode", "INVALID_FIELD", "mode", func() error { return second(m.importText(configsyncv1.Kind_KIND_TOPICS, 0, "{}")) }},
	} {
		info, fields := servicetest.Typed(t, c.what, c.call())
		if info.GetReason() != c.reason || c.field != "" && !slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(f, c.field) }) {
			t.Errorf("%s: reason %s, fields %v; want %s, %s", c.what, info.GetReason(), fields, c.reason, c.field)
		}
	}
	same(t, m)
	if after := m.export(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("something has changed: %v, before %v", after, before)
	}
}

func second[T any](_ T, err error) error { return err }

// TestUpdates: masks, preconditions, unknown fields, and pages.
func TestUpdates(t *testing.T) {
	t.Parallel()
	m, _ := led(t)
	ctx := t.Context()
	text := `{"topicConfigTable":{"TopicU":{"colour":"red","order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"TopicU","topicSysFlag":0,"writeQueueNums":4}}}`
	if r, err := m.importText(configsyncv1.Kind_KIND_TOPICS, merge, text); err != nil || r.GetAdded() != 1 {
		t.Fatalf("import: %v, %v", r, err)
	}
	got, err := m.topics().GetTopic(ctx, &configsyncv1.GetTopicRequest{Name: "TopicU"})
	if err != nil || got.GetTopic().GetUnknownJson() != `{"colour":"red"}` {
		t.Fatalf("%v, %v", got, err)
	}
	up, err := m.topics().UpdateTopic(ctx, &configsyncv1.UpdateTopicRequest{
		Topic: &configsyncv1.Topic{Name: "TopicU", ReadQueues: 8, Perm: proto.Int32(2)}, IfEtag: got.GetTopic().GetEtag(),
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"read_queues"}},
	})
	if x := up.GetTopic(); err != nil || x.GetReadQueues() != 8 || x.GetPerm() != 6 || x.GetUnknownJson() != `{"colour":"red"}` || x.GetEtag() == got.GetTopic().GetEtag() {
		t.Errorf("%v, %v", up, err)
	}
	if _, err := m.topics().DeleteTopic(ctx, &configsyncv1.DeleteTopicRequest{Name: "TopicU", IfEtag: got.GetTopic().GetEtag()}); err == nil {
		t.Error("deleted with an old etag")
	}
	for i := range 25 {
		m.create(fmt.Sprintf("Page%02d", i))
	}
	var names []string
	req := &configsyncv1.ListTopicsRequest{Prefix: "Page", PageSize: 10}
	for {
		resp, err := m.topics().ListTopics(ctx, req)
		if err != nil || len(resp.GetTopics()) > 10 {
			t.Fatalf("%v, %v", resp, err)
		}
		for _, x := range resp.GetTopics() {
			names = append(names, x.GetName())
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	if len(names) != 25 || !slices.IsSorted(names) {
		t.Errorf("pages have %v", names)
	}
	grp, err := m.groups().UpdateSubscriptionGroup(ctx, &configsyncv1.UpdateSubscriptionGroupRequest{
		Group: &configsyncv1.SubscriptionGroup{Name: groupA, RetryMaxTimes: proto.Int32(3)}, AllowMissing: true,
	})
	if g := grp.GetGroup(); err != nil || g.GetRetryMaxTimes() != 3 || !g.GetConsumeEnable() || g.GetRetryQueues() != 1 {
		t.Errorf("%v, %v", grp, err)
	}
}

// TestResets: by offset, by time, to the ends, as a rehearsal.
func TestResets(t *testing.T) {
	t.Parallel()
	m, st := led(t)
	ctx := t.Context()
	m.commit(topicA, groupA, 90)
	for _, c := range []struct {
		what string
		to   *configsyncv1.ResetRequest
		want int64
	}{
		{"earliest", &configsyncv1.ResetRequest{To: &configsyncv1.ResetRequest_Earliest{Earliest: true}}, 5},
		{"latest", &configsyncv1.ResetRequest{To: &configsyncv1.ResetRequest_Latest{Latest: true}}, 100},
		{"time", &configsyncv1.ResetRequest{To: &configsyncv1.ResetRequest_Time{Time: timestamppb.New(time.UnixMilli(42))}}, 42},
		{"offset", &configsyncv1.ResetRequest{To: &configsyncv1.ResetRequest_Offset{Offset: 7}}, 7},
	} {
		c.to.Topic, c.to.Group, c.to.DryRun = topicA, groupA, true
		held := m.offset(topicA, groupA)
		resp, err := m.offsets().Reset(ctx, c.to)
		if err != nil || len(resp.GetOffsets()) != 2 || resp.GetOffsets()[0].GetOldOffset() != held || resp.GetOffsets()[0].GetNewOffset() != c.want {
			t.Errorf("%s, rehearsed: %v, %v", c.what, resp, err)
		}
		if got := m.offset(topicA, groupA); got != held {
			t.Errorf("%s: the rehearsal has set %d", c.what, got)
		}
		c.to.DryRun = false
		if _, err = m.offsets().Reset(ctx, c.to); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := m.offset(topicA, groupA); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	lag, err := m.offsets().ListLag(ctx, &configsyncv1.ListLagRequest{Group: groupA, PageSize: 1})
	if err != nil || len(lag.GetLags()) != 1 || lag.GetNextPageToken() == "" {
		t.Fatalf("%v, %v", lag, err)
	}
	if l := lag.GetLags()[0]; l.GetOffset() != 7 || l.GetLag() != 93 || l.GetMinOffset() != 5 || l.GetMaxOffset() != 100 {
		t.Errorf("%v", l)
	}
	lag, err = m.offsets().ListLag(ctx, &configsyncv1.ListLagRequest{Group: groupA, PageSize: 1, PageToken: lag.GetNextPageToken()})
	if err != nil || len(lag.GetLags()) != 1 || lag.GetLags()[0].GetQueueId() != 1 || lag.GetNextPageToken() != "" {
		t.Errorf("%v, %v", lag, err)
	}
	// A commit at a known end asks nobody; a queue that has grown is asked for once.
	st.mu.Lock()
	asked := st.lists
	st.mu.Unlock()
	for range 10 {
		m.commit(topicA, groupA, 80)
	}
	st.set(topicA, 0, queueEnds{5, 200, 200})
	m.commit(topicA, groupA, 150)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lists > asked+2 {
		t.Errorf("%d calls for 11 commits", st.lists-asked)
	}
}

// TestCommitStream: cumulative answers, refused offsets are listed, the stream goes on; a wrong sequence ends it.
func TestCommitStream(t *testing.T) {
	t.Parallel()
	m, _ := led(t)
	stream, err := m.offsets().CommitStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const requests = 50
	for i := range uint64(requests) {
		offsets := []*configsyncv1.ConsumerOffset{{Topic: topicA, Group: groupA, Offset: int64(i)}}
		if i%10 == 3 {
			offsets = append(offsets, &configsyncv1.ConsumerOffset{Topic: topicA, Group: groupA, QueueId: 1, Offset: 5000})
		}
		if err := stream.Send(&configsyncv1.CommitStreamRequest{Sequence: i + 1, Offsets: offsets}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var last uint64
	failures := 0
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || resp.GetSequence() <= last {
			t.Fatalf("%v behind %d, %v", resp, last, err)
		}
		last = resp.GetSequence()
		for _, f := range resp.GetFailures() {
			if failures++; f.GetReason() != "OFFSET_BEYOND_END" || f.GetOffset().GetOffset() != 5000 || f.GetSequence()%10 != 4 {
				t.Errorf("%v", f)
			}
		}
	}
	if last != requests || failures != 5 {
		t.Errorf("answered up to %d with %d failures", last, failures)
	}
	if got := m.offset(topicA, groupA); got != requests-1 {
		t.Errorf("the offset is %d", got)
	}
	bad, err := m.offsets().CommitStream(t.Context())
	if err == nil {
		err = bad.Send(&configsyncv1.CommitStreamRequest{Sequence: 7})
	}
	if err == nil {
		_, err = bad.Recv()
	}
	if _, fields := servicetest.Typed(t, "a wrong sequence", err); fmt.Sprint(fields) != "[sequence]" {
		t.Errorf("a wrong sequence: %v", err)
	}
}

// TestDiff: what two nodes have differently, by kind and key.
func TestDiff(t *testing.T) {
	t.Parallel()
	a, b := newNode(t, 0, asyncMaster).start().awaitOpen(), newNode(t, 1, asyncMaster).start().awaitOpen()
	a.create("Both", "Here")
	b.create("Both", "There")
	a.commit("Both", groupA, 10)
	b.commit("Both", groupA, 20)
	same(t, a)
	same(t, b)
	stream, err := a.admin().Diff(t.Context(), &configsyncv1.DiffRequest{Address: b.cfg.Listen})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range resp.GetDifferences() {
		got = append(got, fmt.Sprintf("%s %s %v/%v", d.GetKey(), d.GetField(), d.GetHere() != "", d.GetThere() != ""))
	}
	want := []string{"Here  true/false", "There  false/true", "Both@GroupA queue 0 true/true"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if s := resp.GetSummaries()[0]; s.GetSame() != 1 || s.GetOnlyHere() != 1 || s.GetOnlyThere() != 1 || s.GetDifferent() != 0 {
		t.Errorf("%v", s)
	}
}

// TestStorageAtAnotherPort: Status says what is wrong with the port that storage.address names, and goes on saying what is the case.
func TestStorageAtAnotherPort(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 24)) // the raw port of a storage reads, sees no report, and hangs up
			_ = conn.Close()
		}
	})
	closed := sync.OnceFunc(func() { _ = ln.Close(); served.Wait() })
	t.Cleanup(closed)
	n := newNode(t, 0, asyncMaster, func(c *Config) {
		c.Storage.Address, c.Storage.Timeout = ln.Addr().String(), 300*time.Millisecond
	}).start()
	n.await("the hint at the raw port", func(st *configsyncv1.StatusResponse) bool {
		text := st.GetStorageError()
		return st.GetReason() == "STORAGE_UNREACHABLE" && strings.Contains(text, "cannot reach the server") &&
			strings.Contains(text, "raw port") && strings.HasSuffix(text, "correct storage.address")
	})
	closed()
	n.await("the refusal", func(st *configsyncv1.StatusResponse) bool {
		return st.GetReason() == "STORAGE_UNREACHABLE" && strings.Contains(st.GetStorageError(), "connection refused")
	})
}
