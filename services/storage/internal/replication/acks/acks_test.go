package acks_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
)

var t0 = time.Unix(1_700_000_000, 0)

func node(n int64) *acks.Member { return &acks.Member{Key: acks.Key{Node: n}, Counts: true} }

func fixed(n int64) func() int64 { return func() int64 { return n } }

func TestMarksAreTheKthLargestReports(t *testing.T) {
	tr := acks.New(4, 1000, fixed(100))
	tr.Open(0)
	a, b, c := node(1), node(2), node(3)
	tr.Join(a, 10, t0, time.Time{})
	tr.Join(b, 30, t0, time.Time{})
	tr.Join(c, 20, t0, time.Time{})
	want := func(k1, k2, k3, k4 int64) {
		t.Helper()
		for i, w := range []int64{k1, k2, k3, k4} {
			if got := tr.Acked(i + 1).Load(); got != w {
				t.Errorf("Acked(%d) is %d, want %d", i+1, got, w)
			}
		}
	}
	want(30, 20, 10, 0)
	tr.Report(a, 50, t0)
	want(50, 30, 20, 0)
	tr.Leave(a)
	tr.Report(a, 90, t0)
	want(50, 30, 20, 0)
	tr.Report(b, 60, t0)
	want(60, 30, 20, 0)
	if acked, _ := tr.CountAt(25); acked != 1 {
		t.Errorf("%d slaves have 25; the one that left does not count", acked)
	}
	if tr.Acked(0) != tr.Acked(1) || tr.Acked(99).Load() != 0 {
		t.Error("k out of range")
	}
}

// TestAgainstAModel: after each random step Acked(k) is the highest k-th largest value there has been since Open.
func TestAgainstAModel(t *testing.T) {
	const slots = 6
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		tr := acks.New(slots, 500, fixed(1000))
		tr.Open(100)
		members := map[*acks.Member]int64{}
		best := make([]int64, slots)
		for range 300 {
			switch m := pick(r, members); {
			case m != nil && r.IntN(10) == 0:
				tr.Leave(m)
				delete(members, m)
			case m == nil || len(members) < slots && r.IntN(5) == 0:
				m = node(r.Int64N(4)) // two sessions of one node now and then
				members[m] = r.Int64N(1000)
				tr.Join(m, members[m], t0, time.Time{})
			default:
				members[m] = r.Int64N(1000) // reports may go back
				tr.Report(m, members[m], t0)
			}
			byNode := map[int64]int64{}
			for m, ack := range members {
				byNode[m.Key.Node] = max(byNode[m.Key.Node], ack)
			}
			var sorted []int64
			inSync := 0
			for _, ack := range byNode {
				sorted = append(sorted, ack)
				if 1000-ack < 500 {
					inSync++
				}
			}
			slices.Sort(sorted)
			slices.Reverse(sorted)
			for k, ack := range sorted {
				if ack >= 100 {
					best[k] = max(best[k], ack)
				}
			}
			for k := range best {
				if got := tr.Acked(k + 1).Load(); got != best[k] {
					t.Fatalf("seed %d: Acked(%d) is %d, want %d", seed, k+1, got, best[k])
				}
			}
			if tr.InSync() != inSync {
				t.Fatalf("seed %d: %d in sync, want %d", seed, tr.InSync(), inSync)
			}
		}
	}
}

func pick(r *rand.Rand, members map[*acks.Member]int64) *acks.Member {
	list := make([]*acks.Member, 0, len(members))
	for m := range members {
		list = append(list, m)
	}
	if len(list) == 0 {
		return nil
	}
	return list[r.IntN(len(list))]
}

func TestReportsBelowTheOwnStartConfirmNothing(t *testing.T) {
	tr := acks.New(2, 1000, fixed(100))
	tr.Open(50)
	m := node(1)
	tr.Join(m, 49, t0, time.Time{})
	if got := tr.Acked(1).Load(); got != 0 {
		t.Errorf("49 confirmed %d of a reign that begins at 50", got)
	}
	tr.Report(m, 50, t0)
	if got := tr.Acked(1).Load(); got != 50 {
		t.Errorf("50 confirmed %d", got)
	}
}

func TestOneAddressCountsOnce(t *testing.T) {
	tr := acks.New(4, 1000, fixed(100))
	tr.Open(0)
	key := acks.Key{Node: -1, Addr: netip.MustParseAddr("10.0.0.1")}
	a, b := &acks.Member{Key: key, Counts: true}, &acks.Member{Key: key, Counts: true}
	watcher := &acks.Member{Key: acks.Key{Node: -1, Addr: netip.MustParseAddr("10.0.0.2")}}
	tr.Join(a, 10, t0, time.Time{})
	tr.Join(b, 20, t0, time.Time{})
	tr.Join(watcher, 90, t0, time.Time{})
	if acked, _ := tr.CountAt(5); acked != 1 || tr.InSync() != 1 || tr.Acked(1).Load() != 20 || tr.Acked(2).Load() != 0 {
		t.Errorf("acked %d, in sync %d, marks %d %d", acked, tr.InSync(), tr.Acked(1).Load(), tr.Acked(2).Load())
	}
}

func TestReigns(t *testing.T) {
	tr := acks.New(2, 1000, fixed(100))
	if err := tr.Acked(1).Wait(t.Context(), 1); !errors.Is(err, acks.ErrNotOpen) {
		t.Errorf("before Open: %v", err)
	}
	tr.Open(0)
	first := tr.Acked(1)
	done := make(chan error, 1)
	go func() { done <- first.Wait(context.Background(), 1) }()
	reason := errors.New("promised")
	tr.Shut(reason)
	if err := <-done; !errors.Is(err, reason) {
		t.Errorf("a waiter got %v", err)
	}
	m := node(1)
	tr.Join(m, 80, t0, time.Time{})
	if first.Load() != 0 {
		t.Error("a report moved the mark of a reign that is over")
	}
	tr.Open(10)
	if tr.Acked(1) == first || tr.Acked(1).Load() != 80 {
		t.Errorf("the new reign's mark: %d", tr.Acked(1).Load())
	}
}

func TestFlushedCount(t *testing.T) {
	tr := acks.New(3, 1000, fixed(100))
	a, b := node(1), node(2)
	b.Flushes = true
	tr.Join(a, 50, t0, time.Time{})
	tr.Join(b, 40, t0, time.Time{})
	for _, tc := range []struct {
		offset         int64
		acked, flushed int
	}{{40, 2, 1}, {41, 1, 0}, {51, 0, 0}} {
		if acked, flushed := tr.CountAt(tc.offset); acked != tc.acked || flushed != tc.flushed {
			t.Errorf("at %d: %d and %d, want %d and %d", tc.offset, acked, flushed, tc.acked, tc.flushed)
		}
	}
}

func TestChangesAreAnnounced(t *testing.T) {
	end := int64(100)
	tr := acks.New(2, 50, func() int64 { return end })
	m := node(1)
	step := func(what string, want int64) {
		t.Helper()
		if got := tr.Changes().Load(); got != want {
			t.Errorf("%s: %d changes, want %d", what, got, want)
		}
	}
	tr.Join(m, 0, t0, time.Time{})
	step("joined far behind", 0)
	tr.Report(m, 51, t0)
	step("near", 1)
	tr.Report(m, 52, t0)
	step("nearer", 1)
	end = 200
	tr.Tick(t0)
	step("the log grew", 2)
	tr.Report(m, 200, t0)
	step("near again", 3)
	tr.Leave(m)
	tr.Leave(m)
	step("left", 4)
}

// TestCaughtUp: the time is that at which the slave had all that the master had then, also under constant load.
func TestCaughtUp(t *testing.T) {
	end := int64(100)
	tr := acks.New(2, 1000, func() int64 { return end })
	m := node(1)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	caughtUp := func(want time.Time) {
		t.Helper()
		if got := tr.TimesOf(m).CaughtUpAt; !got.Equal(want) {
			t.Errorf("caught up at %v, want %v", got, want)
		}
	}
	tr.Join(m, 40, at(0), time.Time{})
	caughtUp(time.Time{})
	end = 200
	tr.Report(m, 90, at(1))
	caughtUp(time.Time{})
	tr.Report(m, 110, at(2)) // all of second 0
	caughtUp(at(0))
	end = 300
	tr.Report(m, 210, at(3)) // all of second 2
	caughtUp(at(2))
	tr.Report(m, 300, at(4))
	caughtUp(at(4))
	tr.Tick(at(9))
	caughtUp(at(9))
	if p := tr.TimesOf(m).ProgressAt; !p.Equal(at(9)) {
		t.Errorf("who has all makes progress: %v", p)
	}
	end = 400
	tr.Tick(at(10))
	caughtUp(at(9))
}

func TestReportAllocatesNothing(t *testing.T) {
	tr := acks.New(8, 1000, fixed(1<<40))
	tr.Open(0)
	var members []*acks.Member
	for n := range int64(8) {
		m := node(n)
		tr.Join(m, 0, t0, time.Time{})
		members = append(members, m)
	}
	n := int64(0)
	if allocs := testing.AllocsPerRun(1000, func() {
		n++
		tr.Report(members[n%8], n, t0)
		tr.CountAt(n)
		tr.InSync()
	}); allocs > 0 {
		t.Errorf("%v allocations a report", allocs)
	}
}

func BenchmarkReport8(b *testing.B) {
	tr := acks.New(8, 1000, fixed(1<<40))
	tr.Open(0)
	var members []*acks.Member
	for n := range int64(8) {
		m := node(n)
		tr.Join(m, 0, t0, time.Time{})
		members = append(members, m)
	}
	b.ReportAllocs()
	for n := int64(0); b.Loop(); n++ {
		tr.Report(members[n%8], n, t0)
	}
}
