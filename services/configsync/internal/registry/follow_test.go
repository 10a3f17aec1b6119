package registry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

func fill(t testing.TB, r *Registry, n int) {
	t.Helper()
	commits := make([]table.Commit, 0, n)
	for i := range n {
		putTopics(t, r, fmt.Sprintf("topic-%05d", i))
		_, err := r.PutGroup(t.Context(), entry.NewGroup(fmt.Sprintf("group-%05d", i)), Condition{})
		must(t, err)
		commits = append(commits, table.Commit{Topic: fmt.Sprintf("topic-%05d", i), Group: "G", Queue: int32(i % 4), Offset: int64(i)})
	}
	commit(t, r, commits...)
	_, err := r.CommitDelays(t.Context(), map[int32]int64{1: 5, 2: 6})
	must(t, err)
}

func pullAll(t testing.TB, slave, master *Registry) {
	t.Helper()
	for _, kind := range entry.Kinds() {
		_, err := pull(t, slave, master, kind)
		must(t, err)
	}
}

// TestT13_RoundsCarryWhatChanged: the first brings everything, a later one only what is new, one without a change nothing.
func TestT13_RoundsCarryWhatChanged(t *testing.T) {
	master, slave := open(t, newDisk(t)), open(t, newDisk(t))
	must(t, master.Lead(t.Context(), 1))
	fill(t, master, 3000)
	pullAll(t, slave, master)
	if !same(t, master, slave) {
		t.Fatal("not equal after a round")
	}
	size := func(kind entry.Kind) (bytes int, full bool) {
		own := slave.Snapshot(kind)
		reply, err := master.Fetch(kind, own.Version(), own.Sum())
		must(t, err)
		for c := range reply.Chunks {
			bytes += len(c)
		}
		return bytes, reply.Full
	}
	for _, kind := range entry.Kinds() {
		if n, _ := size(kind); n != 0 {
			t.Errorf("%v: %d bytes without a change", kind, n)
		}
	}
	putTopics(t, master, "one-more")
	must(t, master.DeleteTopic(t.Context(), "topic-00007", Condition{}))
	commit(t, master, table.Commit{Topic: "topic-00001", Group: "G", Queue: 1, Offset: 1000})
	for _, kind := range []entry.Kind{entry.Topics, entry.ConsumerOffsets} {
		if n, full := size(kind); n == 0 || n > 1000 || full {
			t.Errorf("%v: %d bytes, full %v", kind, n, full)
		}
	}
	pullAll(t, slave, master)
	if !same(t, master, slave) || !same(t, slave, reopen(t, slave, memfs.OnlySynced)) {
		t.Error("not equal after the deltas")
	}
	one, err := master.Fetch(entry.Topics, entry.Version{}, 0)
	must(t, err)
	two, err := master.Fetch(entry.Topics, entry.Version{}, 0)
	must(t, err)
	if a, b := slices.Collect(one.Chunks), slices.Collect(two.Chunks); !one.Full || len(a) < 3 || &a[0][0] != &b[0][0] {
		t.Error("the whole table is marshalled for each who asks")
	}
	putTopics(t, master, "another")
	master.dropCaches()
	if master.stores[entry.Topics].full.DropStale(nil) {
		t.Error("the chunks of an old version are kept")
	}
	// A slave that comes back with its old table after the master's restart still gets a delta or, at worst, everything.
	pullAll(t, slave, reopen(t, master, memfs.OnlySynced))
	if slave.Snapshot(entry.Topics).Topic("another") == nil {
		t.Error("nothing from the master after its restart")
	}
}

// TestT14_ARoundNeverMakesTheSlavePoorer: what a broken master answers leaves tables and files as they are; step 3 reads them
// after a crash; step 4 deletes one topic.
func TestT14_ARoundNeverMakesTheSlavePoorer(t *testing.T) {
	master, slave := open(t, newDisk(t)), open(t, newDisk(t))
	must(t, master.Lead(t.Context(), 1))
	fill(t, master, 50)
	pullAll(t, slave, master)
	old := master.Snapshot(entry.Topics).Full()
	putTopics(t, master, "one-more")
	whole := master.Snapshot(entry.Topics).Full()
	empty := &table.Delta{Kind: entry.Topics, Full: true, To: entry.Version{State: 9}}
	half := *whole
	half.Entries = half.Entries[:20]
	other := *old
	other.Sum++
	before := content(slave)
	for name, c := range map[string]struct {
		d    *table.Delta
		want error
	}{
		"empty": {empty, table.ErrEmpty}, "half": {&half, table.ErrNotWhole}, "other content": {&other, table.ErrNotWhole},
	} {
		if _, err := slave.Follow(t.Context(), c.d, table.FollowOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pullAll(t, slave, master)
	if _, err := slave.Follow(t.Context(), old, table.FollowOptions{}); !errors.Is(err, table.ErrOlder) {
		t.Errorf("older: %v", err)
	}
	if content(slave) == before || slave.Snapshot(entry.Topics).Len() != 51 {
		t.Error("the good answer was not taken")
	}
	if again := reopen(t, slave, memfs.OnlySynced); !same(t, again, slave) {
		t.Error("after a crash the slave alone has something else")
	}
	must(t, master.DeleteTopic(t.Context(), "topic-00003", Condition{}))
	pullAll(t, slave, master)
	if own := slave.Snapshot(entry.Topics); own.Len() != 50 || own.Topic("topic-00003") != nil {
		t.Errorf("%d topics", own.Len())
	}
}

// TestT15_SwapsAndCrashes: two nodes change roles ten times, the one that was master crashes, and nothing goes back.
func TestT15_SwapsAndCrashes(t *testing.T) {
	a, b := open(t, newDisk(t)), open(t, newDisk(t))
	lead := func(r, peer *Registry, epoch int64) {
		for _, kind := range entry.Kinds() {
			_, err := r.Join(t.Context(), peer.Snapshot(kind))
			must(t, err)
		}
		must(t, r.Lead(t.Context(), epoch))
	}
	lead(a, b, 1)
	commit(t, a, at(100))
	pullAll(t, b, a)
	lead(b, reopen(t, b, memfs.OnlySynced), 2) // a is down
	commit(t, b, at(150))
	a = reopen(t, a, memfs.OnlySynced)
	lead(a, b, 3)
	pullAll(t, b, a)
	if offsetOf(a) != 150 || !same(t, a, b) {
		t.Fatalf("step 1: %d and %d", offsetOf(a), offsetOf(b))
	}
	for i := range int64(10) {
		a, b = b, a
		lead(a, b, 4+i)
		commit(t, a, at(160+10*i))
		_, err := a.CommitDelays(t.Context(), map[int32]int64{1: i})
		must(t, err)
		pullAll(t, b, a)
		if offsetOf(a) != 160+10*i || !same(t, a, b) {
			t.Fatalf("swap %d: %d and %d", i, offsetOf(a), offsetOf(b))
		}
		b = reopen(t, b, memfs.OnlySynced)
	}
	_, err := a.ResetOffsets(t.Context(), []table.Reset{{Topic: "T", Group: "G", Offset: 20}})
	must(t, err)
	pullAll(t, b, a)
	stop(t, b)
	f, _ := b.fsys.(*memfs.FS)
	b = open(t, f)
	lead(b, a, 15)
	pullAll(t, a, b)
	if offsetOf(a) != 20 || offsetOf(b) != 20 || !same(t, a, b) {
		t.Errorf("step 4: %d and %d", offsetOf(a), offsetOf(b))
	}
}

func TestFollowJavaAndImport(t *testing.T) {
	r := open(t, newDisk(t))
	commit(t, r, at(100))
	java := func(offset int64) *table.Table {
		b := table.NewBuilder(entry.ConsumerOffsets)
		must(t, b.Add(table.Entry{Key: "T@G", Value: entry.NewOffsets(entry.QueueOffset{Offset: offset})}))
		return b.Table(entry.Version{}, table.FormNoVersion, nil)
	}
	if report, err := r.FollowJava(t.Context(), java(40), table.JavaOptions{}); err != nil || report.LowerCount != 1 || offsetOf(r) != 100 {
		t.Errorf("%+v, %v", report, err)
	}
	if report, err := r.FollowJava(t.Context(), java(120), table.JavaOptions{}); err != nil || !report.Changed || offsetOf(r) != 120 {
		t.Errorf("%+v, %v", report, err)
	}
	if report, err := r.FollowJava(t.Context(), java(40), table.JavaOptions{TakeLower: true}); err != nil || !report.Changed || offsetOf(r) != 40 {
		t.Errorf("%+v, %v", report, err)
	}
	if again := reopen(t, r, memfs.OnlySynced); !same(t, r, again) {
		t.Error("it is not durable")
	}
	if _, err := r.merge(t.Context(), 7, nil, nil); !errors.Is(err, table.ErrKind) {
		t.Errorf("kind 7: %v", err)
	}
}

func TestImport(t *testing.T) {
	r := open(t, newDisk(t))
	putTopics(t, r, "a", "b")
	_, err := r.CommitOffsets(t.Context(), []table.Commit{at(100)}, false)
	must(t, err)
	topics := table.NewBuilder(entry.Topics)
	changed := entry.NewTopic("b")
	changed.Perm = entry.PermRead
	for _, c := range []*entry.TopicConfig{changed, entry.NewTopic("c")} {
		must(t, topics.Add(table.Entry{Key: c.Name, Value: c}))
	}
	offsets := table.NewBuilder(entry.ConsumerOffsets)
	must(t, offsets.Add(table.Entry{Key: "T@G", Value: entry.NewOffsets(entry.QueueOffset{Offset: 40}, entry.QueueOffset{Queue: 1, Offset: 5})}))
	in := topics.Table(entry.Version{}, table.FormFull, nil)
	off := offsets.Table(entry.Version{}, table.FormFull, nil)
	for i, step := range []struct {
		in     *table.Table
		o      ImportOptions
		want   ImportResult
		topics int
		offset int64
	}{
		{in, ImportOptions{DryRun: true, Replace: true}, ImportResult{Added: 1, Updated: 1, Removed: 1}, 2, 100},
		{in, ImportOptions{}, ImportResult{Added: 1, Updated: 1}, 3, 100},
		{in, ImportOptions{Replace: true}, ImportResult{Removed: 1, Same: 2}, 2, 100},
		{off, ImportOptions{}, ImportResult{Updated: 1, Kept: 1}, 2, 100},
		{off, ImportOptions{Replace: true}, ImportResult{Updated: 1}, 2, 40},
	} {
		got, err := r.Import(t.Context(), step.in, step.o)
		if err != nil || got != step.want || r.Snapshot(entry.Topics).Len() != step.topics || offsetOf(r) != step.offset {
			t.Errorf("step %d: %+v, %v, %d topics, at %d", i, got, err, r.Snapshot(entry.Topics).Len(), offsetOf(r))
		}
	}
	if all := r.Offsets("T", "G"); len(all) != 2 || all[0] != (entry.QueueOffset{Epoch: 1, Offset: 40}) || all[1].Offset != 5 {
		t.Errorf("%+v", all)
	}
	if _, err := r.Import(t.Context(), table.New(entry.Topics), ImportOptions{Replace: true}); !errors.Is(err, table.ErrEmpty) {
		t.Errorf("an empty table: %v", err)
	}
}

func TestOffsetsOfAGroup(t *testing.T) {
	r := open(t, newDisk(t))
	commit(t, r, at(100), table.Commit{Topic: "T", Group: "G", Queue: 2, Offset: 3})
	_, err := r.CommitOffsets(t.Context(), []table.Commit{at(110), {Topic: "T", Group: "G", Queue: 1, Offset: 7}, {Topic: "T", Group: "H", Offset: 1}}, false)
	must(t, err)
	want := []entry.QueueOffset{{Offset: 110}, {Queue: 1, Offset: 7}, {Queue: 2, Offset: 3}}
	if got := r.Offsets("T", "G"); !slices.Equal(got, want) || r.Unsaved() != 3 {
		t.Errorf("%+v, %d unsaved", got, r.Unsaved())
	}
	must(t, r.Flush(t.Context()))
	if got := r.Snapshot(entry.ConsumerOffsets).Offsets("T", "G"); r.Unsaved() != 0 || !slices.Equal(slices.Collect(got.All()), want) {
		t.Errorf("%+v, %d unsaved", got, r.Unsaved())
	}
}

// TestASlaveThatIsAhead gets no million offsets each round: the answer says that the version is the same, and a master that
// wants them pulls them.
func TestASlaveThatIsAhead(t *testing.T) {
	master, slave := open(t, newDisk(t)), open(t, newDisk(t))
	commit(t, master, at(100))
	must(t, master.Lead(t.Context(), 2))
	commit(t, slave, at(150))
	pullAll(t, slave, master)
	own := slave.Snapshot(entry.ConsumerOffsets)
	reply, err := master.Fetch(entry.ConsumerOffsets, own.Version(), own.Sum())
	if err != nil || offsetOf(slave) != 150 || !reply.SameVersion || reply.Unchanged {
		t.Fatalf("%+v, %v, at %d", reply, err, offsetOf(slave))
	}
	if reply, err := master.Fetch(entry.ConsumerOffsets, own.Version(), 0); err != nil || !reply.Unchanged {
		t.Errorf("%+v, %v", reply, err)
	}
	if again := reopen(t, slave, memfs.OnlySynced); offsetOf(again) != 150 || again.Snapshot(entry.ConsumerOffsets).Version() != own.Version() {
		t.Errorf("after a crash at %d", offsetOf(again))
	}
	// The full table under the version that the slave has already: its content changes, and that is durable too.
	other := open(t, newDisk(t))
	commit(t, other, at(160))
	must(t, other.Lead(t.Context(), 2))
	d := other.Snapshot(entry.ConsumerOffsets).Full()
	d.To = own.Version()
	if _, err := slave.Follow(t.Context(), d, table.FollowOptions{}); err != nil || offsetOf(slave) != 160 || offsetOf(reopen(t, slave, memfs.OnlySynced)) != 160 {
		t.Errorf("%v, at %d", err, offsetOf(slave))
	}
	own = slave.Snapshot(entry.ConsumerOffsets)
	version := master.Snapshot(entry.ConsumerOffsets).Version()
	must(t, master.Lead(t.Context(), 2))
	if master.Snapshot(entry.ConsumerOffsets).Version() != version {
		t.Error("the same reign begins twice")
	}
	_, err = master.Join(t.Context(), own)
	must(t, err)
	pullAll(t, slave, master)
	if offsetOf(master) != 160 || !same(t, master, slave) {
		t.Errorf("master at %d", offsetOf(master))
	}
}

// TestRandomHistories lets three nodes with disks change, follow, join, crash and restart; offsets only go back by resets, and
// in the end all are equal. Whoever leads has joined the others before, as a node does that begins to lead.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		nodes := []*Registry{open(t, newDisk(t)), open(t, newDisk(t)), open(t, newDisk(t))}
		master, epoch := 0, int64(1)
		must(t, nodes[0].Lead(t.Context(), epoch))
		for range 30 {
			i := rnd.IntN(3)
			before := nodes[i].Snapshot(entry.ConsumerOffsets)
			switch m := nodes[master]; rnd.IntN(9) {
			case 0, 1:
				commit(t, m, table.Commit{Topic: "T", Group: "G", Queue: rnd.Int32N(2), Offset: rnd.Int64N(100)})
			case 2:
				putTopics(t, m, fmt.Sprint("t", rnd.IntN(9)))
			case 3:
				if err := m.DeleteTopic(t.Context(), fmt.Sprint("t", rnd.IntN(9)), Condition{}); err != nil && !errors.Is(err, ErrNotFound) {
					t.Fatal(err)
				}
			case 4:
				if _, err := m.ResetOffsets(t.Context(), []table.Reset{{Topic: "T", Group: "G", Queue: rnd.Int32N(2), Offset: rnd.Int64N(50)}}); err != nil {
					t.Fatal(err)
				}
			case 5:
				must(t, nodes[i].saveFiles(t.Context()))
			case 6:
				nodes[i] = reopen(t, nodes[i], memfs.Torn(rnd.Uint32()))
			case 7:
				if i != master {
					pullAll(t, nodes[i], m)
				}
			case 8:
				for j := range nodes {
					for _, kind := range entry.Kinds() {
						_, err := nodes[i].Join(t.Context(), nodes[j].Snapshot(kind))
						must(t, err)
					}
				}
				epoch++
				master = i
				must(t, nodes[i].Lead(t.Context(), epoch))
			}
			if lost := poorer(before, nodes[i].Snapshot(entry.ConsumerOffsets)); lost != "" {
				t.Fatalf("seed %d: %s", seed, lost)
			}
		}
		for i := range nodes {
			if i != master {
				pullAll(t, nodes[i], nodes[master])
				if !same(t, nodes[i], nodes[master]) {
					t.Fatalf("seed %d: node %d is not equal to node %d", seed, i, master)
				}
			}
		}
	}
}

func poorer(before, after *table.Table) string {
	for e := range before.Ascend("") {
		o, _ := e.Value.(*entry.Offsets)
		now, _ := after.Get(e.Key)
		n, _ := now.Value.(*entry.Offsets)
		if n == nil || !n.Join(o).Equal(n) {
			return fmt.Sprintf("%s was %s and is %v", e.Key, o.AppendJSON(nil), now)
		}
	}
	return ""
}
