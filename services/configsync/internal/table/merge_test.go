package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// TestT14_NothingMakesTheSlavePoorer answers a slave with whatever a broken master may say: each case has its reason, and
// the slave keeps what it has.
func TestT14_NothingMakesTheSlavePoorer(t *testing.T) {
	master := topics(t, 50)
	slave, _ := follow(t, New(entry.Topics), master)
	next := edit(t, master, 1, 2, func(e *Edit) { e.Delete("topic-007") })
	half := next.Full()
	half.Entries = half.Entries[:25]
	empty := edit(t, New(entry.Topics), 9, 9, (*Edit).Touch)
	other := edit(t, New(entry.Topics), 1, 1, func(e *Edit) { must(t, e.Put(entry.NewTopic("foreign"))) })
	wrong, _ := next.Since(master.Version())
	wrong.Deleted = nil
	gap, _ := next.Since(master.Version())
	gap.From.Counter++
	back := &Delta{Kind: entry.Topics, From: slave.Version(), To: entry.Version{State: 1}, Sum: 1, SameUnknown: true}
	stray, _ := next.Since(master.Version())
	stray.Entries = []Entry{{Key: "g", Value: entry.NewGroup("g")}}
	for name, c := range map[string]struct {
		d    *Delta
		want error
	}{
		"half table":         {half, ErrNotWhole},
		"empty table":        {empty.Full(), ErrEmpty},
		"older version":      {New(entry.Topics).Full(), ErrOlder},
		"other content":      {other.Full(), ErrOtherContent},
		"delta with a hole":  {wrong, ErrOtherContent},
		"delta from nowhere": {gap, ErrGap},
		"delta back":         {back, ErrOlder},
		"another kind":       {New(entry.Groups).Full(), ErrKind},
		"another entry":      {stray, ErrKind},
	} {
		got, r, err := Follow(slave, c.d, FollowOptions{})
		if !errors.Is(err, c.want) || got != slave || r.Changed {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
	got, r := follow(t, slave, next)
	if !same(got, next) || got.Version() != next.Version() || r.Removed != 1 || r.Added+r.Updated != 0 {
		t.Errorf("a deletion: %+v", r)
	}
	if again, r := follow(t, got, next); again != got || r.Changed || r.OtherContent {
		t.Errorf("nothing to do: %+v", r)
	}
}

func TestAnEmptyTableMayFollowFromDeletions(t *testing.T) {
	master := topics(t, 3)
	slave, _ := follow(t, New(entry.Topics), master)
	gone := edit(t, master, 1, 2, func(e *Edit) {
		for i := range 3 {
			e.Delete(fmt.Sprintf("topic-%03d", i))
		}
	})
	for _, d := range []*Delta{gone.Full(), gone.since(master.Version())} {
		if next, r, err := Follow(slave, d, FollowOptions{}); err != nil || next.Len() != 0 || r.Removed != 3 {
			t.Errorf("full %v: %v, %+v", d.Full, err, r)
		}
	}
	richer := edit(t, slave, 0, 0, func(e *Edit) { must(t, e.Put(entry.NewTopic("own"))) })
	gone = edit(t, gone, 2, 3, (*Edit).Touch)
	if _, _, err := Follow(richer, gone.Full(), FollowOptions{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("one entry is not among the deletions: %v", err)
	}
}

func TestForceTakesWhatIsThere(t *testing.T) {
	slave := offsets(t, at(100))
	slave = edit(t, slave, 5, 5, (*Edit).Touch)
	master := offsets(t, at(40))
	next, r, err := Follow(slave, master.Full(), FollowOptions{Force: true})
	if err != nil || !same(next, master) || next.Version() != master.Version() || r.Updated != 1 {
		t.Errorf("%v, %+v", err, r)
	}
	if _, _, err := Follow(slave, master.Full(), FollowOptions{}); !errors.Is(err, ErrOlder) {
		t.Errorf("unforced: %v", err)
	}
	half := topics(t, 9).Full()
	half.Entries = half.Entries[1:]
	if _, _, err := Follow(topics(t, 9), half, FollowOptions{Force: true}); !errors.Is(err, ErrNotWhole) {
		t.Errorf("half a table, forced: %v", err)
	}
}

// TestT15_OffsetsNeverGoBackwards: steps 1, 2 and 4 for both kinds of offsets.
func TestT15_OffsetsNeverGoBackwards(t *testing.T) {
	for _, kind := range []entry.Kind{entry.ConsumerOffsets, entry.DelayOffsets} {
		commit := func(own *Table, state, offset int64) *Table {
			return edit(t, own, state, state, func(e *Edit) {
				if kind == entry.ConsumerOffsets {
					e.Commit(at(offset))
				} else if _, err := e.CommitDelay(3, offset); err != nil {
					t.Error(err)
				}
			})
		}
		value := func(own *Table) int64 {
			e, _ := own.Get(map[entry.Kind]string{entry.ConsumerOffsets: "T@G", entry.DelayOffsets: "3"}[kind])
			return queuesOf(e.Value)[0].Offset
		}
		lead := func(own, peer *Table, state int64) *Table {
			joined, _, err := Join(own, peer, state, state)
			must(t, err)
			return edit(t, joined, state, state, (*Edit).Touch)
		}
		a := commit(New(kind), 1, 100)
		b, _ := follow(t, New(kind), a)
		b = commit(lead(b, New(kind), 2), 2, 150) // A is down
		a = lead(a, b, 3)                         // A comes back with its old file, leads, and asks first
		b, _ = follow(t, b, a)
		if value(a) != 150 || value(b) != 150 || !same(a, b) || a.Version() != b.Version() {
			t.Errorf("%v step 1: %d %d", kind, value(a), value(b))
		}
		for i := range int64(10) {
			a, b = lead(b, a, 4+i), a
			a = commit(a, 4+i, 160+10*i)
			b, _ = follow(t, b, a)
			if value(a) != 160+10*i || value(b) != value(a) {
				t.Fatalf("%v swap %d: %d %d", kind, i, value(a), value(b))
			}
		}
		old := b
		a = edit(t, a, 14, 14, func(e *Edit) {
			epoch, err := e.NewEpoch()
			must(t, err)
			if kind == entry.ConsumerOffsets {
				e.ResetAll([]Reset{{"T", "G", 0, 20}}, epoch)
			} else {
				must(t, e.ResetDelay(3, 20, epoch))
			}
		})
		b, _ = follow(t, b, a)
		a = lead(a, old, 15) // somebody still has it from before the reset
		b, _ = follow(t, b, a)
		if value(a) != 20 || value(b) != 20 {
			t.Errorf("%v step 4: %d %d", kind, value(a), value(b))
		}
	}
}

// TestAJoinedTableHasNoPast: neither node had what both have together, so neither gets there by a delta.
func TestAJoinedTableHasNoPast(t *testing.T) {
	own := offsets(t, at(100), Commit{Topic: "U", Group: "G", Offset: 5})
	peer := edit(t, offsets(t, at(150)), 1, 2, (*Edit).Touch)
	joined, r, err := Join(own, peer, 2, 3)
	if err != nil || !r.Changed || joined.Version().Compare(peer.Version()) <= 0 {
		t.Fatalf("%+v, %v, %v", r, joined.Version(), err)
	}
	for _, node := range []*Table{own, peer} {
		if next, r := follow(t, node, joined); !same(next, joined) || r.OtherContent {
			t.Errorf("%+v", r)
		}
	}
}

// TestOffsetsStayAhead: a slave that has more than its master keeps it, by delta and by full table, and says so.
func TestOffsetsStayAhead(t *testing.T) {
	master := offsets(t, at(100), Commit{Topic: "T", Group: "H", Offset: 5})
	slave, _ := follow(t, New(entry.ConsumerOffsets), master)
	b := NewBuilder(entry.ConsumerOffsets)
	for e := range slave.Ascend("") {
		if e.Key == "T@G" {
			e.Value = entry.NewOffsets(entry.QueueOffset{Offset: 150}, entry.QueueOffset{Queue: 1, Offset: 7})
		}
		must(t, b.Add(e))
	}
	ahead := b.Table(slave.Version(), FormFull, nil)
	next := edit(t, master, 1, 2, func(e *Edit) { e.Commit(at(120)) })
	got, r := follow(t, ahead, next)
	if q, _ := got.Offset("T", "G", 0); q.Offset != 150 || r.Ahead != 2 || !r.OtherContent || got.Version() != next.Version() {
		t.Errorf("by delta: %+v, %+v", q, r)
	}
	got, r, err := Follow(ahead, next.Full(), FollowOptions{})
	if q, _ := got.Offset("T", "G", 1); err != nil || q.Offset != 7 || r.Ahead != 2 || !r.OtherContent || got.Version() != next.Version() {
		t.Errorf("by full table: %+v, %+v, %v", q, r, err)
	}
	same, r, err := Follow(got, next.Full(), FollowOptions{})
	if same != got || r.Ahead != 2 || r.Changed || err != nil {
		t.Errorf("again: %+v, %v", r, err)
	}
}

// TestMergesNeverLose lets three tables of each kind change and merge at random, forwards and backwards.
func TestMergesNeverLose(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	for _, kind := range entry.Kinds() {
		for range 300 {
			nodes := []*Table{New(kind), New(kind), New(kind)}
			for step := range int64(12) {
				i, j := rnd.IntN(3), rnd.IntN(3)
				nodes[i] = mutate(t, rnd, nodes[i], step/4, true)
				joinBoth(t, nodes[i], nodes[j])
				next, _, err := Join(nodes[j], nodes[i], step, step)
				must(t, err)
				if kind.Offsets() {
					if lost := poorer(nodes[j], next); lost != "" {
						t.Fatal(lost)
					}
				}
				followed, _, err := Follow(nodes[j], nodes[i].Full(), FollowOptions{})
				if err == nil && kind.Offsets() {
					if lost := poorer(nodes[j], followed); lost != "" {
						t.Fatal(lost)
					}
				} else if err == nil && followed != nodes[j] && !same(followed, nodes[i]) {
					t.Fatal("a followed table is not the master's")
				}
				nodes[j] = next
			}
		}
	}
}

// joinBoth checks that a join is commutative in its content and idempotent.
func joinBoth(t *testing.T, a, b *Table) {
	t.Helper()
	ab, _, err := Join(a, b, 9, 9)
	must(t, err)
	ba, _, err := Join(b, a, 9, 9)
	must(t, err)
	verify(t, ab)
	if !same(ab, ba) {
		t.Fatalf("%v joined: %v and %v", a.Kind(), slices.Collect(Diff(ab, ba)), ab.Version())
	}
	again, r, err := Join(ab, b, 9, 9)
	must(t, err)
	if !same(again, ab) || r.Changed && again.Version().Compare(ab.Version()) < 0 {
		t.Fatalf("%v joined again: %+v", a.Kind(), r)
	}
	if twice, r, err := Join(a, a, 9, 9); twice != a || r.Changed || err != nil {
		t.Fatalf("joined with itself: %+v, %v", r, err)
	}
	if a.Len() > 0 && ab.Len() == 0 && ba.Len() == 0 && b.gone == nil && a.gone == nil {
		t.Fatal("an empty table won")
	}
}

func java(t *testing.T, kind entry.Kind, counter int64, entries ...Entry) *Table {
	t.Helper()
	b := NewBuilder(kind)
	for _, e := range entries {
		must(t, b.Add(e))
	}
	return b.Table(entry.Version{Counter: counter, Timestamp: counter}, FormNoState, nil)
}

func TestFollowJavaConfigs(t *testing.T) {
	topic := func(name string) Entry { return Entry{Key: name, Value: entry.NewTopic(name)} }
	own, r, err := FollowJava(New(entry.Topics), java(t, entry.Topics, 9, topic("A"), topic("B")), JavaOptions{}, 1)
	if err != nil || own.Len() != 2 || r.Added != 2 || own.Upstream().Counter != 9 {
		t.Fatalf("%v, %+v", err, r)
	}
	version := own.Version()
	own, r, err = FollowJava(own, java(t, entry.Topics, 2, topic("B"), topic("C")), JavaOptions{}, 2)
	if err != nil || own.Topic("A") != nil || own.Topic("C") == nil || r.Removed != 1 || r.Added != 1 || own.Version().Compare(version) <= 0 {
		t.Errorf("a version that went back is a new one: %v, %+v, %v", err, r, own.Version())
	}
	if same, r, err := FollowJava(own, java(t, entry.Topics, 2, topic("Z")), JavaOptions{}, 3); same != own || r.Changed || err != nil {
		t.Errorf("the same version: %+v, %v", r, err)
	}
	if same, _, err := FollowJava(own, java(t, entry.Topics, 3), JavaOptions{}, 3); same != own || !errors.Is(err, ErrEmpty) {
		t.Errorf("an empty table: %v", err)
	}
	if same, _, err := FollowJava(own, java(t, entry.Groups, 3), JavaOptions{}, 3); same != own || !errors.Is(err, ErrKind) {
		t.Errorf("another kind: %v", err)
	}
}

func TestFollowJavaOffsets(t *testing.T) {
	offset := func(key string, queues ...entry.QueueOffset) Entry {
		return Entry{Key: key, Value: entry.NewOffsets(queues...)}
	}
	own := offsets(t, at(100), Commit{Topic: "T", Group: "G", Queue: 1, Offset: 10}, Commit{Topic: "T", Group: "H", Offset: 3})
	own = edit(t, own, 1, 1, func(e *Edit) { e.ResetAll([]Reset{{"T", "G", 1, 5}}, 1) })
	in := java(t, entry.ConsumerOffsets, 0, offset("T@G", entry.QueueOffset{Offset: 80}, entry.QueueOffset{Queue: 1, Offset: 30}), offset("U@G"))
	got, r, err := FollowJava(own, in, JavaOptions{}, 2)
	q0, _ := got.Offset("T", "G", 0)
	q1, _ := got.Offset("T", "G", 1)
	if err != nil || q0.Offset != 100 || q1 != (entry.QueueOffset{Queue: 1, Epoch: 1, Offset: 30}) || r.LowerCount != 1 || r.Ahead != 1 || got.Len() != 3 {
		t.Errorf("%+v %+v, %+v, %v", q0, q1, r, err)
	}
	if d := r.Lower[0]; d.Key != "T@G" || d.Field != "queue 0" || d.Left != "100" || d.Right != "80" {
		t.Errorf("%+v", d)
	}
	if again, r, err := FollowJava(got, in, JavaOptions{}, 3); again != got || r.Changed || r.LowerCount != 1 || err != nil {
		t.Errorf("again: %+v, %v", r, err)
	}
	got, r, err = FollowJava(got, in, JavaOptions{TakeLower: true}, 4)
	if q0, _ = got.Offset("T", "G", 0); err != nil || q0 != (entry.QueueOffset{Epoch: 2, Offset: 80}) || r.LowerCount != 1 || r.Ahead != 0 {
		t.Errorf("told to: %+v, %+v, %v", q0, r, err)
	}
	if again, r, err := FollowJava(got, in, JavaOptions{TakeLower: true}, 5); again != got || r.Changed || err != nil {
		t.Errorf("told again: %+v, %v", r, err)
	}
	delays := edit(t, New(entry.DelayOffsets), 1, 1, func(e *Edit) {
		_, err := e.CommitDelay(1, 50)
		must(t, err)
	})
	in = java(t, entry.DelayOffsets, 1, Entry{Key: "1", Value: &entry.Delay{Offset: 40}}, Entry{Key: "2", Value: &entry.Delay{Offset: 9}})
	got, r, err = FollowJava(delays, in, JavaOptions{}, 2)
	if d, _ := got.Delay(1); err != nil || d.Offset != 50 || r.Added != 1 || r.LowerCount != 1 || r.Lower[0].Left != "50" {
		t.Errorf("%+v, %+v, %v", d, r, err)
	}
	got, _, err = FollowJava(got, in, JavaOptions{TakeLower: true}, 2)
	if d, _ := got.Delay(1); err != nil || d != (entry.Delay{Offset: 40, Epoch: 1}) {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestDiff(t *testing.T) {
	left := edit(t, topics(t, 3), 1, 1, func(e *Edit) { must(t, e.Put(entry.NewTopic("only-left"))) })
	right := edit(t, topics(t, 3), 1, 1, func(e *Edit) {
		c := entry.NewTopic("topic-001")
		c.Perm, c.ReadQueues = 4, 1
		must(t, e.Put(c))
		must(t, e.Put(entry.NewTopic("only-right")))
	})
	var got []string
	for d := range Diff(left, right) {
		got = append(got, fmt.Sprintf("%s %s %.12s|%.12s", d.Key, d.Field, d.Left, d.Right))
	}
	want := []string{
		`only-left  {"attributes|`, `only-right  |{"attributes`, "topic-001 perm 6|4", "topic-001 readQueueNums 16|1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	a := offsets(t, at(1), Commit{Topic: "T", Group: "G", Queue: 3, Offset: 2})
	b := edit(t, offsets(t, Commit{Topic: "T", Group: "G", Queue: 4, Offset: 2}), 1, 1, func(e *Edit) { e.ResetAll([]Reset{{"T", "G", 0, 1}}, 1) })
	got = nil
	for d := range Diff(a, b) {
		got = append(got, fmt.Sprintf("%s %s %s|%s", d.Key, d.Field, d.Left, d.Right))
	}
	if want := []string{"T@G queue 0 1|1 (epoch 1)", "T@G queue 3 2|", "T@G queue 4 |2"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for range Diff(left, left) {
		t.Error("a difference to itself")
	}
	for range Diff(left, New(entry.Topics)) {
		break // the iterator may be left
	}
}
