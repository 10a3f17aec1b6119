package dispatch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
)

// TestACutIsOwedUntilThereIsRoom: the queues could not follow a cut, and then a deeper one came. Nothing is dispatched over old units, Ready says
// that the cut is not done, and does it when there is room.
func TestACutIsOwedUntilThereIsRoom(t *testing.T) {
	for _, reset := range []bool{false, true} {
		fsys := newFS(t)
		q := openQueues(t, fsys, "/s", consumequeue.Options{FileSize: queueFileSize})
		l := newLog(4096, 0)
		var offsets []int64
		for i := range int64(8) {
			offsets = append(offsets, l.put(msg{topic: "T", at: i}))
		}
		l.show()
		d := newDispatcher(t, l, q)
		catchUp(t, d, l)
		check(t, q.Flush())
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind.Mutates() && strings.Contains(op.Name, "tandem/queues") {
				return memfs.FailBefore(vfs.ErrNoSpace)
			}
			return memfs.Proceed
		})
		full := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, vfs.ErrNoSpace) {
				t.Errorf("%s: %v", what, err)
			}
		}
		l.cut(offsets[6])
		full("first cut", d.Truncated(offsets[6]))
		start := int64(0)
		if reset {
			start = 8192
			l.reset(start)
			full("reset", d.Reset(start))
		} else {
			l.cut(offsets[2])
			full("between the cuts", d.Ready())
			full("second cut", d.Truncated(offsets[2]))
		}
		full("not ready", d.Ready())
		full("dispatching", d.CatchUp(t.Context(), l.Readable().Load()))
		fsys.SetHook(nil)
		check(t, d.Ready())
		at := int64(2)
		if reset {
			at = 0
		}
		for i := range int64(8) {
			l.put(msg{topic: "T", at: at + i, body: 100})
		}
		l.show()
		catchUp(t, d, l)
		check(t, q.Close())
		sameFiles(t, "after the cut", meaningful(queueFiles(t, fsys, "/s"), l.first), rebuilt(t, l))
	}
}
