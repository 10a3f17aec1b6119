package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
)

// sink is a slave's log without sync flush.
type sink struct{ *commitlog.Log }

func (s sink) Report() *watermark.Mark { return s.Written() }

// upstream is a slave's stream under way.
type upstream struct {
	began   time.Time
	from    int64
	cancel  context.CancelFunc
	ended   chan struct{}
	control sync.WaitGroup
	err     error
}

// join begins a stream, beside a control stream where one is named: what this slave dispatches is what the master has told
// it is readable. Without one it dispatches all that comes.
func (w *worker) join(ctx context.Context, args *words, _ *answer) error {
	raw, err := hex.DecodeString(args.text("token"))
	if err != nil {
		return err
	}
	token := [16]byte(raw)
	s := replication.NewSlave(replication.SlaveOptions{Congestion: args.text("congestion")}, sink{w.node.log})
	l := &upstream{from: w.node.log.End(), ended: make(chan struct{})}
	ctx, l.cancel = context.WithCancel(ctx)
	if err := w.node.follow(ctx, args.text("control"), &l.control); err != nil {
		l.cancel()
		return err
	}
	l.began = time.Now()
	go func() {
		defer close(l.ended)
		l.err = s.Stream(ctx, replication.StreamArgs{
			Addr: args.text("addr"), Token: &token, Frame: args.int("frame"),
		})
	}()
	w.joined = l
	return nil
}

// arrived waits until the log has reached `to` and is dispatched up to there, and says how fast both came about, counted
// from join.
func (w *worker) arrived(ctx context.Context, args *words, a *answer) error {
	l, n, to := w.joined, w.node, int64(args.int("to"))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := n.log.Written().Wait(ctx, to); err != nil {
		select {
		case <-l.ended:
			err = l.err
		default:
		}
		return fmt.Errorf("log stands at %d of %d: %w", n.log.End(), to, err)
	}
	written := time.Since(l.began)
	if err := n.disp.Dispatched().Wait(ctx, to); err != nil {
		return err
	}
	mb := float64(to-l.from) / 1e6
	a.Number["GB"] = mb / 1e3
	a.Number["MB/s"] = mb / written.Seconds()
	a.Number["dispatched MB/s"] = mb / time.Since(l.began).Seconds()
	return nil
}

// leave ends the stream.
func (w *worker) leave(_ context.Context, _ *words, a *answer) error {
	if w.joined == nil {
		return errors.New("there is no stream")
	}
	w.joined.end()
	w.joined = nil
	a.Number["end"] = float64(w.node.log.End())
	return nil
}

func (l *upstream) end() {
	l.cancel()
	<-l.ended
	l.control.Wait()
}
