package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// oracle says what must be, and why: what was answered, what each reign began with, and what those had whom its master heard.
type oracle struct {
	acked   map[string]acked           // topics by name, as last answered
	deleted map[string][]entry.Version // when they were deleted
	unsure  map[string]bool            // nobody promises anything about these
	offsets map[string]entry.QueueOffset
	delays  map[int32]entry.Delay
	top     int64 // the last reign that was judged

	mu     sync.Mutex // guards the following, which nodes write down
	reigns map[int64]*reign
	begun  []*reign // in the order in which they began
}

// acked is the answer to a change of a topic.
type acked struct {
	created bool
	version entry.Version // with it
}

// reign is how a reign began.
type reign struct {
	epoch   int64
	topics  *table.Table // nil: it has not begun
	answers map[int]answer
	heard   []int // by its master, as that says
}

// answer is what a node had when it told the master of a reign, before that began.
type answer struct {
	topics  *table.Table
	version entry.Version
}

// fenced is what a node had when a master asked it: from then on it takes nothing of a lower reign, be it restarted.
type fenced struct {
	epoch   int64
	version entry.Version
}

func newOracle() oracle {
	return oracle{
		acked: map[string]acked{}, deleted: map[string][]entry.Version{}, unsure: map[string]bool{},
		offsets: map[string]entry.QueueOffset{}, delays: map[int32]entry.Delay{}, reigns: map[int64]*reign{},
	}
}

// reign returns the one with a number. o.mu is held.
func (o *oracle) reign(epoch int64) *reign {
	if o.reigns[epoch] == nil {
		o.reigns[epoch] = &reign{epoch: epoch, answers: map[int]answer{}}
	}
	return o.reigns[epoch]
}

// simTables are the tables as role, syncer and rpc change them. They write down how a reign begins, and look after each change.
type simTables struct {
	*registry.Registry
	n *simNode
	p *simParts
}

func (t *simTables) Lead(ctx context.Context, epoch int64) error {
	w := t.n.w
	unheard := t.p.role.State().Unheard
	w.mu.Lock()
	r := w.reign(epoch)
	if r.topics == nil {
		r.heard = nil
		for i := range w.nodes {
			if i != t.n.id && !slices.Contains(unheard, simAddr(i)) {
				r.heard = append(r.heard, i)
			}
		}
	}
	w.mu.Unlock()
	err := t.Registry.Lead(ctx, epoch)
	w.found(t.n, t.Snapshot(entry.Topics))
	return err
}

func (t *simTables) Join(ctx context.Context, peer *table.Table) (table.Report, error) {
	r, err := t.Registry.Join(ctx, peer)
	t.n.stillFenced()
	return r, err
}

func (t *simTables) Follow(ctx context.Context, d *table.Delta, o table.FollowOptions) (table.Report, error) {
	r, err := t.Registry.Follow(ctx, d, o)
	t.n.stillFenced()
	return r, err
}

func (t *simTables) PutTopic(ctx context.Context, c *entry.TopicConfig, cond registry.Condition) (table.Entry, error) {
	e, err := t.Registry.PutTopic(ctx, c, cond)
	t.n.stillFenced()
	return e, err
}

func (t *simTables) DeleteTopic(ctx context.Context, name string, c registry.Condition) error {
	err := t.Registry.DeleteTopic(ctx, name, c)
	t.n.stillFenced()
	return err
}

// found notes the table of a node that has just stamped it, or comes back with it after a crash: so its reign began.
func (w *world) found(n *simNode, topics *table.Table) {
	w.mu.Lock()
	defer w.mu.Unlock()
	epoch := topics.Version().State
	r := w.reign(epoch)
	if r.topics != nil || w.owner[epoch] != n {
		return
	}
	r.topics = topics
	w.begun = append(w.begun, r)
	w.note("begun", "node", n.id, "epoch", epoch, "heard", fmt.Sprint(r.heard), "topics", topics.Version().String())
}

// told notes what a node answered to the master of a reign that is about to begin.
func (w *world) told(to *simNode, process *simParts, epoch int64, version entry.Version) {
	topics := process.registry.Snapshot(entry.Topics)
	w.mu.Lock()
	if r := w.reign(epoch); r.topics == nil {
		r.answers[to.id] = answer{topics, version}
	}
	w.mu.Unlock()
	w.note("told", "node", to.id, "epoch", epoch, "topics", version.String())
	own := to.role.Role()
	to.mu.Lock()
	if to.live == process && !to.dead.Load() && epoch > to.fenced.epoch && (!own.Master || own.Epoch < epoch) {
		to.fenced = fenced{epoch, version}
	}
	to.mu.Unlock()
}

// stillFenced fails the test where a node has taken something of a lower reign since it told a master what it had.
func (n *simNode) stillFenced() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.live == nil {
		return
	}
	now := n.live.registry.Snapshot(entry.Topics).Version()
	if n.fenced.epoch > now.State && n.fenced.version != now {
		n.w.t.Errorf("schedule %d: node %d told the master of reign %d of topics at %v, and has %v now", n.w.seed, n.id, n.fenced.epoch, n.fenced.version, now)
		n.fenced = fenced{}
	}
}

// look compares the node's tables with what they were.
func (n *simNode) look() {
	p := n.parts()
	if p == nil || n.dead.Load() {
		return
	}
	n.stillFenced()
	for _, k := range entry.Kinds() {
		if err := p.registry.Whole(k); err != nil {
			n.w.t.Errorf("node %d: %v", n.id, err)
		}
		now := p.registry.Snapshot(k)
		if before := n.seen[k]; before != nil {
			n.w.compare(n.id, before, now)
		}
		n.seen[k] = now
	}
}

// compare fails the test where a table has become poorer.
func (w *world) compare(id int, before, now *table.Table) {
	for e := range before.Ascend("") {
		next, ok := now.Get(e.Key)
		switch v := e.Value.(type) {
		case *entry.TopicConfig:
			deleted := slices.ContainsFunc(w.deleted[e.Key], func(v entry.Version) bool { return v.Compare(before.Version()) > 0 })
			// A node that led in the dark, from before a deletion, had stamped the topic with a version above the deletion's.
			if last, known := w.acked[e.Key]; known && !last.created {
				deleted = true
			}
			if !ok && !w.unsure[e.Key] && !deleted {
				w.t.Errorf("node %d has lost topic %s: %v, before %v", id, e.Key, now.Version(), before.Version())
			}
		case *entry.Offsets:
			have, _ := next.Value.(*entry.Offsets)
			for q := range v.All() {
				if h, there := have.Get(q.Queue); !there || h.Join(q) != h {
					w.t.Errorf("node %d: %s goes from %v to %v, %v, before %v", id, e.Key, q, h, now.Version(), before.Version())
				}
			}
		case *entry.Delay:
			if have, there := next.Value.(*entry.Delay); !there || have.Join(v) != have {
				w.t.Errorf("node %d: delay level %s goes from %v to %v, %v, before %v", id, e.Key, v, have, now.Version(), before.Version())
			}
		}
	}
}

// judge looks at reigns that have begun: what a master does not know of what was answered before is unsure from then on, and must be
// nobody's whom it heard. A reign that began when a higher one had begun already counts nothing.
func (w *world) judge() {
	w.mu.Lock()
	begun := w.begun
	w.begun = nil
	w.mu.Unlock()
	for _, r := range begun {
		if r.epoch <= w.top {
			continue
		}
		w.top = r.epoch
		w.counts.Opened++
		w.counts.Heard += len(r.heard)
		for name, last := range w.acked {
			if _, there := r.topics.Get(name); there == last.created || w.unsure[name] || last.version.State >= r.epoch {
				continue
			}
			w.unsure[name] = true
			for _, i := range r.heard {
				a := r.answers[i]
				if a.topics == nil {
					w.t.Errorf("schedule %d: reign %d: node %d counts as heard and was not asked", w.seed, r.epoch, i)
					continue
				}
				if _, theirs := a.topics.Get(name); theirs == last.created && a.version.Compare(last.version) >= 0 {
					w.t.Errorf("schedule %d: reign %d began without the change of topic %s to %+v, which node %d, at %v, had when it was heard", w.seed, r.epoch, name, last, i, a.version)
				}
			}
		}
	}
}

// answered notes the answer to a change of a topic.
func (w *world) answered(n *simNode, name string, created bool, err error, epoch int64, version entry.Version) {
	w.note("change", "node", n.id, "epoch", epoch, "topic", name, "created", created, "err", err, "version", version.String())
	w.judge()
	epoch = max(epoch, version.State)
	switch {
	case n.dead.Load() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, registry.ErrFaulted):
		w.unsure[name] = true // it may have happened
	case err != nil:
	case epoch < w.top, n.forgot: // a master that is none any more, or that could not save that it was told so
		w.unsure[name] = true
	default:
		w.acked[name] = acked{created, version}
		if !created {
			w.deleted[name] = append(w.deleted[name], version)
		}
	}
}

// holds notes an offset that was answered as durable.
func (w *world) holds(n *simNode, topic string) {
	if q, ok := n.parts().registry.Offset(topic, "G", 0); ok && !n.dead.Load() {
		key := entry.OffsetKey(topic, "G")
		w.offsets[key] = w.offsets[key].Join(q)
	}
}

// holdsDelay notes the offset of a delay level that was answered.
func (w *world) holdsDelay(n *simNode, level int32) {
	if d, ok := n.parts().registry.Snapshot(entry.DelayOffsets).Delay(level); ok && !n.dead.Load() {
		old := w.delays[level]
		w.delays[level] = *old.Join(&d)
	}
}

// equal says what differs.
func (w *world) equal() string {
	for _, n := range w.nodes {
		p := n.parts()
		if p == nil {
			return fmt.Sprintf("node %d is down", n.id)
		}
		for _, k := range entry.Kinds() {
			a, b := w.nodes[0].parts().registry.Snapshot(k), p.registry.Snapshot(k)
			if a.Sum() != b.Sum() || a.Version() != b.Version() {
				return fmt.Sprintf("%v of node 0 at %v, of node %d at %v: %v", k, a.Version(), n.id, b.Version(), p.syncer.State(k))
			}
		}
	}
	return ""
}

// check holds what all have in the end against what was answered.
func (w *world) check() {
	r := w.nodes[0].parts().registry
	w.counts.Topics, w.counts.Unsure, w.counts.Offsets = len(w.acked), len(w.unsure), len(w.offsets)
	for name, last := range w.acked {
		if _, there := r.Snapshot(entry.Topics).Get(name); there != last.created && !w.unsure[name] {
			w.t.Errorf("schedule %d: topic %s: answered %+v, there %v", w.seed, name, last, there)
		}
	}
	for level, d := range w.delays {
		if have, ok := r.Snapshot(entry.DelayOffsets).Delay(level); !ok || *have.Join(&d) != have {
			w.t.Errorf("schedule %d: delay level %d: answered %v, in the end %v", w.seed, level, d, have)
		}
	}
	for key, q := range w.offsets {
		topic, group, _ := entry.SplitOffsetKey(key)
		if have, ok := r.Snapshot(entry.ConsumerOffsets).Offset(topic, group, 0); !ok || have.Join(q) != have {
			w.t.Errorf("schedule %d: %s: answered as durable %v, in the end %v", w.seed, key, q, have)
		}
	}
}
