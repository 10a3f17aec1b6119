package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
)

// TestListsOfLargeEntries: however large the entries are, a page fits into a reply, and the pages hold all of them.
func TestListsOfLargeEntries(t *testing.T) {
	t.Parallel()
	const entries = 200
	a, b := newNode(t, 0, asyncMaster).start().awaitOpen(), newNode(t, 1, asyncMaster).start().awaitOpen()
	large := map[string]string{"+note": strings.Repeat("n", 32_000)}
	for i := range entries {
		name := fmt.Sprintf("Large%03d", i)
		if _, err := a.topics().CreateTopic(t.Context(), &configsyncv1.CreateTopicRequest{Topic: &configsyncv1.Topic{Name: name, Attributes: large}}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.groups().CreateSubscriptionGroup(t.Context(), &configsyncv1.CreateSubscriptionGroupRequest{Group: &configsyncv1.SubscriptionGroup{Name: name, Attributes: large}}); err != nil {
			t.Fatal(err)
		}
	}
	var topics, groups []string
	for token, first := "", true; first || token != ""; first = false {
		page, err := a.topics().ListTopics(t.Context(), &configsyncv1.ListTopicsRequest{PageToken: token, PageSize: 1000, Prefix: "Large"})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page.GetTopics() {
			topics = append(topics, x.GetName())
		}
		token = page.GetNextPageToken()
	}
	for token, first := "", true; first || token != ""; first = false {
		page, err := a.groups().ListSubscriptionGroups(t.Context(), &configsyncv1.ListSubscriptionGroupsRequest{PageToken: token, PageSize: 1000, Prefix: "Large"})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page.GetGroups() {
			groups = append(groups, x.GetName())
		}
		token = page.GetNextPageToken()
	}
	for _, names := range [][]string{topics, groups} {
		if len(names) != entries || names[0] != "Large000" || names[entries-1] != "Large199" {
			t.Errorf("%d entries: %q", len(names), names)
		}
	}
	stream, err := a.admin().Diff(t.Context(), &configsyncv1.DiffRequest{Address: b.cfg.Listen, Kinds: []configsyncv1.Kind{configsyncv1.Kind_KIND_TOPICS}})
	if err != nil {
		t.Fatal(err)
	}
	differences := 0
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		differences += len(resp.GetDifferences())
	}
	if differences != entries {
		t.Errorf("%d differences", differences)
	}
}

// TestAStreamOfHugeNames: each refused offset is listed, however long the names in it are, and the stream goes on.
func TestAStreamOfHugeNames(t *testing.T) {
	t.Parallel()
	m := newNode(t, 0, asyncMaster).start().awaitOpen()
	stream, err := m.offsets().CommitStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const offsets, requests = 1000, 3
	for i := range requests {
		req := &configsyncv1.CommitStreamRequest{Sequence: uint64(i) + 1} //nolint:gosec // small
		for range offsets {
			req.Offsets = append(req.Offsets, &configsyncv1.ConsumerOffset{Topic: strings.Repeat("é", 2500), Group: groupA, Offset: 7})
		}
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	failures, last := 0, uint64(0)
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		failures, last = failures+len(resp.GetFailures()), resp.GetSequence()
		for _, f := range resp.GetFailures() {
			if f.GetReason() != "INVALID_NAME" || f.GetOffset().GetGroup() != groupA || !strings.HasPrefix(f.GetOffset().GetTopic(), "éé") {
				t.Fatalf("%v", f)
			}
		}
	}
	if failures != offsets*requests || last != requests {
		t.Errorf("%d failures, answered up to %d", failures, last)
	}
}
