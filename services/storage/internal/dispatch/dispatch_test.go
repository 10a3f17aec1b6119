package dispatch_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// units reads a whole queue.
func units(t testing.TB, s *consumequeue.Set, topic string, id int32) []consumequeue.Unit {
	t.Helper()
	q := s.Lookup(topic, id)
	if q == nil {
		return nil
	}
	out := make([]consumequeue.Unit, q.Max()-q.Min())
	n, err := q.Read(q.Min(), out)
	check(t, err)
	if n != len(out) {
		t.Fatalf("%d of %d units", n, len(out))
	}
	return out
}

func memQueues(t testing.TB) *consumequeue.Set {
	t.Helper()
	s := openQueues(t, newFS(t), "/s", consumequeue.Options{FileSize: queueFileSize})
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

func TestUnitsFollowRocketMQsRules(t *testing.T) {
	const stamp = 1_700_000_000_123
	for _, c := range []struct {
		name string
		m    msg
		want int64 // tags code; none: no unit
		gone bool
	}{
		{name: "tag", m: msg{topic: "T", tags: "TagA"}, want: 2598919},
		{name: "no tag", m: msg{topic: "T"}, want: 0},
		{name: "negative hash", m: msg{topic: "T", tags: "polygenelubricants"}, want: -2147483648},
		{name: "outside of the basic plane", m: msg{topic: "T", tags: "😀"}, want: 1772899},
		{name: "committed", m: msg{topic: "T", tags: "TagA", sysFlag: message.TransactionCommit}, want: 2598919},
		{name: "prepared", m: msg{topic: "T", sysFlag: message.TransactionPrepared}, gone: true},
		{name: "rolled back", m: msg{topic: "T", sysFlag: message.TransactionRollback}, gone: true},
		{name: "delayed", m: msg{topic: message.TopicSchedule, tags: "TagA", delay: "3", stamp: stamp}, want: 1700000010123},
		{name: "level beyond the table", m: msg{topic: message.TopicSchedule, delay: "99", stamp: stamp}, want: stamp + 7_200_000},
		{name: "schedule topic without level", m: msg{topic: message.TopicSchedule, tags: "TagA"}, want: 2598919},
		{name: "level 0", m: msg{topic: message.TopicSchedule, tags: "TagA", delay: "0"}, want: 2598919},
		{name: "level outside of the schedule topic", m: msg{topic: "T", tags: "TagA", delay: "3"}, want: 2598919},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, q := newLog(4096, 0), memQueues(t)
			at := l.put(c.m)
			l.show()
			catchUp(t, newDispatcher(t, l, q), l)
			got := units(t, q, c.m.topic, 0)
			if c.gone {
				if got != nil {
					t.Errorf("got %v", got)
				}
				return
			}
			if want := (consumequeue.Unit{Offset: at, Size: int32(l.end() - at), TagsCode: c.want}); len(got) != 1 || got[0] != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestNeverAheadOfReadable(t *testing.T) {
	l, q := newLog(4096, 0), memQueues(t)
	for i := range int64(10) {
		l.put(msg{topic: "T", at: i})
	}
	d := newDispatcher(t, l, q)
	catchUp(t, d, l)
	if q.Lookup("T", 0) != nil || d.Dispatched().Load() != 0 {
		t.Error("dispatched what is not readable")
	}
	l.show()
	catchUp(t, d, l)
	if n := len(units(t, q, "T", 0)); n != 10 || d.Dispatched().Load() != l.end() {
		t.Errorf("%d units, dispatched %d", n, d.Dispatched().Load())
	}
}

func TestRunFollowsReadableAndCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, q := newLog(4096, 0), openQueues(t, newFS(t), "/s", consumequeue.Options{FileSize: queueFileSize})
		d := newDispatcher(t, l, q)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { check(t, d.Run(ctx)) })
		synctest.Wait()
		l.put(msg{topic: "T", at: 0})
		to := l.put(msg{topic: "T", at: 1, tags: "old"})
		l.put(msg{topic: "T", at: 2})
		l.show()
		synctest.Wait()
		grown, before := q.Lookup("T", 0).Grown(), d.Dispatched()
		if grown.Load() != 3 {
			t.Errorf("%d units", grown.Load())
		}
		l.cut(to)
		synctest.Wait()
		check(t, d.Truncated(to))
		if err := before.Err(); !errors.Is(err, watermark.ErrTruncated) {
			t.Errorf("Dispatched of before the cut: %v", err)
		}
		if err := grown.Err(); !errors.Is(err, watermark.ErrTruncated) || q.Lookup("T", 0).Max() != 1 || d.Dispatched().Load() != to {
			t.Errorf("after the cut: %v, %d units, dispatched %d", err, q.Lookup("T", 0).Max(), d.Dispatched().Load())
		}
		at := l.put(msg{topic: "T", at: 1, tags: "new"})
		l.show()
		synctest.Wait()
		if u := units(t, q, "T", 0); len(u) != 2 || u[1].Offset != at || u[1].TagsCode != message.TagsCode([]byte("new")) {
			t.Errorf("after the cut: %v", u)
		}
		l.reset(8192)
		synctest.Wait()
		check(t, d.Reset(8192))
		if q.Lookup("T", 0) != nil || d.Dispatched().Load() != 8192 {
			t.Error("queues are left after a reset")
		}
		l.put(msg{topic: "T", at: 7})
		l.show()
		synctest.Wait()
		if one := q.Lookup("T", 0); one == nil || one.Min() != 7 || one.Max() != 8 {
			t.Errorf("after the reset: %v", one)
		}
		cancel()
		wg.Wait()
		check(t, q.Close())
	})
}

// TestACutInsideARecord: two histories part inside a record; what the upstream then sends begins in its middle.
func TestACutInsideARecord(t *testing.T) {
	for _, into := range []int64{1, 4, 8, 60} {
		l, q := newLog(4096, 0), memQueues(t)
		d := newDispatcher(t, l, q)
		l.put(msg{topic: "T", at: 0})
		at := l.put(msg{topic: "First", at: 0})
		l.put(msg{topic: "T", at: 1})
		rest := bytes.Clone(l.data[at+into:])
		l.show()
		catchUp(t, d, l)
		l.cut(at + into)
		check(t, d.Truncated(at+into))
		if got := d.Dispatched().Load(); got != at {
			t.Errorf("%d into a record: dispatched %d, want its start %d", into, got, at)
		}
		l.write(rest)
		l.show()
		catchUp(t, d, l)
		if n, first := len(units(t, q, "T", 0)), units(t, q, "First", 0); n != 2 || len(first) != 1 || first[0].Offset != at {
			t.Errorf("%d into a record: %d units, first %v", into, n, first)
		}
	}
}

// TestFilesOfAnotherSize: a filler tells the size of the files that it was written in; records that cross the files here
// tell that those are larger. Each log is met whole and as it grows.
func TestFilesOfAnotherSize(t *testing.T) {
	theirs := newLog(4096, 0)
	for i := range int64(200) {
		theirs.put(msg{topic: "T", at: i, body: int(i*37) % 300})
	}
	for size, want := range map[int64]error{
		4096: nil, 1 << 20: dispatch.ErrFileSize, 8192: dispatch.ErrFileSize,
		2048: dispatch.ErrFileSize, 1024: dispatch.ErrFileSize, 512: dispatch.ErrFileSize, 128: dispatch.ErrFileSize,
	} {
		for _, grow := range []int64{int64(len(theirs.data)), 1000, 77, 1} {
			ours, log := newLog(size, 0), &records{}
			ours.write(theirs.data)
			d, err := dispatch.New(dispatch.Options{ForeignFiles: true, Log: slog.New(log)}, ours, memQueues(t))
			check(t, err)
			for to := int64(0); err == nil && to < ours.end(); {
				to = min(to+grow, ours.end())
				ours.Readable().Advance(to)
				err = d.CatchUp(t.Context(), to)
			}
			if !errors.Is(err, want) {
				t.Errorf("files of %d, %d bytes at a time: %v", size, grow, err)
			}
			if want != nil && err != nil && !strings.Contains(err.Error(), "FILE_SIZE_DIFFERS") {
				t.Errorf("files of %d: the reason is missing: %v", size, err)
			}
			if len(log.all) != 0 {
				t.Errorf("files of %d, %d bytes at a time: logged %q", size, grow, log.all)
			}
		}
	}
}

// TestFileWithoutRoomForAFiller: a broker's record leaves room for a filler behind it.
func TestFileWithoutRoomForAFiller(t *testing.T) {
	theirs := newLog(1<<20, 0)
	theirs.put(msg{topic: "T"})
	n := theirs.end()
	theirs.put(msg{topic: "T", at: 1})
	for free, want := range map[int64]error{0: dispatch.ErrFileSize, message.BlankSize - 1: dispatch.ErrFileSize} {
		ours := newLog(n+free, 0)
		ours.write(theirs.data)
		ours.show()
		d, err := dispatch.New(dispatch.Options{ForeignFiles: true}, ours, memQueues(t))
		check(t, err)
		if err := d.CatchUp(t.Context(), ours.end()); !errors.Is(err, want) {
			t.Errorf("%d bytes free behind the record: %v", free, err)
		}
	}
}

func TestRunEndsWithTheLog(t *testing.T) {
	l, q := newLog(4096, 0), memQueues(t)
	fault := errors.New("the disk is gone")
	l.readable.Close(fault)
	if err := newDispatcher(t, l, q).Run(t.Context()); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
}

func TestRunWaitsForAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := newFS(t)
		l, q := newLog(1<<20, 0), openQueues(t, fsys, "/s", consumequeue.Options{})
		log := &records{}
		d := newDispatcherWithLog(t, l, q, log)
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindWrite {
				return memfs.FailBefore(vfs.ErrNoSpace)
			}
			return memfs.Proceed
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { check(t, d.Run(ctx)) })
		for i := range int64(3000) {
			l.put(msg{topic: "T", at: i})
		}
		l.show()
		synctest.Wait()
		if n := log.count("no space for queue units, dispatching waits"); n != 1 || d.Dispatched().Load() != 0 {
			t.Errorf("%d reports, dispatched %d", n, d.Dispatched().Load())
		}
		fsys.SetHook(nil)
		check(t, d.Dispatched().Wait(t.Context(), l.end()))
		for i, u := range units(t, q, "T", 0) {
			if u.Size == 0 || (i > 0 && u.Offset <= 0) {
				t.Fatalf("unit %d is %v", i, u)
			}
		}
		cancel()
		wg.Wait()
		check(t, q.Close())
		if n := log.count("no space for queue units, dispatching waits"); n != 1 {
			t.Errorf("reported %d times", n)
		}
	})
}

func TestLargeRecordsAndWindows(t *testing.T) {
	l, q := newLog(16<<20, 0), memQueues(t)
	var want []int64
	for i := range int64(12) {
		want = append(want, l.put(msg{topic: "T", at: i, body: int(i * 370_001)}))
	}
	l.show()
	catchUp(t, newDispatcher(t, l, q), l)
	got := units(t, q, "T", 0)
	if len(got) != len(want) {
		t.Fatalf("%d units of %d", len(got), len(want))
	}
	for i, u := range got {
		if u.Offset != want[i] {
			t.Errorf("unit %d at %d, want %d", i, u.Offset, want[i])
		}
	}
}

func TestMessagesThatFitIntoNoQueueArePassedOver(t *testing.T) {
	l, q := newLog(1<<16, 0), memQueues(t)
	l.put(msg{topic: "T", queue: -1})
	l.put(msg{topic: "T", at: -5})
	l.put(msg{topic: "T", at: 1 << 60})
	l.put(msg{topic: strings.Repeat("x", 120) + "\x7f"})
	l.put(msg{topic: "T", at: 0})
	l.show()
	log := &records{}
	d := newDispatcherWithLog(t, l, q, log)
	catchUp(t, d, l)
	if n := log.count("message fits into no queue and cannot be consumed"); n != 4 || len(units(t, q, "T", 0)) != 1 {
		t.Errorf("%d reports, queue %v", n, units(t, q, "T", 0))
	}
	if len(q.List()) != 1 || d.Dispatched().Load() != l.end() {
		t.Errorf("queues %d, dispatched %d", len(q.List()), d.Dispatched().Load())
	}
}

func TestT10_RotInTheMiddleIsPassedOver(t *testing.T) {
	for name, damage := range map[string]func(rec []byte){
		"body":       func(rec []byte) { rec[90] ^= 1 },
		"size":       func(rec []byte) { rec[3] ^= 0x10 },
		"large size": func(rec []byte) { rec[1] ^= 0x10 },
		"negative":   func(rec []byte) { rec[0] ^= 0x80 },
		"magic":      func(rec []byte) { rec[5] ^= 1 },
		"offset":     func(rec []byte) { rec[35] ^= 1 },
		"zeros":      func(rec []byte) { clear(rec) },
		"blank":      func(rec []byte) { binary.BigEndian.PutUint32(rec[4:], message.MagicBlank) },
		"topic":      func(rec []byte) { rec[len(rec)-3] = '/' },
	} {
		for i, at := range []int{0, 3, 9, 0, 3, 9} { // the first; one in the middle; the last of its file
			foreign := i >= 3 && name != "blank" // that shows another file size
			t.Run(fmt.Sprint(name, at, foreign), func(t *testing.T) {
				l, q := newLog(2048, 0), memQueues(t)
				var offsets []int64
				for i := range int64(30) {
					offsets = append(offsets, l.put(msg{topic: "T", queue: int32(i % 2), at: i / 2, body: 100}))
				}
				if at == 9 {
					for offsets[at+1] < 2048 {
						at++
					}
				}
				end := offsets[at] + 193
				damage(l.data[offsets[at]:end])
				log := &records{}
				d, err := dispatch.New(dispatch.Options{ForeignFiles: foreign, Log: slog.New(log)}, l, q)
				check(t, err)
				for to := int64(0); to < l.end(); {
					to = min(to+77, l.end())
					l.Readable().Advance(to)
					catchUp(t, d, l)
				}
				if d.Dispatched().Load() != l.end() {
					t.Fatalf("dispatched %d of %d: %q", d.Dispatched().Load(), l.end(), log.all)
				}
				if n := log.count("bad record in the log; scrub this node and repair it from another"); n != 1 {
					t.Errorf("reported %d times: %q", n, log.all)
				}
				for i, o := range offsets {
					one := q.Lookup("T", int32(i%2))
					var u [1]consumequeue.Unit
					if one != nil && int64(i/2) >= one.Min() {
						_, err := one.Read(int64(i/2), u[:])
						check(t, err)
					}
					if i != at && u[0].Offset != o {
						t.Errorf("message %d: unit %v, want offset %d", i, u[0], o)
					}
					if i == at && u[0] != (consumequeue.Unit{}) && !u[0].Blank() {
						t.Errorf("the bad message has unit %v", u[0])
					}
				}
			})
		}
	}
}

// TestOwnRecordsAreNotSummedAgain: below OwnFrom a wrong checksum is rot; from there on nobody but this process was at it.
func TestOwnRecordsAreNotSummedAgain(t *testing.T) {
	l, q := newLog(1<<16, 0), memQueues(t)
	var at [5]int64
	for i := range at {
		at[i] = l.put(msg{topic: "T", at: int64(i), body: 100})
	}
	for _, i := range []int{1, 3} {
		l.data[at[i]+100] ^= 1 // of the body
	}
	l.own = at[3]
	l.show()
	catchUp(t, newDispatcher(t, l, q), l)
	got := units(t, q, "T", 0)
	if len(got) != len(at) || !got[1].Blank() || got[0].Offset != at[0] || got[2].Offset != at[2] || got[3].Offset != at[3] || got[4].Offset != at[4] {
		t.Errorf("units %v of records at %v", got, at)
	}
}

func TestABadTailStopsTheDispatcherUntilASoundRecordFollows(t *testing.T) {
	l, q := newLog(1<<16, 0), memQueues(t)
	l.put(msg{topic: "T", at: 0})
	bad := l.put(msg{topic: "T", at: 1, body: 100})
	l.data[bad+90] ^= 1
	l.show()
	log := &records{}
	d := newDispatcherWithLog(t, l, q, log)
	for range 3 {
		catchUp(t, d, l)
	}
	if d.Dispatched().Load() != bad || len(log.all) != 1 {
		t.Errorf("dispatched %d, want %d; logged %q", d.Dispatched().Load(), bad, log.all)
	}
	at := l.put(msg{topic: "T", at: 2})
	l.show()
	catchUp(t, d, l)
	if u := units(t, q, "T", 0); len(u) != 3 || !u[1].Blank() || u[2].Offset != at {
		t.Errorf("queue %v", u)
	}
}
