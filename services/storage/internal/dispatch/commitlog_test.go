package dispatch_test

import (
	"context"
	"sync"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

var (
	_ dispatch.Log    = (*commitlog.Log)(nil)
	_ dispatch.Queues = (*consumequeue.Set)(nil)
	_                 = func(l *commitlog.Log) consumequeue.Checkpoint { return l.Checkpoint() }
)

// TestRocketMQsFolderThroughTheLog opens the folder as the service does.
func TestRocketMQsFolderThroughTheLog(t *testing.T) {
	eachGolden(t, func(t *testing.T, store string) {
		want := queueFiles(t, vfs.OS(), store)
		for range 2 {
			l, recovery, err := commitlog.Open(vfs.OS(), store, commitlog.Options{BootID: "boot"})
			check(t, err)
			q := openQueues(t, vfs.OS(), store, consumequeue.Options{Clean: recovery.Clean, Checkpoint: l.Checkpoint()})
			d := newDispatcher(t, l, q)
			check(t, d.CatchUp(t.Context(), l.Readable().Load()))
			if d.Dispatched().Load() != recovery.End {
				t.Errorf("dispatched %d, the log ends at %d", d.Dispatched().Load(), recovery.End)
			}
			check(t, q.Close())
			check(t, l.Close(true))
			sameFiles(t, "opened and closed", queueFiles(t, vfs.OS(), store), want)
		}
	})
}

// TestQ03 puts on a node that has followed: its queue offsets go on without a gap or a double, also after a cut.
func TestQ03_NextQueueOffsetAfterACut(t *testing.T) {
	fsys := newFS(t)
	l, _, err := commitlog.Open(fsys, "/s", commitlog.Options{FileSize: 4096, BootID: "boot"})
	check(t, err)
	q := openQueues(t, fsys, "/s", consumequeue.Options{FileSize: queueFileSize, Checkpoint: l.Checkpoint()})
	d := newDispatcher(t, l, q)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { check(t, d.Run(ctx)) })

	var offsets []int64
	put := func(n int) {
		t.Helper()
		next := int64(0)
		if one := q.Lookup("T", 0); one != nil {
			next = one.Max()
		}
		cursor := commitlog.NewCursor(next)
		for range n {
			draft := message.Draft{Topic: "T", BornHost: host, StoreHost: host, Body: make([]byte, 150)}
			a, err := l.Append(&commitlog.Batch{Records: [][]byte{message.Append(nil, &draft, true)}, Cursor: cursor})
			check(t, err)
			offsets = append(offsets, a.Offset)
			l.SetReadable(a.Next)
		}
		check(t, d.Dispatched().Wait(ctx, l.End()))
	}
	put(40)
	for range 5 {
		keep := len(offsets) - 11
		to := offsets[keep]
		check(t, l.Truncate(to))
		check(t, d.Truncated(to))
		offsets = offsets[:keep]
		put(7)
	}
	cancel()
	wg.Wait()
	got := units(t, q, "T", 0)
	if len(got) != len(offsets) {
		t.Fatalf("%d units of %d messages", len(got), len(offsets))
	}
	for i, u := range got {
		if u.Offset != offsets[i] {
			t.Errorf("unit %d is at %d, want %d", i, u.Offset, offsets[i])
		}
	}
	check(t, q.Close())
	check(t, l.Close(true))
	clone := fsys.CrashClone(memfs.OnlySynced)
	q = openQueues(t, clone, "/s", consumequeue.Options{Clean: true})
	if one := q.Lookup("T", 0); one == nil || one.Max() != int64(len(offsets)) {
		t.Errorf("after a restart: %v", one)
	}
	check(t, q.Close())
}
