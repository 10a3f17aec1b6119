package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// alone starts n0 of a group of three whose other members are played by the test.
func alone(t *testing.T) *seat {
	t.Helper()
	return newGroup(t, 3)[0].bootstrap().start()
}

func envelope(from string, term int64) *ledgerv1.Envelope {
	return &ledgerv1.Envelope{Group: "test", From: from, To: "n0", Term: term}
}

// vote asks n0 for its vote as a candidate that the leader wants, with a log that nothing beats.
func (s *seat) vote(ctx context.Context, from string, term int64) (ledgerv1.Reason, error) {
	r, err := s.election().Vote(ctx, &ledgerv1.VoteRequest{
		Envelope: envelope(from, term), LastIndex: 1000, LastTerm: term - 1, Force: true,
	})
	return r.GetRefused(), err
}

func (s *seat) mustVote(from string, term int64, want ledgerv1.Reason) {
	s.t.Helper()
	var got ledgerv1.Reason
	poll(s.t, "an answer to a vote", func(ctx context.Context) (err error) {
		got, err = s.vote(ctx, from, term)
		return err
	})
	if got != want {
		s.t.Errorf("vote for %s in term %d: %v, want %v", from, term, got, want)
	}
}

// follow makes n0 a follower of from.
func (s *seat) follow(from string, term int64) {
	s.t.Helper()
	r, err := s.election().Heartbeat(s.t.Context(), &ledgerv1.HeartbeatRequest{Envelope: envelope(from, term), Round: 1, Sent: 5})
	if err != nil || r.GetRefused() != ledgerv1.Reason_REASON_UNSPECIFIED || r.GetRound() != 1 || r.GetSent() != 5 {
		s.t.Fatalf("heartbeat of %s: %v, %v", from, r, err)
	}
}

const granted = ledgerv1.Reason_REASON_UNSPECIFIED

// TestT19_OneVoteATerm: also after heartbeats, a restart and a power cut; and a vote that cannot be saved is not given.
func TestT19_OneVoteATerm(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.mustVote("n1", 9, granted)
	s.follow("n1", 9)
	s.mustVote("n2", 9, ledgerv1.Reason_REASON_ALREADY_VOTED)
	if err := s.halt(); err != nil {
		t.Fatal(err)
	}
	s.start().mustVote("n2", 9, ledgerv1.Reason_REASON_ALREADY_VOTED)
	s.crash()
	s.start().mustVote("n2", 9, ledgerv1.Reason_REASON_ALREADY_VOTED)
	s.mustVote("n1", 9, granted) // once more the same

	s.mem.SetHook(func(op memfs.Op) memfs.Action {
		if strings.Contains(op.Name, "tandem/hard") && op.Kind == memfs.KindSync {
			return memfs.FailBefore(nil)
		}
		return memfs.Proceed
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r, err := s.vote(ctx, "n2", 20); err == nil && r == granted {
		t.Error("a vote was given that is not on the disk")
	}
	<-s.over
	if err := s.halt(); err == nil {
		t.Error("the node goes on although its vote could not be saved")
	}
	s.mem.SetHook(nil)
	s.start().mustVote("n1", 30, granted)
}

// entries makes entries of one term as they stand in a leader's file.
func entriesOf(first, n int, term int64, body string) []byte {
	var out []byte
	for i := range n {
		b := entry.New(0, []byte(body))
		entry.Stamp(b, raft.Index(first+i), raft.Term(term), int64(len(b))*int64(first+i), false)
		out = append(out, b...)
	}
	return out
}

// appendTo makes an Append of n entries of the leader's term behind (index, logTerm).
func appendTo(from string, term int64, index, logTerm int64, n int, commit int64) *ledgerv1.PushServiceAppendRequest {
	return &ledgerv1.PushServiceAppendRequest{
		Envelope: envelope(from, term), Seq: 1, Index: index, LogTerm: logTerm, Commit: commit, Entries: entriesOf(int(index)+1, n, term, "body"),
	}
}

// push sends an Append and returns why it was refused.
func (s *seat) push(r *ledgerv1.PushServiceAppendRequest) (*ledgerv1.PushAnswer, string) {
	s.t.Helper()
	a, err := s.pushes().Append(s.t.Context(), r)
	if err != nil {
		return nil, reason(err)
	}
	if a.GetAnswer().GetRefused() != granted {
		return a.GetAnswer(), strings.TrimPrefix(a.GetAnswer().GetRefused().String(), "REASON_")
	}
	return a.GetAnswer(), ""
}

func (s *seat) mustPush(r *ledgerv1.PushServiceAppendRequest, wantIndex, wantEnd, wantCommit int64) {
	s.t.Helper()
	a, why := s.push(r)
	if why != "" || a.GetIndex() != wantIndex || a.GetEnd() != wantEnd || a.GetCommit() != wantCommit {
		s.t.Fatalf("push behind %d: %v %s, want index %d, end %d, commit %d", r.GetIndex(), a, why, wantIndex, wantEnd, wantCommit)
	}
}

// TestT23_CommitRules plays the leaders n1 and n2 to n0.
func TestT23_CommitRules(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.mustVote("n1", 9, granted)
	s.follow("n1", 9)
	s.mustPush(appendTo("n1", 9, -1, -1, 11, 8), 10, 10, 8)
	s.mustPush(appendTo("n1", 9, 0, 9, 5, 5), 10, 10, 8)     // 5: repeated
	s.mustPush(appendTo("n1", 9, 5, 9, 8, 9), 13, 13, 9)     // overlapping
	s.mustPush(appendTo("n1", 9, 13, 9, 0, 500), 13, 13, 13) // beyond the end: the rest is refused
	if st := s.status(); st.GetRefused()["COMMIT_BEYOND_END"] != 1 {
		t.Errorf("%v", st.GetRefused())
	}
	// 3: entries that are not the leader's are not committed by its word.
	s.mustPush(appendTo("n1", 9, 13, 9, 5, 13), 18, 18, 13)
	s.follow("n2", 10)
	s.mustPush(appendTo("n2", 10, 14, 9, 0, 16), 14, 18, 14)
	if _, why := s.push(appendTo("n2", 10, 15, 10, 0, 16)); why != "CONFLICT" {
		t.Errorf("another entry in the place: %q", why)
	}
	// 4: what is committed is not cut.
	truncate := func(from string, term, index, logTerm int64, nonce uint64) string {
		r, err := s.pushes().Truncate(t.Context(), &ledgerv1.TruncateRequest{
			Envelope: envelope(from, term), Seq: 3, Index: index, LogTerm: logTerm, Nonce: nonce,
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(r.GetAnswer().GetRefused().String(), "REASON_")
	}
	compare := func(from string, term, index, logTerm int64) *ledgerv1.PushAnswer {
		r, err := s.pushes().Compare(t.Context(), &ledgerv1.CompareRequest{Envelope: envelope(from, term), Seq: 2, Index: index, LogTerm: logTerm})
		if err != nil || r.GetAnswer().GetSeq() != 2 {
			t.Fatalf("compare: %v, %v", r, err)
		}
		return r.GetAnswer()
	}
	s.follow("n1", 11)
	if a := compare("n1", 11, 5, 9); a.GetIndex() != 14 || a.GetCommit() != 14 {
		t.Errorf("the nearest entry is below the commit index: %v", a)
	}
	s.follow("n2", 12)
	near := compare("n2", 12, 13, 9)
	if got := truncate("n2", 12, 13, 9, near.GetNonce()); got != "TRUNCATE_COMMITTED" {
		t.Errorf("a cut below the commit index: %s", got)
	}
	if got := truncate("n2", 12, 16, 9, near.GetNonce()+1); got != "TRUNCATE_STALE" {
		t.Errorf("a cut that rests on another life: %s", got)
	}
	if got := truncate("n2", 12, 16, 9, near.GetNonce()); got != "UNSPECIFIED" {
		t.Errorf("a cut above the commit index: %s", got)
	}
	if st := s.status(); st.GetLastIndex() != 16 || st.GetCommittedIndex() != 14 || st.GetTerm() != 12 {
		t.Errorf("%v", st)
	}
	// After a power cut: committed <= end.
	s.crash()
	if st := s.start().status(); st.GetLastIndex() != 16 || st.GetCommittedIndex() > 16 {
		t.Errorf("%v", st)
	}
}

// TestRubbishPeers: what cannot be right is refused with a typed reason, counted, and changes nothing.
func TestRubbishPeers(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.mustVote("n1", 9, granted)
	s.follow("n1", 9)
	s.mustPush(appendTo("n1", 9, -1, -1, 3, 1), 2, 2, 1)
	flip := func(at int, with byte) func(*ledgerv1.PushServiceAppendRequest) {
		return func(r *ledgerv1.PushServiceAppendRequest) { r.GetEntries()[at] ^= with }
	}
	for _, tc := range []struct {
		name   string
		change func(*ledgerv1.PushServiceAppendRequest)
		want   string
	}{
		{"older term", func(r *ledgerv1.PushServiceAppendRequest) {
			r.Envelope.Term = 8
			r.Entries, r.LogTerm = entriesOf(3, 2, 8, "body"), 8
		}, "OLD_TERM"},
		{"gap", func(r *ledgerv1.PushServiceAppendRequest) { r.Index, r.Entries = 7, entriesOf(8, 2, 9, "body") }, "GAP"},
		{"entries that do not follow", func(r *ledgerv1.PushServiceAppendRequest) { r.Entries = entriesOf(4, 2, 9, "body") }, "BAD_BATCH"},
		{"entries above the sender's term", func(r *ledgerv1.PushServiceAppendRequest) { r.Entries = entriesOf(3, 2, 10, "body") }, "BAD_BATCH"},
		{"entries with a gap", func(r *ledgerv1.PushServiceAppendRequest) {
			r.Entries = append(entriesOf(3, 1, 9, "body"), entriesOf(5, 1, 9, "body")...)
		}, "ENTRY_CORRUPT"},
		{"half an entry", func(r *ledgerv1.PushServiceAppendRequest) { r.Entries = r.Entries[:len(r.Entries)-1] }, "ENTRY_CORRUPT"},
		{"wrong CRC", flip(entry.HeaderSize, 1), "ENTRY_CORRUPT"},
		{"wrong magic", flip(3, 4), "ENTRY_CORRUPT"},
		{"wrong size", flip(7, 1), "ENTRY_CORRUPT"},
		{"wrong index", flip(15, 4), "ENTRY_CORRUPT"},
		{"a kind of DLedger 0.4", flip(3, 3), "ENTRY_KIND"},
		{"no index", func(r *ledgerv1.PushServiceAppendRequest) { r.Index = -2 }, "BAD_MESSAGE"},
		{"no commit index", func(r *ledgerv1.PushServiceAppendRequest) { r.Commit = -2 }, "BAD_MESSAGE"},
		{"log term above the sender's", func(r *ledgerv1.PushServiceAppendRequest) { r.LogTerm = 10 }, "BAD_MESSAGE"},
		{"no term", func(r *ledgerv1.PushServiceAppendRequest) { r.Envelope.Term = -1 }, "BAD_MESSAGE"},
		{"another group", func(r *ledgerv1.PushServiceAppendRequest) { r.Envelope.Group = "other" }, "WRONG_GROUP"},
		{"unknown id", func(r *ledgerv1.PushServiceAppendRequest) { r.Envelope.From = "n7" }, "UNKNOWN_PEER"},
		{"its own id", func(r *ledgerv1.PushServiceAppendRequest) { r.Envelope.From = "n0" }, "UNKNOWN_PEER"},
		{"another receiver", func(r *ledgerv1.PushServiceAppendRequest) { r.Envelope.To = "n1" }, "WRONG_TARGET"},
		{"no envelope", func(r *ledgerv1.PushServiceAppendRequest) { r.Envelope = nil }, "WRONG_GROUP"},
		{"two leaders in a term", func(r *ledgerv1.PushServiceAppendRequest) { r.Envelope.From = "n2" }, ""},
	} {
		before := s.status()
		r := appendTo("n1", 9, 2, 9, 2, 1)
		tc.change(r)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		if tc.want == "" { // refused without an answer, with an alarm
			if _, err := s.pushes().Append(ctx, r); err == nil {
				t.Errorf("%s was taken", tc.name)
			}
			tc.want = "OTHER_LEADER"
		} else if _, why := s.push(r); why != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, why, tc.want)
		}
		cancel()
		after := s.status()
		if after.GetRefused()[tc.want] != before.GetRefused()[tc.want]+1 {
			t.Errorf("%s is not counted: %v", tc.name, after.GetRefused())
		}
		if after.GetTerm() != 9 && after.GetRole() == ledgerv1.Role_ROLE_FOLLOWER || after.GetLastIndex() != 2 || after.GetCommittedIndex() != 1 {
			t.Errorf("%s changed the node: %v", tc.name, after)
		}
		s.follow("n1", after.GetTerm())
	}
	s.mustPush(appendTo("n1", 9, 2, 9, 2, 1), 4, 4, 1)
	// A stream ends with the error.
	stream, err := s.pushes().Push(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bad := appendTo("n1", 9, 4, 9, 1, 1)
	bad.Entries[entry.HeaderSize] ^= 1
	for _, r := range []*ledgerv1.PushServiceAppendRequest{appendTo("n1", 9, 2, 9, 2, 1), bad} {
		if err := stream.Send(&ledgerv1.PushRequest{Push: &ledgerv1.PushRequest_Append{Append: r}}); err != nil {
			t.Fatal(err)
		}
	}
	for err == nil {
		_, err = stream.Recv()
	}
	wantReason(t, "rubbish on a stream", err, "ENTRY_CORRUPT")
}

// TestT22_PushesDoNotSilenceTheNode: ten thousand pushes that cannot be written; votes and heartbeats are answered all the same.
func TestT22_PushesDoNotSilenceTheNode(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.mustVote("n1", 9, granted)
	s.follow("n1", 9)
	stream, err := s.pushes().Push(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan int, 1)
	go func() {
		n := 0
		for {
			a, err := stream.Recv()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("the stream ended with %v", err)
				}
				refused <- n
				return
			}
			switch a.GetAppend().GetAnswer().GetRefused() {
			case ledgerv1.Reason_REASON_GAP, ledgerv1.Reason_REASON_OLD_TERM: // the second after the vote
				n++
			default:
				t.Errorf("answer %v", a)
			}
		}
	}()
	push := &ledgerv1.PushRequest{Push: &ledgerv1.PushRequest_Append{Append: appendTo("n1", 9, 100, 9, 1, 1)}}
	for i := range 10_000 {
		if err := stream.Send(push); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			s.follow("n1", 9)
		}
	}
	s.mustVote("n2", 10, granted)
	s.follow("n2", 10)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if n := <-refused; n == 0 {
		t.Error("no push was answered")
	}
	if st := s.status(); st.GetLastIndex() != -1 || st.GetTerm() != 10 {
		t.Errorf("%v", st)
	}
}

// TestT24_StopWithOpenStreams: tails, an append stream that nobody reads, and appends under way end with the node, and it
// leaves a whole folder.
func TestT24_StopWithOpenStreams(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	s := g[0].bootstrap().start()
	c := newClient(t)
	c.put(g, "x")
	ended := make(chan error, 10)
	for range 10 {
		tail, err := s.ledger().Tail(t.Context(), &ledgerv1.TailRequest{Index: 0})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tail.Recv(); err != nil {
			t.Fatal(err)
		}
		go func() {
			var err error
			for err == nil {
				_, err = tail.Recv()
			}
			ended <- err
		}()
	}
	stream, err := s.ledger().AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(500) {
		if err := stream.Send(&ledgerv1.AppendStreamRequest{Sequence: 1 + i, Bodies: [][]byte{bytes.Repeat([]byte("y"), 1000)}}); err != nil {
			t.Fatal(err)
		}
	}
	conn := s.conn
	s.conn = nil
	if err := s.halt(); err != nil {
		t.Errorf("stop: %v", err)
	}
	for range 10 {
		if r := reason(<-ended); r != "SERVER_STOPPING" && r != "UNREACHABLE" && r != "NODE_STOPPED" {
			t.Errorf("a tail ended with %q", r)
		}
	}
	_ = conn.Close()
	if err := runCheck(t.Context(), s.fs, s.cfg, nil, s.log); err != nil {
		t.Errorf("check: %v", err)
	}
}
