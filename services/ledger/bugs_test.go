package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// TestT12_DiskFull: a leader without room refuses, and another one that has some takes over: the same client's appends go on.
// With room all go on by themselves.
func TestT12_DiskFull(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	c := newClient(t)
	last := c.put(g, "x").GetIndex()
	for _, s := range g {
		s.await("the first entry", func(st *ledgerv1.StatusResponse) bool { return st.GetCommittedIndex() >= last })
	}
	l := leader(t, g)
	l.mem.SetQuota(l.mem.Used() + 4096)
	big := make([]byte, 100<<10)
	var full error
	for range 20 {
		if _, full = l.ledger().Append(t.Context(), &ledgerv1.AppendRequest{Body: big}); full != nil {
			break
		}
	}
	if e := wantReason(t, "append on a full disk", full, "DISK_FULL"); e.Class != errdefs.ResourceExhausted {
		t.Errorf("%v", e.Class)
	}
	for i := range 5 {
		last = c.put(g, string(big)+strconv.Itoa(i)).GetIndex()
	}
	st := l.status()
	if st.GetRole() == ledgerv1.Role_ROLE_LEADER || st.GetDiskFullTransfers() != 1 || st.GetDiskFullRefusals() == 0 || st.GetRefused()["DISK_FULL"] == 0 ||
		st.GetReason() != "the disk is full" || st.GetRemedy() == "" {
		t.Errorf("%v", st)
	}
	l.mem.SetQuota(0)
	for _, s := range g {
		s.await("the last entry", func(st *ledgerv1.StatusResponse) bool {
			return st.GetCommittedIndex() >= last && st.GetReason() == ""
		})
	}
}

// flood sends bodies "tag-1", "tag-2", ... over one stream without keys to l, calls do when many are under way, and returns up to
// where they were acknowledged when the stream failed, and from where on none was appended, as its error says.
func flood(t *testing.T, l *seat, tag string, do func()) (acked, from uint64) {
	t.Helper()
	stream, err := l.ledger().AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	many := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		enough := sync.OnceFunc(func() { close(many) })
		defer enough()
		for i := uint64(1); stream.Send(&ledgerv1.AppendStreamRequest{Sequence: i, Bodies: [][]byte{fmt.Append(nil, tag, "-", i)}}) == nil; i++ {
			if i == 500 {
				enough()
			}
		}
	})
	var failed error
	wg.Go(func() {
		for {
			var r *ledgerv1.AppendStreamResponse
			if r, failed = stream.Recv(); failed != nil {
				return
			}
			acked = r.GetSequence()
		}
	})
	<-many
	do()
	wg.Wait()
	e := errdefs.As(grpcx.FromStatus(failed))
	if e == nil {
		t.Fatalf("the stream ended with %v", failed)
	}
	if from, err = strconv.ParseUint(e.Meta["sequence"], 10, 64); err != nil || from <= acked {
		t.Fatalf("sequence %d, acknowledged up to %d: %v", from, acked, e)
	}
	return acked, from
}

// wantStands wants what was acknowledged to stand, and nothing from `from` on.
func (s *seat) wantStands(last int64, tag string, acked, from uint64) {
	s.t.Helper()
	stands := uint64(0)
	for _, body := range s.bodies(last) {
		number, ok := strings.CutPrefix(body, tag+"-")
		if !ok {
			continue
		}
		var err error
		if stands, err = strconv.ParseUint(number, 10, 64); err != nil || stands >= from {
			s.t.Fatalf("%q stands, though nothing was appended from %d on", body, from)
		}
	}
	if stands < acked {
		s.t.Errorf("%d stand, %d were acknowledged", stands, acked)
	}
}

// TestAppendStreamSaysWhatWasNotTaken: when leadership moves under a stream without keys, its error names the number from which
// on nothing was appended, and that is so.
func TestAppendStreamSaysWhatWasNotTaken(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, quick)
	links := proxied(t, g)
	startAll(g)
	c := newClient(t)
	c.put(g, "x")
	for round := range 2 {
		tag := fmt.Sprint("transfer", round)
		l := leader(t, g)
		acked, from := flood(t, l, tag, func() {
			poll(t, "a transfer", func(ctx context.Context) error {
				if l.status().GetRole() != ledgerv1.Role_ROLE_LEADER {
					return nil
				}
				_, err := l.election().TransferLeadership(ctx, &ledgerv1.TransferLeadershipRequest{})
				return err
			})
		})
		last := c.put(g, "end of "+tag).GetIndex()
		g[0].wantStands(last, tag, acked, from)
	}
	// The followers have more than their leader hears of: what it does not know they will keep.
	l := leader(t, g)
	answers := func(do func(*testkit.Proxy)) {
		for _, link := range links[slices.Index(g, l)] {
			if link != nil {
				do(link)
			}
		}
	}
	acked, from := flood(t, l, "deaf", func() { answers(func(p *testkit.Proxy) { p.Stall(testkit.Down) }) })
	last := c.put(others(g, l), "end").GetIndex()
	others(g, l)[0].wantStands(last, "deaf", acked, from)
	answers(func(p *testkit.Proxy) { p.Resume(testkit.Down) })
	l.wantStands(last, "deaf", acked, from)
}

// TestStopsOneAfterAnother: the last one to stop finds nobody to hand over to, and does not wait for anybody.
func TestStopsOneAfterAnother(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	newClient(t).put(g, "x")
	l := leader(t, g)
	for _, s := range others(g, l) {
		if err := s.halt(); err != nil {
			t.Fatal(err)
		}
	}
	l.await("nobody", func(st *ledgerv1.StatusResponse) bool {
		return !st.GetFollowers()[0].GetConnected() && !st.GetFollowers()[1].GetConnected()
	})
	if err := l.halt(); err != nil {
		t.Fatal(err)
	}
	if log := l.log.String(); strings.Contains(log, "was not handed over") || strings.Contains(log, "leadership handed over") {
		t.Error("the last node tried to hand over")
	}
}

// TestT21_CommitBeforeAnyEntry: a wiped node is told of commit index 1,000 before it has an entry.
func TestT21_CommitBeforeAnyEntry(t *testing.T) {
	t.Parallel()
	s := newGroup(t, 3)[0].start()
	poll(t, "an answer", func(ctx context.Context) error {
		r, err := s.pushes().Commit(ctx, &ledgerv1.CommitRequest{Envelope: envelope("n1", 3), Seq: 1, Index: -1, LogTerm: -1, Commit: 1000})
		if err == nil && r.GetAnswer().GetRefused() != ledgerv1.Reason_REASON_COMMIT_BEYOND_END {
			t.Errorf("commit push: %v", r)
		}
		return err
	})
	if a, why := s.push(appendTo("n1", 3, -1, -1, 0, 1000)); why != "" || a.GetCommit() != -1 || a.GetEnd() != -1 {
		t.Errorf("append: %v %s", a, why)
	}
	s.follow("n1", 3)
	s.mustPush(appendTo("n1", 3, -1, -1, 5, 1000), 4, 4, 4)
	if st := s.status(); st.GetCommittedIndex() > st.GetLastIndex() || st.GetVoter() || st.GetReason() == "" || st.GetRefused()["COMMIT_BEYOND_END"] == 0 {
		t.Errorf("%v", st)
	}
}
