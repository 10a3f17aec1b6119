package dispatch_test

import (
	"fmt"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
)

// filled is a log of n messages of 1 KiB in as many queues.
func filled(n, queues int) *fakeLog {
	l := newLog(1<<30, 0)
	l.data = make([]byte, 0, n*1100)
	for i := range n {
		l.put(msg{topic: fmt.Sprintf("Topic%d", i%queues/8), queue: int32(i % 8), at: int64(i / max(queues, 8)), tags: "TagA", body: 900})
	}
	return l
}

func TestDispatchAllocatesNothingPerMessage(t *testing.T) {
	const runs, batch = 50, 100
	for name, one := range map[string]bool{"one by one": true, "in stretches": false} {
		t.Run(name, func(t *testing.T) {
			l := newLog(1<<30, 0)
			var ends []int64
			for i := range (runs + 2) * batch {
				l.put(msg{topic: "Topic", queue: int32(i % 4), at: int64(i / 4), tags: "TagA", body: 900})
				ends = append(ends, l.end())
			}
			q := openQueues(t, newFS(t), "/s", consumequeue.Options{})
			d := newDispatcher(t, l, q)
			ctx := t.Context()
			allocs := testing.AllocsPerRun(runs, func() {
				for i, end := range ends[:batch] {
					if one || i == batch-1 {
						l.readable.Advance(end)
						if err := d.CatchUp(ctx, end); err != nil {
							t.Error(err)
						}
					}
				}
				ends = ends[batch:]
			})
			// The file system of the test has a new page every 200 units.
			if allocs > 4 {
				t.Errorf("%v allocations for %d messages", allocs, batch)
			}
			check(t, q.Close())
		})
	}
}

// BenchmarkCatchUp dispatches messages of 1 KiB into queues that exist.
func BenchmarkCatchUp(b *testing.B) {
	for _, queues := range []int{8, 10_000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			const n = 200_000
			l := filled(n, queues)
			l.show()
			at := l.end() / 10
			b.SetBytes(l.end() - at)
			for b.Loop() {
				b.StopTimer()
				q := openQueues(b, vfs.OS(), b.TempDir(), consumequeue.Options{})
				d := newDispatcher(b, l, q)
				check(b, d.CatchUp(b.Context(), at))
				b.StartTimer()
				check(b, d.CatchUp(b.Context(), l.end()))
				b.StopTimer()
				check(b, q.Close())
				b.StartTimer()
			}
			b.ReportMetric(0.9*n*float64(b.N)/b.Elapsed().Seconds(), "units/s")
		})
	}
}
