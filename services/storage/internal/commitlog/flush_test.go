package commitlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
)

// bigOptions are for logs whose flushes are watched: pages of 4 KiB count.
func bigOptions() commitlog.Options {
	o := options()
	o.FileSize = 1 << 20
	return o
}

// TestAsyncFlush: every 500 ms four pages, every 10 s anything.
func TestAsyncFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := open(t, memfs.New(), bigOptions())
		stop := run(t, l)
		small := put(t, l, record(0, 100)).Next
		wait := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // synctest's clock
			synctest.Wait()
		}
		wait(9 * time.Second)
		if f := l.Flushed().Load(); f != 0 {
			t.Errorf("flushed %d: less than four pages within 10 s", f)
		}
		wait(1100 * time.Millisecond)
		if f := l.Flushed().Load(); f != small {
			t.Errorf("flushed %d after 10 s, want %d", f, small)
		}
		big := put(t, l, record(1, 16<<10)).Next
		wait(600 * time.Millisecond)
		if f := l.Flushed().Load(); f != big {
			t.Errorf("flushed %d after 600 ms, want %d", f, big)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		closeLog(t, l, true)
	})
}

// TestGroupCommit: what is appended while a sync runs is made durable by the next one, together.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New()
		o := syncOptions()
		o.FileSize = 1 << 20
		l, _ := open(t, fsys, o)
		put(t, l, record(0, 100))
		flushNow(t, l)
		syncs := 0
		slow := make(chan struct{})
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if op.Kind == memfs.KindSync && op.Name != root+"/checkpoint" {
				syncs++
				<-slow
			}
			return memfs.Proceed
		})
		stop := run(t, l)
		first := put(t, l, record(1, 100)).Next
		synctest.Wait()
		const waiters = 50
		done := make(chan error, waiters)
		for i := range waiters {
			a := put(t, l, record(i, 100))
			go func() { done <- l.Flushed().Wait(t.Context(), a.Next) }()
		}
		synctest.Wait()
		if len(done) != 0 || l.Flushed().Load() >= first {
			t.Error("acknowledged while the sync was running")
		}
		close(slow)
		for range waiters {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if syncs != 2 {
			t.Errorf("%d syncs for two groups", syncs)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		closeLog(t, l, true)
	})
}

// TestReadable: never past the end, and with sync flush never past Flushed, which it follows.
func TestReadable(t *testing.T) {
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		l, _ := open(t, memfs.New(), o)
		a := put(t, l, record(0, 100))
		if l.Readable().Load() != 0 {
			t.Error("Append moved Readable")
		}
		l.SetReadable(a.Next + 1000)
		want := a.Next
		if o.SyncFlush {
			want = 0
		}
		if n := l.Readable().Load(); n != want {
			t.Errorf("sync flush %v: readable %d, want %d", o.SyncFlush, n, want)
		}
		b := put(t, l, record(1, 100))
		flushNow(t, l)
		if n := l.Readable().Load(); n != a.Next {
			t.Errorf("sync flush %v: readable %d after the flush, want %d", o.SyncFlush, n, a.Next)
		}
		l.SetReadable(b.Next)
		l.SetReadable(a.Next)
		if n := l.Readable().Load(); n != b.Next {
			t.Errorf("readable %d, want %d", n, b.Next)
		}
		closeLog(t, l, true)
	}
}

// TestConcurrent appends, reads, flushes and cuts at the same time; the race detector looks on.
func TestConcurrent(t *testing.T) {
	for _, o := range []commitlog.Options{options(), syncOptions()} {
		o.Ahead = true
		o.FlushInterval = time.Millisecond
		fsys := memfs.New()
		l, _ := open(t, fsys, o)
		stop := run(t, l)
		done := make(chan struct{}, 4)
		for g := range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				for i := range 200 {
					a, err := appendOne(l, sized(g, 200+i))
					if err != nil {
						t.Error(err)
						return
					}
					if o.SyncFlush && i%20 == 0 {
						if err := l.Flushed().Wait(t.Context(), a.Next); err != nil {
							t.Error(err)
						}
					}
					if b := read(t, l, a.Offset, a.Next); b[8] == 0 && b[9] == 0 {
						t.Error("no record where one was appended")
					}
					l.SetReadable(a.Next)
				}
			}()
		}
		for range 4 {
			<-done
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		want := l.End()
		closeLog(t, l, false)
		l, r := open(t, fsys, o)
		if r.End != want || len(r.Rot) != 0 {
			t.Errorf("recovered %+v, want the end %d", *r, want)
		}
		closeLog(t, l, true)
	}
}
