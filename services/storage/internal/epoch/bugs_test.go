package epoch

import (
	"slices"
	"testing"
)

// settledAfter plays a trace and settles; the logs and lists of all nodes must be equal then.
func settledAfter(t *testing.T, c simConfig, trace string) *simState {
	t.Helper()
	s := newSim(0, c)
	for _, a := range parseTrace(trace) {
		if !s.apply(a) {
			t.Fatalf("%s could not happen", a)
		}
		s.check()
	}
	s.settle()
	s.check()
	if s.viol != "" {
		t.Fatalf("%s\n%s", s.viol, describe(0, c, parseTrace(trace)))
	}
	for i := range s.n[1:] {
		if !slices.Equal(s.n[0].lin.Epochs, s.n[i+1].lin.Epochs) {
			t.Errorf("lists differ: %v %v", s.n[0].lin.Epochs, s.n[i+1].lin.Epochs)
		}
		if !slices.Equal(s.n[0].log[:s.n[0].end], s.n[i+1].log[:s.n[i+1].end]) {
			t.Errorf("logs differ: %v %v", s.n[0].log[:s.n[0].end], s.n[i+1].log[:s.n[i+1].end])
		}
	}
	return s
}

// TestH16_SwitchesWithoutWrites: three masters in a row write nothing; the first one rejoins, the lists are equal.
func TestH16_SwitchesWithoutWrites(t *testing.T) {
	s := settledAfter(t, conf(1, false, 0), "put 0; catchup 1; catchup 2; promote 1 7; follow 2 1; promote 2 7; follow 0 2; promote 0 7; crash 0")
	if n := len(s.n[0].lin.Epochs); n != 2 {
		t.Errorf("%d epochs: empty ones stay in the list", n)
	}
}

// TestH22_FastLeaderChanges: three masters in a row write a record that nobody else gets.
func TestH22_FastLeaderChanges(t *testing.T) {
	settledAfter(t, conf(2, false, 0),
		"put 0; catchup 1; catchup 2; put 0; cut 0 1; cut 0 2; promote 1 6; put 1; cut 1 2; promote 2 4; put 2")
}

// TestH23_NoCutToReadable: a slave that acked a record whose Readable it never learned keeps it through its restart.
func TestH23_NoCutToReadable(t *testing.T) {
	s := settledAfter(t, conf(1, false, 0), "put 0; deliver 1; ack 1; crash 1; restart 1; power 0; promote 1 6")
	if s.rec[0].stat != simOK || !s.n[0].has(0) {
		t.Errorf("the acked record is gone: %v %v", s.rec[0].stat, s.n[0].log[:s.n[0].end])
	}
}

// TestH15_ANewEpochOnTheSameMaster: its links begin anew and carry the new list.
func TestH15_ANewEpochOnTheSameMaster(t *testing.T) {
	settledAfter(t, conf(1, false, 0), "put 0; catchup 1; promote 0 7; put 0; follow 1 0; catchup 1 1; promote 0 3; put 0")
}

// TestACopiedReignIsNotContinued: a master that had stopped cleanly copies the log of another one and takes over its list. That it
// was open itself must not make it go on with the other's reign.
func TestACopiedReignIsNotContinued(t *testing.T) {
	l := Lineage{Role: RoleSyncMaster, Epochs: List{{1, 0, 1}}, Promise: Promise{1, 1}, Open: true}
	p := DecideAnswer(Own{Lineage: l, End: 10, FileSize: 1 << 20, Copying: true}, FollowAnswer{
		Action: ActionStream, Offset: 10, Epochs: List{{1, 0, 1}, {2, 10, 2}}, FileSize: 1 << 20, End: 20, OpenMaster: true,
	})
	if p.Refused || p.Next.Promise != p.Next.Epochs.Last() {
		t.Fatalf("plan %+v", p)
	}
	d := DecideOpen(OpenState{Lineage: p.Next, End: 20, Sync: true, N: 3, Required: 1, Clean: true})
	if d.Action == OpenContinue {
		t.Error("goes on with a reign that another node holds")
	}
	tr := parseTrace("promote 1 2 0; clean 0; restart 0; promote 0 7 1; half 0 1; put 1; put 0")
	if v, _ := replay(0, conf(2, false, 0), tr); v != "" {
		t.Errorf("%s\n%s", v, describe(0, conf(2, false, 0), tr))
	}
}
