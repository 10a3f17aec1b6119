package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/sleep"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// FollowStream is a control stream. Recv ends when ctx of Follow does, or after Close.
type FollowStream interface {
	Recv() (epoch.FollowAnswer, error)
	Close()
}

// Peers asks other storages.
type Peers interface {
	Promise(ctx context.Context, addr string, p epoch.PromiseRequest) (epoch.Heard, error)
	Follow(ctx context.Context, addr string, r epoch.FollowRequest) (FollowStream, error)
	RangeChecksum(ctx context.Context, addr string, from, to, stretch int64) (sums []uint32, upTo int64, err error)
	// Drain returns the end of the master's log, which holds its puts back until release is called or ctx ends.
	Drain(ctx context.Context, addr string, r epoch.DrainRequest) (end int64, release func(), err error)
}

// Set is the nodes of ha.peers as one of them sees it.
type Set struct {
	Peers
	// Others are the gRPC addresses of the other nodes.
	Others []string
	// Self is what this node says of itself when it asks.
	Self epoch.PromiseRequest
	// Timeout of a call.
	Timeout time.Duration
	// Seen are the node ids that were heard from Others, for Has.
	Seen *sync.Map
}

// N is the size of the set, this node included.
func (s Set) N() int { return len(s.Others) + 1 }

// Round is what the peers said to one PromiseRequest.
type Round struct {
	Heard  []epoch.Heard
	From   []string // addresses, as heard
	silent []string // addresses of the others, with what was wrong
}

// Hear asks all peers at once; a zero reign only asks.
func (s Set) Hear(ctx context.Context, reign epoch.Promise) Round {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	req := s.Self
	req.Reign = reign
	heard := make([]epoch.Heard, len(s.Others))
	errs := make([]error, len(s.Others))
	var wg sync.WaitGroup
	for i, addr := range s.Others {
		wg.Go(func() { heard[i], errs[i] = s.Promise(ctx, addr, req) })
	}
	wg.Wait()
	ids := []int64{s.Self.NodeID}
	var r Round
	for i, h := range heard {
		err := errs[i]
		if err == nil {
			err = h.Check()
		}
		if err == nil && slices.Contains(ids, h.NodeID) {
			err = fmt.Errorf("its node id %d is taken", h.NodeID)
		}
		if err != nil {
			r.silent = append(r.silent, fmt.Sprintf("%s (%s)", s.Others[i], brief(err)))
			continue
		}
		ids = append(ids, h.NodeID)
		if s.Seen != nil {
			s.Seen.Store(h.NodeID, true)
		}
		r.Heard, r.From = append(r.Heard, h), append(r.From, s.Others[i])
	}
	return r
}

// Has reports whether a node of this address and id is known to be one of the set. One that goes by another name here is found by
// its id, once it was heard; all are asked, for a part of the time that it gives this node to answer it.
func (s Set) Has(ctx context.Context, addr string, id int64) bool {
	if len(s.Others) == 0 || slices.Contains(s.Others, addr) {
		return true
	}
	if _, seen := s.Seen.Load(id); seen {
		return true
	}
	s.Timeout /= 3
	s.Hear(ctx, epoch.Promise{})
	_, seen := s.Seen.Load(id)
	return seen
}

// Joins closes what it returns when Has is true, after all; it looks at every interval until ctx ends. nil: it is so already.
func (s Set) Joins(ctx context.Context, has bool, addr string, id int64, every time.Duration) <-chan struct{} {
	if has {
		return nil
	}
	joined := make(chan struct{})
	go func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for !s.Has(ctx, addr, id) {
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
		close(joined)
	}()
	return joined
}

// OpenMaster returns the address of the open master with the newest reign, "" when none was heard.
func (r Round) OpenMaster() string {
	if i := r.openMaster(); i >= 0 {
		return r.From[i]
	}
	return ""
}

// OpenMasterEnd returns its end, bytes.
func (r Round) OpenMasterEnd() int64 {
	if i := r.openMaster(); i >= 0 {
		return r.Heard[i].End
	}
	return 0
}

func (r Round) openMaster() int {
	best := -1
	for i, h := range r.Heard {
		if h.OpenMaster && (best < 0 || h.Known().Epoch > r.Heard[best].Known().Epoch) {
			best = i
		}
	}
	return best
}

// AllEmpty says whether no peer that was heard has any history.
func (r Round) AllEmpty() bool {
	return !slices.ContainsFunc(r.Heard, func(h epoch.Heard) bool { return !h.Empty })
}

// Absent says who did not answer, for the end of a remedy.
func (r Round) Absent() string {
	if len(r.silent) == 0 {
		return ""
	}
	return "; no answer from " + strings.Join(r.silent, ", ")
}

// brief says what is wrong with a peer: of one that is not reached why, and the remedy where that is more than to start it.
func brief(err error) string {
	why := Unreached(err)
	switch {
	case why == "":
		return err.Error()
	case why == "connection refused" || errdefs.As(err).Remedy == "":
		return why
	}
	return why + ": " + errdefs.As(err).Remedy
}

// Unreached says why a peer was not reached, by gRPC or on its raw port, which is the end of what the error says; "" for any other
// error.
func Unreached(err error) string {
	e := errdefs.As(err)
	text := ""
	switch {
	case e == nil:
	case e.Reason == "UNREACHABLE":
		text = e.Msg
	case e.Reason == "CONNECT_FAILED" && e.Cause != nil:
		text = e.Cause.Error()
	}
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}

// Backoff is a pause that doubles from Least, with full jitter, up to Most.
type Backoff struct {
	Least, Most time.Duration
	now         time.Duration
}

// Reset makes the next pause a short one.
func (b *Backoff) Reset() { b.now = 0 }

// Wait pauses; false when ctx ended.
func (b *Backoff) Wait(ctx context.Context) bool {
	b.now = min(max(2*b.now, b.Least), b.Most)
	return sleep.For(ctx, b.Least/2+rand.N(b.now)) //nolint:gosec // jitter
}
