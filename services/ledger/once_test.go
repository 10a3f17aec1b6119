package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
)

// TestRepeatedAppendsStandOnce: at the same time, later, after a change of leader, after a restart of all and after a power cut; in
// batches of which a part stands and in streams too.
func TestRepeatedAppendsStandOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	c := newClient(t)
	key := func(sequence uint64) *ledgerv1.IdempotenceKey {
		return &ledgerv1.IdempotenceKey{ClientId: c.id, Sequence: sequence, AfterIndex: -1}
	}
	again := func(what string, want *ledgerv1.AppendResponse) {
		t.Helper()
		c.next.Store(0)
		if got := c.put(g, "one"); got.GetIndex() != want.GetIndex() || !got.GetRepeated() {
			t.Errorf("%s: %v, the first stands at %d", what, got, want.GetIndex())
		}
	}
	leader(t, g)
	first := c.put(g, "one")
	again("at once", first)

	l := leader(t, g)
	var wg sync.WaitGroup
	indexes := make([]int64, 20)
	for i := range indexes {
		wg.Go(func() {
			r, err := l.ledger().Append(t.Context(), &ledgerv1.AppendRequest{Body: []byte("two"), Channel: 5, Key: key(2)})
			if err != nil {
				t.Errorf("twin: %v", err)
			}
			indexes[i] = r.GetIndex()
		})
	}
	wg.Wait()
	if len(slices.Compact(indexes)) != 1 {
		t.Errorf("twins stand at %v", indexes)
	}
	for _, s := range g {
		var e *ledgerv1.GetResponse
		poll(t, "a read", func(ctx context.Context) (err error) { // it may not have heard of the leader yet
			e, err = s.ledger().Get(ctx, &ledgerv1.GetRequest{Index: indexes[0]})
			return err
		})
		if got := e.GetEntry(); string(got.GetBody()) != "two" || got.GetChannel() != 5 || !slices.Equal(got.GetClientId(), c.id) || got.GetSequence() != 2 {
			t.Errorf("%v", e)
		}
	}
	to := others(g, l)[0]
	poll(t, "a transfer", func(ctx context.Context) error {
		_, err := l.election().TransferLeadership(ctx, &ledgerv1.TransferLeadershipRequest{Target: to.cfg.SelfID})
		return err
	})
	again("another leader", first)
	for _, s := range g {
		if err := s.halt(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range g {
		s.start()
	}
	hurry(g)
	again("after a restart", first)
	for _, s := range g {
		s.crash()
	}
	for _, s := range g {
		s.start()
	}
	hurry(g)
	again("after a power cut", first)

	l = leader(t, g)
	b, err := l.ledger().AppendBatch(t.Context(), &ledgerv1.AppendBatchRequest{Bodies: [][]byte{[]byte("two"), []byte("three"), []byte("four")}, Key: key(2)})
	if err != nil || b.GetRepeatedEntries() != 1 || b.GetIndexes()[0] != indexes[0] || b.GetIndexes()[2] != b.GetIndexes()[1]+1 {
		t.Errorf("a batch of which the first stands: %v, %v", b, err)
	}
	stream, err := l.ledger().AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2) {
		err := stream.Send(&ledgerv1.AppendStreamRequest{Sequence: 3 + 2*i, Bodies: [][]byte{[]byte("a"), []byte("b")}, ClientId: c.id, AfterIndex: first.GetIndex()})
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []int64
	for len(got) < 4 {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.GetIndexes()...)
	}
	if got[0] != b.GetIndexes()[1] || got[1] != b.GetIndexes()[2] || got[3] != got[2]+1 {
		t.Errorf("a stream of which two stand: %v after %v", got, b.GetIndexes())
	}
	for _, s := range g {
		if bodies := s.bodies(got[3]); !slices.Equal(bodies, []string{"one", "two", "three", "four", "a", "b"}) {
			t.Errorf("%s has %v", s.cfg.SelfID, bodies)
		}
	}
}

// TestIdempotenceWindow: what lies before the window is refused, not appended twice, also after a restart.
func TestIdempotenceWindow(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, func(c *Config) { c.IdempotenceWindow = 10 })
	s := g[0].bootstrap().start()
	c, other := newClient(t), newClient(t)
	first := c.put(g, "first")
	for i := range 8 {
		other.put(g, fmt.Sprint(i))
	}
	repeat := func() error {
		_, err := s.ledger().Append(t.Context(), &ledgerv1.AppendRequest{
			Body: []byte("first"), Key: &ledgerv1.IdempotenceKey{ClientId: c.id, Sequence: 1, AfterIndex: -1},
		})
		return err
	}
	if err := repeat(); err != nil {
		t.Errorf("within the window: %v", err)
	}
	for i := range 20 {
		other.after = s.status().GetCommittedIndex()
		other.put(g, fmt.Sprint("more ", i))
	}
	if e := wantReason(t, "behind the window", repeat(), "IDEMPOTENCE_WINDOW_PASSED"); e.Meta["window_start"] == "" {
		t.Errorf("%v", e)
	}
	if err := s.halt(); err != nil {
		t.Fatal(err)
	}
	s.start()
	leader(t, g)
	poll(t, "the refusal after a restart", func(context.Context) error {
		err := repeat()
		if reason(err) == "IDEMPOTENCE_WINDOW_PASSED" {
			return nil
		}
		return fmt.Errorf("repeated: %w", err)
	})
	_, err := s.ledger().Append(t.Context(), &ledgerv1.AppendRequest{
		Body: []byte("x"), Key: &ledgerv1.IdempotenceKey{ClientId: c.id, Sequence: 9, AfterIndex: 1 << 40},
	})
	wantReason(t, "an index that is not committed", err, "INVALID_FIELD")
	if got := s.bodies(s.status().GetCommittedIndex()); got[0] != "first" || slices.Contains(got[1:], "first") || len(got) != 29 {
		t.Errorf("first stands at %d, the log has %v", first.GetIndex(), got)
	}
}

// TestBadAppends: each is refused with the field that is wrong, and counted.
func TestBadAppends(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, func(c *Config) { c.MaxBodySize, c.MaxBatchSize, c.MaxBatchEntries = 1000, 2500, 5 })
	s := g[0].bootstrap().start()
	leader(t, g)
	one := func(n int) []byte { return make([]byte, n) }
	id := make([]byte, 16)
	for name, tc := range map[string]struct {
		req   *ledgerv1.AppendBatchRequest
		field string
	}{
		"nothing":           {&ledgerv1.AppendBatchRequest{}, "bodies"},
		"an empty body":     {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1), nil}}, "bodies[1]"},
		"a large body":      {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1001)}}, "bodies"},
		"too many":          {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1), one(1), one(1), one(1), one(1), one(1)}}, "bodies"},
		"too much":          {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1000), one(1000), one(1000)}}, "bodies"},
		"the no-op's":       {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1)}, Channel: 0x54444D01}, "channel"},
		"the key's":         {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1)}, Channel: 0x54444D02}, "channel"},
		"a short client id": {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1)}, Key: &ledgerv1.IdempotenceKey{ClientId: id[:15], Sequence: 1}}, "key.client_id"},
		"no sequence":       {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1)}, Key: &ledgerv1.IdempotenceKey{ClientId: id}}, "key.sequence"},
		"the last sequence": {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1)}, Key: &ledgerv1.IdempotenceKey{ClientId: id, Sequence: 1<<64 - 1}}, "key.sequence"},
		"a negative index":  {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1)}, Key: &ledgerv1.IdempotenceKey{ClientId: id, Sequence: 1, AfterIndex: -2}}, "key.after_index"},
		"an index to come":  {&ledgerv1.AppendBatchRequest{Bodies: [][]byte{one(1)}, Key: &ledgerv1.IdempotenceKey{ClientId: id, Sequence: 1, AfterIndex: 99}}, "after_index"},
	} {
		before := s.status()
		_, err := s.ledger().AppendBatch(t.Context(), tc.req)
		if e := wantReason(t, name, err, "INVALID_FIELD"); e.Field != tc.field {
			t.Errorf("%s: field %q, want %q: %v", name, e.Field, tc.field, err)
		}
		if after := s.status(); after.GetRefused()["INVALID_FIELD"] != before.GetRefused()["INVALID_FIELD"]+1 || after.GetLastIndex() != before.GetLastIndex() {
			t.Errorf("%s: %v became %v", name, before, after)
		}
	}
	stream, err := s.ledger().AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sequence := range []uint64{1, 5} {
		if err := stream.Send(&ledgerv1.AppendStreamRequest{Sequence: sequence, Bodies: [][]byte{one(1)}}); err != nil {
			t.Fatal(err)
		}
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if e := wantReason(t, "a gap in a stream", err, "INVALID_FIELD"); e.Field != "sequence" || e.Meta["sequence"] != "5" {
		t.Errorf("%v", e)
	}
	for name, r := range map[string]*ledgerv1.GetRangeRequest{
		"index": {Index: -1}, "max_entries": {MaxEntries: -1}, "max_bytes": {MaxBytes: -1}, "consistency": {Consistency: 9},
	} {
		_, err := s.ledger().GetRange(t.Context(), r)
		if e := wantReason(t, name, err, "INVALID_FIELD"); e.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
