package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// TestT2_TheSlaveIsPromoted instead of the crashed master's being started: what the master had lost is not lost, and it comes back
// to it. Nothing is cut.
func TestT2_TheSlaveIsPromoted(t *testing.T) {
	t.Parallel()
	for name, into := range map[string]int64{"at a record": 0, "inside a record": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := group(t, syncMaster, 1)
			for _, n := range g {
				n.start()
			}
			g[0].awaitOpen().awaitSlaves(1)
			g[0].fill(scaled(300, 1000))
			cut := g[0].put([]byte("the first one that is lost")).GetOffset()
			g[0].fill(50)
			end := g[0].end64()
			g[1].awaitEnd(end)
			g[0].halt()
			g[0].loseTail(cut + into)
			if p, err := g[1].promote(false); err != nil || p.GetStartOffset() != end {
				t.Fatalf("promote: %v, %v", p, err)
			}
			g[1].fill(100)
			g[0].start()
			if got := g[0].app.recovery.End; got != cut {
				t.Errorf("the old master recovers to %d, its last whole record ends at %d", got, cut)
			}
			g[1].awaitSlaves(1)
			g[1].fill(100)
			for _, n := range g {
				if kept := n.kept(); len(kept) > 0 {
					t.Errorf("node %d had to cut %v", n.cfg.BrokerID, kept)
				}
			}
			noErrors(t, g[1])
			same(t, g[1], g[0])
		})
	}
}

// TestT5_TruncationSurvivesACrash: a slave is cut and killed at once. Alone it has nothing of what was cut, in log or queues; then
// it goes on with a master whose log is another one from there on.
func TestT5_TruncationSurvivesACrash(t *testing.T) {
	t.Parallel()
	const fileSize, count = 256 << 10, 300
	for name, place := range map[string]func(offsets []int64) int64{
		"inside a file":   func(offsets []int64) int64 { return offsets[count-10] },
		"at a file start": func([]int64) int64 { return 3 * fileSize },
		"two files back":  func(offsets []int64) int64 { return offsets[count/4] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := alone(t)
			s := follower(t, 1, master)
			master.start().awaitOpen()
			var offsets []int64
			for i := range count {
				offsets = append(offsets, master.put(fmt.Appendf(nil, "message %d %s", i, noise(3000))).GetOffset())
			}
			end := master.end64()
			s.start().awaitEnd(end)
			s.halt()
			master.halt()
			at := place(offsets)
			master.loseTail(at)
			master.change(func(c *Config) { c.AllowDataLoss = true }) // whole files are gone
			master.start().awaitOpen()
			if got := master.end64(); got != at {
				t.Fatalf("the master ends at %d, want %d", got, at)
			}
			for i := range 50 {
				master.put(fmt.Appendf(nil, "another message %d", i))
			}
			s.spawn()
			s.await("the cut", func(st *storagev1.StatusResponse) bool { return st.GetWatermarks().GetWrittenOffset() < end })
			s.kill()
			master.halt()

			s.spawn()
			w := s.status().GetWatermarks()
			if w.GetWrittenOffset() < at || w.GetReadableOffset() > w.GetWrittenOffset() || w.GetFlushedOffset() > w.GetWrittenOffset() || w.GetDispatchedOffset() > w.GetWrittenOffset() {
				t.Errorf("alone, after a cut to %d: %v", at, w)
			}
			for i, o := range offsets {
				if o < at {
					continue
				}
				r, err := s.message().GetByOffset(t.Context(), &storagev1.GetByOffsetRequest{Offset: o})
				if body := r.GetMessage().GetMessage().GetBody(); err == nil && bytes.HasPrefix(body, []byte("message ")) {
					t.Fatalf("message %d, which was cut, is read at %d", i, o)
				}
			}
			for body := range s.bodies("TopicTest") {
				var i int
				if _, err := fmt.Sscanf(body, "message %d ", &i); err == nil && offsets[i] >= at {
					t.Errorf("message %d, which was cut, is in a queue", i)
				}
			}
			s.halt()
			theirs := joined(files(t, master.cfg.StorePathRootDir, "commitlog"), "commitlog")
			mine := joined(files(t, s.cfg.StorePathRootDir, "commitlog"), "commitlog")
			if have := w.GetWrittenOffset(); !bytes.Equal(mine[:have], theirs[:have]) || len(bytes.TrimLeft(mine[have:], "\x00")) > 0 {
				t.Errorf("the log up to %d is not the master's, or more is there", have)
			}
			master.start().awaitOpen()
			s.start().awaitEnd(master.end64())
			if seen := s.bodies("TopicTest"); len(seen["another message 49"]) != 1 {
				t.Errorf("the last message stands at %v", seen["another message 49"])
			}
			same(t, master, s)
		})
	}
}

// TestT9_CrashAcrossAFile: the log has rolled, three messages are in its new file, and some of the queues did not reach the disk.
// Master and slave come back with each message once, and go on.
func TestT9_CrashAcrossAFile(t *testing.T) {
	t.Parallel()
	made := alone(t).start().awaitOpen()
	twin := follower(t, 1, made).start()
	var want []string
	for after := 0; after < 3; {
		body := fmt.Sprintf("message %d %s", len(want), noise(500))
		queue := int32(len(want) % 2) //nolint:gosec // 0 or 1
		r := made.put([]byte(body), func(r *storagev1.PutRequest) { r.Message.QueueId = &queue })
		want = append(want, body)
		if r.GetOffset() >= 256<<10 {
			after++
		}
	}
	end := made.end64()
	for _, n := range []*node{twin, made} {
		n.awaitEnd(end)
		n.halt()
	}
	for name, spoil := range map[string]func(t *testing.T, n *node){
		"nothing is missing": func(*testing.T, *node) {},
		"all queues are gone": func(t *testing.T, n *node) {
			for _, x := range []string{"consumequeue", "tandem/queues", "tandem/queues.bak"} {
				if err := os.RemoveAll(filepath.Join(n.cfg.StorePathRootDir, x)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"the newest queue files are gone": func(t *testing.T, n *node) {
			for _, names := range queueFiles(t, n) {
				remove(t, n, names[len(names)-1])
			}
		},
		"pages of the queues were never written": func(t *testing.T, n *node) {
			for _, names := range queueFiles(t, n) {
				for _, name := range names[1:] {
					write(t, n, name, string(make([]byte, 2000)))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := alone(t).takeOver(made.cfg.StorePathRootDir)
			s := follower(t, 1, master).takeOver(twin.cfg.StorePathRootDir)
			for _, n := range []*node{master, s} {
				spoil(t, n)
				write(t, n, "abort", "another boot\n")
			}
			master.start().awaitOpen()
			s.start()
			for _, n := range []*node{master, s} {
				n.awaitEnd(end)
				seen := n.bodies("TopicTest")
				for i, body := range want {
					if len(seen[body]) != 1 {
						t.Errorf("node %d: message %d stands at %v", n.cfg.BrokerID, i, seen[body])
					}
				}
				if len(seen) != len(want) {
					t.Errorf("node %d: %d messages, %d were put", n.cfg.BrokerID, len(seen), len(want))
				}
				noErrors(t, n)
			}
			master.fill(50)
			same(t, master, s)
		})
	}
}

// queueFiles returns the names of the files of each queue, in order.
func queueFiles(t *testing.T, n *node) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for name := range files(t, n.cfg.StorePathRootDir, "consumequeue") {
		all[filepath.Dir(name)] = append(all[filepath.Dir(name)], name)
	}
	for queue, names := range all {
		if slices.Sort(names); len(names) < 2 {
			t.Fatalf("queue %s has %d files", queue, len(names))
		}
	}
	return all
}
