package role

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/sleep"
	"github.com/tandemlog/tandem/services/configsync/internal/storage"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// lead opens the node and leads until ctx ends. An error is fatal.
func (m *Manager) lead(ctx context.Context, r storage.Role) error {
	m.mu.Lock()
	m.opening = true
	for _, p := range m.o.Peers {
		m.unheard[p] = true
	}
	m.mu.Unlock()
	m.refuse(reasonHearing, "wait until the peers have answered, for startWait at most")
	defer m.notOpening()
	m.tables.SetEpoch(r.Epoch) // a version of an older reign may be another node's
	for pause := m.o.MinBackoff; ; pause = min(2*pause, m.o.MaxBackoff) {
		err := m.outlived(r)
		if err == nil {
			err = m.hearAll(ctx, r)
		}
		if err == nil && ctx.Err() == nil {
			err = m.takeOver(ctx, r)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if !m.open(r.Epoch) {
				return nil
			}
			m.hearLate(ctx, r)
			m.shut()
			return nil
		case m.tables.Fault() != nil:
			return m.tables.Fault()
		case errors.Is(err, ErrOutlived):
			m.o.Log.Warn("does not lead", slog.Any("error", err))
			return nil // and follows
		}
		m.refuse(reasonOf(err), remedyOf(err))
		if !wait(ctx, pause) {
			return nil
		}
	}
}

func (m *Manager) notOpening() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opening = false
}

// outlived returns ErrOutlived when a table is of a later reign: its master may use the next numbers too.
func (m *Manager) outlived(r storage.Role) error {
	for _, k := range entry.Kinds() {
		if later := m.tables.Snapshot(k).Version().State; later > r.Epoch {
			m.outlive(later)
			return ErrOutlived.With("kind", k).With("epoch", r.Epoch).With("table_epoch", later)
		}
	}
	return nil
}

// outlive has the node lead in no reign below epoch: it follows.
func (m *Manager) outlive(epoch int64) {
	m.mu.Lock()
	m.fence = max(m.fence, epoch)
	end := m.now.end
	m.mu.Unlock()
	end()
}

// takeOver makes the tables this reign's.
func (m *Manager) takeOver(ctx context.Context, r storage.Role) error {
	for _, k := range entry.Kinds() {
		if err := m.tables.Whole(k); err != nil {
			return err
		}
	}
	if err := m.outlived(r); err != nil {
		return err
	}
	if m.queues != nil && !m.begun(r.Epoch) {
		ends, err := m.queues.List(ctx, "", r.Start)
		if err != nil {
			return err
		}
		n, err := m.tables.ClampOffsets(ctx, limit(ends))
		if err != nil {
			return err
		}
		if n > 0 {
			m.o.Log.Warn("offsets were behind the end of the log and have been reset", slog.Int("offsets", n), slog.Int64("epoch", r.Epoch))
		}
	}
	return m.tables.Lead(ctx, r.Epoch)
}

// limit is the highest offset that a queue may have. A storage without a single queue says nothing about offsets.
func limit(ends storage.Ends) func(topic string, queue int32) (int64, bool) {
	return func(topic string, queue int32) (int64, bool) { return ends.Max(topic, queue), len(ends) > 0 }
}

// hearAll asks all peers that were not heard yet and waits for them, up to StartWait. An error: this node must not lead.
func (m *Manager) hearAll(ctx context.Context, r storage.Role) error {
	hctx, cancel := context.WithTimeout(ctx, m.o.StartWait)
	defer cancel()
	var all sync.WaitGroup
	errs := make(chan error, len(m.o.Peers))
	for _, p := range m.pending() {
		all.Go(func() {
			for pause := m.o.MinBackoff; ; pause = min(2*pause, m.o.MaxBackoff) {
				err := m.hear(hctx, p, r, false)
				if err == nil || m.tables.Fault() != nil || errors.Is(err, ErrNewerReign) || errors.Is(err, ErrOutlived) {
					errs <- err
					return
				}
				m.o.Log.Debug("a peer was not heard", slog.String("peer", p), slog.Any("error", err))
				if !wait(hctx, pause) {
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// pending are the peers that are to be heard.
func (m *Manager) pending() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, p := range m.o.Peers {
		if m.unheard[p] {
			out = append(out, p)
		}
	}
	return out
}

var errOldAnswer = errdefs.New(errdefs.DataLoss, "OLD_ANSWER", "the table is older than the peer said")

// hear joins what a peer has into the own tables. open: this node leads already, its topics and groups count.
func (m *Manager) hear(ctx context.Context, peer string, r storage.Role, open bool) error {
	a, err := m.peers.Ask(ctx, peer, !open)
	if err != nil {
		return err
	}
	if a.Leading && a.Epoch > r.Epoch {
		m.outlive(a.Epoch)
	}
	if a.Leading && a.Epoch >= r.Epoch {
		return ErrNewerReign.With("peer", peer).With("epoch", a.Epoch).With("own", r.Epoch)
	}
	for k, v := range a.Differ {
		if v.State > r.Epoch { // joined, they would be changed here under that reign
			m.outlive(v.State)
			return ErrOutlived.With("peer", peer).With("kind", k).With("epoch", r.Epoch).With("table_epoch", v.State)
		}
	}
	began := open || m.begun(r.Epoch)
	for _, k := range entry.Kinds() {
		version, differs := a.Differ[k]
		if !differs || open && !k.Offsets() {
			continue
		}
		t, err := m.peers.Pull(ctx, peer, k)
		if err == nil && t.Version().Compare(version) < 0 {
			err = errOldAnswer.With("peer", peer).With("kind", k).With("said", version).With("got", t.Version())
		}
		if err == nil && k.Offsets() && began && m.tables.Whole(k) == nil {
			t, err = m.surviving(ctx, t, r)
		}
		if err == nil {
			_, err = m.tables.Join(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	if len(a.Broken) > 0 {
		m.o.Log.Warn("a peer's own tables are broken", slog.String("peer", peer), slog.Any("kinds", a.Broken))
	}
	m.mu.Lock()
	delete(m.unheard, peer)
	m.mu.Unlock()
	return nil
}

// hearLate asks the peers that were not heard, and those that Heed names, until ctx ends.
func (m *Manager) hearLate(ctx context.Context, r storage.Role) {
	for pause := m.o.MinBackoff; ctx.Err() == nil; pause = min(2*pause, m.o.MaxBackoff) {
		for _, p := range m.pending() {
			err := m.hear(ctx, p, r, true)
			switch {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, ErrNewerReign):
				m.o.Log.Warn("a peer leads too", slog.String("peer", p), slog.Any("error", err))
			default:
				m.o.Log.Debug("a peer was not heard", slog.String("peer", p), slog.Any("error", err))
			}
		}
		if m.rest(ctx, pause) {
			pause = m.o.MinBackoff
		}
	}
}

// rest waits until a peer is to be heard: at once when it is asked for, after a pause when it did not answer.
func (m *Manager) rest(ctx context.Context, pause time.Duration) (asked bool) {
	var again <-chan time.Time
	if len(m.pending()) > 0 {
		t := time.NewTimer(jitter(pause))
		defer t.Stop()
		again = t.C
	}
	select {
	case <-again:
		return false
	case <-m.asked:
		return true
	case <-ctx.Done():
		return false
	}
}

// Heed has a peer heard soon whose offsets are not the own ones. Others than peers are not heeded.
func (m *Manager) Heed(peer string) {
	if !slices.Contains(m.o.Peers, peer) {
		return
	}
	m.mu.Lock()
	m.unheard[peer] = true
	m.mu.Unlock()
	select {
	case m.asked <- struct{}{}:
	default:
	}
}

func reasonOf(err error) string {
	if r := errdefs.ReasonOf(err); r != "" {
		return r
	}
	return "UNKNOWN"
}

func remedyOf(err error) string {
	e := errdefs.As(err)
	switch {
	case e == nil:
		return err.Error()
	case e.Remedy != "":
		return e.Msg + "; " + e.Remedy
	}
	return e.Msg
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) } //nolint:gosec // spread, not secret

// wait waits for about d; false when ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	return sleep.For(ctx, jitter(d))
}
