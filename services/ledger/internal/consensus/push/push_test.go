package push

import (
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// sizes is a log whose entries all take 100 bytes.
type sizes struct{}

func (sizes) Extent(first, last raft.Index, maxEntries int, maxBytes int64) (count int, bytes int64) {
	count = min(int(last-first+1), maxEntries, max(1, int(maxBytes/100)))
	return count, int64(count) * 100
}

// leader holds 0..9 of term 1, 10..19 of term 3 and 20..29 of term 5, the last five not saved yet.
func leader(t *testing.T) (*Dispatcher, *View) {
	t.Helper()
	none := raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}
	log, ok := raft.NewLineage(none, []raft.Run{{First: 0, Term: 1}, {First: 10, Term: 3}, {First: 20, Term: 5}}, 29)
	if !ok {
		t.Fatal("lineage")
	}
	v := &View{
		Self: "a", Term: 5, Log: &log, Committed: 15, Store: sizes{}, Stable: 24, Pending: make([]raft.Entry, 5),
		Limits: &Limits{Retry: 50, MaxBatchEntries: 4, MaxBatchBytes: 1000, MaxInflightEntries: 10, MaxInflightBytes: 5000, MaxInflightBatches: 8},
	}
	for i := range v.Pending {
		v.Pending[i].Size = 100
	}
	d := &Dispatcher{ID: "b"}
	d.Begin(0, log.End())
	return d, v
}

// due returns what is sent now.
func due(d *Dispatcher, v *View) []raft.Message {
	v.Out = nil
	d.Due(v)
	return v.Out
}

func answer(t *testing.T, d *Dispatcher, v *View, m raft.Message, want raft.Reason) {
	t.Helper()
	m.From, m.Term = "b", 5
	if got := d.Answered(v, &m); got != want {
		t.Fatalf("%v: %v, want %v", m.Type, got, want)
	}
}

func TestCompareTruncateAppend(t *testing.T) {
	d, v := leader(t)
	out := due(d, v)
	if len(out) != 1 || out[0].Type != raft.Compare || out[0].Index != 29 || out[0].LogTerm != 5 || len(due(d, v)) != 0 {
		t.Fatalf("first question: %+v", out)
	}
	// The follower has 0..9 of term 1 and 10..24 of term 2: nothing of term 5 or 3.
	answer(t, d, v, raft.Message{Type: raft.CompareAnswer, Index: 24, LogTerm: 2, End: 24, Commit: 5, Seq: d.Seq, Nonce: 7}, raft.OK)
	if out = due(d, v); len(out) != 1 || out[0].Index != 9 || out[0].LogTerm != 1 {
		t.Fatalf("second question: %+v", out)
	}
	answer(t, d, v, raft.Message{Type: raft.CompareAnswer, Index: 9, LogTerm: 1, End: 24, Commit: 5, Seq: d.Seq, Nonce: 7}, raft.OK)
	if out = due(d, v); len(out) != 1 || out[0].Type != raft.Truncate || out[0].Index != 9 || out[0].Nonce != 7 || out[0].Reset {
		t.Fatalf("cut: %+v", out)
	}
	answer(t, d, v, raft.Message{Type: raft.TruncateAnswer, Index: 9, End: 9, Commit: 5, Seq: d.Seq}, raft.OK)
	out = due(d, v)
	if len(out) != 3 || out[0].Type != raft.Append || out[0].Index != 9 || out[0].Count != 4 || out[2].Count != 2 || out[0].Commit != 13 || out[2].Commit != 15 {
		t.Fatalf("batches: %+v", out) // ten entries in flight are the quota
	}
	answer(t, d, v, raft.Message{Type: raft.AppendAnswer, Index: 17, End: 17, Commit: 13, Seq: d.Seq}, raft.OK)
	if d.Acked != 17 || d.InflightEntries != 2 || d.InflightBytes != 200 || d.InflightBatches() != 1 {
		t.Fatalf("after an ack: %+v", d)
	}
	// What is still being saved goes out too, in batches of its own.
	if out = due(d, v); len(out) < 3 || out[0].Index != 19 || out[1].Index != 23 || out[1].Count != 1 || out[2].Index != 24 || out[2].Count != 3 {
		t.Fatalf("more batches: %+v", out)
	}
}

func TestSilenceLeadsBackToCompare(t *testing.T) {
	d, v := leader(t)
	due(d, v)
	answer(t, d, v, raft.Message{Type: raft.CompareAnswer, Index: 19, LogTerm: 3, End: 19, Commit: 15, Seq: d.Seq}, raft.OK)
	old := d.Seq
	if out := due(d, v); len(out) != 4 {
		t.Fatalf("batches: %+v", out)
	}
	v.Now = 50
	if out := due(d, v); len(out) != 1 || out[0].Type != raft.Compare || d.InflightBatches() != 0 || v.Retries != 1 {
		t.Fatalf("after silence: %+v", out)
	}
	answer(t, d, v, raft.Message{Type: raft.AppendAnswer, Index: 21, LogTerm: 5, End: 21, Refused: raft.Gap, Seq: old}, raft.StaleAnswer)
	answer(t, d, v, raft.Message{Type: raft.AppendAnswer, Index: 23, End: 23, Commit: 15, Seq: old}, raft.OK)
	if d.Acked != 23 || d.State != Comparing {
		t.Fatalf("late ack: %+v", d)
	}
	v.Now = 100
	if out := due(d, v); len(out) != 1 || out[0].Type != raft.Compare || v.Retries != 2 {
		t.Fatalf("after more silence: %+v", out)
	}
}

func TestFollowerBehindThePurge(t *testing.T) {
	d, v := leader(t)
	v.Log.Purge(14)
	due(d, v)
	answer(t, d, v, raft.Message{Type: raft.CompareAnswer, Index: 12, LogTerm: 3, End: 12, Commit: 12, Seq: d.Seq, Nonce: 3}, raft.OK)
	out := due(d, v)
	if len(out) != 1 || out[0].Type != raft.Truncate || !out[0].Reset || out[0].Index != 14 || out[0].LogTerm != 3 {
		t.Fatalf("reset: %+v", out)
	}
	v.Log.Purge(15) // while the order is under way
	if out = due(d, v); len(out) != 1 || out[0].Type != raft.Compare {
		t.Fatalf("purged further: %+v", out)
	}
}

func TestWhatAFollowerLacksItIsSentAgain(t *testing.T) {
	d, v := leader(t)
	due(d, v)
	answer(t, d, v, raft.Message{Type: raft.CompareAnswer, Index: 29, LogTerm: 5, End: 29, Commit: 15, Seq: d.Seq}, raft.OK)
	v.Now = 30
	d.HeartbeatAnswered(v, &raft.Message{Sent: 0, End: 3, Commit: 15}) // sent before it answered
	if d.State != Appending {
		t.Fatal("an old answer moves back")
	}
	d.HeartbeatAnswered(v, &raft.Message{Sent: 20, End: raft.NoIndex, Commit: raft.NoIndex, Learner: true})
	if d.State != Comparing || d.Lease != 0 || d.Heard != 30 {
		t.Fatalf("wiped follower: %+v", d)
	}
	answer(t, d, v, raft.Message{Type: raft.CompareAnswer, Index: raft.NoIndex, LogTerm: raft.NoTerm, End: raft.NoIndex, Commit: raft.NoIndex, Seq: d.Seq, Learner: true}, raft.OK)
	if d.Match != raft.NoIndex || d.Next != 0 || d.Acked != 29 {
		t.Fatalf("wiped follower: %+v", d)
	}
	answer(t, d, v, raft.Message{Type: raft.AppendAnswer, Index: 40, End: 40, Seq: d.Seq}, raft.BadMessage)
	answer(t, d, v, raft.Message{Type: raft.AppendAnswer, Index: 4, End: 4, Seq: d.Seq + 1}, raft.BadMessage)
}

func TestCommittedEntryThatTheLeaderLacks(t *testing.T) {
	d, v := leader(t)
	due(d, v)
	answer(t, d, v, raft.Message{Type: raft.CompareAnswer, Index: 17, LogTerm: 4, End: 17, Commit: 17, Seq: d.Seq}, raft.CommittedConflict)
	if out := due(d, v); len(out) != 0 {
		t.Fatalf("asked again at once: %+v", out)
	}
}
