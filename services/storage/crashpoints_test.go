package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// crashKind is what happens at one step of a node's disk.
type crashKind int

const (
	killed      crashKind = iota // the process ends before it
	powerLost                    // only what was synced is left
	powerTorn                    // and of what was not, a choice of pages
	failUndone                   // the step fails, not applied
	failApplied                  // the step fails, but applied
	crashKinds
)

func (k crashKind) String() string {
	return [...]string{"killed", "power lost", "power lost, torn", "failed, not applied", "failed, but applied"}[k]
}

// crashPoint is one of them in one life of a pair.
type crashPoint struct {
	sync bool // flush
	node int
	step int
	kind crashKind
}

func (c crashPoint) String() string {
	return fmt.Sprintf("sync flush %t, node %d, step %d %s", c.sync, c.node, c.step, c.kind)
}

// liveThrough has a pair live with one crash point, or with none (step 0). It returns how many steps each node's disk has made
// and whether the crash point came.
func liveThrough(t *testing.T, at crashPoint) (steps [2]int, came bool) {
	synctest.Test(t, func(t *testing.T) {
		pass(26 * 365 * 24 * time.Hour) // a time at which there are brokers
		b := newBubble(t, 2, at.sync)
		var made [2]atomic.Int64
		var reached atomic.Bool
		l := newLife(b, at.String())
		l.calm = at.step == 0
		for _, c := range b.cells {
			c.hook = func(p *process, op memfs.Op) memfs.Action {
				if n := made[c.id].Add(1); c.id != at.node || n != int64(at.step) {
					return memfs.Proceed
				}
				reached.Store(true)
				l.name = fmt.Sprintf("%s: %s %s", at, op.Kind, op.Name)
				switch at.kind {
				case failUndone:
					return memfs.FailBefore(nil)
				case failApplied:
					return memfs.FailAfter(nil)
				case killed:
					p.die(memfs.All, errDead)
				case powerLost:
					p.die(memfs.OnlySynced, errDead)
				default:
					p.die(memfs.Torn(uint32(at.step)), errDead) //nolint:gosec // a seed
				}
				return memfs.FailBefore(errDead)
			}
		}
		l.lead()
		l.judge()
		came = reached.Load()
		for i := range made {
			steps[i] = int(made[i].Load())
		}
	})
	return steps, came
}

// TestCrashPoints has a pair of storages on disks in memory live through puts, flushes, new files, cuts and changes of the master
// again and again. In each life something happens at one step of one disk: the process is killed, the power goes, or the step
// fails, undone or done. What is left must be sound: the log is a beginning of what was appended with all that was reported
// durable, a second start changes nothing, the queues are those that a rebuild makes, no promise is forgotten. Then the node
// comes back, the life goes on, and at its end no PUT_OK is missing, nothing stands there twice, each reader saw each message
// once and in order, and logs and queues are the same on both.
func TestCrashPoints(t *testing.T) {
	const least = 2000
	var all []crashPoint
	for _, syncFlush := range []bool{false, true} {
		steps, _ := liveThrough(t, crashPoint{sync: syncFlush})
		for node, n := range steps {
			for step := range n {
				for kind := range crashKinds {
					all = append(all, crashPoint{syncFlush, node, step + 1, kind})
				}
			}
		}
	}
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable by its seed
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	all = all[:scaled(100, len(all))]
	const parts = 2
	var tried atomic.Int64
	t.Run("lives", func(t *testing.T) {
		for part := range parts {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for i := part; i < len(all) && !t.Failed(); i += parts {
					if _, came := liveThrough(t, all[i]); came {
						tried.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d crash points", tried.Load())
	if want := int64(scaled(len(all)*3/4, least)); tried.Load() < want && !t.Failed() {
		t.Errorf("only %d crash points were tried, want %d", tried.Load(), want)
	}
}

// inspect opens a copy of what a dead process has left, twice.
func (l *life) inspect(p *process, r remains) {
	l.t.Helper()
	left := r.fs.CrashClone(memfs.All)
	c := l.cells[0]
	for _, x := range l.cells {
		if p != nil && p.c == x || p == nil && x.proc.Load() == nil {
			c = x
		}
	}
	for _, f := range findings(l.t, left.CrashClone(memfs.All)) {
		l.errorf("node %d (%v): %s: %s", c.id, r.why, f.Place(), f.Detail)
	}
	l.promises(c, left)
	before := rawLog(l.t, left)
	var bytesOf [2][]byte
	var units [2]map[string][]consumequeue.Unit
	for round := range 2 {
		log, rec, err := commitlog.Open(left, bubbleRoot, commitlog.Options{FileSize: bubbleFileSize, BootID: "another", SyncFlush: l.sync})
		if err != nil {
			l.errorf("open what is left of node %d: %v", c.id, err)
			return
		}
		if round == 0 {
			l.longEnough(c, r, rec, before)
		} else if rec.CutBytes != 0 || rec.Lost != 0 {
			l.errorf("the second start of node %d changes something: %+v", c.id, *rec)
		}
		bytesOf[round] = viewAll(l.t, log, log.End())
		log.SetReadable(log.End())
		units[round] = l.queuesOf(left, log)
		l.sameUnits("a rebuild", units[round], l.queuesOf(memfs.New(), log))
		if err := log.Close(false); err != nil {
			l.errorf("close what is left of node %d: %v", c.id, err)
		}
	}
	if !bytes.Equal(bytesOf[0], bytesOf[1]) {
		l.errorf("the second start of node %d finds other bytes", c.id)
	}
	l.sameUnits("the second start", units[0], units[1])
	if p != nil && !p.closed {
		live := viewAll(l.t, p.log, p.log.End())
		if n := min(len(live), len(bytesOf[0])); !bytes.Equal(live[:n], bytesOf[0][:n]) {
			l.errorf("what is left of node %d is no beginning of what it had", c.id)
		}
	}
}

// longEnough holds that what was reported durable is there; only a record that a slave has half may be missing.
func (l *life) longEnough(c *cell, r remains, rec *commitlog.Recovery, raw []byte) {
	l.t.Helper()
	if rec.Lost != 0 {
		l.errorf("node %d (%v) has lost %d durable bytes", c.id, r.why, rec.Lost)
	}
	if rec.End >= r.least {
		return
	}
	if half := raw[min(rec.End, int64(len(raw))):min(r.least, int64(len(raw)))]; len(half) >= 4 && rec.End+int64(binary.BigEndian.Uint32(half)) <= r.least {
		l.errorf("node %d (%v) recovers to %d, it had %d for sure", c.id, r.why, rec.End, r.least)
	}
}

// promises holds that the node knows what it has promised.
func (l *life) promises(c *cell, f *memfs.FS) {
	l.t.Helper()
	var lin epoch.Lineage
	data, _, err := durable.ReadChecked(f, filepath.Join(bubbleRoot, "tandem", "lineage"))
	if err == nil {
		err = lin.UnmarshalText(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.errorf("lineage of node %d: %v", c.id, err)
	}
	if promised := c.promised.Load(); lin.Known().Epoch < promised {
		l.errorf("node %d knows epoch %d, it has promised %d", c.id, lin.Known().Epoch, promised)
	}
}

// queuesOf lets the queues on a disk catch up with a log and returns their units.
func (l *life) queuesOf(f *memfs.FS, log *commitlog.Log) map[string][]consumequeue.Unit {
	l.t.Helper()
	q, err := consumequeue.Open(f, bubbleRoot, consumequeue.Options{FileSize: bubbleQueueSize})
	if err != nil {
		l.errorf("open queues: %v", err)
		return nil
	}
	d, err := dispatch.New(dispatch.Options{}, log, q)
	if err == nil {
		err = d.CatchUp(context.Background(), log.End())
	}
	all := map[string][]consumequeue.Unit{}
	for _, one := range q.List() {
		units := make([]consumequeue.Unit, one.Max()-one.Min())
		n, rerr := one.Read(one.Min(), units)
		if err = errors.Join(err, rerr); n < len(units) || one.Min() != 0 {
			l.errorf("%d of [%d, %d) of queue %s/%d can be read", n, one.Min(), one.Max(), one.Topic(), one.ID())
		}
		if n > 0 {
			all[fmt.Sprintf("%s/%d", one.Topic(), one.ID())] = units[:n]
		}
	}
	if err = errors.Join(err, q.Close()); err != nil {
		l.errorf("queues: %v", err)
	}
	return all
}

func (l *life) sameUnits(what string, a, b map[string][]consumequeue.Unit) {
	l.t.Helper()
	if fmt.Sprint(a) != fmt.Sprint(b) {
		l.errorf("the queues are %v, by %s %v", a, what, b)
	}
}

// viewAll returns the bytes of a log up to end.
func viewAll(t *testing.T, l *commitlog.Log, end int64) []byte {
	t.Helper()
	var all []byte
	for at := int64(0); at < end; {
		b, release, err := l.View(at, int(end-at))
		if err != nil || len(b) == 0 {
			t.Errorf("view at %d of %d: %v", at, end, err)
			return all
		}
		all = append(all, b...)
		at += int64(len(b))
		release()
	}
	return all
}

// rawLog returns the bytes of the log's files, zeros behind its end included.
func rawLog(t *testing.T, f *memfs.FS) (all []byte) {
	t.Helper()
	for at := int64(0); ; at += bubbleFileSize {
		file, err := f.OpenFile(filepath.Join(bubbleRoot, "commitlog", mappedfile.Name(at)), 0, 0)
		if err != nil {
			return all
		}
		b := make([]byte, bubbleFileSize)
		n, _ := file.ReadAt(b, 0)
		all = append(all, b[:n]...)
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}
