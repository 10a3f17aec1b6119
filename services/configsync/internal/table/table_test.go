package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

func TestEditMakesOneVersion(t *testing.T) {
	one := topics(t, 3)
	if one.Version() != (entry.Version{State: 1, Timestamp: 1, Counter: 1}) || one.Len() != 3 {
		t.Fatalf("%v with %d", one.Version(), one.Len())
	}
	e := one.Edit(2, 9)
	must(t, e.Put(entry.NewTopic("topic-001")))
	e.Delete("no such topic")
	if next, d := e.Done(); next != one || d != nil {
		t.Error("a version without a change")
	}
	e = one.Edit(2, 9)
	changed := entry.NewTopic("topic-001")
	changed.Perm = entry.PermRead
	must(t, e.Put(changed))
	e.Delete("topic-002")
	two, d := e.Done()
	if two.Version() != (entry.Version{State: 2, Timestamp: 9, Counter: 2}) || len(d.Entries) != 1 || len(d.Deleted) != 1 || d.Full {
		t.Fatalf("%v, %+v", two.Version(), d)
	}
	if one.Len() != 3 || one.Topic("topic-001").Perm != 6 || two.Topic("topic-001") != changed || two.Topic("topic-002") != nil {
		t.Error("the table before has changed, or the new one has not")
	}
	before, _ := one.Get("topic-001")
	after, _ := two.Get("topic-001")
	if before.Etag() == after.Etag() || after.Change != 2 || before.Change != 1 {
		t.Errorf("etags %x and %x, changes %d and %d", before.Etag(), after.Etag(), before.Change, after.Change)
	}
	if err := one.Edit(0, 0).Put(entry.NewGroup("g")); !errors.Is(err, ErrKind) {
		t.Errorf("a group among the topics: %v", err)
	}
	if err := New(entry.ConsumerOffsets).Edit(0, 0).Put(entry.NewOffsets()); !errors.Is(err, ErrKind) {
		t.Errorf("offsets put: %v", err)
	}
	big := entry.NewTopic("big")
	big.Attributes = map[string]string{"a": string(make([]byte, MaxEntry))}
	if err := one.Edit(0, 0).Put(big); !errors.Is(err, entry.ErrField) {
		t.Errorf("a topic that fits into no message: %v", err)
	}
}

func TestListing(t *testing.T) {
	own := topics(t, 30)
	var names []string
	for e := range own.Prefix("topic-01", "topic-013") {
		names = append(names, e.Key)
	}
	if want := []string{"topic-014", "topic-015", "topic-016", "topic-017", "topic-018", "topic-019"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	for range own.Prefix("topic-01", "topic-02") {
		t.Error("something behind the prefix")
	}
	n := 0
	for range own.Prefix("", "") {
		n++
	}
	if n != 30 {
		t.Errorf("%d of 30", n)
	}
}

// TestDeltas walks a master through hundreds of versions and masters, and cuts a delta from each version that a slave may
// have stopped at.
func TestDeltas(t *testing.T) {
	for _, kind := range entry.Kinds() {
		rnd := rand.New(rand.NewPCG(uint64(kind), 7))
		history := []*Table{New(kind)}
		state := int64(1)
		for range 300 {
			if rnd.IntN(20) == 0 {
				state++
			}
			history = append(history, mutate(t, rnd, history[len(history)-1], state, true))
		}
		last := history[len(history)-1]
		deltas, seen := 0, map[entry.Version]bool{}
		for _, old := range history {
			d, ok := last.Since(old.Version())
			if !ok {
				d = last.Full()
			} else if !seen[old.Version()] {
				deltas++
			}
			seen[old.Version()] = true
			next, r, err := Follow(old, d, FollowOptions{})
			if err != nil || !same(next, last) || next.Version() != last.Version() || r.OtherContent {
				t.Fatalf("%v from %v to %v: %v, %+v", kind, old.Version(), last.Version(), err, r)
			}
			verify(t, next)
		}
		if deltas < 100 {
			t.Errorf("%v: only %d deltas", kind, deltas)
		}
		for _, v := range []entry.Version{
			{},
			{State: 1, Counter: last.Version().Counter},
			{State: state + 1, Counter: 5},
			{State: state, Counter: last.Version().Counter + 1},
			{State: state, Counter: last.Version().Counter, Timestamp: -1},
		} {
			if _, ok := last.Since(v); ok {
				t.Errorf("%v: a delta since %v, which was never", kind, v)
			}
		}
	}
}

func TestTombstonesAreBounded(t *testing.T) {
	const each = 100
	own := topics(t, 0)
	var history []*Table
	for i := range 2*maxGone/each + 5 {
		e := own.Edit(1, 1)
		for j := range each {
			must(t, e.Put(entry.NewTopic(fmt.Sprintf("t%d-%d", i, j))))
			e.Delete(fmt.Sprintf("t%d-%d", i, j))
		}
		own, _ = e.Done()
		history = append(history, own)
	}
	if own.gone.count >= 2*maxGone || own.gone.count < maxGone {
		t.Errorf("%d tombstones", own.gone.count)
	}
	if _, ok := own.Since(history[10].Version()); ok {
		t.Error("a delta from before the oldest tombstone")
	}
	d, ok := own.Since(history[len(history)-maxGone/each].Version())
	if !ok || len(d.Deleted) != maxGone-each || len(d.Entries) != 0 {
		t.Errorf("%v, %d deletions", ok, len(d.Deleted))
	}
}

func TestCommits(t *testing.T) {
	own := offsets(t, at(100))
	check := func(c Commit, want Outcome, offset int64) {
		t.Helper()
		must(t, c.Validate())
		e := own.Edit(1, 1)
		if got := e.Commit(c); got != want {
			t.Errorf("%+v: outcome %d, want %d", c, got, want)
		}
		own, _ = e.Done()
		if q, ok := own.Offset("T", "G", 0); !ok || q.Offset != offset {
			t.Errorf("%+v: now at %+v", c, q)
		}
	}
	check(at(90), Lower, 100)
	check(at(100), Taken, 100)
	check(at(150), Taken, 150)
	own = edit(t, own, 1, 1, func(e *Edit) {
		epoch, err := e.NewEpoch()
		must(t, err)
		e.ResetAll([]Reset{{"T", "G", 0, 60}, {"T", "G", 0, 20}}, epoch)
	})
	if q, _ := own.Offset("T", "G", 0); q != (entry.QueueOffset{Epoch: 1, Offset: 20}) || own.ResetEpoch() != 1 {
		t.Errorf("after the reset: %+v", q)
	}
	stale := at(170)
	stale.Guard = true
	check(stale, Staled, 20)
	stale.Epoch = 1
	check(stale, Taken, 170)
	for field, c := range map[string]Commit{
		"topic": {Topic: "a b", Group: "G"}, "group": {Topic: "T", Group: ""}, "queue_id": {Topic: "T", Group: "G", Queue: -1},
		"offset": {Topic: "T", Group: "G", Offset: -1},
	} {
		if err := c.Validate(); err == nil || errdefs.As(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	must(t, Reset{"T", "G", 0, entry.NoOffset}.Validate())
	if err := (Reset{"T", "G", 0, -2}).Validate(); !errors.Is(err, entry.ErrOffset) {
		t.Errorf("a reset to -2: %v", err)
	}
}

// TestManyResets: a reset of all queues of a topic makes the entry once, not once a queue.
func TestManyResets(t *testing.T) {
	const queues = 1000
	var resets []Reset
	var have []Commit
	for q := range int32(queues) {
		have = append(have, Commit{Topic: "T", Group: "G", Queue: 2 * q, Offset: 9})
		resets = append(resets, Reset{"T", "G", queues + (q*7)%queues, int64(q)})
	}
	own := offsets(t, have...)
	made := testing.AllocsPerRun(1, func() {
		e := own.Edit(1, 1)
		e.ResetAll(resets, 1)
		own, _ = e.Done()
	})
	if made > queues/2 {
		t.Errorf("%.0f allocations for %d queues", made, queues)
	}
	for _, r := range resets {
		if q, _ := own.Offset("T", "G", r.Queue); q != (entry.QueueOffset{Queue: r.Queue, Epoch: 1, Offset: r.Offset}) {
			t.Fatalf("%+v: %+v", r, q)
		}
	}
	if q, _ := own.Offset("T", "G", 4); q != (entry.QueueOffset{Queue: 4, Offset: 9}) || own.Offsets("T", "G").Len() != queues+queues/2 {
		t.Errorf("a queue that was not reset: %+v, of %d", q, own.Offsets("T", "G").Len())
	}
}

func TestDelays(t *testing.T) {
	own := edit(t, New(entry.DelayOffsets), 1, 1, func(e *Edit) {
		for level, offset := range map[int32]int64{1: 20, 2: 0} {
			if o, err := e.CommitDelay(level, offset); o != Taken || err != nil {
				t.Errorf("%v %v", o, err)
			}
		}
		if o, err := e.CommitDelay(1, 19); o != Lower || err != nil {
			t.Errorf("%v %v", o, err)
		}
		for level, offset := range map[int32]int64{0: 1, 70_000: 1, 3: -1} {
			if _, err := e.CommitDelay(level, offset); !errors.Is(err, entry.ErrOffset) {
				t.Errorf("level %d at %d: %v", level, offset, err)
			}
		}
		if err := e.ResetDelay(3, -2, 1); !errors.Is(err, entry.ErrOffset) {
			t.Errorf("reset to -2: %v", err)
		}
	})
	if d, ok := own.Delay(1); !ok || d.Offset != 20 {
		t.Errorf("%+v", d)
	}
	if _, ok := own.Delay(3); ok {
		t.Error("a level from an illegal commit")
	}
}

// TestT5_ClampAfterACut: what lies behind the end of a queue after a cut comes down, and stays down.
func TestT5_ClampAfterACut(t *testing.T) {
	slave := offsets(t, at(100), Commit{Topic: "T", Group: "H", Queue: 1, Offset: 40}, Commit{Topic: "U", Group: "G", Offset: 100})
	limit := func(topic string, queue int32) (int64, bool) {
		return 70, topic == "T" || topic == ScheduleTopic && queue == 0
	}
	e := slave.Edit(2, 5)
	n, err := e.Clamp(limit)
	cut, _ := e.Done()
	q, _ := cut.Offset("T", "G", 0)
	u, _ := cut.Offset("U", "G", 0)
	if n != 1 || err != nil || q != (entry.QueueOffset{Epoch: 1, Offset: 70}) || u.Offset != 100 {
		t.Fatalf("%d %v: %+v %+v", n, err, q, u)
	}
	for _, peer := range []*Table{slave, edit(t, slave, 1, 1, func(e *Edit) { e.Commit(at(120)) })} {
		joined, _, err := Join(cut, peer, 3, 9)
		must(t, err)
		back, _, err := Join(peer, cut, 3, 9)
		must(t, err)
		for _, j := range []*Table{joined, back} {
			if q, _ := j.Offset("T", "G", 0); q.Offset != 70 {
				t.Errorf("a peer brought the offset back to %+v", q)
			}
		}
	}
	delays := edit(t, New(entry.DelayOffsets), 1, 1, func(e *Edit) {
		_, err := e.CommitDelay(1, 90)
		must(t, err)
		_, err = e.CommitDelay(2, 90)
		must(t, err)
	})
	e = delays.Edit(1, 1)
	n, err = e.Clamp(limit)
	delays, _ = e.Done()
	one, _ := delays.Delay(1)
	two, _ := delays.Delay(2)
	if n != 1 || err != nil || one != (entry.Delay{Offset: 70, Epoch: 1}) || two.Offset != 90 {
		t.Errorf("%d %v: %+v %+v", n, err, one, two)
	}
	if n, err := cut.Edit(1, 1).Clamp(limit); n != 0 || err != nil {
		t.Errorf("again: %d %v", n, err)
	}
}

func TestEpochsEnd(t *testing.T) {
	b := NewBuilder(entry.ConsumerOffsets)
	must(t, b.Add(Entry{Key: "T@G", Value: entry.NewOffsets(entry.QueueOffset{Epoch: entry.MaxEpoch, Offset: 50})}))
	own := b.Table(entry.Version{Counter: 1}, FormFull, nil)
	if _, err := own.Edit(1, 1).NewEpoch(); !errors.Is(err, ErrEpochs) {
		t.Errorf("%v", err)
	}
	if _, err := own.Edit(1, 1).Clamp(func(string, int32) (int64, bool) { return 10, true }); !errors.Is(err, ErrEpochs) {
		t.Errorf("%v", err)
	}
	if _, err := own.Edit(1, 1).Clamp(func(string, int32) (int64, bool) { return 60, true }); err != nil {
		t.Errorf("nothing to lower: %v", err)
	}
}

func TestBuilderRefuses(t *testing.T) {
	b := NewBuilder(entry.Topics)
	must(t, b.Add(Entry{Key: "T", Value: entry.NewTopic("T")}))
	for name, c := range map[string]struct {
		e    Entry
		want error
	}{
		"twice": {Entry{Key: "T", Value: entry.NewTopic("T")}, ErrDuplicate},
		"kind":  {Entry{Key: "G", Value: entry.NewGroup("G")}, ErrKind},
		"empty": {Entry{Key: "", Value: entry.NewTopic("")}, entry.ErrName},
		"large": {Entry{Key: "U", Value: &entry.TopicConfig{Name: "U", Attributes: map[string]string{"a": string(make([]byte, MaxEntry))}}}, entry.ErrField},
	} {
		if err := b.Add(c.e); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
