package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/check/folder"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/store"
)

// life is what a group goes through, and the history of it: what was put, what was confirmed, what was seen.
type life struct {
	*bubble
	name string
	sent int
	ok   map[string]int64         // body of a PUT_OK, its offset
	seen []map[queueOffset]string // by node
	calm bool                     // nothing fails in this life
}

type queueOffset struct {
	queue int32
	at    int64
}

const bubbleTopic = "Topic"

func newLife(b *bubble, name string) *life {
	l := &life{bubble: b, name: name, ok: map[string]int64{}}
	for range b.cells {
		l.seen = append(l.seen, map[queueOffset]string{})
	}
	return l
}

func (l *life) errorf(format string, args ...any) {
	l.t.Helper()
	l.t.Errorf("%s: %s", l.name, fmt.Sprintf(format, args...))
}

// heal gives every cell that is down a process again.
func (l *life) heal() {
	for _, c := range l.cells {
		for try := 0; ; try++ {
			c.bury(l.inspect)
			if c.proc.Load() != nil {
				break
			}
			err := c.start()
			if err == nil {
				break
			}
			// The disk failed while it was opened: another process tries it on what is there.
			if l.calm || try > 2 {
				l.t.Fatalf("%s: node %d does not start: %v", l.name, c.id, err)
			}
			if !c.bury(l.inspect) {
				c.fs = c.fs.CrashClone(memfs.All)
			}
		}
	}
}

// master waits for one whose puts are taken; after 20 s an operator promotes the node with the best log.
func (l *life) master() *process {
	for i := range 1200 {
		if p := l.open(); p != nil {
			return p
		}
		pass(50 * time.Millisecond)
		if i%10 == 9 {
			l.heal()
		}
		if i%400 == 399 {
			l.promoteBest()
		}
	}
	for _, c := range l.cells {
		if p := c.proc.Load(); p != nil {
			l.t.Logf("node %d: %+v", c.id, p.role.State())
		}
	}
	l.t.Fatalf("%s: no master within a minute", l.name)
	return nil
}

// open returns a process that takes puts and can be reached.
func (l *life) open() *process {
	for _, c := range l.cells {
		if p := c.proc.Load(); p != nil && !p.dead.Load() && p.role.CheckOpen() == nil && !c.cut.Load() {
			return p
		}
	}
	return nil
}

func (l *life) promoteBest() {
	var best *process
	for _, c := range l.cells {
		if p := c.proc.Load(); p != nil && !c.cut.Load() && (best == nil || p.log.End() > best.log.End()) {
			best = p
		}
	}
	if best != nil {
		_, _ = l.promote(best, false) // the next round tries again
	}
}

func (l *life) promote(p *process, force bool) (bool, error) {
	ctx, cancel := context.WithTimeout(p.ctx, 15*time.Second)
	defer cancel()
	at, err := p.role.Promote(ctx, force)
	return at.Planned, err
}

// put puts until n more messages were PUT_OK.
func (l *life) put(n int) {
	for tries := 0; n > 0; tries++ {
		if tries > 3000 {
			l.t.Fatalf("%s: puts do not become PUT_OK", l.name)
		}
		if l.tryPut(l.master()) == store.PutOK {
			n--
			continue
		}
		pass(20 * time.Millisecond)
		l.heal()
	}
	l.read()
}

func (l *life) tryPut(p *process) store.Status {
	l.sent++
	body := fmt.Sprintf("%d %s", l.sent, strings.Repeat(string(rune('a'+l.sent%26)), 100+l.sent*617%2600))
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	r, err := p.store.Put(ctx, &store.Message{Topic: bubbleTopic, QueueID: int32(l.sent % 2), Body: []byte(body)}, store.Wait{Acks: -1}) //nolint:gosec // 0 or 1
	if err != nil || p.dead.Load() {
		return 0
	}
	if r.Status == store.PutOK {
		l.ok[body] = r.Offset
	}
	return r.Status
}

// read follows the queues on every node from the start, and compares with what was seen there before.
func (l *life) read() {
	for i, c := range l.cells {
		p := c.proc.Load()
		if p == nil || p.dead.Load() {
			continue
		}
		for queue := range int32(2) {
			next := int64(0)
			for {
				r, err := p.store.Get(context.Background(), &store.Get{
					Topic: bubbleTopic, QueueID: queue, QueueOffset: next, MaxMessages: 100, MaxBytes: 1 << 20, HardBytes: 1 << 20,
				})
				if p.dead.Load() || err != nil && p.log.Err() != nil {
					break // it dies
				}
				if err != nil {
					l.errorf("read queue %d of node %d at %d: %v", queue, i, next, err)
				}
				if len(r.Records) == 0 {
					break
				}
				for k := range r.Records {
					v := &r.Records[k].View
					if v.QueueOffset != next+int64(k) || v.QueueID != queue {
						l.errorf("node %d: message %d of queue %d where %d of %d is due", i, v.QueueOffset, v.QueueID, next+int64(k), queue)
					}
					at := queueOffset{queue, v.QueueOffset}
					if was, again := l.seen[i][at]; again && was != string(v.Body) {
						l.errorf("a reader of node %d saw %.10q and then %.10q at %v", i, was, v.Body, at)
					}
					l.seen[i][at] = string(v.Body)
				}
				next = r.Next
			}
		}
	}
}

// lead lets the group go through puts, flushes, new files, planned and other changes of the master, cuts and a clean restart.
func (l *life) lead() {
	l.heal()
	l.put(4)
	l.put(12)
	pass(11 * time.Second) // the queues are flushed
	if old := l.master(); old != nil {
		other := l.cells[(old.c.id+1)%len(l.cells)]
		if p := other.proc.Load(); p != nil {
			planned, err := l.promote(p, false)
			if l.calm && (err != nil || !planned) {
				l.errorf("planned change: %v, %v", planned, err)
			}
		}
	}
	l.put(6)
	l.forced()
	l.put(8)
	l.restart()
	l.put(4)
}

// forced is a master that is cut off with messages that nobody else has, another one, and the return of the first.
func (l *life) forced() {
	old := l.master()
	old.c.stalled.Store(true)
	for range 2 {
		if l.tryPut(old) == store.PutOK && l.calm {
			l.errorf("PUT_OK though nobody has it")
		}
	}
	old.c.cut.Store(true)
	old.c.stalled.Store(false)
	for i := 0; i < 50 && l.open() == nil; i++ {
		if i%10 == 0 {
			l.promoteBest()
		}
		pass(100 * time.Millisecond)
		l.heal()
	}
	old.c.cut.Store(false) // where the other one lacks something, without a change
	l.put(5)
	for range 200 {
		if l.heal(); l.together() {
			break
		}
		pass(100 * time.Millisecond)
	}
	if kept, err := commitlog.ListRollbacks(old.c.fs, bubbleRoot); l.calm && (err != nil || len(kept) != 1) {
		l.errorf("the old master has kept %v, %v", kept, err)
	}
}

// restart stops a slave in order and starts it again.
func (l *life) restart() {
	m := l.master()
	for _, c := range l.cells {
		if p := c.proc.Load(); p != nil && p != m && !p.dead.Load() {
			l.stop(c)
			return
		}
	}
}

// stop stops a cell in order; false: that has failed, and the next process will find what it left.
func (l *life) stop(c *cell) bool {
	err := c.stop()
	if err == nil {
		return true
	}
	if l.calm {
		l.errorf("stop of node %d: %v", c.id, err)
	}
	if !c.bury(l.inspect) {
		c.fs = c.fs.CrashClone(memfs.All)
	}
	return false
}

// together reports whether one node is open and all have its log, readable and dispatched.
func (l *life) together() bool {
	synctest.Wait()
	open := 0
	end := int64(-1)
	for _, c := range l.cells {
		p := c.proc.Load()
		if p == nil || p.dead.Load() || end >= 0 && p.log.End() != end {
			return false
		}
		end = p.log.End()
		if p.log.Readable().Load() != end || p.dispatch.Dispatched().Load() != end {
			return false
		}
		if p.role.CheckOpen() == nil {
			open++
		}
	}
	return open == 1
}

// judge ends the life and holds the promises.
func (l *life) judge() {
	for tries := 0; ; tries++ {
		l.comeTogether()
		l.read()
		l.count()
		if l.stopAll() {
			l.compare()
			return
		}
		if tries > 3 {
			l.t.Fatalf("%s: it does not stop", l.name)
		}
	}
}

func (l *life) stopAll() bool {
	ok := true
	for _, c := range l.cells {
		ok = l.stop(c) && ok
	}
	return ok
}

func (l *life) comeTogether() {
	for i := 0; !l.together(); i++ {
		if i > 1200 {
			for _, c := range l.cells {
				if p := c.proc.Load(); p != nil {
					l.t.Logf("node %d ends at %d, readable to %d, dispatched to %d: %+v", c.id, p.log.End(), p.log.Readable().Load(),
						p.dispatch.Dispatched().Load(), p.role.State())
				}
			}
			l.t.Fatalf("%s: the nodes do not come together", l.name)
		}
		pass(100 * time.Millisecond)
		l.heal()
	}
}

// count holds that every PUT_OK stands in the queues, once, at its offset, and that nothing has vanished that a reader saw.
func (l *life) count() {
	at, times := map[string]int64{}, map[string]int{}
	for queue := range int32(2) {
		m := l.master()
		for next := int64(0); ; {
			r, err := m.store.Get(context.Background(), &store.Get{
				Topic: bubbleTopic, QueueID: queue, QueueOffset: next, MaxMessages: 100, MaxBytes: 1 << 20, HardBytes: 1 << 20,
			})
			if err != nil || len(r.Records) == 0 {
				break
			}
			for k := range r.Records {
				body := string(r.Records[k].View.Body)
				at[body] = r.Records[k].Offset
				times[body]++
			}
			next = r.Next
		}
	}
	for body, n := range times {
		if n != 1 {
			l.errorf("%.10q stands there %d times", body, n)
		}
	}
	for body, offset := range l.ok {
		if have, ok := at[body]; !ok || have != offset {
			l.errorf("%.10q was PUT_OK at %d and is at %d (%t)", body, offset, have, ok)
		}
	}
	for i, seen := range l.seen {
		for where, body := range seen {
			if times[body] == 0 {
				l.errorf("a reader of node %d saw %.10q at %v, which has vanished", i, body, where)
			}
		}
	}
}

// compare holds that logs and queues are the same, and that the operator's check finds nothing.
func (l *life) compare() {
	for _, c := range l.cells {
		c.fs.SetHook(nil)
		for _, f := range findings(l.t, c.fs) {
			l.errorf("node %d: %s: %s", c.id, f.Place(), f.Detail)
		}
	}
	for _, c := range l.cells[1:] {
		if x := testkit.Same(l.t, l.cells[0].disk(), c.disk()); x.EndA != x.EndB {
			l.errorf("the log of node %d ends at %d, that of node 0 at %d", c.id, x.EndB, x.EndA)
		}
	}
}

// findings is what the operator's check calls damage.
func findings(t testingT, fs *memfs.FS) (bad []check.Finding) {
	t.Helper()
	_, err := folder.Check(context.Background(), fs, bubbleRoot, folder.Options{Now: time.Now(), Emit: func(f check.Finding) error {
		if !f.Note {
			bad = append(bad, f)
		}
		return nil
	}})
	if err != nil && !errors.Is(err, folder.ErrNoStore) {
		t.Errorf("check: %v", err)
	}
	return bad
}

type testingT interface {
	Helper()
	Errorf(format string, args ...any)
}
