package topics

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/sleep"
	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
)

// Run follows the table until ctx ends; it returns nil.
func (v *View) Run(ctx context.Context) error {
	pause := newBackoff()
	whole := true // ask for the whole table
	for {
		began := time.Now()
		err := v.watch(ctx, whole)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		v.broken(err)
		// What does not fit, or makes no sense, is asked for anew.
		whole = v.table.Load() == nil || errors.Is(err, errGap) || errdefs.ClassOf(err) == errdefs.DataLoss
		if time.Since(began) > maxBackoff {
			pause.reset()
		}
		if !pause.wait(ctx) {
			return nil
		}
	}
}

// watch takes one transfer after the other. The error says why there are no more.
func (v *View) watch(ctx context.Context, whole bool) (err error) {
	conn, err := v.conn(v.o.Address)
	if err != nil {
		return err
	}
	conn.ResetConnectBackoff() // Run has its own, which is shorter
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(v.o.Timeout, func() { cancel(errStalled.With("after", v.o.Timeout)) })
	defer silence.Stop()
	defer func() {
		if errors.Is(context.Cause(ctx), errStalled) {
			err = context.Cause(ctx)
		}
	}()
	req := &configsyncv1.WatchRequest{Caller: v.caller(), Kind: configsyncv1.Kind_KIND_TOPICS}
	if s := v.table.Load(); s != nil && !whole {
		req.Have = &configsyncv1.TableVersion{
			Kind: configsyncv1.Kind_KIND_TOPICS, Sum: s.sum, Entries: int64(s.count),
			DataVersion: &configsyncv1.DataVersion{StateVersion: s.version.State, Counter: s.version.Counter, Timestamp: s.version.Timestamp},
		}
	}
	stream, err := configsyncv1.NewConfigSyncServiceClient(conn).Watch(ctx, req)
	if err != nil {
		return err
	}
	for {
		d, err := v.receive(stream, silence)
		if err == nil {
			err = v.take(ctx, d)
		}
		if errors.Is(err, io.EOF) {
			err = errEnded
		}
		if err != nil {
			return err
		}
		silence.Stop() // until the next change there is nothing to hear
	}
}

// caller is who asks: the node's own configsync, whatever its role, and whatever it has.
func (v *View) caller() *configsyncv1.Caller {
	return &configsyncv1.Caller{Cluster: v.o.Cluster, BrokerName: v.o.BrokerName, NodeId: v.o.NodeID, AnyRole: true}
}

// receive reads one transfer; nil where the view has all that there is. Between two of them it may be silent.
func (v *View) receive(stream grpc.ServerStreamingClient[configsyncv1.WatchResponse], silence *time.Timer) (*chunk.Delta, error) {
	resp, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	h := resp.GetHeader()
	switch {
	case h == nil:
		return nil, errBadAnswer.WithMsg("the configsync's answer does not begin with a header")
	case h.GetVersion().GetKind() != configsyncv1.Kind_KIND_TOPICS:
		return nil, errBadAnswer.WithMsg("the configsync answers with another table").With("kind", h.GetVersion().GetKind())
	case h.GetUnchanged():
		return nil, nil //nolint:nilnil // that is what it says
	}
	var a chunk.Assembly
	for {
		silence.Reset(v.o.Timeout)
		if b := resp.GetChunk(); len(b) > 0 {
			if err := a.Add(b); err != nil {
				return nil, err
			}
		}
		if a.Done() {
			break
		}
		if resp, err = stream.Recv(); err != nil {
			return nil, err
		}
		if resp.GetHeader() != nil {
			return nil, errBadAnswer.WithMsg("a second header in the middle of the configsync's answer")
		}
	}
	d, err := a.Delta()
	if err != nil {
		return nil, err
	}
	if d.Full != h.GetFull() || d.To != versionOf(h.GetVersion().GetDataVersion()) || d.Sum != h.GetVersion().GetSum() {
		return nil, errBadAnswer.WithMsg("header and content of the configsync's answer contradict each other")
	}
	return d, nil
}

// take publishes what d leads to; nil: what is there holds.
func (v *View) take(ctx context.Context, d *chunk.Delta) error {
	old := v.table.Load()
	if d == nil && old == nil {
		return errBadAnswer.WithMsg("the configsync says that nothing has changed since nothing")
	}
	result := resultUnchanged
	if d != nil {
		next, err := old.apply(d)
		if err != nil {
			return err
		}
		v.table.Store(next)
		v.published.Advance(v.published.Load() + 1)
		result = resultDelta
		if d.Full {
			result = resultFull
		}
	}
	v.metrics.took(ctx, result)
	v.mu.Lock()
	was := v.st.Current
	v.st.Current, v.st.Updated, v.st.Reason, v.st.Remedy = true, time.Now(), "", ""
	v.mu.Unlock()
	if !was {
		v.o.Log.Info("follows the topic table", slog.String("configsync", v.o.Address), slog.Int("topics", v.table.Load().count))
	}
	return nil
}

// broken notes why the view is not kept up to date; the log has it once.
func (v *View) broken(err error) {
	reason, remedy := cmp.Or(errdefs.ReasonOf(err), errdefs.ClassOf(err).String()), ""
	if e := errdefs.As(err); e != nil {
		remedy = e.Remedy
	}
	v.metrics.broke(reason)
	v.mu.Lock()
	news := v.st.Current || v.st.Reason != reason
	v.st.Current, v.st.Reason, v.st.Remedy = false, reason, cmp.Or(remedy, errConnecting.Remedy)
	v.mu.Unlock()
	if news {
		v.o.Log.Warn("the topic table is not followed", slog.String("configsync", v.o.Address),
			slog.Bool("known", v.table.Load() != nil), slog.Any("error", err))
	}
}

func versionOf(v *configsyncv1.DataVersion) chunk.Version {
	return chunk.Version{State: v.GetStateVersion(), Counter: v.GetCounter(), Timestamp: v.GetTimestamp()}
}

// backoff is the pause after a failure; each is twice the one before.
type backoff struct{ next time.Duration }

func newBackoff() *backoff { return &backoff{minBackoff} }

func (b *backoff) reset() { b.next = minBackoff }

// wait returns false when ctx has ended.
func (b *backoff) wait(ctx context.Context) bool {
	d := b.next/2 + rand.N(b.next) //nolint:gosec // spread, not secret
	b.next = min(2*b.next, maxBackoff)
	return sleep.For(ctx, d)
}
