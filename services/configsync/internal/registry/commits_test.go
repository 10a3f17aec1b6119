package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

func TestCommitsAreGathered(t *testing.T) {
	r := open(t, newDisk(t))
	ctx := t.Context()
	result, err := r.CommitOffsets(ctx, []table.Commit{at(10), at(5), at(12)}, false)
	if err != nil || result != (CommitResult{Taken: 2, Lower: 1}) || offsetOf(r) != 12 {
		t.Fatalf("%+v, %v", result, err)
	}
	if r.Snapshot(entry.ConsumerOffsets).Len() != 0 || reopen(t, r, memfs.All).Snapshot(entry.ConsumerOffsets).Len() != 0 {
		t.Error("it is saved already")
	}
	if _, err := r.CommitOffsets(ctx, []table.Commit{at(20), {Topic: "T", Group: "G", Offset: -1}}, false); !errors.Is(err, entry.ErrOffset) || offsetOf(r) != 12 {
		t.Errorf("one of two is illegal: %v", err)
	}
	commit(t, r, table.Commit{Topic: "T", Group: "H", Offset: 1})
	own := r.Snapshot(entry.ConsumerOffsets)
	if own.Len() != 2 || own.Version().Counter != 1 || offsetOf(reopen(t, r, memfs.OnlySynced)) != 12 {
		t.Errorf("who waits has all saved: %d at %v", own.Len(), own.Version())
	}
	commit(t, r, at(12))
	if r.Snapshot(entry.ConsumerOffsets) != own {
		t.Error("a version for nothing")
	}
}

// TestAGroupOfManyQueues: the most that a topic may have, committed at once; and no queue beyond, whose offsets no entry would hold.
func TestAGroupOfManyQueues(t *testing.T) {
	const queues = 65_535
	r := open(t, newDisk(t))
	var all []table.Commit
	for q := range int32(queues) {
		all = append(all, table.Commit{Topic: "T", Group: "G", Queue: q, Offset: int64(q) + 1})
	}
	commit(t, r, all...)
	for _, r := range []*Registry{r, reopen(t, r, memfs.OnlySynced)} {
		have := r.Snapshot(entry.ConsumerOffsets)
		if q, ok := have.Offset("T", "G", queues-1); !ok || q.Offset != queues || have.Offsets("T", "G").Len() != queues || have.Version().Counter != 1 {
			t.Errorf("%+v, %v of %d at %v", q, ok, have.Offsets("T", "G").Len(), have.Version())
		}
		if _, err := have.Full().Table(); err != nil {
			t.Errorf("a slave: %v", err)
		}
	}
	_, commitErr := r.CommitOffsets(t.Context(), []table.Commit{{Topic: "T", Group: "G", Queue: queues, Offset: 1}}, true)
	_, resetErr := r.ResetOffsets(t.Context(), []table.Reset{{Topic: "T", Group: "G", Queue: queues, Offset: 1}})
	for _, err := range []error{commitErr, resetErr} {
		if e := errdefs.As(err); !errors.Is(err, entry.ErrOffset) || e.Field != "queue_id" {
			t.Errorf("a queue beyond: %v", err)
		}
	}
}

// TestCommitsThatOutliveTheirReign: what a full disk kept from being saved until the next master is followed is saved then, under that
// master's version: it is ahead of the master, and no version of its own.
func TestCommitsThatOutliveTheirReign(t *testing.T) {
	disk := newDisk(t)
	r, next := open(t, disk), open(t, newDisk(t))
	r.SetEpoch(4)
	commit(t, r, at(100))
	if _, err := pull(t, next, r, entry.ConsumerOffsets); err != nil {
		t.Fatal(err)
	}
	var gathered []table.Commit
	for i := range 300 {
		gathered = append(gathered, table.Commit{Topic: "T", Group: fmt.Sprintf("group-of-some-length-%d", i), Offset: int64(i)})
	}
	_, err := r.CommitOffsets(t.Context(), append(gathered, at(150)), false)
	must(t, err)
	disk.SetQuota(disk.Used())
	own := r.Snapshot(entry.ConsumerOffsets)
	if err := r.Flush(t.Context()); err == nil {
		t.Fatal("the disk is not full")
	}
	r.Resign()
	must(t, next.Lead(t.Context(), 5))
	disk.SetQuota(0)
	must(t, r.Flush(t.Context()))
	if got := r.Snapshot(entry.ConsumerOffsets); got.Version() != own.Version() || offsetOf(r) != 150 || got.Len() != 301 || r.Unsaved() != 0 {
		t.Errorf("at %v, before at %v, offset %d of %d", got.Version(), own.Version(), offsetOf(r), got.Len())
	}
	if saved := reopen(t, r, memfs.OnlySynced); offsetOf(saved) != 150 {
		t.Errorf("after a crash: %d", offsetOf(saved))
	}
	report, err := pull(t, r, next, entry.ConsumerOffsets)
	if got := r.Snapshot(entry.ConsumerOffsets); err != nil || report.Ahead == 0 && !report.OtherContent || got.Version() != next.Snapshot(entry.ConsumerOffsets).Version() || offsetOf(r) != 150 {
		t.Errorf("%+v, %v: at %v, offset %d", report, err, got.Version(), offsetOf(r))
	}
	r.SetEpoch(6)
	commit(t, r, at(160))
	if v := r.Snapshot(entry.ConsumerOffsets).Version(); v.State != 6 {
		t.Errorf("in its next reign: %v", v)
	}
}

// TestABatchWithACommitOfBeforeAReset is not taken, as one that is illegal is not.
func TestABatchWithACommitOfBeforeAReset(t *testing.T) {
	r := open(t, newDisk(t))
	other := table.Commit{Topic: "T", Group: "G", Queue: 1, Offset: 7}
	commit(t, r, at(100))
	_, err := r.ResetOffsets(t.Context(), []table.Reset{{Topic: "T", Group: "G", Offset: 20}})
	must(t, err)
	late := at(150)
	late.Guard = true
	for _, batch := range [][]table.Commit{{other, late}, {late, other}, {late}} {
		result, err := r.CommitOffsets(t.Context(), batch, true)
		if got := r.Offsets("T", "G"); err != nil || result != (CommitResult{Staled: 1}) || len(got) != 1 || got[0].Offset != 20 {
			t.Errorf("%+v, %v: %v", result, err, got)
		}
	}
	late.Epoch = 1
	if result, err := r.CommitOffsets(t.Context(), []table.Commit{other, late}, true); err != nil || result != (CommitResult{Taken: 2}) || offsetOf(r) != 150 {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestStandingShowsWhatIsGathered, in the order of the keys, whether something of the group is saved or not.
func TestStandingShowsWhatIsGathered(t *testing.T) {
	r := open(t, newDisk(t))
	of := func(topic, group string, queue int32, offset int64) table.Commit {
		return table.Commit{Topic: topic, Group: group, Queue: queue, Offset: offset}
	}
	commit(t, r, of("B", "G", 0, 10), of("D", "G", 0, 20))
	_, err := r.ResetOffsets(t.Context(), []table.Reset{{Topic: "D", Group: "G", Offset: 5}})
	must(t, err)
	_, err = r.CommitOffsets(t.Context(), []table.Commit{
		of("E", "G", 1, 3), of("E", "G", 0, 2), of("A", "G", 0, 1), of("B", "G", 1, 11), of("B", "G", 0, 12), of("C", "G", 0, 13), of("D", "G", 0, 6),
	}, false)
	must(t, err)
	all := map[string][]entry.QueueOffset{
		"A@G": {{Offset: 1}}, "B@G": {{Offset: 12}, {Queue: 1, Offset: 11}}, "C@G": {{Offset: 13}}, "D@G": {{Epoch: 1, Offset: 6}}, "E@G": {{Offset: 2}, {Queue: 1, Offset: 3}},
	}
	for from, want := range map[string][]string{"": {"A@G", "B@G", "C@G", "D@G", "E@G"}, "B@G": {"B@G", "C@G", "D@G", "E@G"}, "C": {"C@G", "D@G", "E@G"}, "F": nil} {
		var keys []string
		for key, queues := range r.Standing(from) {
			keys = append(keys, key)
			if got := slices.Collect(queues.All()); !slices.Equal(got, all[key]) {
				t.Errorf("%s: %v, want %v", key, got, all[key])
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("from %q: %v, want %v", from, keys, want)
		}
	}
	must(t, r.saveCommits(t.Context()))
	for key, queues := range r.Standing("") {
		if got := slices.Collect(queues.All()); !slices.Equal(got, all[key]) {
			t.Errorf("saved, %s: %v, want %v", key, got, all[key])
		}
	}
}

// TestAResetBeatsWhatWasGatheredBefore, whenever that is saved.
func TestAResetBeatsWhatWasGatheredBefore(t *testing.T) {
	r := open(t, newDisk(t))
	commit(t, r, at(100))
	_, err := r.CommitOffsets(t.Context(), []table.Commit{at(150)}, false)
	must(t, err)
	epoch, err := r.ResetOffsets(t.Context(), []table.Reset{{Topic: "T", Group: "G", Offset: 20}})
	if epoch != 1 || err != nil || offsetOf(r) != 20 {
		t.Fatalf("epoch %d, %v, at %d", epoch, err, offsetOf(r))
	}
	must(t, r.saveCommits(t.Context()))
	if offsetOf(r) != 20 || offsetOf(reopen(t, r, memfs.OnlySynced)) != 20 {
		t.Errorf("at %d", offsetOf(r))
	}
	guarded := at(160)
	guarded.Guard = true
	if result, err := r.CommitOffsets(t.Context(), []table.Commit{guarded}, true); err != nil || result.Staled != 1 || offsetOf(r) != 20 {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := r.ResetOffsets(t.Context(), []table.Reset{{Topic: "T", Group: "G", Offset: -2}}); !errors.Is(err, entry.ErrOffset) {
		t.Errorf("%v", err)
	}
	if epoch, err := r.ResetDelays(t.Context(), map[int32]int64{4: 0}); epoch != 1 || err != nil {
		t.Errorf("%d, %v", epoch, err)
	}
	if _, err := r.ResetDelays(t.Context(), map[int32]int64{0: 0}); !errors.Is(err, entry.ErrOffset) {
		t.Errorf("%v", err)
	}
}

func TestT5_ClampAfterACut(t *testing.T) {
	r := open(t, newDisk(t))
	commit(t, r, at(100))
	_, err := r.CommitOffsets(t.Context(), []table.Commit{at(130), {Topic: "T", Group: "New", Offset: 200}}, false)
	must(t, err)
	_, err = r.CommitDelays(t.Context(), map[int32]int64{1: 90})
	must(t, err)
	limit := func(topic string, queue int32) (int64, bool) {
		return 70, topic == "T" || topic == table.ScheduleTopic && queue == 0
	}
	n, err := r.ClampOffsets(t.Context(), limit)
	d, _ := r.Snapshot(entry.DelayOffsets).Delay(1)
	must(t, r.saveCommits(t.Context()))
	if q, _ := r.Offset("T", "New", 0); n != 3 || err != nil || offsetOf(r) != 70 || d.Offset != 70 || q.Offset != 70 {
		t.Errorf("%d lowered, %v: %d, %+v", n, err, offsetOf(r), d)
	}
	again := reopen(t, r, memfs.OnlySynced)
	if q, _ := again.Offset("T", "G", 0); q != (entry.QueueOffset{Epoch: 1, Offset: 70}) {
		t.Errorf("after a crash: %+v", q)
	}
}

func TestCommitsHaveABound(t *testing.T) {
	r, err := Open(newDisk(t), "/c", Options{MaxPending: 10})
	must(t, err)
	defer r.Close()
	for i := range int32(100) {
		_, err := r.CommitOffsets(t.Context(), []table.Commit{{Topic: "T", Group: "G", Queue: i, Offset: 1}}, false)
		must(t, err)
		if n := r.pendingCommits(); n > 10 {
			t.Fatalf("%d are pending", n)
		}
	}
	if q := r.Snapshot(entry.ConsumerOffsets).Offsets("T", "G"); q.Len() < 90 {
		t.Errorf("%d saved", q.Len())
	}
}

// TestRunSavesInTime: commits after CommitInterval, files after SaveInterval, everything at the end; nothing is written when
// nothing changes.
func TestRunSavesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newDisk(t)
		r, err := Open(f, "/c", Options{})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		_, err = r.CommitOffsets(ctx, []table.Commit{at(10)}, false)
		must(t, err)
		time.Sleep(200 * time.Millisecond) //nolint:forbidigo // synctest's clock
		synctest.Wait()
		if got := offsetOf(reopen(t, r, memfs.OnlySynced)); got != 10 {
			t.Errorf("after 200 ms: %d", got)
		}
		if _, err := f.Stat("/c/consumerOffset.json"); err == nil {
			t.Error("the file is written too early")
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // synctest's clock
		synctest.Wait()
		if s := r.State(entry.ConsumerOffsets); s.SavedVersion != s.Version || s.LastSave.IsZero() {
			t.Errorf("after 5 s: %+v", s)
		}
		ops := f.Ops()
		time.Sleep(time.Minute) //nolint:forbidigo // synctest's clock
		synctest.Wait()
		if f.Ops() != ops {
			t.Errorf("%d operations in a minute without a change", f.Ops()-ops)
		}
		_, err = r.CommitOffsets(ctx, []table.Commit{at(11)}, false)
		must(t, err)
		cancel()
		must(t, <-done)
		if s := r.State(entry.ConsumerOffsets); offsetOf(reopen(t, r, memfs.OnlySynced)) != 11 || s.SavedVersion != s.Version {
			t.Errorf("at the end: %+v", s)
		}
		must(t, r.Close())
	})
}

// TestT15_NeverBackwardsUnderLoad: committers, resetters and readers at once, on a disk that is full now and then.
func TestT15_NeverBackwardsUnderLoad(t *testing.T) {
	f := newDisk(t)
	r := open(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	var wg sync.WaitGroup
	for n := range 6 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(n), 3))
			var last entry.QueueOffset
			for range 400 {
				switch {
				case n == 0 && rnd.IntN(20) == 0:
					if _, err := r.ResetOffsets(ctx, []table.Reset{{Topic: "T", Group: "G", Offset: rnd.Int64N(50)}}); err != nil {
						t.Error(err)
					}
				default:
					if _, err := r.CommitOffsets(ctx, []table.Commit{at(rnd.Int64N(1000))}, rnd.IntN(4) == 0); err != nil {
						t.Error(err)
					}
				}
				q, _ := r.Offset("T", "G", 0)
				if last.Join(q) != q {
					t.Errorf("%+v after %+v", q, last)
				}
				last = q
			}
		})
	}
	wg.Wait()
	cancel()
	must(t, <-done)
	q, _ := r.Offset("T", "G", 0)
	if saved, _ := reopen(t, r, memfs.OnlySynced).Offset("T", "G", 0); saved != q || q.Epoch == 0 {
		t.Errorf("%+v saved, %+v known", saved, q)
	}
}
