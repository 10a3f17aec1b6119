package repair_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/damage"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/repair"
)

const fileSize = 16 << 10

// store is a log with its queues.
type store struct {
	t        *testing.T
	fs       *memfs.FS
	log      *commitlog.Log
	queues   *consumequeue.Set
	dispatch *dispatch.Dispatcher
	epochs   epoch.List
	said     bytes.Buffer // what repairs log
}

// newStore makes a log of 200 records; ends are those of the records.
func newStore(t *testing.T) (*store, []int64) {
	t.Helper()
	s := &store{t: t, fs: memfs.New(), epochs: epoch.List{{Epoch: 1, ID: 7}}}
	s.open()
	cursors := []*commitlog.Cursor{commitlog.NewCursor(0), commitlog.NewCursor(0)}
	host := netip.MustParseAddrPort("10.0.0.1:10911")
	var ends []int64
	for i := range 200 {
		rec := message.Append(nil, &message.Draft{
			Topic: "Topic", QueueID: int32(i % 2), BornHost: host, StoreHost: host, Body: bytes.Repeat([]byte{byte(i)}, 100+i*17%300),
		}, true)
		a, err := s.log.Append(&commitlog.Batch{Records: [][]byte{rec}, Cursor: cursors[i%2]})
		must(t, err)
		ends = append(ends, a.Next)
	}
	s.catchUp()
	return s, ends
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *store) open() {
	var r *commitlog.Recovery
	var err error
	s.log, r, err = commitlog.Open(s.fs, "/s", commitlog.Options{FileSize: fileSize, BootID: "boot"})
	must(s.t, err)
	s.queues, err = consumequeue.Open(s.fs, "/s", consumequeue.Options{FileSize: 2000, Clean: r.Clean, Checkpoint: s.log.Checkpoint()})
	must(s.t, err)
	s.dispatch, err = dispatch.New(dispatch.Options{}, s.log, s.queues)
	must(s.t, err)
}

func (s *store) catchUp() {
	s.t.Helper()
	s.log.SetReadable(s.log.End())
	must(s.t, s.dispatch.CatchUp(s.t.Context(), s.log.End()))
}

func (s *store) close() {
	s.t.Helper()
	must(s.t, s.queues.Close())
	must(s.t, s.log.Close(true))
}

// rotten returns a copy of s with a flipped bit at each offset.
func (s *store) rotten(offsets ...int64) *store {
	s.t.Helper()
	s.close()
	c := &store{t: s.t, fs: s.fs.CrashClone(memfs.All), epochs: s.epochs}
	for _, at := range offsets {
		f, err := c.fs.OpenFile(filepath.Join("/s/commitlog", mappedfile.Name(at-at%fileSize)), os.O_RDWR, 0)
		must(s.t, err)
		var b [1]byte
		_, err = f.ReadAt(b[:], at%fileSize)
		must(s.t, err)
		b[0] ^= 1
		_, err = f.WriteAt(b[:], at%fileSize)
		must(s.t, errors.Join(err, f.Sync(), f.Close()))
	}
	for _, one := range []*store{s, c} {
		one.open()
		one.catchUp()
	}
	return c
}

func (s *store) bytes(from, to int64) []byte {
	s.t.Helper()
	var out []byte
	for from < to {
		b, release, err := s.log.View(from, int(to-from))
		must(s.t, err)
		out = append(out, b...)
		release()
		from += int64(len(b))
	}
	return out
}

// Mend implements repair.Queues.
func (s *store) Mend(from, to int64) (int, error) {
	n, err := s.dispatch.Mend(s.queues, from, to)
	return n, errors.Join(err, s.queues.Flush())
}

// source is a store as others see it.
type source struct {
	*store
	tamper func(b []byte) []byte // of what is fetched
	gone   error
	ranges int
}

func (s *source) Promise(context.Context, string, epoch.PromiseRequest) (epoch.Heard, error) {
	return epoch.Heard{Epochs: s.epochs, End: s.log.End(), First: s.log.FirstOffset(), FileSize: s.log.FileSize()}, s.gone
}

func (s *source) RangeChecksum(_ context.Context, _ string, from, to, stretch int64) ([]uint32, int64, error) {
	if stretch < 4<<10 || stretch < to-from {
		return nil, 0, fmt.Errorf("stretch %d of %d to %d", stretch, from, to)
	}
	return []uint32{crc32.Checksum(s.bytes(from, to), crc32.MakeTable(crc32.Castagnoli))}, to, nil
}

func (s *source) Range(_ context.Context, _ string, from, to int64) ([]byte, error) {
	s.ranges++
	b := s.bytes(from, to)
	if s.tamper != nil {
		b = s.tamper(b)
	}
	return b, nil
}

// repairs runs one repair of s from src.
func (s *store) repairs(src *source, r repair.Request) (repair.Summary, []repair.Range, error) {
	s.t.Helper()
	scrubs, err := check.NewScrubber(s.log, s.queues, func() int64 { return s.dispatch.Dispatched().Load() }, message.DelayLevels{}, nil)
	must(s.t, err)
	book, err := damage.NewBook(nil)
	must(s.t, err)
	k, err := repair.New(repair.Options{
		Self: epoch.PromiseRequest{Cluster: "here", BrokerName: "b", NodeID: 5}, Log: slog.New(slog.NewTextHandler(&s.said, nil)),
		Epochs: func() epoch.List { return s.epochs }, Keep: 1 << 20, Scrubs: scrubs, Queues: s, Sources: src, Book: book,
	}, s.log)
	must(s.t, err)
	var all []repair.Range
	r.Found = func(check.Finding) error { return nil }
	r.Done = func(x repair.Range) error { all = append(all, x); return nil }
	sum, err := k.Repair(s.t.Context(), r)
	known := book.Known()
	if whole := r.From == 0 && r.To == 0 && !r.DryRun && err == nil; whole && (known.Records+known.Units == 0) != (sum.Left == 0) {
		s.t.Errorf("the book has %+v after %+v", known, sum)
	}
	return sum, all, err
}

func TestRepair(t *testing.T) {
	well, ends := newStore(t)
	sick := well.rotten(ends[20]+120, ends[21]+120, ends[60]+1, ends[150]+2)
	sum, all, err := sick.repairs(&source{store: well}, repair.Request{})
	if err != nil || sum.Repaired != 3 || sum.Left != 0 || sum.Changed != 4 { // two of them stand side by side
		t.Errorf("%+v, %+v, %v", sum, all, err)
	}
	if !bytes.Equal(sick.bytes(0, sick.log.End()), well.bytes(0, well.log.End())) {
		t.Error("the logs differ")
	}
	if sum, all, err := sick.repairs(&source{store: well}, repair.Request{}); err != nil || sum != (repair.Summary{}) {
		t.Errorf("again: %+v, %+v, %v", sum, all, err)
	}
}

// What the source sends is not trusted, and who has no names for its history must have equal bytes beside the damage.
func TestRepairRefuses(t *testing.T) {
	well, ends := newStore(t)
	at, to := ends[19], ends[20]
	flip := func(i int) func(b []byte) []byte {
		return func(b []byte) []byte { b[i] ^= 1; return b }
	}
	for name, c := range map[string]struct {
		change func(s *source)
		reason string
	}{
		"a damaged source":      {func(s *source) { s.tamper = flip(100) }, "SOURCE_DAMAGED"},
		"a field without a sum": {func(s *source) { s.tamper = func(b []byte) []byte { return unsummed(b) } }, "SOURCE_DAMAGED"},
		"other sound bytes":     {func(s *source) { s.tamper = func([]byte) []byte { return other(at, int(to-at)) } }, "SOURCE_CHANGED"},
		"too few bytes":         {func(s *source) { s.tamper = func(b []byte) []byte { return b[:50] } }, "SOURCE_CHANGED"},
		"another reign":         {func(s *source) { s.epochs = epoch.List{{Epoch: 1, ID: 8}} }, "HISTORY_DIFFERS"},
		"a reign that parted":   {func(s *source) { s.epochs = epoch.List{{Epoch: 1, ID: 7}, {Epoch: 2, Start: at, ID: 9}} }, "HISTORY_DIFFERS"},
	} {
		t.Run(name, func(t *testing.T) {
			sick := well.rotten(at + 120)
			before := sick.bytes(0, sick.log.End())
			src := &source{store: &store{t: t, log: well.log, epochs: well.epochs}}
			c.change(src)
			sum, all, err := sick.repairs(src, repair.Request{})
			if err != nil || sum.Left != 1 || len(all) != 1 || errdefs.ReasonOf(all[0].Err) != c.reason || sum.Changed != 0 {
				t.Errorf("%+v, %+v, %v", sum, all, err)
			}
			if !bytes.Equal(sick.bytes(0, sick.log.End()), before) {
				t.Error("bytes were changed")
			}
		})
	}
	t.Run("one that cannot be reached", func(t *testing.T) {
		sick := well.rotten(at + 120)
		gone := errdefs.New(errdefs.Unavailable, "UNREACHABLE", "gone")
		if _, _, err := sick.repairs(&source{store: well, gone: gone}, repair.Request{}); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
	})
	t.Run("without epochs", func(t *testing.T) {
		sick := well.rotten(at + 120)
		sick.epochs = nil
		src := &source{store: &store{t: t, log: well.log}}
		if sum, all, err := sick.repairs(src, repair.Request{}); err != nil || sum.Repaired != 1 {
			t.Errorf("of the same bytes: %+v, %+v, %v", sum, all, err)
		}
		stranger, _ := newStore(t) // other store times, or the same: its bodies tell
		sick = well.rotten(at + 120)
		sick.epochs = nil
		src = &source{store: &store{t: t, log: stranger.log}}
		must(t, stranger.log.Truncate(ends[30]))
		host := netip.MustParseAddrPort("10.0.0.2:10911")
		for range 300 {
			rec := message.Append(nil, &message.Draft{Topic: "T", BornHost: host, StoreHost: host, Body: make([]byte, 150)}, true)
			_, err := stranger.log.Append(&commitlog.Batch{Records: [][]byte{rec}})
			must(t, err)
		}
		if sum, all, err := sick.repairs(src, repair.Request{}); err != nil || sum.Left != 1 || errdefs.ReasonOf(all[0].Err) != "HISTORY_DIFFERS" {
			t.Errorf("of others: %+v, %+v, %v", sum, all, err)
		}
	})
}

// A sound record beside the damage that differs in the source keeps the damage from being repaired: the remedy leads to it, and a
// repair of the range over both succeeds. The log says which was left and which was repaired.
func TestRepairBesideAnUnseenDifference(t *testing.T) {
	well, ends := newStore(t)
	sick := well.rotten(ends[20] + 120)
	_, err := sick.log.Overwrite(ends[23], other(ends[23], int(ends[24]-ends[23])), 1<<20)
	must(t, err)
	sum, all, err := sick.repairs(&source{store: well}, repair.Request{})
	if err != nil || sum.Repaired != 0 || len(all) == 0 || errdefs.ReasonOf(all[0].Err) != "HISTORY_DIFFERS" {
		t.Fatalf("%+v, %+v, %v", sum, all, err)
	}
	e := errdefs.As(all[0].Err)
	if !strings.Contains(e.Remedy, "tandemctl verify") || !strings.Contains(e.Remedy, "--range") || strings.Contains(e.Error(), "equal_from") {
		t.Errorf("%v", e)
	}
	if said := sick.said.String(); strings.Contains(said, "range repaired") || !strings.Contains(said, `level=WARN msg="range left as it is"`) ||
		!strings.Contains(said, "reason=HISTORY_DIFFERS") {
		t.Errorf("logged: %s", said)
	}
	sick.said.Reset()
	if sum, all, err := sick.repairs(&source{store: well}, repair.Request{From: ends[20], To: ends[24]}); err != nil || sum.Repaired != 1 {
		t.Errorf("of the range: %+v, %+v, %v", sum, all, err)
	}
	if said := sick.said.String(); !strings.Contains(said, `level=INFO msg="range repaired"`) || strings.Contains(said, "error=") {
		t.Errorf("logged: %s", said)
	}
	if !bytes.Equal(sick.bytes(0, sick.log.End()), well.bytes(0, well.log.End())) {
		t.Error("the logs differ")
	}
}

// What a source of another group answers names this node as the stranger: it is turned round.
func TestRepairFromAnotherGroup(t *testing.T) {
	well, ends := newStore(t)
	sick := well.rotten(ends[20] + 120)
	for want, gone := range map[string]error{
		"the source belongs to another cluster or broker (broker_name=b, cluster=here, source=, source_broker_name=x, source_cluster=there)": errdefs.
			New(errdefs.FailedPrecondition, "WRONG_CLUSTER", "the caller belongs to another cluster or broker").With("cluster", "there").With("broker_name", "x"),
		"source: the node at  has the brokerId 5 of this one": errdefs.Invalid("node_id", "5 is this node's too"),
	} {
		_, _, err := sick.repairs(&source{store: well, gone: fmt.Errorf("call: %w", gone)}, repair.Request{})
		if err == nil || !strings.HasPrefix(err.Error(), want) || errdefs.ClassOf(err) != errdefs.ClassOf(gone) || errdefs.As(err).Remedy == "" {
			t.Errorf("%v", err)
		}
	}
}

// unsummed takes a record's checksum property away, so that its lengths do not fit any more.
func unsummed(b []byte) []byte { return append(b[:len(b)-1:len(b)-1], 0) }

// other is a sound record of size bytes for offset at.
func other(at int64, size int) []byte {
	host := netip.MustParseAddrPort("10.0.0.9:10911")
	d := &message.Draft{Topic: "Topic", BornHost: host, StoreHost: host}
	d.Body = make([]byte, size-len(message.Append(nil, d, true)))
	rec := message.Append(nil, d, true)
	message.Stamp(rec, 0, at, 1)
	return rec
}

// A named range takes the source's bytes also where both are sound.
func TestRepairOfARange(t *testing.T) {
	well, ends := newStore(t)
	sick := well.rotten()
	_, err := sick.log.Overwrite(ends[19], other(ends[19], int(ends[20]-ends[19])), 1<<20)
	must(t, err)
	if sum, _, err := sick.repairs(&source{store: well}, repair.Request{DryRun: true, From: ends[19] + 5, To: ends[20] - 5}); err != nil || sum.Changed == 0 {
		t.Errorf("dry run: %+v, %v", sum, err)
	}
	src := &source{store: well}
	sum, all, err := sick.repairs(src, repair.Request{From: ends[19] + 5, To: ends[20] - 5})
	if err != nil || sum.Repaired != 1 || all[0].From != ends[19] || all[0].To != ends[20] || src.ranges != 1 {
		t.Errorf("%+v, %+v, %v", sum, all, err)
	}
	if !bytes.Equal(sick.bytes(0, sick.log.End()), well.bytes(0, well.log.End())) {
		t.Error("the logs differ")
	}
	for _, r := range []repair.Request{{From: 5, To: sick.log.End() + 1}, {From: -1, To: 7}} {
		if _, _, err := sick.repairs(src, r); errdefs.ClassOf(err) != errdefs.OutOfRange {
			t.Errorf("%+v: %v", r, err)
		}
	}
	// All of it, over the ends of files.
	if sum, all, err := sick.repairs(src, repair.Request{From: 0, To: sick.log.End()}); err != nil || sum.Repaired != 1 || sum.Changed != 0 {
		t.Errorf("all: %+v, %+v, %v", sum, all, err)
	}
}

// Units that are wrong, blank, or missing at the end of their queue are written anew from the log.
func TestRepairOfUnits(t *testing.T) {
	well, _ := newStore(t)
	sick := well.rotten()
	one := func(id int32, at int64) consumequeue.Unit {
		var u [1]consumequeue.Unit
		_, err := sick.queues.Lookup("Topic", id).Read(at, u[:])
		must(t, err)
		return u[0]
	}
	never := func(consumequeue.Unit) bool { return false }
	for _, w := range []struct {
		id int32
		at int64
		u  consumequeue.Unit
	}{{0, 0, consumequeue.Unit{Offset: 1 << 40, Size: 5}}, {0, 99, one(0, 7)}, {1, 40, consumequeue.Unit{Size: 1<<31 - 1}}} {
		want := one(w.id, w.at)
		if did, err := sick.queues.Mend([]byte("Topic"), w.id, w.at, w.u, never); !did || err != nil {
			t.Fatalf("%+v: %v, %v", w, did, err)
		}
		sum, all, err := sick.repairs(&source{store: well}, repair.Request{})
		if err != nil || sum.Units != 1 || sum.Left != 0 {
			t.Errorf("%+v: %+v, %+v, %v", w, sum, all, err)
		}
		if got := one(w.id, w.at); got != want {
			t.Errorf("%+v: %+v, want %+v", w, got, want)
		}
	}
	// A unit of a record that is not there stays, and is told.
	if did, err := sick.queues.Mend([]byte("Topic"), 1, 100, one(1, 7), never); !did || err != nil {
		t.Fatal(did, err)
	}
	sum, all, err := sick.repairs(&source{store: well}, repair.Request{})
	if err != nil || sum.Left != 1 || errdefs.ReasonOf(all[0].Err) != "UNIT_WITHOUT_RECORD" {
		t.Errorf("%+v, %+v, %v", sum, all, err)
	}
	if _, err := sick.queues.Mend([]byte("Topic"), 1, 500, one(1, 7), never); !errors.Is(err, consumequeue.ErrQueueGap) {
		t.Errorf("over a gap: %v", err)
	}
}
