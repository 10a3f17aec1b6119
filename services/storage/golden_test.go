package main

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// logAndQueues are the folders whose files are RocketMQ's to the byte.
var logAndQueues = []string{"commitlog", "consumequeue"}

// asOnDisk takes the sizes of files from those that exist.
func asOnDisk(c *Config) { c.MappedFileSizeCommitLog, c.MappedFileSizeConsumeQueue = 0, 0 }

// legacy lets plain slaves in.
func legacy(c *Config) { c.HA.LegacySlaves = true }

// takeOver gives the node a copy of a folder that RocketMQ wrote.
func (n *node) takeOver(from string) *node {
	n.t.Helper()
	copyTree(n.t, from, n.cfg.StorePathRootDir)
	n.change(asOnDisk)
	return n
}

// capture is what a 4.9.7 pair said to each other.
type capture struct {
	golden string
	frames []testkit.Frame
	up     []int64
	end    int64
}

func readCapture(t testing.TB) *capture {
	t.Helper()
	c := &capture{golden: testkit.Golden(t, "rocketmq-4.9.7")}
	down, err := os.ReadFile(filepath.Join(c.golden, "wire", "tap-0.down"))
	if err != nil {
		t.Fatal(err)
	}
	for r := bytes.NewReader(down); r.Len() > 0; {
		f, err := testkit.ReadFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		c.frames = append(c.frames, f)
		c.end = f.Offset + int64(len(f.Body))
	}
	up, err := os.ReadFile(filepath.Join(c.golden, "wire", "tap-0.up"))
	if err != nil {
		t.Fatal(err)
	}
	for ; len(up) >= 8; up = up[8:] {
		c.up = append(c.up, int64(binary.BigEndian.Uint64(up)))
	}
	if len(c.frames) < 600 || len(c.up) < 600 || c.end < 700<<10 {
		t.Fatalf("the capture has %d frames and %d reports up to %d", len(c.frames), len(c.up), c.end)
	}
	return c
}

// from returns the frames as a master sends them to a slave that has reported offset, joined, and where each begins. To an
// empty slave, which reports 1, that is all but byte 0.
func (c *capture) from(offset int64) (b []byte, starts []int) {
	for _, f := range c.frames {
		end := f.Offset + int64(len(f.Body))
		if end < offset {
			continue
		}
		if f.Offset < offset {
			f = testkit.Frame{Offset: offset, Body: f.Body[offset-f.Offset:]}
		}
		starts = append(starts, len(b))
		b = append(b, f.Bytes()...)
	}
	return b, starts
}

// javaSlave makes an empty slave of a RocketMQ master.
func javaSlave(t testing.TB, m *testkit.FakeMaster) *node {
	t.Helper()
	n := newNode(t, 1, slave)
	n.cfg.Master.Address, n.cfg.Master.Legacy = m.Addr(), true
	return n
}

// finish waits until the slave has it all and compares its folder with the golden slave's.
func (c *capture) finish(t *testing.T, n *node) {
	t.Helper()
	n.awaitEnd(c.end)
	n.halt()
	golden := filepath.Join(c.golden, "slave")
	equalFiles(t, files(t, golden, logAndQueues...), files(t, n.cfg.StorePathRootDir, logAndQueues...))
	testkit.Same(t, testkit.OSStore(golden), n.store())
}

// TestCapturedMasterFeedsASlave gives a slave what RocketMQ's master sent, in segments cut at every byte of every header and
// at random places.
func TestCapturedMasterFeedsASlave(t *testing.T) {
	t.Parallel()
	c := readCapture(t)
	b, starts := c.from(1)
	var headers, random []int
	for _, at := range starts {
		for i := range 14 {
			headers = append(headers, at+i)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < len(b); at += 1 + r.IntN(4000) {
		random = append(random, at)
	}
	for name, cuts := range map[string][]int{"frames": starts, "headers": headers, "random": random} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testkit.ListenMaster(t)
			n := javaSlave(t, m).start()
			s := m.Accept()
			if got := s.Report(); got != 1 {
				t.Fatalf("an empty slave reports %d", got)
			}
			s.Send(testkit.Cut(b, cuts...)...)
			if got := s.AwaitReport(c.end); got != c.end {
				t.Errorf("the slave reports %d of %d", got, c.end)
			}
			c.finish(t, n)
		})
	}
}

// TestCapturedMasterBreaksOff ends the link at places of each kind: the slave's next report is exactly what had come.
func TestCapturedMasterBreaksOff(t *testing.T) {
	t.Parallel()
	c := readCapture(t)
	kinds := map[string]func(at, size int) int{
		"before a header":  func(at, _ int) int { return at },
		"inside a header":  func(at, _ int) int { return at + 7 },
		"behind a header":  func(at, _ int) int { return at + 12 },
		"inside a body":    func(at, size int) int { return at + 12 + size/2 },
		"before its end":   func(at, size int) int { return at + 12 + size - 1 },
		"restarted slaves": func(at, size int) int { return at + 12 + size/3 },
	}
	log := joined(files(t, filepath.Join(c.golden, "master"), "commitlog"), "commitlog")
	for i, name := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testkit.ListenMaster(t)
			n := javaSlave(t, m).start()
			r := rand.New(rand.NewPCG(uint64(i), 5)) //nolint:gosec // reproducible
			want := int64(1)
			for link := range scaled(4, 30) {
				s := m.Accept()
				if name == "restarted slaves" && link > 0 {
					want = wholeBelow(log, want) // the rest of a record goes when the slave starts
				}
				got := s.Report()
				if got != want {
					t.Fatalf("link %d: the slave reports %d, %d came", link, got, want)
				}
				b, starts := c.from(got)
				if len(starts) < 2 { // that was all of it
					s.Close()
					break
				}
				k := r.IntN(min(len(starts)-1, 170))
				cut := kinds[name](starts[k], starts[k+1]-starts[k]-12)
				s.Send(b[:cut])
				want = frameAt(b[starts[k]:]) + max(int64(cut-starts[k])-12, 0)
				if want > 1 {
					s.AwaitReport(want)
				}
				if name == "restarted slaves" {
					n.halt() // before the link ends, so that it does not come again
					s.Close()
					n.start()
					continue
				}
				s.Close()
			}
			if name == "restarted slaves" {
				want = wholeBelow(log, want)
			}
			s := m.Accept()
			if got := s.Report(); got != want {
				t.Fatalf("at last the slave reports %d, %d came", got, want)
			}
			b, _ := c.from(want)
			s.Send(b)
			c.finish(t, n)
		})
	}
}

// frameAt returns the offset of a frame.
func frameAt(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

// wholeBelow returns the end of the last record that ends at or before offset.
func wholeBelow(log []byte, offset int64) int64 {
	at := int64(0)
	for {
		next := at + int64(binary.BigEndian.Uint32(log[at:]))
		if next == at || next > offset {
			return at
		}
		at = next
	}
}

// TestCapturedSlaveIsServed lets a master take over RocketMQ's folder and gives it the reports of RocketMQ's slave, each once
// its offset has been sent.
func TestCapturedSlaveIsServed(t *testing.T) {
	t.Parallel()
	c := readCapture(t)
	want := files(t, filepath.Join(c.golden, "master"), logAndQueues...)
	for _, role := range []string{asyncMaster, syncMaster} {
		t.Run(role, func(t *testing.T) {
			n := newNode(t, 0, role, legacy).takeOver(filepath.Join(c.golden, "master")).start().awaitOpen()
			s := testkit.DialSlave(t, n.cfg.HAListen)
			sent := int64(0)
			for i, report := range c.up {
				for sent < report {
					f := s.NextData()
					sent = f.Offset + int64(len(f.Body))
				}
				if i > 0 && report > 0 && report < c.up[i-1] {
					t.Fatalf("report %d of the capture goes back", i)
				}
				s.Report(report)
			}
			for sent < c.end {
				f := s.NextData()
				sent = f.Offset + int64(len(f.Body))
			}
			s.Report(c.end)
			first, got := s.Bodies()
			if whole := joined(want, "commitlog")[:c.end]; first != 0 || !bytes.Equal(got, whole) {
				t.Errorf("%d bytes from %d are not RocketMQ's %d", len(got), first, len(whole))
			}
			for i, f := range s.Frames() {
				if len(f.Body) > 32<<10 || len(f.Body) > 0 && f.Offset>>18 != (f.Offset+int64(len(f.Body))-1)>>18 {
					t.Errorf("frame %d: %d bytes at %d", i, len(f.Body), f.Offset)
				}
			}
			st := n.await("the acknowledgement", func(st *storagev1.StatusResponse) bool {
				return len(st.GetSlaves()) == 1 && st.GetSlaves()[0].GetAckedOffset() == c.end
			})
			if sl := st.GetSlaves()[0]; !sl.GetLegacy() || sl.GetLagBytes() != 0 || !sl.GetInSync() {
				t.Errorf("the slave's status is %v", sl)
			}
			for _, bad := range []string{"bad_firsts", "bad_reports"} {
				if v, _ := n.metric("storage_replication_master_" + bad + "_total"); v != 0 {
					t.Errorf("%v %s of a real slave", v, bad)
				}
			}
			n.halt()
			equalFiles(t, want, files(t, n.cfg.StorePathRootDir, logAndQueues...))
		})
	}
}

// joined returns the files of one folder in order.
func joined(all map[string][]byte, folder string) []byte {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if filepath.Dir(name) == folder {
			b = append(b, all[name]...)
		}
	}
	return b
}

// goldenStores are the folders that RocketMQ left behind, with the end of each log.
func goldenStores(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, archive := range []string{"rocketmq-5.3.3", "rocketmq-4.9.7", "rocketmq-5.3.3-crash"} {
		dir := testkit.Golden(t, archive)
		for _, side := range []string{"master", "slave"} {
			out[archive+"/"+side] = filepath.Join(dir, side)
		}
	}
	return out
}

// TestGoldenStoresOpenedAndClosed: the whole service, as a slave that finds no master and as a master that gets no put, twice,
// changes no byte of RocketMQ's log and queues. The crash store keeps all whole records.
func TestGoldenStoresOpenedAndClosed(t *testing.T) {
	t.Parallel()
	ends := map[string]int64{"rocketmq-5.3.3-crash/master": 9250775, "rocketmq-5.3.3-crash/slave": 9235815}
	for name, golden := range goldenStores(t) {
		for _, role := range []string{slave, asyncMaster, syncMaster} {
			t.Run(name+" "+role, func(t *testing.T) {
				t.Parallel()
				want := files(t, golden, logAndQueues...)
				n := newNode(t, 1, role).takeOver(golden)
				n.cfg.Master.Address = map[bool]string{true: servicetest.FreeAddr(t)}[role == slave]
				for open := range 2 {
					n.start()
					if role != slave {
						n.awaitOpen()
					}
					st := n.await("the dispatcher", func(st *storagev1.StatusResponse) bool {
						w := st.GetWatermarks()
						return w.GetDispatchedOffset() == w.GetWrittenOffset() && w.GetFlushedOffset() == w.GetWrittenOffset()
					})
					if end := ends[name]; end != 0 && st.GetWatermarks().GetWrittenOffset() != end {
						t.Errorf("open %d: the log ends at %d, its last whole record at %d", open, st.GetWatermarks().GetWrittenOffset(), end)
					}
					if st.GetFileSize() != 256<<10 {
						t.Errorf("file size %d", st.GetFileSize())
					}
					n.halt()
					have := files(t, n.cfg.StorePathRootDir, logAndQueues...)
					if open == 1 || ends[name] == 0 {
						equalFiles(t, want, have)
					} else {
						equalFiles(t, onlyLog(want), onlyLog(have)) // the queues lagged behind the crash
						testkit.Same(t, testkit.OSStore(golden), n.store())
					}
					want = have
				}
			})
		}
	}
}

func onlyLog(all map[string][]byte) map[string][]byte {
	out := map[string][]byte{}
	for name, b := range all {
		if filepath.Dir(name) == "commitlog" {
			out[name] = b
		}
	}
	return out
}
