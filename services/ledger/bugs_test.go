package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
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

// TestAppendStreamSaysWhatWasNotTaken: when leadership moves under a stream without keys, its error names the number from which
// on nothing was appended, and that is so.
func TestAppendStreamSaysWhatWasNotTaken(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	c := newClient(t)
	c.put(g, "x")
	for round := range 3 {
		l := leader(t, g)
		stream, err := l.ledger().AppendStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		many, flooded := make(chan struct{}), make(chan struct{})
		go func() {
			enough := sync.OnceFunc(func() { close(many) })
			defer close(flooded)
			defer enough()
			for i := uint64(1); ; i++ {
				if i == 500 {
					enough()
				}
				if stream.Send(&ledgerv1.AppendStreamRequest{Sequence: i, Bodies: [][]byte{fmt.Append(nil, round, "-", i)}}) != nil {
					return // receiving says why
				}
			}
		}()
		acked := uint64(0)
		failed := make(chan error, 1)
		go func() {
			for {
				r, err := stream.Recv()
				if err != nil {
					failed <- err
					return
				}
				acked = r.GetSequence()
			}
		}()
		<-many
		poll(t, "a transfer", func(ctx context.Context) error {
			if l.status().GetRole() != ledgerv1.Role_ROLE_LEADER {
				return nil
			}
			_, err := l.election().TransferLeadership(ctx, &ledgerv1.TransferLeadershipRequest{})
			return err
		})
		e := errdefs.As(grpcx.FromStatus(<-failed))
		<-flooded
		if e == nil || e.Meta["sequence"] == "" {
			t.Fatalf("round %d: the stream ended with %v", round, e)
		}
		from, err := strconv.ParseUint(e.Meta["sequence"], 10, 64)
		if err != nil || from <= acked {
			t.Fatalf("round %d: sequence %d, acknowledged up to %d: %v", round, from, acked, err)
		}
		stands := uint64(0)
		last := c.put(g, fmt.Sprint("end of ", round)).GetIndex()
		for _, body := range g[0].bodies(last) {
			if number, ok := strings.CutPrefix(body, fmt.Sprint(round)+"-"); ok {
				if stands, err = strconv.ParseUint(number, 10, 64); err != nil || stands >= from {
					t.Errorf("round %d: %q stands, though nothing was appended from %d on", round, body, from)
				}
			}
		}
		if stands < acked {
			t.Errorf("round %d: %d stand, %d were acknowledged", round, stands, acked)
		}
	}
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
