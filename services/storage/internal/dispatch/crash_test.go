package dispatch_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

const queueFileSize = 5 * consumequeue.UnitSize

// program appends, dispatches, flushes, cuts and restarts at random.
type program struct {
	t    *testing.T
	rnd  *rand.Rand
	fsys *memfs.FS
	log  *fakeLog
	q    *consumequeue.Set
	d    *dispatch.Dispatcher

	next    map[string]int64 // next queue offset by topic/queue
	offsets []int64          // of all records
	born    map[string]int64 // first queue offset in this log; queues that a cut empties go on with it
}

func newProgram(t *testing.T, seed uint64, fsys *memfs.FS) *program {
	p := &program{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), fsys: fsys, next: map[string]int64{}, born: map[string]int64{}}
	p.log = newLog(4096, 4096*p.rnd.Int64N(2))
	p.open()
	return p
}

func (p *program) open() {
	p.q = openQueues(p.t, p.fsys, "/s", consumequeue.Options{FileSize: queueFileSize, OpenFiles: 3})
	p.d = newDispatcher(p.t, p.log, p.q)
	catchUp(p.t, p.d, p.log)
}

func (p *program) put() {
	m := msg{topic: fmt.Sprintf("T%d", p.rnd.IntN(2)), queue: p.rnd.Int32N(3), tags: fmt.Sprint(p.rnd.Uint32()), body: p.rnd.IntN(200)}
	k := fmt.Sprint(m.topic, m.queue)
	if p.rnd.IntN(10) == 0 {
		m.sysFlag = message.TransactionPrepared
	} else {
		if _, ok := p.next[k]; !ok && p.log.first > 0 {
			p.next[k] = p.rnd.Int64N(12)
		}
		m.at = p.next[k]
		p.next[k]++
	}
	p.offsets = append(p.offsets, p.log.put(m))
}

// cut truncates at a record and counts the queue offsets anew.
func (p *program) cut() {
	if len(p.offsets) == 0 {
		return
	}
	i := p.rnd.IntN(len(p.offsets))
	to := p.offsets[i]
	p.offsets = p.offsets[:i]
	p.log.cut(to)
	check(p.t, p.d.Truncated(to))
	counted := offsetsIn(p.log)
	for k := range p.next {
		if n, ok := counted[k]; ok {
			p.next[k] = n
		} else if p.log.first == 0 {
			delete(p.next, k)
		} else {
			p.next[k] = p.born[k]
		}
	}
}

// reset empties the log, which goes on in a later file with later queue offsets.
func (p *program) reset() {
	start := p.log.end() - p.log.end()%p.log.size + p.log.size*(1+p.rnd.Int64N(2))
	p.offsets, p.born = nil, map[string]int64{}
	p.log.reset(start)
	check(p.t, p.d.Reset(start))
	for k := range p.next {
		p.next[k] += p.rnd.Int64N(12)
	}
}

func offsetsIn(l *fakeLog) map[string]int64 {
	out := map[string]int64{}
	eachRecord(l, func(v *message.View) {
		if message.Queued(v.SysFlag) {
			out[fmt.Sprint(string(v.Topic), v.QueueID)] = v.QueueOffset + 1
		}
	})
	return out
}

func eachRecord(l *fakeLog, f func(v *message.View)) {
	var v message.View
	for at := l.first; at < l.end(); {
		b, _, _ := l.View(at, int(l.size))
		n, kind, err := message.CheckView(b, at, message.CheckOptions{}, &v)
		if err != nil || n == 0 {
			panic(fmt.Sprint(at, kind, err))
		}
		if kind == message.Record {
			f(&v)
		}
		at += int64(n)
	}
}

func (p *program) step() {
	switch n := p.rnd.IntN(100); {
	case n < 60:
		p.put()
		k := len(p.offsets) - 1
		var v message.View
		b, _, _ := p.log.View(p.offsets[k], 4096)
		check(p.t, message.Decode(b, &v))
		key := fmt.Sprint(string(v.Topic), v.QueueID)
		if _, ok := p.born[key]; !ok && message.Queued(v.SysFlag) {
			p.born[key] = v.QueueOffset
		}
	case n < 85:
		p.log.Readable().Advance(p.log.first + p.rnd.Int64N(int64(len(p.log.data))+1))
		catchUp(p.t, p.d, p.log)
	case n < 94:
		check(p.t, p.q.Flush())
	case n < 96:
		p.cut()
	case n < 97:
		p.reset()
	default:
		check(p.t, p.q.Close())
		p.open()
	}
}

// crash is the store after a crash: what is left of the queues and of the log.
type crash struct {
	fsys *memfs.FS
	log  *fakeLog
	kind string
	what string
}

// lose is a copy of the log that ends at one of its records at the earliest at from.
func (p *program) lose(all bool) *fakeLog {
	l := newLog(p.log.size, p.log.first)
	data := slices.Clone(p.log.data)
	if !all {
		ends := []int64{p.log.end()}
		for _, o := range p.offsets {
			if o < p.log.end() {
				ends = append(ends, o)
			}
		}
		data = data[:ends[p.rnd.IntN(len(ends))]-p.log.first]
	}
	l.write(data)
	return l
}

// rebuilt is what the queues of a log must be.
func rebuilt(t *testing.T, l *fakeLog) map[string][]byte {
	t.Helper()
	fsys := newFS(t)
	q := openQueues(t, fsys, "/s", consumequeue.Options{FileSize: queueFileSize})
	catchUp(t, newDispatcher(t, l, q), l)
	check(t, q.Close())
	return meaningful(queueFiles(t, fsys, "/s"), l.first)
}

// meaningful takes away what a log that begins at first says nothing about: units of messages before it become blank
// units, and files without a message go. A cut or an emptied log may leave both, to remember the length of a queue.
func meaningful(files map[string][]byte, first int64) map[string][]byte {
	for name, b := range files {
		found := false
		for at := 0; at < len(b); at += consumequeue.UnitSize {
			offset := int64(binary.BigEndian.Uint64(b[at:]))
			switch size := binary.BigEndian.Uint32(b[at+8:]); {
			case size == 0 || size == math.MaxInt32:
			case offset < first:
				copy(b[at:], "\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00")
			default:
				found = true
			}
		}
		if !found {
			delete(files, name)
		}
	}
	return files
}

// prefix checks that every visible queue is the beginning of what it must be.
func (c *crash) prefix(t *testing.T, q *consumequeue.Set, want map[string][]byte) {
	t.Helper()
	for _, one := range q.List() {
		units := make([]consumequeue.Unit, one.Max()-one.Min())
		n, err := one.Read(one.Min(), units)
		check(t, err)
		for i, u := range units[:n] {
			at := (one.Min() + int64(i)) * consumequeue.UnitSize
			name := fmt.Sprintf("consumequeue/%s/%d/%020d", one.Topic(), one.ID(), at-at%queueFileSize)
			b := want[name]
			if b == nil {
				t.Fatalf("%s: queue %s/%d has a unit %d in a file that must not be", c.what, one.Topic(), one.ID(), one.Min()+int64(i))
			}
			at %= queueFileSize
			if got := fmt.Sprintf("%016x%08x%016x", uint64(u.Offset), uint32(u.Size), uint64(u.TagsCode)); got != fmt.Sprintf("%x", b[at:at+consumequeue.UnitSize]) {
				t.Fatalf("%s: unit %d of %s/%d is %s, want %x", c.what, one.Min()+int64(i), one.Topic(), one.ID(), got, b[at:at+consumequeue.UnitSize])
			}
		}
	}
}

// verify opens the store and lets the queues catch up, twice. It reports whether the first time could go on from a summary.
func (c *crash) verify(t *testing.T) (resumed bool) {
	t.Helper()
	c.log.show()
	want := rebuilt(t, c.log)
	for round := range 2 {
		q := openQueues(t, c.fsys, "/s", consumequeue.Options{FileSize: queueFileSize})
		from, err := q.Resume(c.log.first, c.log.end())
		check(t, err)
		resumed = resumed || round == 0 && from > c.log.first
		c.prefix(t, q, want)
		catchUp(t, newDispatcher(t, c.log, q), c.log)
		c.prefix(t, q, want)
		check(t, q.Close())
		sameFiles(t, fmt.Sprintf("%s, round %d", c.what, round), meaningful(queueFiles(t, c.fsys, "/s"), c.log.first), want)
		if t.Failed() {
			t.FailNow()
		}
	}
	return resumed
}

// TestEveryCrashIsFollowedByTheFullQueues crashes at the operations of random programs, as a process, as a machine, and
// with a torn disk; the log loses some of its end too.
func TestEveryCrashIsFollowedByTheFullQueues(t *testing.T) {
	resumed := map[string]int{}
	seeds, every := uint64(40), 7
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		fsys := newFS(t)
		var crashes []crash
		var p *program
		fsys.SetHook(func(op memfs.Op) memfs.Action {
			if p == nil || p.log == nil || !op.Kind.Mutates() || op.Seq%every != int(seed)%every {
				return memfs.Proceed
			}
			what := fmt.Sprintf("seed %d, operation %d (%s %s)", seed, op.Seq, op.Kind, op.Name)
			crashes = append(crashes,
				crash{fsys.CrashClone(memfs.All), p.lose(true), "killed", what + ", process killed"},
				crash{fsys.CrashClone(memfs.OnlySynced), p.lose(false), "power", what + ", power cut"},
				crash{fsys.CrashClone(memfs.Torn(uint32(op.Seq))), p.lose(false), "torn", what + ", torn"})
			return memfs.Proceed
		})
		p = newProgram(t, seed, fsys)
		for range 150 {
			p.step()
		}
		p.log.show()
		catchUp(t, p.d, p.log)
		check(t, p.q.Close())
		fsys.SetHook(nil)
		crashes = append(crashes, crash{fsys, p.log, "closed", fmt.Sprintf("seed %d, closed", seed)})
		for i := range crashes {
			if i%5 == 4 {
				check(t, crashes[i].fsys.RemoveAll("/s/tandem"))
				crashes[i].what += ", summary lost"
			}
			if crashes[i].verify(t) {
				resumed[crashes[i].kind]++
			}
		}
	}
	for _, kind := range []string{"killed", "power", "torn", "closed"} {
		if resumed[kind] < 10 {
			t.Errorf("a summary was of use only %d times after %q", resumed[kind], kind)
		}
	}
}

// TestEveryFailureIsFollowedByTheFullQueues lets single operations fail, applied or not.
func TestEveryFailureIsFollowedByTheFullQueues(t *testing.T) {
	for seed := range uint64(40) {
		for _, after := range []bool{false, true} {
			fsys := newFS(t)
			l := newLog(4096, 0)
			p := &program{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), log: l, next: map[string]int64{}, born: map[string]int64{}}
			for range 60 {
				p.put()
			}
			l.show()
			at := 1 + p.rnd.IntN(60)
			fsys.SetHook(func(op memfs.Op) memfs.Action {
				switch {
				case op.Seq != at:
					return memfs.Proceed
				case after:
					return memfs.FailAfter(vfs.ErrNoSpace)
				}
				return memfs.FailBefore(vfs.ErrNoSpace)
			})
			q := openQueues(t, fsys, "/s", consumequeue.Options{FileSize: queueFileSize})
			d := newDispatcher(t, l, q)
			for try := 0; ; try++ {
				err := d.CatchUp(t.Context(), l.end())
				if err == nil {
					break
				}
				if try > 1 {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			_ = q.Close() // a failed sync is an error of Close, and then a crash
			fsys.SetHook(nil)
			c := crash{fsys, l, "", fmt.Sprintf("seed %d, operation %d failed, applied %v", seed, at, after)}
			c.verify(t)
		}
	}
}
