package dispatch_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
)

var goldenStores = []string{"rocketmq-5.3.3", "rocketmq-4.9.7", "rocketmq-5.3.3-crash"}

// eachGolden runs f on each side of each store.
func eachGolden(t *testing.T, f func(t *testing.T, store string)) {
	for _, name := range goldenStores {
		dir := testkit.Golden(t, name)
		for _, side := range []string{"master", "slave"} {
			t.Run(name+"/"+side, func(t *testing.T) { f(t, filepath.Join(dir, side)) })
		}
	}
}

func TestQueuesBuiltFromRocketMQsLogAloneAreRocketMQs(t *testing.T) {
	eachGolden(t, func(t *testing.T, store string) {
		l := loadLog(t, store)
		l.show()
		fsys := newFS(t)
		q := openQueues(t, fsys, "/s", consumequeue.Options{FileSize: 2000})
		d := newDispatcher(t, l, q)
		catchUp(t, d, l)
		if got := d.Dispatched().Load(); got != l.end() {
			t.Errorf("dispatched %d, the log ends at %d", got, l.end())
		}
		check(t, q.Close())
		want := queueFiles(t, vfs.OS(), store)
		sameFiles(t, "rebuilt", queueFiles(t, fsys, "/s"), want)
		if len(want) < 34 {
			t.Errorf("only %d queue files in the golden store", len(want))
		}
	})
}

// TestH13: frames cut records anywhere; the dispatcher waits for the whole record and reports nothing.
func TestH13_HalfRecordsAreWaitedFor(t *testing.T) {
	eachGolden(t, func(t *testing.T, store string) {
		l := loadLog(t, store)
		fsys := newFS(t)
		q := openQueues(t, fsys, "/s", consumequeue.Options{FileSize: 2000})
		log := &records{}
		d := newDispatcherWithLog(t, l, q, log)
		rnd := rand.New(rand.NewPCG(1, 2))
		for at := int64(0); at < l.end(); {
			at = min(at+1+rnd.Int64N(1+rnd.Int64N(30_000)), l.end())
			l.Readable().Advance(at)
			catchUp(t, d, l)
			if got := d.Dispatched().Load(); got > at {
				t.Fatalf("dispatched %d, readable is %d", got, at)
			}
			if end := q.MaxPhysical(); end > at {
				t.Fatalf("a unit ends at %d, readable is %d", end, at)
			}
		}
		log.quiet(t)
		check(t, q.Close())
		sameFiles(t, "rebuilt", queueFiles(t, fsys, "/s"), queueFiles(t, vfs.OS(), store))
	})
}

func TestRocketMQsFolderOpenedAndClosedIsTheSame(t *testing.T) {
	eachGolden(t, func(t *testing.T, store string) {
		l := loadLog(t, store)
		l.show()
		want := queueFiles(t, vfs.OS(), store)
		for round := range 3 {
			q := openQueues(t, vfs.OS(), store, consumequeue.Options{Clean: round != 1})
			log := &records{}
			d := newDispatcherWithLog(t, l, q, log)
			views := l.views
			catchUp(t, d, l)
			if views = l.views - views; round > 0 && views > 3 {
				t.Errorf("%d views of the log though the summary says that it is all dispatched", views)
			}
			check(t, q.Close())
			log.quiet(t)
			sameFiles(t, "opened and closed", queueFiles(t, vfs.OS(), store), want)
		}
	})
}
