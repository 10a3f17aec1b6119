package registry

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/disk"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

func TestChangesAreSavedThenPublished(t *testing.T) {
	r := open(t, newDisk(t))
	r.SetEpoch(3)
	made, err := r.PutTopic(t.Context(), entry.NewTopic("T"), Condition{Create: true})
	if err != nil || made.Change != 1 || r.Snapshot(entry.Topics).Version().State != 3 {
		t.Fatalf("%+v, %v, %v", made, r.Snapshot(entry.Topics).Version(), err)
	}
	_, err = r.PutGroup(t.Context(), entry.NewGroup("G"), Condition{})
	must(t, err)
	commit(t, r, at(45))
	lower, err := r.CommitDelays(t.Context(), map[int32]int64{1: 7, 3: 9})
	if lower != 0 || err != nil {
		t.Fatal(lower, err)
	}
	again := reopen(t, r, memfs.OnlySynced)
	if !same(t, r, again) || again.State(entry.Topics).Source != disk.FromJournal || again.State(entry.Topics).Replayed != 1 {
		t.Errorf("after a power cut: %+v", again.State(entry.Topics))
	}
	stop(t, again)
	f, _ := again.fsys.(*memfs.FS)
	last := open(t, f)
	if s := last.State(entry.ConsumerOffsets); !same(t, r, last) || s.Source != disk.FromFile || s.Replayed != 0 || s.Entries != 1 {
		t.Errorf("after a stop: %+v", s)
	}
	must(t, last.DeleteTopic(t.Context(), "T", Condition{}))
	must(t, last.DeleteGroup(t.Context(), "G", Condition{}))
	if last.Snapshot(entry.Topics).Len()+last.Snapshot(entry.Groups).Len() != 0 || last.Snapshot(entry.Topics).Version().Counter != 2 {
		t.Error("not deleted")
	}
	if lower, err := last.CommitDelays(t.Context(), map[int32]int64{1: 6, 3: 10}); lower != 1 || err != nil {
		t.Errorf("%d, %v", lower, err)
	}
}

func TestConditions(t *testing.T) {
	r := open(t, newDisk(t))
	made, err := r.PutTopic(t.Context(), entry.NewTopic("T"), Condition{})
	must(t, err)
	etag, wrong := made.Etag(), made.Etag()+1
	now, old := r.Snapshot(entry.Topics).Version(), entry.Version{}
	changed := entry.NewTopic("T")
	changed.Perm = entry.PermRead
	for name, c := range map[string]struct {
		topic *entry.TopicConfig
		c     Condition
		want  error
	}{
		"create what is there":     {changed, Condition{Create: true}, ErrExists},
		"update what is not there": {entry.NewTopic("U"), Condition{Update: true}, ErrNotFound},
		"etag of what is not":      {entry.NewTopic("U"), Condition{Etag: &etag}, ErrNotFound},
		"another etag":             {changed, Condition{Etag: &wrong}, ErrPrecondition},
		"another version":          {changed, Condition{Version: &old}, ErrPrecondition},
		"illegal name":             {entry.NewTopic("a b"), Condition{}, entry.ErrName},
		"no queues":                {&entry.TopicConfig{Name: "T"}, Condition{}, entry.ErrField},
	} {
		if _, err := r.PutTopic(t.Context(), c.topic, c.c); !errors.Is(err, c.want) || errdefs.As(err).Remedy == "" && errdefs.As(err).Meta == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.DeleteTopic(t.Context(), "U", Condition{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("delete of nothing: %v", err)
	}
	if _, err := r.PutGroup(t.Context(), entry.NewGroup(""), Condition{}); !errors.Is(err, entry.ErrName) {
		t.Errorf("group: %v", err)
	}
	if r.Snapshot(entry.Topics).Version() != now {
		t.Error("a refused change has changed something")
	}
	if made, err = r.PutTopic(t.Context(), changed, Condition{Update: true, Etag: &etag, Version: &now}); err != nil || made.Value != entry.Value(changed) {
		t.Errorf("%v", err)
	}
	if err := r.DeleteTopic(t.Context(), "T", Condition{Etag: &etag}); !errors.Is(err, ErrPrecondition) {
		t.Errorf("the old etag: %v", err)
	}
}

func TestWatchersMissNothing(t *testing.T) {
	r := open(t, newDisk(t))
	seen := make(chan int64)
	go func() {
		defer close(seen)
		last := int64(-1)
		for last < 50 {
			rev := r.Changes(entry.Topics).Load()
			if n := r.Snapshot(entry.Topics).Version().Counter; n > last {
				last = n
				seen <- n
			}
			if last < 50 && r.Changes(entry.Topics).Wait(t.Context(), rev+1) != nil {
				return
			}
		}
	}()
	for i := range 50 {
		putTopics(t, r, fmt.Sprint("t", i))
	}
	last := int64(0)
	for n := range seen {
		last = n
	}
	if last != 50 {
		t.Errorf("the watcher saw %d", last)
	}
}

// TestManyCallersShareASync: all changes are there, each with a version of its own, and syncs are fewer than they.
func TestManyCallersShareASync(t *testing.T) {
	f := newDisk(t)
	r := open(t, f)
	var syncs sync.Map
	entered, leave := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(entered); <-leave })
	f.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindSync {
			syncs.Store(op.Seq, true)
			first()
		}
		return memfs.Proceed
	})
	var wg sync.WaitGroup
	wg.Go(func() { putTopics(t, r, "first") })
	<-entered
	for i := range 200 {
		wg.Go(func() {
			if _, err := r.PutTopic(t.Context(), entry.NewTopic(fmt.Sprint("t", i)), Condition{Create: true}); err != nil {
				t.Error(err)
			}
		})
	}
	for r.stores[entry.Topics].lenWaiting() < 200 {
		runtime.Gosched() // the callers are on their way
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.PutTopic(gone, entry.NewTopic("late"), Condition{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that does not wait: %v", err)
	}
	close(leave)
	wg.Wait()
	n := 0
	syncs.Range(func(any, any) bool { n++; return true })
	own := r.Snapshot(entry.Topics)
	if own.Len() != 201 || own.Version().Counter != 201 || n > 5 || own.Topic("late") != nil {
		t.Errorf("%d topics at %v with %d syncs", own.Len(), own.Version(), n)
	}
	if !same(t, r, reopen(t, r, memfs.OnlySynced)) {
		t.Error("not all of it is durable")
	}
}

func (s *store) lenWaiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

func TestAQueueThatIsFull(t *testing.T) {
	r := open(t, newDisk(t))
	s := r.stores[entry.Topics]
	s.waiting = make([]*change, maxWaiting)
	if _, err := r.PutTopic(t.Context(), entry.NewTopic("T"), Condition{}); !errors.Is(err, ErrBusy) || errdefs.As(err).RetryAfter == 0 {
		t.Errorf("%v", err)
	}
	s.waiting = nil
	putTopics(t, r, "T")
}

// TestT16_EveryCrashPoint runs a history of all sorts of changes and file writings and crashes before each operation: what
// was answered is there.
func TestT16_EveryCrashPoint(t *testing.T) {
	f := newDisk(t)
	r := open(t, f)
	wants := [2]string{content(r), content(r)} // answered, and under way
	points := 0
	f.SetHook(func(op memfs.Op) memfs.Action {
		if !op.Kind.Mutates() {
			return memfs.Proceed
		}
		points++
		keeps := []memfs.Keep{memfs.OnlySynced, memfs.All, memfs.Torn(uint32(points)), memfs.Torn(uint32(points + 1000))}
		for _, keep := range keeps {
			again, err := Open(f.CrashClone(keep), "/c", Options{})
			if err != nil {
				t.Errorf("before %v of %s: %v", op.Kind, op.Name, err)
				continue
			}
			if got := content(again); got != wants[0] && got != wants[1] {
				t.Errorf("keep %d before %v of %s:\n%s\nwant\n%s\nor\n%s", keep, op.Kind, op.Name, got, wants[0], wants[1])
			}
			must(t, again.Close())
		}
		return memfs.Proceed
	})
	shadow := open(t, newDisk(t)) // does each step first
	steps := []func(r *Registry){
		func(r *Registry) { putTopics(t, r, "a") },
		func(r *Registry) { putTopics(t, r, "b") },
		func(r *Registry) { commit(t, r, at(10), table.Commit{Topic: "b", Group: "H", Queue: 2, Offset: 3}) },
		func(r *Registry) { must(t, r.saveFiles(t.Context())) },
		func(r *Registry) { must(t, r.DeleteTopic(t.Context(), "a", Condition{})) },
		func(r *Registry) {
			_, err := r.ResetOffsets(t.Context(), []table.Reset{{Topic: "T", Group: "G", Offset: 2}, {Topic: "b", Group: "H", Queue: 2, Offset: -1}})
			must(t, err)
		},
		func(r *Registry) { must(t, r.saveFiles(t.Context())) },
		func(r *Registry) { commit(t, r, at(5)) },
		func(r *Registry) {
			_, err := r.CommitDelays(t.Context(), map[int32]int64{2: 4})
			must(t, err)
		},
		func(r *Registry) { must(t, r.saveFiles(t.Context())) },
	}
	for _, step := range steps {
		step(shadow)
		wants[1] = content(shadow)
		step(r)
		wants[0] = content(r)
		if wants[0] != wants[1] {
			t.Fatalf("%s\n%s", wants[0], wants[1])
		}
	}
	if points < 60 {
		t.Errorf("only %d crash points", points)
	}
}

// content is the content of all tables.
func content(r *Registry) string {
	var b strings.Builder
	for _, kind := range entry.Kinds() {
		own := r.Snapshot(kind)
		fmt.Fprintf(&b, "%v %d:", kind, own.Version().Counter)
		for e := range own.Ascend("") {
			fmt.Fprintf(&b, " %s=%x", e.Key, e.Etag())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestT16_AFailedSyncIsTheEnd: of whatever file. The change is refused, Run ends, and reading goes on.
func TestT16_AFailedSyncIsTheEnd(t *testing.T) {
	for name, act := range map[string]func(r *Registry) error{
		"journal": func(r *Registry) error {
			_, err := r.PutTopic(t.Context(), entry.NewTopic("b"), Condition{})
			return err
		},
		"file": func(r *Registry) error { return r.saveFiles(t.Context()) },
	} {
		f := newDisk(t)
		r := open(t, f)
		putTopics(t, r, "a")
		f.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindSync && strings.HasSuffix(op.Name, map[string]string{"journal": ".journal", "file": ".tmp"}[name]) {
				return memfs.FailBefore(nil)
			}
			return memfs.Proceed
		})
		before := content(r)
		if err := act(r); !errors.Is(err, ErrFaulted) {
			t.Errorf("%s: %v", name, err)
		}
		f.SetHook(nil)
		if err := r.Run(t.Context()); !errors.Is(err, ErrFaulted) {
			t.Errorf("%s: Run ends with %v", name, err)
		}
		_, commitErr := r.CommitOffsets(t.Context(), []table.Commit{at(1)}, false)
		_, putErr := r.PutTopic(t.Context(), entry.NewTopic("c"), Condition{})
		if !errors.Is(commitErr, ErrFaulted) || !errors.Is(putErr, ErrFaulted) || content(r) != before {
			t.Errorf("%s: it goes on: %v, %v", name, commitErr, putErr)
		}
	}
}

func TestT12_AFullDiskChangesNothing(t *testing.T) {
	f := newDisk(t)
	r := open(t, f)
	putTopics(t, r, "a")
	f.SetQuota(f.Used())
	big := entry.NewTopic("big")
	big.Attributes = map[string]string{"a": strings.Repeat("x", 60_000)}
	before := content(r)
	if _, err := r.PutTopic(t.Context(), big, Condition{}); !errors.Is(err, vfs.ErrNoSpace) || content(r) != before {
		t.Errorf("%v", err)
	}
	result, err := r.CommitOffsets(t.Context(), []table.Commit{at(7)}, false)
	if err != nil || result.Taken != 1 {
		t.Errorf("a commit is gathered all the same: %+v, %v", result, err)
	}
	if err := r.saveCommits(t.Context()); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	if err := r.saveFiles(t.Context()); !errors.Is(err, vfs.ErrNoSpace) || r.State(entry.Topics).SaveError == nil {
		t.Errorf("%v", err)
	}
	if offsetOf(r) != 7 {
		t.Error("a commit is lost because of a full disk")
	}
	f.SetQuota(0)
	must(t, r.saveCommits(t.Context()))
	must(t, r.saveFiles(t.Context()))
	_, err = r.PutTopic(t.Context(), big, Condition{})
	must(t, err)
	if again := reopen(t, r, memfs.OnlySynced); !same(t, r, again) || offsetOf(again) != 7 || r.State(entry.Topics).SaveError != nil {
		t.Error("with space again something is missing")
	}
}

// TestT16_ABrokenTableHealsFromAPeer: it is no truth, cannot be changed or served, and a whole table makes it good.
func TestT16_ABrokenTableHealsFromAPeer(t *testing.T) {
	master := open(t, newDisk(t))
	putTopics(t, master, "a", "b")
	f := newDisk(t)
	poke(t, f, "/c/topics.json", "half")
	poke(t, f, "/c/topics.json.bak", "")
	r := open(t, f)
	if err := r.Whole(entry.Topics); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "topics.json") || r.Whole(entry.Groups) != nil {
		t.Fatalf("%v", err)
	}
	_, putErr := r.PutTopic(t.Context(), entry.NewTopic("c"), Condition{})
	_, fetchErr := r.Fetch(entry.Topics, entry.Version{}, 0)
	for name, err := range map[string]error{"put": putErr, "fetch": fetchErr, "lead": r.Lead(t.Context(), 5)} {
		if !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Join(t.Context(), table.New(entry.Topics)); !errors.Is(err, ErrBroken) {
		t.Errorf("a peer with nothing: %v", err)
	}
	must(t, r.saveFiles(t.Context()))
	if again := reopen(t, r, memfs.All); again.Whole(entry.Topics) == nil {
		t.Error("it was written over")
	}
	if _, err := pull(t, r, master, entry.Topics); err != nil || r.Whole(entry.Topics) != nil || r.Snapshot(entry.Topics).Len() != 2 {
		t.Fatalf("%v, %v", err, r.Whole(entry.Topics))
	}
	for range 2 {
		if again := reopen(t, r, memfs.OnlySynced); again.Whole(entry.Topics) != nil || again.Snapshot(entry.Topics).Len() != 2 {
			t.Errorf("%v", again.Whole(entry.Topics))
		}
		must(t, r.saveFiles(t.Context()))
	}
	if _, err := f.Stat("/c/topics.json.broken"); err != nil {
		t.Error(err)
	}
	putTopics(t, r, "c")
}

func TestT16_WhatWasDeletedStaysAway(t *testing.T) {
	f := newDisk(t)
	r := open(t, f)
	for i := range 1000 {
		_, err := r.PutGroup(t.Context(), entry.NewGroup(fmt.Sprintf("g%04d", i)), Condition{})
		must(t, err)
	}
	must(t, r.saveFiles(t.Context()))
	for i := range 900 {
		must(t, r.DeleteGroup(t.Context(), fmt.Sprintf("g%04d", i), Condition{}))
	}
	before := reopen(t, r, memfs.OnlySynced)
	stop(t, r)
	for _, again := range []*Registry{before, open(t, f)} {
		if own := again.Snapshot(entry.Groups); own.Len() != 100 || own.Group("g0899") != nil || own.Group("g0900") == nil {
			t.Errorf("%d groups", own.Len())
		}
	}
}

// TestAPeerMustHaveAsMuchToHeal: a table with a hole may be newer than what the peers have; they do not know what is missing.
func TestAPeerMustHaveAsMuchToHeal(t *testing.T) {
	r, peer := open(t, newDisk(t)), open(t, newDisk(t))
	putTopics(t, r, "a", "b")
	putTopics(t, peer, "a")
	hole := error(ErrBroken)
	r.stores[entry.Topics].broken.Store(&hole)
	if _, err := r.Join(t.Context(), peer.Snapshot(entry.Topics)); !errors.Is(err, ErrBroken) || r.Whole(entry.Topics) == nil {
		t.Errorf("an older peer: %v", err)
	}
	if _, err := r.Join(t.Context(), r.Snapshot(entry.Topics)); err != nil || r.Whole(entry.Topics) != nil {
		t.Errorf("a peer with the same: %v, %v", err, r.Whole(entry.Topics))
	}
	if again := reopen(t, r, memfs.OnlySynced); !same(t, r, again) {
		t.Error("it is not durable")
	}
}

func TestOpenRefuses(t *testing.T) {
	f := newDisk(t)
	r := open(t, f)
	if _, err := Open(f, "/c", Options{}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a folder in use: %v", err)
	}
	stop(t, r)
	if _, err := r.PutTopic(t.Context(), entry.NewTopic("T"), Condition{}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	poke(t, f, "/c/delayOffset.json", `{"offsetTable":{1:"x"}}`)
	if _, err := Open(f, "/c", Options{}); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), "delayOffset.json") {
		t.Errorf("an unknown shape: %v", err)
	}
	must(t, f.Remove("/c/delayOffset.json"))
	open(t, f)
	_, err := open(t, newDisk(t)).Fetch(9, entry.Version{}, 0)
	if !errors.Is(err, table.ErrKind) {
		t.Errorf("kind 9: %v", err)
	}
}

func TestOnARealFileSystem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "config")
	for round := range 3 {
		r, err := Open(vfs.OS(), dir, Options{})
		must(t, err)
		if r.Snapshot(entry.Topics).Len() != round {
			t.Errorf("round %d: %d topics", round, r.Snapshot(entry.Topics).Len())
		}
		putTopics(t, r, fmt.Sprint("t", round))
		commit(t, r, at(int64(round)))
		stop(t, r)
	}
}
