package main

import (
	"context"
	"encoding/hex"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/replication"
	"github.com/tandemlog/tandem/services/storage/internal/store"
	"github.com/tandemlog/tandem/services/storage/internal/topics"
)

const (
	topic  = "benchmark"
	queues = 8
)

// leader is an open master.
type leader struct {
	master *replication.Master
	store  *store.Store
	cancel context.CancelFunc
	ended  chan error // of master and control streams
}

// guard lets everybody put; it costs what a reign's lock costs.
type guard struct{ mu sync.RWMutex }

func (g *guard) Enter() error {
	g.mu.RLock()
	return nil
}

func (g *guard) Leave() { g.mu.RUnlock() }

// lead opens the node's log for puts and slaves.
func (w *worker) lead(ctx context.Context, args *words, a *answer) error {
	n := w.node
	m := replication.NewMaster(replication.MasterOptions{Congestion: args.text("congestion")}, n.log)
	s, err := store.New(store.Options{
		StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"), SyncMaster: true, AppendPropCRC: true,
	}, n.log, m, n.queues, topics.NewStatic(queues), new(guard))
	if err != nil {
		return err
	}
	ln, err := listen(ctx)
	if err != nil {
		return err
	}
	control, err := listen(ctx)
	if err != nil {
		return err
	}
	if err := s.BeginReign(n.log.End(), n.log.End()); err != nil {
		return err
	}
	n.log.SetAhead(true)
	m.Open(n.log.End())
	l := &leader{master: m, store: s, ended: make(chan error, 2)}
	ctx, l.cancel = context.WithCancel(ctx)
	go func() { l.ended <- m.Run(ctx, ln) }()
	go func() { l.ended <- serveControl(ctx, control, n.log) }()
	w.leader = l
	a.Text["addr"], a.Text["control"] = ln.Addr().String(), control.Addr().String()
	return nil
}

func (l *leader) end() error {
	l.cancel()
	return errors.Join(<-l.ended, <-l.ended)
}

// grant lets one slave connect.
func (w *worker) grant(_ context.Context, args *words, a *answer) error {
	token, _, err := w.leader.master.Grant(replication.Grant{
		NodeID: int64(args.int("node")), Address: "benchmark",
		Start: int64(args.int("start")), Frame: args.int("frame"),
	})
	a.Text["token"] = hex.EncodeToString(token[:])
	return err
}

// fill puts messages until the log has grown by `bytes`.
func (w *worker) fill(ctx context.Context, args *words, a *answer) error {
	n := w.node
	body, end := make([]byte, args.int("body")), n.log.End()+int64(args.int("bytes"))
	for i := range body {
		body[i] = byte(i * 7)
	}
	batch := make([]store.Message, max(1, (256<<10)/len(body)))
	for i := range batch {
		batch[i] = store.Message{Topic: topic, Body: body}
	}
	messages := 0
	for i := int32(0); n.log.End() < end; i++ {
		for j := range batch {
			batch[j].QueueID = i % queues
		}
		if _, err := w.leader.store.PutBatch(ctx, batch, store.Wait{}); err != nil {
			return err
		}
		messages += len(batch)
	}
	n.log.SetReadable(n.log.End())
	a.Number["end"], a.Number["messages"] = float64(n.log.End()), float64(messages)
	if _, err := n.log.FlushNow(ctx); err != nil { // or the disk would be busy while others measure
		return err
	}
	return n.disp.Dispatched().Wait(ctx, n.log.End())
}

// acked waits until that many slaves are in sync and have all that is in the log. The mark alone would not do: it stays where
// a slave brought it that has left since.
func (w *worker) acked(ctx context.Context, args *words, _ *answer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	m, slaves := w.leader.master, args.int("slaves")
	for changes := m.InSyncChanged(); ; {
		seen := changes.Load()
		if m.InSync() >= slaves {
			return m.Acked(slaves).Wait(ctx, w.node.log.End())
		}
		if err := changes.Wait(ctx, seen+1); err != nil {
			return err
		}
	}
}

// put measures puts of `callers` goroutines that each wait for `acks` slaves before the next one; 0: for none.
func (w *worker) put(ctx context.Context, args *words, a *answer) error {
	callers, acks := args.int("callers"), args.int("acks")
	body := make([]byte, args.int("body"))
	ctx, cancel := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		w.raiseReadable(ctx, acks)
	}()
	results := make([]caller, callers)
	warm := time.Now().Add(warmUp)
	end := warm.Add(args.duration("time"))
	var wg sync.WaitGroup
	for i := range results {
		c := &results[i]
		c.m = store.Message{Topic: topic, QueueID: int32(i % queues), Body: body} //nolint:gosec // a small number
		wg.Go(func() { c.run(ctx, w.leader.store, store.Wait{Acks: acks}, warm, end) })
	}
	wg.Wait()
	cancel()
	<-followed
	var took []time.Duration
	for i := range results {
		if err := results[i].err; err != nil {
			return err
		}
		took = append(took, results[i].took...)
	}
	return report(took, args.duration("time"), a)
}

// raiseReadable does what the role does on an open master: readers see what enough slaves have.
func (w *worker) raiseReadable(ctx context.Context, acks int) {
	mark := w.node.log.Written()
	if acks > 0 {
		mark = w.leader.master.Acked(acks)
	}
	for mark.Wait(ctx, w.node.log.Readable().Load()+1) == nil {
		w.node.log.SetReadable(mark.Load())
	}
}

// caller is one producer.
type caller struct {
	m    store.Message
	took []time.Duration
	err  error
}

func (c *caller) run(ctx context.Context, s *store.Store, w store.Wait, warm, end time.Time) {
	c.took = make([]time.Duration, 0, 1<<12)
	for began := time.Now(); len(c.took) == 0 || began.Before(end); {
		if c.err = putOne(ctx, s, &c.m, w); c.err != nil {
			return
		}
		now := time.Now()
		if began.After(warm) {
			c.took = append(c.took, now.Sub(began))
		}
		began = now
	}
}

func putOne(ctx context.Context, s *store.Store, m *store.Message, w store.Wait) error {
	r, err := s.Put(ctx, m, w)
	switch {
	case err != nil:
		return err
	case r.Status != store.PutOK:
		return errors.Join(errors.New("a put was not PUT_OK"), r.Err)
	}
	return nil
}

// allocs counts the allocations of the whole process in a put that waits for a slave.
func (w *worker) allocs(ctx context.Context, args *words, a *answer) error {
	m := store.Message{Topic: topic, Body: make([]byte, args.int("body"))}
	var failed error
	a.Number["allocs"] = testing.AllocsPerRun(args.int("count"), func() {
		failed = errors.Join(failed, putOne(ctx, w.leader.store, &m, store.Wait{Acks: args.int("acks")}))
	})
	return failed
}
