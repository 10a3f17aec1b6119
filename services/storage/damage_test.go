package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// putSome puts count messages of some KB and returns where they are.
func (n *node) putSome(count int) []*storagev1.PutResult {
	n.t.Helper()
	var all []*storagev1.PutResult
	for i := range count {
		queue := int32(i % 4)
		r := n.put(noise(500+i*37%3000), func(req *storagev1.PutRequest) {
			req.Message.QueueId = &queue
			req.Message.Properties = map[string]string{"word": fmt.Sprint("value-", i)}
		})
		if r.GetOffset() < 0 {
			n.t.Fatalf("put: %v", r)
		}
		all = append(all, r)
	}
	return all
}

// flip flips a bit of a file.
func flip(t testing.TB, fsys vfs.FS, name string, pos int64) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], pos); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	_, err = f.WriteAt(b[:], pos)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// flipLog flips a bit of the log at an offset.
func (n *node) flipLog(offset int64) {
	n.t.Helper()
	size := int64(n.cfg.MappedFileSizeCommitLog)
	flip(n.t, n.fs, filepath.Join(n.cfg.StorePathRootDir, "commitlog", mappedfile.Name(offset-offset%size)), offset%size)
}

// flipUnit flips a bit in a unit's log offset.
func (n *node) flipUnit(topic string, queue int32, queueOffset int64) {
	n.t.Helper()
	size, pos := int64(n.cfg.MappedFileSizeConsumeQueue), queueOffset*20+4
	flip(n.t, n.fs, filepath.Join(n.cfg.StorePathRootDir, "consumequeue", topic, strconv.Itoa(int(queue)), mappedfile.Name(pos-pos%size)), pos%size)
}

// rot is what rots of a store: a body, a property, a size field and a queue unit in the middle of closed files.
type rot struct{ body, property, size, unit *storagev1.PutResult }

// rot spoils a node's files, of a running one after a flush, as its newest units are in memory before.
func (n *node) rot(all []*storagev1.PutResult) rot {
	n.t.Helper()
	if n.conn != nil {
		if _, err := n.admin().FlushNow(n.t.Context(), &storagev1.FlushNowRequest{}); err != nil {
			n.t.Fatal(err)
		}
	}
	r := rot{all[20], all[60], all[100], all[140]}
	n.flipLog(r.body.GetOffset() + 200)
	n.flipLog(r.property.GetOffset() + int64(r.property.GetSize()) - 30)
	n.flipLog(r.size.GetOffset() + 1)
	n.flipUnit("TopicTest", r.unit.GetQueueId(), r.unit.GetQueueOffset())
	return r
}

// places are the offsets that must be reported.
func (r rot) places() []string {
	end := func(p *storagev1.PutResult) int64 { return p.GetOffset() + int64(p.GetSize()) }
	return []string{
		fmt.Sprintf("record %d..%d bodyCRC", r.body.GetOffset(), end(r.body)),
		fmt.Sprintf("record %d..%d __CRC32#", r.property.GetOffset(), end(r.property)),
		fmt.Sprintf("record %d..%d totalSize", r.size.GetOffset(), end(r.size)),
		fmt.Sprintf("unit TopicTest/%d %d of %d offset", r.unit.GetQueueId(), r.unit.GetQueueOffset(), r.unit.GetOffset()),
	}
}

// check runs `storage check` on the node's folder.
func (n *node) check(args ...string) (string, error) {
	n.t.Helper()
	var out strings.Builder
	cfg := *n.cfg
	if err := cfg.Validate(); err != nil {
		n.t.Fatal(err)
	}
	err := runCheck(n.t.Context(), n.fs, &cfg, append(args, n.cfg.StorePathRootDir), &out, nil)
	return out.String(), err
}

// scrub returns what a scrub reports, and its summary.
func (n *node) scrub(req *storagev1.ScrubRequest) ([]*storagev1.Damage, *storagev1.ScrubSummary, error) {
	n.t.Helper()
	stream, err := n.admin().Scrub(n.t.Context(), req, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatal(err)
	}
	var damages []*storagev1.Damage
	var sum *storagev1.ScrubSummary
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return damages, sum, nil
		}
		if err != nil {
			return damages, sum, grpcx.FromStatus(err)
		}
		if d := resp.GetDamage(); d != nil {
			damages = append(damages, d)
		}
		if s := resp.GetSummary(); s != nil {
			sum = s
		}
	}
}

// clean fails unless a scrub finds nothing.
func (n *node) clean() {
	n.t.Helper()
	damages, sum, err := n.scrub(&storagev1.ScrubRequest{})
	if err != nil || len(damages) > 0 || sum.GetRecords() == 0 || sum.GetUnits() == 0 {
		n.t.Errorf("scrub of node %d: %v, %v, %v", n.cfg.BrokerID, damages, sum, err)
	}
}

func (n *node) repair(req *storagev1.RepairRequest) (ranges []*storagev1.RepairedRange, sum *storagev1.RepairSummary, err error) {
	n.t.Helper()
	stream, err := n.admin().Repair(n.t.Context(), req, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatal(err)
	}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return ranges, sum, nil
		}
		if err != nil {
			return ranges, sum, grpcx.FromStatus(err)
		}
		if r := resp.GetRange(); r != nil {
			ranges = append(ranges, r)
		}
		if s := resp.GetSummary(); s != nil {
			sum = s
		}
	}
}

func places(damages []*storagev1.Damage) []string {
	var out []string
	for _, d := range damages {
		if d.GetKind() == storagev1.DamageKind_DAMAGE_KIND_RECORD {
			out = append(out, fmt.Sprintf("record %d..%d %s", d.GetOffset(), d.GetEndOffset(), d.GetField()))
		} else {
			out = append(out, fmt.Sprintf("unit %s/%d %d of %d %s", d.GetTopic(), d.GetQueueId(), d.GetQueueOffset(), d.GetOffset(), d.GetField()))
		}
	}
	return out
}

// TestT10_RottenRecords: flipped bits in the middle of closed files are reported by offset, by check and by scrub, on a slave and
// on a master; the other records can be read; the bytes are fetched from the other node, after which both are the same.
func TestT10_RottenRecords(t *testing.T) {
	t.Parallel()
	for _, victim := range []int{0, 1} {
		t.Run([]string{"master", "slave"}[victim], func(t *testing.T) {
			t.Parallel()
			nodes := group(t, asyncMaster, 1)
			master := nodes[0]
			for _, n := range nodes {
				n.start()
			}
			master.awaitOpen()
			all := master.putSome(400)
			for _, n := range nodes {
				n.awaitEnd(master.end64())
			}
			sick, well := nodes[victim], nodes[1-victim]
			sick.halt()
			if out, err := sick.check(); err != nil || !strings.HasPrefix(out, "SOUND") {
				t.Fatalf("check before: %v\n%s", err, out)
			}
			r := sick.rot(all)
			before := files(t, sick.cfg.StorePathRootDir, ".")
			out, err := sick.check()
			if errdefs.ReasonOf(err) != "DAMAGED" || strings.Count(out, "DAMAGE ") != 4 {
				t.Errorf("check: %v\n%s", err, out)
			}
			for _, p := range []*storagev1.PutResult{r.body, r.property, r.size} {
				if !strings.Contains(out, fmt.Sprintf("record  %d..", p.GetOffset())) {
					t.Errorf("check does not name offset %d:\n%s", p.GetOffset(), out)
				}
			}
			if want := fmt.Sprintf("unit    TopicTest/%d unit %d: ", r.unit.GetQueueId(), r.unit.GetQueueOffset()); !strings.Contains(out, want) {
				t.Errorf("check does not say %q:\n%s", want, out)
			}
			equalFiles(t, before, files(t, sick.cfg.StorePathRootDir, "."))

			sick.start()
			sick.awaitEnd(well.end64())
			if _, err := sick.check(); !errors.Is(err, vfs.ErrLocked) {
				t.Errorf("check of a folder in use: %v", err)
			}
			sick.readsAllBut(all, r.body, r.property, r.size)
			damages, sum, err := sick.scrub(&storagev1.ScrubRequest{})
			if err != nil || sum.GetDamages() != 4 || sum.GetRecords() != int64(len(all))-3 {
				t.Errorf("scrub: %v, %v", sum, err)
			}
			if got, want := places(damages), r.places(); !slices.Equal(got, want) {
				t.Errorf("scrub found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if v, ok := sick.metric("storage_scrub_damages_total"); !ok || v != 4 {
				t.Errorf("metric of damages: %v, %v", v, ok)
			}
			well.clean()

			sick.repairsAll(well, r)
			sick.readsAllBut(all)
			sick.clean()
			if victim == 0 {
				sick.awaitOpen().put([]byte("on it goes"))
			} else {
				master.put([]byte("on it goes"))
			}
			same(t, master, nodes[1])
			if out, err := sick.check(); err != nil || !strings.Contains(out, "kept    repair/") {
				t.Errorf("check afterwards: %v\n%s", err, out)
			}
		})
	}
}

// repairsAll repairs what rot has done, first without changing anything.
func (n *node) repairsAll(well *node, r rot) {
	n.t.Helper()
	want := places(must1(n.t)(n.scrub(&storagev1.ScrubRequest{})))
	ranges, sum, err := n.repair(&storagev1.RepairRequest{Source: well.cfg.Listen, DryRun: true})
	if err != nil || sum.GetRepaired() != 4 || sum.GetLeft() != 0 || sum.GetChangedBytes() != 3 || sum.GetUnits() != 1 {
		n.t.Errorf("dry run: %v, %v, %v", ranges, sum, err)
	}
	if got := places(must1(n.t)(n.scrub(&storagev1.ScrubRequest{}))); !slices.Equal(got, want) {
		n.t.Errorf("a dry run has changed what is found: %v", got)
	}
	ranges, sum, err = n.repair(&storagev1.RepairRequest{Source: well.cfg.Listen})
	if err != nil || sum.GetRepaired() != 4 || sum.GetLeft() != 0 || sum.GetChangedBytes() != 3 || sum.GetUnits() != 1 {
		n.t.Fatalf("repair: %v, %v, %v", ranges, sum, err)
	}
	for i, p := range []*storagev1.PutResult{r.body, r.property, r.size} {
		if ranges[i].GetFromOffset() != p.GetOffset() || len(ranges[i].GetKept()) != 1 || ranges[i].GetChangedBytes() != 1 {
			n.t.Errorf("range %d: %v", i, ranges[i])
		}
	}
}

func must1(t testing.TB) func(d []*storagev1.Damage, _ *storagev1.ScrubSummary, err error) []*storagev1.Damage {
	return func(d []*storagev1.Damage, _ *storagev1.ScrubSummary, err error) []*storagev1.Damage {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// readsAllBut reads every message by its offset; those that are rotten are an error that says so, and nothing else.
func (n *node) readsAllBut(all []*storagev1.PutResult, rotten ...*storagev1.PutResult) {
	n.t.Helper()
	for i, p := range all {
		m, err := n.message().GetByOffset(n.t.Context(), &storagev1.GetByOffsetRequest{Offset: p.GetOffset()})
		switch bad := slices.Contains(rotten, p); {
		case bad && err == nil:
			n.t.Errorf("the rotten record at %d can be read", p.GetOffset())
		case bad && (asError(err).Reason != "RECORD_CORRUPT" || !strings.Contains(asError(err).Remedy, "tandemctl repair")):
			n.t.Errorf("the rotten record at %d: %v", p.GetOffset(), err)
		case !bad && err != nil:
			n.t.Errorf("the record at %d: %v", p.GetOffset(), err)
		case !bad && !bytes.Equal(m.GetMessage().GetMessage().GetBody(), noise(500+i*37%3000)):
			n.t.Errorf("the record at %d has another body", p.GetOffset())
		}
	}
}

// TestT10_RotThatWasFollowedByARebuild: queues that were built while a record was rotten have a blank in its place, and get its
// unit when it is repaired.
func TestT10_RotThatWasFollowedByARebuild(t *testing.T) {
	t.Parallel()
	nodes := group(t, asyncMaster, 1)
	for _, n := range nodes {
		n.start()
	}
	all := nodes[0].awaitOpen().putSome(300)
	nodes[1].awaitEnd(nodes[0].end64())
	s := nodes[1]
	s.halt()
	s.flipLog(all[50].GetOffset() + 200)
	for _, name := range []string{"consumequeue", "tandem/queues", "tandem/queues.bak"} {
		if err := os.RemoveAll(filepath.Join(s.cfg.StorePathRootDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	s.awaitEnd(nodes[0].end64())
	if ranges, sum, err := s.repair(&storagev1.RepairRequest{Source: nodes[0].cfg.Listen}); err != nil || sum.GetRepaired() != 1 || sum.GetUnits() != 1 {
		t.Errorf("repair: %v, %v, %v", ranges, sum, err)
	}
	s.clean()
	same(t, nodes[0], s)
}

// TestARepairTakesOnlyItsOwnHistory: bytes of another log, of a damaged or of a shorter one are refused, and nothing is changed.
func TestARepairTakesOnlyItsOwnHistory(t *testing.T) {
	t.Parallel()
	nodes := group(t, asyncMaster, 2)
	for _, n := range nodes {
		n.start()
	}
	master := nodes[0].awaitOpen()
	all := master.putSome(200)
	for _, n := range nodes {
		n.awaitEnd(master.end64())
	}
	sick, damaged, other := nodes[1], nodes[2], alone(t)
	other.cfg.BrokerID = 7
	other.start().awaitOpen().putSome(200)
	bad := all[50]
	for _, n := range []*node{sick, damaged} {
		n.halt()
		n.flipLog(bad.GetOffset() + 300)
		n.start()
		n.awaitEnd(master.end64())
	}
	before := must1(t)(sick.scrub(&storagev1.ScrubRequest{}))
	short := newNode(t, 8, slave, func(c *Config) { c.Master.Address = servicetest.FreeAddr(t) }) // nobody is there
	short.start()
	for name, c := range map[string]struct {
		source *node
		reason string
	}{
		"another history": {other, "HISTORY_DIFFERS: "},
		"damaged too":     {damaged, "SOURCE_DAMAGED: "},
		"too short":       {short, "SOURCE_LACKS: "},
	} {
		var ranges []*storagev1.RepairedRange
		var sum *storagev1.RepairSummary
		var err error
		eventually(t, "a connection to the source", func() bool { // it was started again
			ranges, sum, err = sick.repair(&storagev1.RepairRequest{Source: c.source.cfg.Listen})
			return errdefs.ClassOf(err) != errdefs.Unavailable
		})
		if err != nil || sum.GetLeft() != 1 || sum.GetChangedBytes() != 0 || len(ranges) != 1 || !strings.Contains(ranges[0].GetReason(), c.reason) || ranges[0].GetRemedy() == "" {
			t.Errorf("%s: %v, %v, %v", name, ranges, sum, err)
		}
	}
	if _, _, err := sick.repair(&storagev1.RepairRequest{Source: sick.cfg.Listen}); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("from itself: %v", err)
	}
	for _, req := range []*storagev1.RepairRequest{
		{Source: "nonsense"}, {Source: master.cfg.Listen, FromOffset: 10, ToOffset: 5}, {Source: master.cfg.Listen, BytesPerSecond: -1},
	} {
		if _, _, err := sick.repair(req); errdefs.ClassOf(err) != errdefs.InvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
	if after := must1(t)(sick.scrub(&storagev1.ScrubRequest{})); !slices.Equal(places(after), places(before)) {
		t.Errorf("found %v, before %v", places(after), places(before))
	}
	for _, n := range []*node{sick, damaged} { // a range that an operator names is widened to its records
		ranges, sum, err := n.repair(&storagev1.RepairRequest{Source: master.cfg.Listen, FromOffset: bad.GetOffset() + 10, ToOffset: bad.GetOffset() + 11})
		if err != nil || sum.GetRepaired() != 1 || sum.GetChangedBytes() != 1 || ranges[0].GetFromOffset() != bad.GetOffset() ||
			ranges[0].GetToOffset() != bad.GetOffset()+int64(bad.GetSize()) {
			t.Errorf("by range: %v, %v, %v", ranges, sum, err)
		}
		n.clean()
	}
	same(t, master, sick, damaged)
}

// TestAScrubCanBeEndedAndIsAlone: it reads at its rate, one at a time, until the caller has enough.
func TestAScrubCanBeEndedAndIsAlone(t *testing.T) {
	t.Parallel()
	n := alone(t).start().awaitOpen()
	n.putSome(300)
	stream, err := n.admin().Scrub(t.Context(), &storagev1.ScrubRequest{BytesPerSecond: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || first.GetProgress() == nil {
		t.Fatalf("the first answer: %v, %v", first, err)
	}
	if _, _, err := n.scrub(&storagev1.ScrubRequest{}); errdefs.ReasonOf(err) != "ALREADY_CHECKING" {
		t.Errorf("beside another: %v", err)
	}
	n.hangUp() // the caller goes
	n.dial()
	eventually(t, "the next scrub", func() bool {
		_, sum, err := n.scrub(&storagev1.ScrubRequest{FromOffset: 300 << 10})
		return err == nil && sum.GetFromOffset() == 256<<10
	})
	for _, req := range []*storagev1.ScrubRequest{{FromOffset: 1 << 40}, {ToOffset: 1 << 40}, {BytesPerSecond: -1}} {
		if _, _, err := n.scrub(req); err == nil {
			t.Errorf("%v was taken", req)
		}
	}
}

// TestCheckOfContradictions: small files against the log and the queues.
func TestCheckOfContradictions(t *testing.T) {
	t.Parallel()
	n := alone(t).start().awaitOpen()
	all := n.putSome(300)
	n.awaitEnd(n.end64())
	n.halt()
	whole := n.cfg.StorePathRootDir
	last := all[len(all)-1]
	for name, c := range map[string]struct {
		damage func(n *node)
		want   string
	}{
		"checkpoint": {func(n *node) { flip(t, n.fs, filepath.Join(n.cfg.StorePathRootDir, "checkpoint"), 4078) }, "DAMAGE  file    checkpoint: "},
		"lineage": {func(n *node) {
			flip(t, n.fs, filepath.Join(n.cfg.StorePathRootDir, "tandem/lineage"), 40)
		}, "DAMAGE  file    tandem/lineage: "},
		"summary": {func(n *node) {
			for _, f := range []string{"tandem/queues", "tandem/queues.bak"} {
				if err := durable.WriteFile(n.fs, filepath.Join(n.cfg.StorePathRootDir, f), []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}, "DAMAGE  file    tandem/queues: "},
		"queue gone": {func(n *node) {
			if err := os.RemoveAll(filepath.Join(n.cfg.StorePathRootDir, "consumequeue/TopicTest/2")); err != nil {
				t.Fatal(err)
			}
		}, "queue TopicTest/2 had units up to 75 and is shorter"},
		"last record": {func(n *node) { n.flipLog(last.GetOffset() + 150) }, fmt.Sprintf("DAMAGE  record  %d..", last.GetOffset())},
		"unit behind the log": {func(n *node) {
			f, err := os.OpenFile(filepath.Join(n.cfg.StorePathRootDir, "consumequeue/TopicTest/1", mappedfile.Name(0)), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			u := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, 1<<40), 100)
			_, err = f.WriteAt(append(u, make([]byte, 8)...), 75*20)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}, "TopicTest/1 unit 75: it points behind the end of the log"},
		"file of the middle gone": {func(n *node) {
			if err := os.Remove(filepath.Join(n.cfg.StorePathRootDir, "commitlog", mappedfile.Name(256<<10))); err != nil {
				t.Fatal(err)
			}
		}, "DAMAGE  file    commitlog/00000000000000262144: is missing; the next file begins at 524288"},
		"no clean stop": {func(n *node) {
			if err := os.WriteFile(filepath.Join(n.cfg.StorePathRootDir, "abort"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "note    file    abort: "},
	} {
		t.Run(name, func(t *testing.T) {
			sick := alone(t)
			copyTree(t, whole, sick.cfg.StorePathRootDir)
			if out, err := sick.check(); err != nil {
				t.Fatalf("before: %v\n%s", err, out)
			}
			c.damage(sick)
			out, err := sick.check()
			if damaged := strings.Contains(c.want, "note"); damaged == (err != nil) || !strings.Contains(out, c.want) {
				t.Errorf("%v\n%s\nwant %q", err, out, c.want)
			}
			if json, _ := sick.check("-json"); strings.Count(json, "\n") != strings.Count(out, "\n") || !strings.HasPrefix(json, "{") {
				t.Errorf("as JSON:\n%s", json)
			}
		})
	}
}

// TestCheckCommand is the command line of the binary.
func TestCheckCommand(t *testing.T) {
	t.Parallel()
	golden := filepath.Join(testkit.Golden(t, "rocketmq-5.3.3"), "master")
	n := alone(t)
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"check", golden}, 0, "SOUND: "},
		{[]string{"check"}, 2, ""},
		{[]string{"check", "-x"}, 2, ""},
		{[]string{"check", "a", "b"}, 2, ""},
	} {
		cmd := n.command(c.args...)
		out, err := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.HasPrefix(string(out), c.out) {
			t.Errorf("%v: code %d (%v), %s", c.args, code, err, out)
		}
	}
	flip(t, vfs.OS(), filepath.Join(golden, "commitlog", mappedfile.Name(0)), 5000)
	cmd := n.command("check", golden)
	if out, _ := cmd.Output(); cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(string(out), "DAMAGE  record  ") {
		t.Errorf("of a damaged folder: code %d, %s", cmd.ProcessState.ExitCode(), out)
	}
}
