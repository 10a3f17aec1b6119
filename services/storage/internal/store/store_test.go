package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/store"
	"github.com/tandemlog/tandem/services/storage/internal/topics"
)

const fileSize = 64 << 10

// slaves is a replication that the test moves by hand.
type slaves struct {
	inSync int
	marks  map[int]*watermark.Mark
}

func newSlaves(inSync int) *slaves {
	return &slaves{inSync: inSync, marks: map[int]*watermark.Mark{1: watermark.New(0), 2: watermark.New(0)}}
}

func (s *slaves) Acked(k int) *watermark.Mark { return s.marks[k] }
func (s *slaves) InSync() int                 { return s.inSync }
func (s *slaves) CountAt(offset int64) (acked, flushed int) {
	for _, m := range s.marks {
		if m.Load() >= offset {
			acked++
		}
	}
	return acked, 0
}

// newReign closes the marks as the end of a reign does and begins with fresh ones.
func (s *slaves) newReign() {
	for k, m := range s.marks {
		m.Close(errors.New("reign over"))
		s.marks[k] = watermark.New(0)
	}
}

type guard struct{ err error }

func (g *guard) Enter() error { return g.err }
func (g *guard) Leave()       {}

// rig is a store on a real log and real queues in memory.
type rig struct {
	fs     *memfs.FS
	log    *commitlog.Log
	queues *consumequeue.Set
	disp   *dispatch.Dispatcher
	slaves *slaves
	guard  *guard
	*store.Store
}

func newRig(t *testing.T, o store.Options, s *slaves) *rig {
	t.Helper()
	r := &rig{fs: memfs.New(), slaves: s, guard: &guard{}}
	r.open(t, o)
	return r
}

func (r *rig) open(t *testing.T, o store.Options) {
	t.Helper()
	var err error
	if r.log, _, err = commitlog.Open(r.fs, "data", commitlog.Options{FileSize: fileSize, SyncFlush: o.SyncFlush, BootID: "b"}); err != nil {
		t.Fatal(err)
	}
	if r.queues, err = consumequeue.Open(r.fs, "data", consumequeue.Options{FileSize: 2000}); err != nil {
		t.Fatal(err)
	}
	if r.disp, err = dispatch.New(dispatch.Options{}, r.log, r.queues); err != nil {
		t.Fatal(err)
	}
	o.StoreHost = netip.MustParseAddrPort("10.1.2.3:10911")
	if r.Store, err = store.New(o, r.log, r.slaves, r.queues, topics.NewStatic(4), r.guard); err != nil {
		t.Fatal(err)
	}
	if err := r.BeginReign(0, r.log.End()); err != nil {
		t.Fatal(err)
	}
}

// show makes everything readable and builds the queues.
func (r *rig) show(t *testing.T) {
	t.Helper()
	r.log.SetReadable(r.log.End())
	if err := r.disp.CatchUp(t.Context(), r.log.Readable().Load()); err != nil {
		t.Fatal(err)
	}
}

func msg(body string) *store.Message {
	return &store.Message{Topic: "T", QueueID: 0, Body: []byte(body)}
}

var byStore = store.Wait{Acks: -1}

func TestPutAndGet(t *testing.T) {
	r := newRig(t, store.Options{AppendPropCRC: true}, newSlaves(0))
	var want []store.Result
	for i := range 10 {
		m := msg(fmt.Sprintf("body %d", i))
		m.Properties = message.AppendProperty(nil, message.PropertyTags, []string{"A", "B"}[i%2])
		res, err := r.Put(t.Context(), m, byStore)
		if err != nil || res.Status != store.PutOK || res.QueueOffset != int64(i) {
			t.Fatalf("put %d: %+v, %v", i, res, err)
		}
		if len(res.MessageID) != 32 || strings.ToUpper(res.MessageID) != res.MessageID {
			t.Errorf("message id %q", res.MessageID)
		}
		want = append(want, res)
	}
	if got, err := r.Get(t.Context(), get(0)); err != nil || got.Status != store.NoQueue {
		t.Errorf("before dispatch: %+v, %v", got, err)
	}
	r.show(t)
	got, err := r.Get(t.Context(), get(3))
	if err != nil || got.Status != store.Found || len(got.Records) != 7 || got.Next != 10 || got.Max != 10 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i, rec := range got.Records {
		w := want[3+i]
		if rec.Offset != w.Offset || string(rec.View.Body) != fmt.Sprintf("body %d", 3+i) || rec.View.StoreTimestamp != w.StoreTimestamp {
			t.Errorf("record %d: %+v, want %+v", i, rec.View, w)
		}
	}
	one, err := r.GetByOffset(want[4].Offset, 0)
	if err != nil || string(one.View.Body) != "body 4" {
		t.Errorf("by offset: %q, %v", one.View.Body, err)
	}
	for _, off := range []int64{-1, want[4].Offset + 1, r.log.End()} {
		_, err := r.GetByOffset(off, 0)
		if want := map[bool]error{true: store.ErrNoRecord, false: store.ErrNotReadable}[off > 0 && off < r.log.End()]; !errors.Is(err, want) ||
			strings.Contains(err.Error(), "damaged") {
			t.Errorf("a record at %d: %v", off, err)
		}
	}
	g := get(0)
	g.Filter, _ = message.ParseTagFilter("B")
	g.MaxMessages = 2
	if got, err = r.Get(t.Context(), g); err != nil || len(got.Records) != 2 || got.Next != 5 || string(got.Records[1].View.Body) != "body 3" {
		t.Errorf("filtered: %d records, next %d, %v", len(got.Records), got.Next, err)
	}
}

func get(from int64) *store.Get {
	return &store.Get{Topic: "T", QueueOffset: from, MaxMessages: 100, MaxBytes: 1 << 20, HardBytes: 1 << 20}
}

func TestGetOutside(t *testing.T) {
	r := newRig(t, store.Options{}, newSlaves(0))
	for range 3 {
		if _, err := r.Put(t.Context(), msg("x"), byStore); err != nil {
			t.Fatal(err)
		}
	}
	r.show(t)
	for _, tc := range []struct {
		at     int64
		status store.GetStatus
		next   int64
	}{{3, store.NoNewMessage, 3}, {4, store.OffsetOverflow, 3}, {2, store.Found, 3}} {
		got, err := r.Get(t.Context(), get(tc.at))
		if err != nil || got.Status != tc.status || got.Next != tc.next {
			t.Errorf("at %d: %+v, %v", tc.at, got, err)
		}
	}
	g := get(0)
	g.MaxBytes, g.HardBytes = 1, 10
	if _, err := r.Get(t.Context(), g); !errors.Is(err, store.ErrTooLargeForReply) {
		t.Errorf("a message beyond the reply: %v", err)
	}
	g.HardBytes = 1 << 20
	if got, err := r.Get(t.Context(), g); err != nil || len(got.Records) != 1 {
		t.Errorf("the first message goes whatever its size: %d, %v", len(got.Records), err)
	}
}

// TestReadersSeeOnlyWhatIsReadable opens a store whose queues hold more than Readable, as a restart may leave it.
func TestReadersSeeOnlyWhatIsReadable(t *testing.T) {
	r := newRig(t, store.Options{}, newSlaves(0))
	var ends []int64
	for range 5 {
		res, err := r.Put(t.Context(), msg("x"), byStore)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, res.Offset+int64(res.Size))
	}
	r.show(t)
	for n, end := range ends {
		limited := &limitedLog{Log: r.log, readable: watermark.New(end + 3)}
		s, err := store.New(store.Options{}, limited, r.slaves, r.queues, topics.NewStatic(4), r.guard)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(t.Context(), get(0))
		if err != nil || len(got.Records) != n+1 || got.Max != int64(n+1) {
			t.Errorf("readable %d: %d records, max %d, %v", end+3, len(got.Records), got.Max, err)
		}
		qs, err := s.ListQueues("", store.QueueInfo{}, 0, 10)
		if err != nil || len(qs) != 1 || qs[0].Max != int64(n+1) {
			t.Errorf("list: %v, %v", qs, err)
		}
		if qs, err = r.ListQueues("", store.QueueInfo{}, end+3, 10); err != nil || len(qs) != 1 || qs[0].Max != int64(n+1) {
			t.Errorf("list below %d: %v, %v", end+3, qs, err)
		}
	}
}

type limitedLog struct {
	*commitlog.Log
	readable *watermark.Mark
}

func (l *limitedLog) Readable() *watermark.Mark { return l.readable }

// TestT4_DeadlineIsTime: see bug G01 to G03: a sync put waits for time, not for wake-ups, and all puts wait side by side.
func TestT4_DeadlineIsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{SyncMaster: true, SlaveTimeout: 3 * time.Second}, newSlaves(1))
		start := time.Now()
		results := make(chan store.Result, 20)
		for range 20 {
			go func() {
				res, err := r.Put(context.Background(), msg("x"), byStore)
				if err != nil {
					t.Error(err)
				}
				results <- res
			}()
		}
		for i := range 50 { // acks that cover nothing of it must not count
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // the bubble's clock
			r.slaves.marks[1].Advance(int64(i))
		}
		for range 20 {
			res := <-results
			if d := time.Since(start); res.Status != store.FlushSlaveTimeout || d < 3*time.Second || d > 3*time.Second+time.Millisecond {
				t.Errorf("%v after %v", res.Status, d)
			}
			if res.Offset < 0 || res.Err == nil {
				t.Errorf("a message in the log without place or reason: %+v", res)
			}
		}
	})
}

func TestPutWaitsForSlaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{SyncMaster: true}, newSlaves(2))
		done := make(chan store.Result, 1)
		put := func(w store.Wait) {
			res, err := r.Put(t.Context(), msg("x"), w)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}
		go put(byStore)
		synctest.Wait()
		select {
		case res := <-done:
			t.Fatalf("answered without a slave: %+v", res)
		default:
		}
		r.slaves.marks[1].Advance(r.log.End())
		if res := <-done; res.Status != store.PutOK || res.Acked != 1 {
			t.Errorf("with one slave: %+v", res)
		}
		go put(store.Wait{Acks: 2, Timeout: time.Second})
		synctest.Wait()
		r.slaves.marks[1].Advance(r.log.End())
		if res := <-done; res.Status != store.FlushSlaveTimeout || res.Acked != 1 {
			t.Errorf("one of two: %+v", res)
		}
		put(store.Wait{Acks: 0})
		if res := <-done; res.Status != store.PutOK {
			t.Errorf("none asked for: %+v", res)
		}
		r.slaves.inSync = 0
		put(byStore)
		if res := <-done; res.Status != store.SlaveNotAvailable || res.Offset < 0 {
			t.Errorf("no slave there: %+v", res)
		}
		noWait := msg("x")
		noWait.Properties = message.AppendProperty(nil, message.PropertyWait, "false")
		res, err := r.Put(t.Context(), noWait, byStore)
		if err != nil || res.Status != store.PutOK {
			t.Errorf("WAIT=false: %+v, %v", res, err)
		}
	})
}

// TestG05_StatusBeforeTheCallersDeadline: the caller gets the status and not a dead line.
func TestG05_StatusBeforeTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{SyncMaster: true}, newSlaves(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		res, err := r.Put(ctx, msg("x"), byStore)
		if err != nil || res.Status != store.FlushSlaveTimeout || ctx.Err() != nil {
			t.Errorf("%+v, %v, %v", res, err, ctx.Err())
		}
		gone, end := context.WithCancel(t.Context())
		end()
		if _, err := r.Put(gone, msg("x"), byStore); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that went away: %v", err)
		}
	})
}

// TestAReignEndsItsPuts: a put of one reign is never answered by another one's acks (rule PUTREC).
func TestAReignEndsItsPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{SyncMaster: true}, newSlaves(1))
		waiting, err := r.Begin(t.Context(), msg("x"), byStore)
		if err != nil {
			t.Fatal(err)
		}
		r.guard.err = errors.New("a slave now")
		r.slaves.newReign()
		if _, err := r.Put(t.Context(), msg("y"), byStore); !errors.Is(err, r.guard.err) {
			t.Errorf("a put between two reigns: %v", err)
		}
		r.guard.err = nil
		if err := r.BeginReign(0, r.log.End()); err != nil {
			t.Fatal(err)
		}
		r.slaves.marks[1].Advance(1 << 40)
		if res, err := r.Finish(t.Context(), &waiting); err != nil || res.Status != store.FlushSlaveTimeout {
			t.Errorf("the old reign's put: %+v, %v", res, err)
		}
		if res, err := r.Put(t.Context(), msg("z"), byStore); err != nil || res.Status != store.PutOK || res.QueueOffset != 1 {
			t.Errorf("the new reign's put: %+v, %v", res, err)
		}
	})
}

// TestQ03_QueueOffsetsGoOn: after a restart each queue goes on behind what the queues and the undispatched tail hold.
func TestQ03_QueueOffsetsGoOn(t *testing.T) {
	r := newRig(t, store.Options{AppendPropCRC: true}, newSlaves(0))
	next := map[int32]int64{}
	put := func(n int) {
		for i := range n {
			m := msg(strings.Repeat("x", i%700+1))
			m.QueueID = int32(i % 3)
			res, err := r.Put(t.Context(), m, byStore)
			if err != nil || res.QueueOffset != next[m.QueueID] {
				t.Fatalf("queue %d: %d, want %d (%v)", m.QueueID, res.QueueOffset, next[m.QueueID], err)
			}
			next[m.QueueID]++
		}
	}
	put(500)
	r.show(t)
	put(300) // beyond one file, not dispatched
	dispatched := r.disp.Dispatched().Load()
	if err := r.BeginReign(dispatched, r.log.End()); err != nil {
		t.Fatal(err)
	}
	put(100)
	if err := r.queues.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Close(true); err != nil {
		t.Fatal(err)
	}
	r.open(t, store.Options{AppendPropCRC: true})
	put(10)
}

func TestRefuseWithoutReplicas(t *testing.T) {
	r := newRig(t, store.Options{SyncMaster: true, RefuseWithoutReplicas: true}, newSlaves(0))
	res, err := r.Put(t.Context(), msg("x"), byStore)
	if err != nil || res.Status != store.InSyncReplicasNotEnough || res.Offset != -1 || r.log.End() != 0 {
		t.Errorf("%+v, %v, end %d", res, err, r.log.End())
	}
}

func TestDiskFullIsAStatus(t *testing.T) {
	r := newRig(t, store.Options{}, newSlaves(0))
	r.fs.SetQuota(fileSize / 2)
	res, err := r.Put(t.Context(), msg("x"), byStore)
	if err != nil || res.Status != store.DiskFull || res.Offset != -1 || res.Err == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	r.fs.SetQuota(1 << 30)
	if res, err = r.Put(t.Context(), msg("x"), byStore); err != nil || res.Status != store.PutOK || res.QueueOffset != 0 {
		t.Errorf("with space again: %+v, %v", res, err)
	}
	if res, err = r.Put(t.Context(), msg(strings.Repeat("x", fileSize)), byStore); err != nil || res.Status != store.MessageIllegal {
		t.Errorf("larger than a file: %+v, %v", res, err)
	}
}

func TestSyncFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{SyncFlush: true, FlushTimeout: time.Second}, newSlaves(0))
		res, err := r.Put(t.Context(), msg("x"), byStore)
		if err != nil || res.Status != store.FlushDiskTimeout {
			t.Errorf("nobody flushes: %+v, %v", res, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.log.Run(ctx) }()
		if res, err = r.Put(t.Context(), msg("x"), byStore); err != nil || res.Status != store.PutOK || r.log.Flushed().Load() < res.Offset {
			t.Errorf("%+v, %v", res, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestIllegalMessages(t *testing.T) {
	r := newRig(t, store.Options{}, newSlaves(0))
	prop := func(name string) func(*store.Message) {
		return func(m *store.Message) { m.Properties = message.AppendProperty(nil, name, "3") }
	}
	for _, tc := range []struct {
		name  string
		edit  func(*store.Message)
		class errdefs.Class
		field string
	}{
		{"topic of 128", func(m *store.Message) { m.Topic = strings.Repeat("t", 128) }, errdefs.InvalidArgument, "topic"},
		{"topic with a slash", func(m *store.Message) { m.Topic = "a/b" }, errdefs.InvalidArgument, "topic"},
		{"no topic", func(m *store.Message) { m.Topic = "" }, errdefs.InvalidArgument, "topic"},
		{"the store's own topic", func(m *store.Message) { m.Topic = message.TopicSchedule }, errdefs.InvalidArgument, "topic"},
		{"no body", func(m *store.Message) { m.Body = nil }, errdefs.InvalidArgument, "body"},
		{"body over the limit", func(m *store.Message) { m.Body = make([]byte, message.DefaultMaxBody+1) }, errdefs.InvalidArgument, "body"},
		{"queue that is not there", func(m *store.Message) { m.QueueID = 4 }, errdefs.InvalidArgument, "queue_id"},
		{"delayed", prop(message.PropertyDelay), errdefs.Unimplemented, "properties"},
		{"timed", prop(message.PropertyTimerDeliverMs), errdefs.Unimplemented, "properties"},
		{"half of a transaction", prop(message.PropertyTransactionMessage), errdefs.Unimplemented, "properties"},
		{"prepared", func(m *store.Message) { m.SysFlag = message.TransactionPrepared }, errdefs.Unimplemented, "sys_flag"},
		{"properties over 32,767 bytes", func(m *store.Message) {
			m.Properties = message.AppendProperty(nil, "k", strings.Repeat("v", 32767))
		}, errdefs.InvalidArgument, "properties"},
	} {
		m := msg("x")
		tc.edit(m)
		_, err := r.Put(t.Context(), m, byStore)
		if e := errdefs.As(err); e == nil || e.Class != tc.class || e.Field != tc.field {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := r.Put(t.Context(), msg("x"), store.Wait{Acks: 9}); errdefs.As(err) == nil || errdefs.As(err).Field != "acks" {
		t.Errorf("acks: %v", err)
	}
	if r.log.End() != 0 {
		t.Errorf("something was written: %d", r.log.End())
	}
}

func TestBatch(t *testing.T) {
	r := newRig(t, store.Options{AppendPropCRC: true}, newSlaves(0))
	var ms []store.Message
	for i := range 50 {
		m := *msg(fmt.Sprintf("batch %d", i))
		m.QueueID = -1
		ms = append(ms, m)
	}
	for range 10 { // some of them roll over to the next file, none is split
		rs, err := r.PutBatch(t.Context(), ms, byStore)
		if err != nil {
			t.Fatal(err)
		}
		last := rs[len(rs)-1]
		if rs[0].Offset/fileSize != (last.Offset+int64(last.Size)-1)/fileSize {
			t.Errorf("a batch lies in two files: %d to %d", rs[0].Offset, last.Offset)
		}
		ids := map[string]bool{}
		for i, res := range rs {
			if i > 0 && (res.Offset != rs[i-1].Offset+int64(rs[i-1].Size) || res.QueueOffset != rs[i-1].QueueOffset+1 || res.QueueID != rs[0].QueueID) {
				t.Errorf("message %d: %+v behind %+v", i, res, rs[i-1])
			}
			ids[res.MessageID] = true
		}
		if len(ids) != len(ms) {
			t.Errorf("%d ids for %d messages", len(ids), len(ms))
		}
		r.show(t)
		if rec, err := r.GetByOffset(last.Offset, int(last.Size)); err != nil || string(rec.View.Body) != "batch 49" {
			t.Errorf("%q, %v", rec.View.Body, err)
		}
	}
	ms[3].Topic = "other"
	if _, err := r.PutBatch(t.Context(), ms, byStore); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("two topics: %v", err)
	}
}

func TestWaitNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{}, newSlaves(0))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- r.disp.Run(ctx) }()
		for i := range int64(3) { // first for a queue that does not exist
			woken := make(chan error, 1)
			go func() { woken <- r.WaitNew(ctx, "T", 0, i, r.disp.Dispatched) }()
			synctest.Wait()
			select {
			case err := <-woken:
				t.Fatalf("woken without a message: %v", err)
			default:
			}
			if _, err := r.Put(ctx, msg("x"), byStore); err != nil {
				t.Fatal(err)
			}
			r.log.SetReadable(r.log.End())
			if err := <-woken; err != nil {
				t.Error(err)
			}
			if got, err := r.Get(ctx, get(i)); err != nil || got.Status != store.Found {
				t.Errorf("woken for nothing: %+v, %v", got, err)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
