package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// TestStopAndRestart: SIGTERM ends the process with 0 and leaves a folder that looks closed; the next one goes on there.
func TestStopAndRestart(t *testing.T) {
	t.Parallel()
	n := alone(t)
	abort := filepath.Join(n.cfg.StorePathRootDir, "abort")
	var end int64
	for run := range 3 {
		n.spawn().awaitOpen()
		if got := n.end64(); got != end {
			t.Errorf("run %d begins at %d, the last one ended at %d", run, got, end)
		}
		if _, err := os.Stat(abort); err != nil {
			t.Errorf("no abort file while it runs: %v", err)
		}
		n.fill(50)
		end = n.end64()
		if err := n.signal(syscall.SIGTERM); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		n.hangUp()
		if _, err := os.Stat(abort); !os.IsNotExist(err) {
			t.Errorf("the abort file is left: %v", err)
		}
	}
	if log := n.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "DATA RACE") {
		t.Errorf("not a quiet stop:\n%s", log)
	}
}

// TestALostLogIsNotOpened: a node alone whose files are gone, as when its disk is not mounted, does not begin anew and have
// its slaves cut to nothing; an operator may say so.
func TestALostLogIsNotOpened(t *testing.T) {
	t.Parallel()
	n := alone(t)
	n.start().awaitOpen()
	n.fill(50)
	n.halt()
	if err := os.RemoveAll(filepath.Join(n.cfg.StorePathRootDir, "commitlog")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it does not forget by being started again
		n.start().await("LOG_LOST", func(st *storagev1.StatusResponse) bool { return st.GetReason() == "LOG_LOST" && !st.GetOpen() })
		n.halt()
	}
	n.cfg.AllowDataLoss = true
	n.start().awaitOpen()
	n.fill(1)
}

// TestKillAndRestart: after kill -9 every message that was confirmed is there, once, and its queue goes on.
func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	n := alone(t)
	confirmed := map[string]int64{}
	for run := range 3 {
		n.spawn().awaitOpen()
		for i := range 50 {
			body := fmt.Appendf(nil, "run %d message %d", run, i)
			confirmed[string(body)] = n.put(body).GetOffset()
		}
		n.kill()
	}
	n.spawn().awaitOpen().awaitEnd(n.end64())
	seen := n.bodies("TopicTest")
	for body, offset := range confirmed {
		if at := seen[body]; len(at) != 1 || at[0] != offset {
			t.Errorf("%q was confirmed at %d and is at %v", body, offset, at)
		}
	}
	if len(seen) != len(confirmed) {
		t.Errorf("%d messages, %d were sent", len(seen), len(confirmed))
	}
	n.halt()
}

// TestT10_TornAndRotten on whole storages: a torn tail goes, rot stays and is told, and a slave gets a sound copy of neither.
func TestT10_TornAndRotten(t *testing.T) {
	t.Parallel()
	made := alone(t).start().awaitOpen()
	var offsets []int64
	queue := int32(0)
	for i := range 100 {
		r := made.put(fmt.Appendf(nil, "message %d %s", i, strings.Repeat("x", 500)), func(r *storagev1.PutRequest) { r.Message.QueueId = &queue })
		offsets = append(offsets, r.GetOffset())
	}
	end := made.end64()
	made.halt()
	log := joined(files(t, made.cfg.StorePathRootDir, "commitlog"), "commitlog")
	size := int(end - offsets[99])

	// again opens a copy of the store with other bytes from an offset on, as after a crash.
	n := alone(t)
	again := func(t *testing.T, at int64, b []byte) *node {
		t.Helper()
		if err := os.RemoveAll(n.cfg.StorePathRootDir); err != nil {
			t.Fatal(err)
		}
		n.takeOver(made.cfg.StorePathRootDir)
		n.log = &servicetest.Record{}
		name := filepath.Join(n.cfg.StorePathRootDir, "commitlog", fmt.Sprintf("%020d", 0))
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		write(t, n, "abort", "a crash")
		return n.start().awaitOpen()
	}
	for k := 1; k <= size; k += scaled(97, 1) {
		n := again(t, end-int64(k), make([]byte, k))
		if got := n.end64(); got != offsets[99] {
			t.Errorf("with %d bytes of the last record gone the log ends at %d, record 99 at %d", k, got, offsets[99])
		}
		n.halt()
	}
	t.Run("a copy behind the end", func(t *testing.T) {
		n := again(t, end, log[offsets[10]:offsets[11]])
		if got := n.end64(); got != end {
			t.Errorf("the log ends at %d, want %d", got, end)
		}
		n.halt()
	})
	for name, at := range map[string]int64{"body": 88 + 10, "size": 1, "property": 600} {
		t.Run("rot in a "+name, func(t *testing.T) {
			off := offsets[50] + at
			n := again(t, off, []byte{log[off] ^ 1})
			n.awaitEnd(end)
			if bad, _ := n.metric("storage_dispatch_bad_total"); bad == 0 && !strings.Contains(n.log.String(), fmt.Sprintf("offset=%d", offsets[50])) {
				t.Errorf("the bad record at %d is not told", offsets[50])
			}
			for i, o := range offsets {
				r, err := n.message().GetByOffset(t.Context(), &storagev1.GetByOffsetRequest{Offset: o})
				if i == 50 {
					continue
				}
				if err != nil || !bytes.Equal(r.GetMessage().GetMessage().GetBody()[:8], log[o+88:o+96]) {
					t.Errorf("record %d: %v", i, err)
				}
			}
			r, err := n.message().Get(t.Context(), &storagev1.GetRequest{Topic: "TopicTest", QueueOffset: 51, MaxMessages: 100, MaxBytes: 1 << 20})
			if err != nil || len(r.GetMessages()) != 49 {
				t.Errorf("the records behind it: %d, %v", len(r.GetMessages()), err)
			}
			n.halt()
		})
	}
}

// TestAStopUnderLoad: with streams open and traffic on every side SIGTERM ends master and slaves soon, with 0 and without an
// abort file, and nothing that was confirmed is missing.
func TestAStopUnderLoad(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 2)
	for _, n := range g {
		n.spawn()
	}
	master := g[0].awaitOpen()
	master.awaitSlaves(2)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 10 {
		watch, err := master.admin().WatchStatus(ctx, &storagev1.WatchStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		tail, err := g[1+i%2].message().GetStream(ctx, &storagev1.GetStreamRequest{Topic: "TopicTest", QueueId: int32(i % 8)}) //nolint:gosec // small
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { drain(watch.Recv) })
		wg.Go(func() { drain(tail.Recv) })
	}
	var mu sync.Mutex
	confirmed := map[int64][]byte{}
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				body := fmt.Appendf(nil, "writer %d message %d", w, i)
				resp, err := master.message().Put(ctx, &storagev1.PutRequest{Message: &storagev1.Message{Topic: "TopicTest", Body: body}})
				if err != nil {
					return
				}
				if r := resp.GetResult(); r.GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK {
					mu.Lock()
					confirmed[r.GetOffset()] = body
					mu.Unlock()
				}
			}
		})
	}
	eventually(t, "a thousand confirmed puts", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(confirmed) >= scaled(200, 1000)
	})
	for _, n := range g {
		began := time.Now()
		if err := n.signal(syscall.SIGTERM); err != nil {
			t.Errorf("node %d: %v", n.cfg.BrokerID, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("node %d took %v to stop", n.cfg.BrokerID, took)
		}
		if _, err := os.Stat(filepath.Join(n.cfg.StorePathRootDir, "abort")); !os.IsNotExist(err) {
			t.Errorf("node %d left its abort file: %v", n.cfg.BrokerID, err)
		}
		noErrors(t, n)
	}
	wg.Wait()
	log := joined(files(t, master.cfg.StorePathRootDir, "commitlog"), "commitlog")
	for offset, body := range confirmed {
		if have := log[offset+88 : offset+88+int64(len(body))]; !bytes.Equal(have, body) {
			t.Errorf("%q was confirmed at %d, there is %q", body, offset, have)
		}
	}
	for _, n := range g {
		n.hangUp()
		n.spawn() // what was not readable yet is put into the slaves' queues now
	}
	master.awaitOpen()
	same(t, master, g[1:]...)
}

// TestAStopEndsWaitingPuts: a put that waits for a slave which stands still does not hold up the stop, and gets its status.
func TestAStopEndsWaitingPuts(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1, patient, func(c *Config) { c.SlaveTimeout = time.Minute })
	link := behind(g[0])
	g[0].start()
	g[1].start()
	g[0].awaitOpen().awaitSlaves(1)
	link.Stall(testkit.Up)
	link.Stall(testkit.Down)
	end := g[0].end64()
	answer := make(chan *storagev1.PutResponse, 1)
	conn := g[0].conn
	go func() {
		defer close(answer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := storagev1.NewMessageServiceClient(conn).Put(ctx, &storagev1.PutRequest{Message: &storagev1.Message{Topic: "TopicTest", Body: []byte("x")}})
		if err != nil {
			t.Errorf("put: %v", err)
		}
		answer <- r
	}()
	g[0].await("the append", func(st *storagev1.StatusResponse) bool { return st.GetWatermarks().GetWrittenOffset() > end })
	g[0].conn = nil
	began := time.Now()
	g[0].halt()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if r := <-answer; r.GetResult().GetStatus() != storagev1.PutStatus_PUT_STATUS_FLUSH_SLAVE_TIMEOUT {
		t.Errorf("the put was answered %v", r)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// drain receives until the stream ends.
func drain[T any](recv func() (T, error)) {
	for {
		if _, err := recv(); err != nil {
			return
		}
	}
}

// TestConfirmedMessagesSurviveKills: synchronous puts go on while the slaves and the master are killed with -9 in turn; in the
// end every confirmed message is on all three, once.
func TestConfirmedMessagesSurviveKills(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 2)
	for _, n := range g {
		n.spawn()
	}
	g[0].awaitOpen().awaitSlaves(2)
	c, err := client.Dial(t.Context(), client.Options{Addresses: g[0].cfg.HA.Peers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	confirmed := map[string]int64{}
	var count atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		p := c.Producer(client.ProducerOptions{RetryFor: -1})
		for i := 0; ctx.Err() == nil; i++ {
			body := fmt.Sprintf("message %d", i)
			r, err := p.Put(ctx, &client.Message{Topic: "TopicKill", Body: []byte(body)})
			if err == nil && r.GetStatus() == client.StatusOK {
				confirmed[body] = r.GetOffset()
				count.Add(1)
			}
		}
	})
	more := func() {
		t.Helper()
		from := count.Load()
		eventually(t, "more confirmed puts", func() bool { return count.Load() >= from+50 })
	}
	for _, n := range []*node{g[1], g[0], g[2], g[0]} {
		more()
		n.kill()
		n.spawn()
		g[0].awaitOpen().awaitSlaves(2)
	}
	more()
	cancel()
	wg.Wait()
	end := g[0].end64()
	for _, n := range g {
		n.awaitEnd(end)
		seen := n.bodies("TopicKill")
		for body, offset := range confirmed {
			if at := seen[body]; len(at) != 1 || at[0] != offset {
				t.Errorf("node %d: %q was confirmed at %d and is at %v", n.cfg.BrokerID, body, offset, at)
			}
		}
	}
	same(t, g[0], g[1:]...)
}

// bodies reads a topic to its end: the offsets of each body.
func (n *node) bodies(topic string) map[string][]int64 {
	n.t.Helper()
	queues, err := n.message().ListQueues(n.t.Context(), &storagev1.ListQueuesRequest{Topic: topic})
	if err != nil {
		n.t.Fatal(err)
	}
	seen := map[string][]int64{}
	for _, q := range queues.GetQueues() {
		for at := q.GetMinQueueOffset(); at < q.GetMaxQueueOffset(); {
			r, err := n.message().Get(n.t.Context(), &storagev1.GetRequest{Topic: topic, QueueId: q.GetQueueId(), QueueOffset: at, MaxMessages: 1000, MaxBytes: 1 << 20})
			if err != nil {
				n.t.Fatal(err)
			}
			if len(r.GetMessages()) == 0 || r.GetNextQueueOffset() <= at {
				n.t.Fatalf("queue %d does not go on at %d of %d: %v", q.GetQueueId(), at, q.GetMaxQueueOffset(), r)
			}
			for i, m := range r.GetMessages() {
				if m.GetQueueOffset() != at+int64(i) {
					n.t.Errorf("queue %d: queue offset %d where %d is due", q.GetQueueId(), m.GetQueueOffset(), at+int64(i))
				}
				body := string(m.GetMessage().GetBody())
				seen[body] = append(seen[body], m.GetOffset())
			}
			at = r.GetNextQueueOffset()
		}
	}
	return seen
}
