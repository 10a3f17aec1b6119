package syncer

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// session is the time with one master.
type session struct {
	s      *Syncer
	client configsyncv1.ConfigSyncServiceClient
	addr   string
	again  chan struct{} // a round is wanted soon
	end    context.CancelCauseFunc
}

func newSession(s *Syncer, c configsyncv1.ConfigSyncServiceClient, addr string) *session {
	return &session{s: s, client: c, addr: addr, again: make(chan struct{}, 1)}
}

// run returns when the master is none any more, does not answer, or ctx ends; never nil.
func (se *session) run(ctx context.Context) error {
	ctx, se.end = context.WithCancelCause(ctx)
	var all sync.WaitGroup
	for _, k := range entry.Kinds() {
		all.Go(func() { se.keep(ctx, k) })
	}
	all.Go(func() { se.rounds(ctx) })
	all.Wait()
	return context.Cause(ctx)
}

// leaves reports whether err is about the master and not about one table.
func leaves(err error) bool {
	switch errdefs.ReasonOf(err) {
	case "NOT_MASTER", "WRONG_GROUP", ErrStaleEpoch.Reason, errMasterGone.Reason:
		return true
	}
	return errdefs.ClassOf(err) == errdefs.Unavailable // that the own disk has failed is of this class too
}

// keep watches one kind; what fails is tried again with backoff.
func (se *session) keep(ctx context.Context, k entry.Kind) {
	st, pause := se.s.kinds[k], newBackoff(se.s.o.MinBackoff, se.s.o.Interval)
	whole := false
	for ctx.Err() == nil {
		took, err := se.watch(ctx, k, whole)
		if ctx.Err() != nil {
			return
		}
		if leaves(err) {
			se.end(err)
			return
		}
		if took {
			pause.reset()
		}
		gap := errors.Is(err, table.ErrGap)
		whole = gap || errors.Is(err, table.ErrOtherContent)
		if gap && took {
			whole = false
			continue // a round was faster; the next stream begins at what is here now
		}
		st.failed(err)
		if !pause.wait(ctx) {
			return
		}
	}
}

// watch takes one transfer after the other until the stream ends; took says whether one was.
func (se *session) watch(ctx context.Context, k entry.Kind, whole bool) (took bool, err error) {
	ctx, dog := newWatchdog(ctx, se.s.o.Timeout)
	defer dog.end()
	req := &configsyncv1.WatchRequest{Caller: se.s.caller(false), Kind: wire.Kind(k)}
	if !whole {
		req.Have = se.s.have(k)
	}
	dog.start()
	stream, err := se.client.Watch(ctx, req)
	if err != nil {
		return false, dog.cause(err)
	}
	recv := func() (part, error) { return stream.Recv() }
	for {
		if err := se.s.take(ctx, k, recv, dog); err != nil {
			return took, dog.cause(err)
		}
		took = true
		dog.rest() // until the next change there is nothing to hear
	}
}

// rounds runs a round at every interval, and when one is wanted.
func (se *session) rounds(ctx context.Context) {
	for {
		d := se.s.o.Interval
		t := time.NewTimer(d - d/10 + rand.N(d/5+1)) //nolint:gosec // spread, not secret
		select {
		case <-t.C:
		case <-se.again:
		case <-ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
		if err := se.round(ctx); leaves(err) {
			se.end(err)
			return
		}
	}
}

// want asks for a round soon.
func (se *session) want() {
	select {
	case se.again <- struct{}{}:
	default:
	}
}

// round compares all kinds and fetches those that differ. The error is the master's; those of kinds are in their states.
func (se *session) round(ctx context.Context) error {
	cctx, cancel := context.WithTimeout(ctx, se.s.o.Timeout)
	defer cancel()
	resp, err := se.client.Check(cctx, &configsyncv1.CheckRequest{
		Caller: se.s.caller(false), Versions: se.s.versions(entry.Kinds()), Deltas: true,
	})
	if err == nil {
		err = se.s.checkEpoch(resp.GetEpoch())
	}
	if err != nil {
		if ctx.Err() == nil {
			for _, st := range se.s.kinds {
				st.failed(err)
			}
		}
		return err
	}
	var all sync.WaitGroup
	for _, k := range entry.Kinds() {
		i := slices.IndexFunc(resp.GetKinds(), func(c *configsyncv1.KindCheck) bool { return c.GetKind() == wire.Kind(k) })
		switch {
		case i < 0:
			se.s.kinds[k].failed(errBadAnswer.With("kind", k).WithMsg("the master did not answer for this kind"))
		case resp.GetKinds()[i].GetResult() == configsyncv1.CheckResult_CHECK_RESULT_UNCHANGED:
			se.s.kinds[k].succeeded(roundUnchanged)
		default:
			all.Go(func() {
				if err := se.fetch(ctx, k, resp.GetKinds()[i], resp.GetEpoch()); leaves(err) && ctx.Err() == nil {
					se.end(err)
				}
			})
		}
	}
	all.Wait()
	return nil
}

// fetch brings one kind up to date.
func (se *session) fetch(ctx context.Context, k entry.Kind, c *configsyncv1.KindCheck, epoch int64) error {
	st := se.s.kinds[k]
	var err error
	switch r := c.GetResult(); r {
	case configsyncv1.CheckResult_CHECK_RESULT_CHANGED:
		if err = se.s.takeDelta(ctx, k, c, epoch); errors.Is(err, table.ErrGap) {
			err = se.s.fetch(ctx, se.client, k, se.s.have(k))
		}
		if errors.Is(err, table.ErrGap) || errors.Is(err, table.ErrOtherContent) {
			err = se.s.fetch(ctx, se.client, k, nil)
		}
	case configsyncv1.CheckResult_CHECK_RESULT_DIFFERENT:
		switch own := se.s.tables.Snapshot(k); {
		case !k.Offsets():
			err = table.ErrOtherContent.With("kind", k)
		case st.differedAt(own.Version(), own.Sum()):
			st.succeeded(roundUnchanged) // the master asks for what is ahead here; there is nothing else
		default:
			err = se.s.fetch(ctx, se.client, k, nil)
		}
	case configsyncv1.CheckResult_CHECK_RESULT_BROKEN:
		err = errBrokenThere.With("kind", k)
	default:
		err = errBadAnswer.With("kind", k).With("result", r)
	}
	if err != nil && ctx.Err() == nil {
		st.failed(err)
	}
	return err
}
