package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// edit makes the next version.
func edit(t testing.TB, own *Table, state, now int64, f func(*Edit)) *Table {
	t.Helper()
	e := own.Edit(state, now)
	f(e)
	next, d := e.Done()
	verify(t, next)
	if d != nil && (d.From != own.Version() || d.To != next.Version() || d.Sum != next.Sum()) {
		t.Fatalf("delta %v to %v of %v to %v", d.From, d.To, own.Version(), next.Version())
	}
	return next
}

// verify recomputes what a table knows of itself.
func verify(t testing.TB, own *Table) {
	t.Helper()
	b := NewBuilder(own.kind)
	for e := range own.Ascend("") {
		must(t, b.Add(e))
		if e.Change > own.version.Counter {
			t.Fatalf("%s was changed at %d, the table is %v", e.Key, e.Change, own.version)
		}
	}
	again := b.Table(own.version, own.form, own.unknown)
	if again.Sum() != own.Sum() || again.epoch > own.epoch || again.Len() != own.Len() {
		t.Fatalf("sum %x, epoch %d, %d entries; want %x, %d, %d", own.Sum(), own.epoch, own.Len(), again.Sum(), again.epoch, again.Len())
	}
}

func same(a, b *Table) bool {
	for range Diff(a, b) {
		return false
	}
	return a.Sum() == b.Sum()
}

func topics(t testing.TB, n int) *Table {
	t.Helper()
	return edit(t, New(entry.Topics), 1, 1, func(e *Edit) {
		for i := range n {
			must(t, e.Put(entry.NewTopic(fmt.Sprintf("topic-%03d", i))))
		}
	})
}

func offsets(t testing.TB, commits ...Commit) *Table {
	t.Helper()
	return edit(t, New(entry.ConsumerOffsets), 1, 1, func(e *Edit) {
		for _, c := range commits {
			if e.Commit(c) != Taken {
				t.Fatalf("%+v is not taken", c)
			}
		}
	})
}

func at(offset int64) Commit { return Commit{Topic: "T", Group: "G", Offset: offset} }

// follow lets a slave take what a master has, by delta where that goes.
func follow(t testing.TB, own, master *Table) (*Table, Report) {
	t.Helper()
	d, ok := master.Since(own.Version())
	if !ok {
		d = master.Full()
	}
	next, r, err := Follow(own, d, FollowOptions{})
	must(t, err)
	verify(t, next)
	return next, r
}

// mutate makes a random change to a table of any kind.
func mutate(t testing.TB, rnd *rand.Rand, own *Table, state int64, resets bool) *Table {
	t.Helper()
	return edit(t, own, state, rnd.Int64N(1000), func(e *Edit) {
		for range rnd.IntN(4) + 1 {
			name := fmt.Sprintf("n%d", rnd.IntN(8))
			switch own.kind {
			case entry.Topics:
				c := entry.NewTopic(name)
				c.ReadQueues = rnd.Int32N(3) + 1
				if rnd.IntN(3) == 0 {
					e.Delete(name)
				} else {
					must(t, e.Put(c))
				}
			case entry.Groups:
				c := entry.NewGroup(name)
				c.RetryMax = rnd.Int32N(3)
				if rnd.IntN(3) == 0 {
					e.Delete(name)
				} else {
					must(t, e.Put(c))
				}
			case entry.ConsumerOffsets:
				epoch, err := e.NewEpoch()
				must(t, err)
				if resets && rnd.IntN(4) == 0 {
					e.ResetAll([]Reset{{Topic: name, Group: "G", Queue: rnd.Int32N(3), Offset: rnd.Int64N(10) - 1}}, epoch)
				} else {
					e.Commit(Commit{Topic: name, Group: "G", Queue: rnd.Int32N(3), Offset: rnd.Int64N(50)})
				}
			case entry.DelayOffsets:
				epoch, err := e.NewEpoch()
				must(t, err)
				level := rnd.Int32N(5) + 1
				if resets && rnd.IntN(4) == 0 {
					must(t, e.ResetDelay(level, rnd.Int64N(10)-1, epoch))
				} else {
					_, err := e.CommitDelay(level, rnd.Int64N(50))
					must(t, err)
				}
			}
		}
	})
}

// poorer says what of a table of offsets another one has lost.
func poorer(before, after *Table) string {
	for e := range before.Ascend("") {
		now, _ := after.Get(e.Key)
		for _, q := range queuesOf(e.Value) {
			found := slices.IndexFunc(queuesOf(now.Value), func(o entry.QueueOffset) bool { return o.Queue == q.Queue })
			if found < 0 {
				return fmt.Sprintf("%s queue %d is gone", e.Key, q.Queue)
			}
			if o := queuesOf(now.Value)[found]; o.Join(q) != o {
				return fmt.Sprintf("%s: %+v after %+v", e.Key, o, q)
			}
		}
	}
	return ""
}

func queuesOf(v entry.Value) []entry.QueueOffset {
	switch v := v.(type) {
	case *entry.Offsets:
		return slices.Collect(v.All())
	case *entry.Delay:
		return []entry.QueueOffset{{Epoch: v.Epoch, Offset: v.Offset}}
	}
	return nil
}
