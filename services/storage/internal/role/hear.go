package role

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// round is what the peers said to one PromiseRequest.
type round struct {
	heard  []epoch.Heard
	from   []string // addresses, as heard
	silent []string // addresses of the others, with what was wrong
}

// hear asks all peers at once; reign zero only asks.
func (m *Manager) hear(ctx context.Context, reign epoch.Promise) round {
	ctx, cancel := context.WithTimeout(ctx, m.o.CallTimeout)
	defer cancel()
	req := epoch.PromiseRequest{Cluster: m.o.Cluster, BrokerName: m.o.BrokerName, NodeID: m.o.NodeID, Reign: reign}
	heard := make([]epoch.Heard, len(m.o.Peers))
	errs := make([]error, len(m.o.Peers))
	var wg sync.WaitGroup
	for i, addr := range m.o.Peers {
		wg.Go(func() { heard[i], errs[i] = m.peers.Promise(ctx, addr, req) })
	}
	wg.Wait()
	ids := []int64{m.o.NodeID}
	var r round
	for i, h := range heard {
		err := errs[i]
		if err == nil {
			err = h.Epochs.Check()
		}
		if err == nil && slices.Contains(ids, h.NodeID) {
			err = fmt.Errorf("its node id %d is taken", h.NodeID)
		}
		if err != nil {
			r.silent = append(r.silent, fmt.Sprintf("%s (%v)", m.o.Peers[i], err))
			continue
		}
		ids = append(ids, h.NodeID)
		r.heard, r.from = append(r.heard, h), append(r.from, m.o.Peers[i])
	}
	return r
}

// openMaster returns the address of the open master with the newest reign, "" when none was heard.
func (r round) openMaster() string {
	best, addr := epoch.Promise{}, ""
	for i, h := range r.heard {
		if k := h.Known(); h.OpenMaster && (addr == "" || k.Epoch > best.Epoch) {
			best, addr = k, r.from[i]
		}
	}
	return addr
}

// absent says who did not answer, for a remedy.
func (r round) absent() string {
	if len(r.silent) == 0 {
		return ""
	}
	return "; no answer from " + strings.Join(r.silent, ", ")
}

// backoff is a pause that doubles, with full jitter, up to a cap.
type backoff struct {
	least, most, now time.Duration
}

func (b *backoff) reset() { b.now = 0 }

// wait pauses; false when ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	b.now = min(max(2*b.now, b.least), b.most)
	t := time.NewTimer(b.least/2 + rand.N(b.now)) //nolint:gosec // jitter
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
