package dispatch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
)

// stamps keeps what the checkpoint was told, and how many files were synced by then.
type stamps struct {
	syncs *int
	told  []int64
	after []int
}

func (s *stamps) SetLogics(ms int64) { s.told, s.after = append(s.told, ms), append(s.after, *s.syncs) }

// t9 is a store before its crash: two log files, of which flushed messages are durable in the queues, dispatched ones
// visible, and written ones in the log.
type t9 struct {
	log  *fakeLog
	fsys *memfs.FS
	q    *consumequeue.Set
}

const (
	t9Queues = 3
	t9Total  = 45 // messages; 15 units, three files, a queue
)

func newT9(t *testing.T, flushed, dispatched int) *t9 {
	t.Helper()
	s := &t9{log: newLog(4096, 0), fsys: newFS(t)}
	s.q = openQueues(t, s.fsys, "/s", consumequeue.Options{FileSize: queueFileSize})
	d := newDispatcher(t, s.log, s.q)
	for i := range int64(t9Total) {
		s.log.put(msg{topic: "T", queue: int32(i % t9Queues), at: i / t9Queues, tags: fmt.Sprint(i)})
		if int(i) < dispatched {
			s.log.show()
			catchUp(t, d, s.log)
		}
		if int(i)+1 == flushed {
			check(t, s.q.Flush())
		}
	}
	s.log.show()
	if s.log.end() < s.log.size {
		t.Fatal("the log did not roll")
	}
	return s
}

// restart opens the queues of a store and compares them with the list of what was written.
func (s *t9) restart(t *testing.T, fsys vfs.FS, root string) {
	t.Helper()
	q := openQueues(t, fsys, root, consumequeue.Options{FileSize: queueFileSize})
	log := &records{}
	d := newDispatcherWithLog(t, s.log, q, log)
	catchUp(t, d, s.log)
	log.quiet(t)
	for id := range int32(t9Queues) {
		if got := q.Lookup("T", id); got == nil || got.Min() != 0 || got.Max() != t9Total/t9Queues {
			t.Errorf("queue %d: %v", id, got)
		}
	}
	// The next message of each queue gets the next queue offset, and nothing is out of order.
	for id := range int32(t9Queues) {
		s.log.put(msg{topic: "T", queue: id, at: q.Lookup("T", id).Max()})
	}
	s.log.show()
	catchUp(t, d, s.log)
	log.quiet(t)
	check(t, q.Close())
	sameFiles(t, "restarted", queueFiles(t, fsys, root), rebuilt(t, s.log))
}

func TestT9_CrashBeforeDispatch(t *testing.T) { // C01, C02: the messages of both log files are in no queue yet
	for _, dispatched := range []int{0, 1, 20, 40, t9Total} {
		for _, flushed := range []int{0, 1, 19, 40} {
			s := newT9(t, flushed, dispatched)
			s.restart(t, s.fsys.CrashClone(memfs.All), "/s")
		}
	}
}

func TestT9_QueuePagesDropped(t *testing.T) { // C03
	for _, flushed := range []int{0, 1, 19, 40} {
		s := newT9(t, flushed, t9Total)
		s.restart(t, s.fsys.CrashClone(memfs.OnlySynced), "/s")
		for seed := range uint32(20) {
			s := newT9(t, flushed, t9Total)
			s.restart(t, s.fsys.CrashClone(memfs.Torn(seed)), "/s")
		}
	}
}

func TestT9_CleanStopThenPowerCut(t *testing.T) {
	s := newT9(t, 0, t9Total)
	check(t, s.q.Close())
	s.restart(t, s.fsys.CrashClone(memfs.OnlySynced), "/s")
}

func TestT9_NewestQueueFileDeleted(t *testing.T) { // C06
	for name, remove := range map[string][]string{
		"newest":       {"1/00000000000000000200"},
		"newest two":   {"1/00000000000000000200", "1/00000000000000000100"},
		"middle":       {"1/00000000000000000100"},
		"first":        {"1/00000000000000000000"},
		"whole queue":  {"1"},
		"every newest": {"0/00000000000000000200", "1/00000000000000000200", "2/00000000000000000200"},
		"topic":        {""},
	} {
		for _, summary := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, summary %v", name, summary), func(t *testing.T) {
				s := newT9(t, t9Total, t9Total)
				check(t, s.q.Close())
				for _, r := range remove {
					check(t, s.fsys.RemoveAll(filepath.Join("/s/consumequeue/T", r)))
				}
				if !summary {
					check(t, s.fsys.RemoveAll("/s/tandem"))
				}
				s.restart(t, s.fsys, "/s")
			})
		}
	}
}

func TestT9_UnitsZeroed(t *testing.T) {
	for _, at := range []int64{0, 3, 9, 10, 12, 14} {
		s := newT9(t, t9Total, t9Total)
		check(t, s.q.Close())
		pos := at * consumequeue.UnitSize
		name := fmt.Sprintf("/s/consumequeue/T/1/%020d", pos-pos%queueFileSize)
		f, err := s.fsys.OpenFile(name, os.O_RDWR, 0)
		check(t, err)
		_, err = f.WriteAt(make([]byte, consumequeue.UnitSize), pos%queueFileSize)
		check(t, err)
		check(t, f.Close())
		if at < 10 { // behind the summary, only a full check sees it
			check(t, s.fsys.RemoveAll("/s/tandem"))
		}
		s.restart(t, s.fsys, "/s")
	}
}

func TestC03_CheckpointIsToldOnlyWhatIsSynced(t *testing.T) {
	fsys, syncs := newFS(t), 0
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindSync && filepath.Base(filepath.Dir(op.Name)) == "0" {
			syncs++
		}
		return memfs.Proceed
	})
	cp := &stamps{syncs: &syncs}
	q := openQueues(t, fsys, "/s", consumequeue.Options{Checkpoint: cp})
	l := newLog(4096, 0)
	d := newDispatcher(t, l, q)
	for i := range int64(2) {
		l.put(msg{topic: "T", at: i, stamp: 1000 + i})
		l.show()
		catchUp(t, d, l)
		if len(cp.told) != int(i) {
			t.Fatalf("told %v before a flush", cp.told)
		}
		check(t, q.Flush())
		if len(cp.told) != int(i)+1 || cp.told[i] != 1000+i || cp.after[i] != int(i)+1 {
			t.Fatalf("told %v after %v syncs", cp.told, cp.after)
		}
	}
	check(t, q.Close())
}

// The same with a folder of RocketMQ, which has no summary.
func TestT9_NewestQueueFileOfRocketMQsFolderDeleted(t *testing.T) {
	eachGolden(t, func(t *testing.T, store string) {
		want := queueFiles(t, vfs.OS(), store)
		removed := 0
		for name := range want {
			if filepath.Base(name) != "00000000000000000000" || len(want) < 40 && removed == 0 {
				check(t, os.Remove(filepath.Join(store, name)))
				removed++
			}
		}
		if removed == 0 {
			t.Fatal("nothing to remove")
		}
		l := loadLog(t, store)
		l.show()
		q := openQueues(t, vfs.OS(), store, consumequeue.Options{Clean: true})
		catchUp(t, newDispatcher(t, l, q), l)
		check(t, q.Close())
		sameFiles(t, "mended", queueFiles(t, vfs.OS(), store), want)
	})
}
