package epoch

import (
	"slices"
	"strings"
	"testing"
)

const testSize = 100

// testUpstream is an open master with (1, 0, #1)(2, 500, #2), its log [200, 1000).
func testUpstream() Upstream {
	l := List{{1, 0, 1}, {2, 500, 2}}
	return Upstream{
		NodeID: 1, Lineage: Lineage{Role: RoleSyncMaster, Epochs: l, Promise: l.Last(), Open: true}, Open: true,
		First: 200, End: 1000, FileSize: testSize, MaxFrame: 64, Path: []int64{1},
	}
}

func testRequest() FollowRequest {
	l := List{{1, 0, 1}, {2, 500, 2}}
	return FollowRequest{NodeID: 2, Epochs: l, Promise: l.Last(), First: 200, End: 800, FileSize: testSize, MaxFrame: 32, Downstream: []int64{2}}
}

func slaveOf(u *Upstream) { u.Lineage.Role, u.Lineage.Open, u.Open = RoleSlave, false, false }

func TestDecideFollow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(u *Upstream, r *FollowRequest)
		action Action
		offset int64
		reason string
		down   bool
	}{
		{"behind", func(*Upstream, *FollowRequest) {}, ActionStream, 800, "", false},
		{"equal", func(_ *Upstream, r *FollowRequest) { r.End = 1000 }, ActionStream, 1000, "", false},
		{"ahead of the master", func(_ *Upstream, r *FollowRequest) { r.End = 1100 }, ActionTruncate, 1000, "", false},
		{"ahead of a slave", func(u *Upstream, r *FollowRequest) { slaveOf(u); r.End = 1100 }, ActionRefuse, 0, ReasonAhead, false},
		{"parted", func(_ *Upstream, r *FollowRequest) { r.Epochs, r.Promise = r.Epochs[:1], Promise{1, 1} }, ActionTruncate, 500, "", false},
		{"parted from a slave's", func(u *Upstream, r *FollowRequest) {
			slaveOf(u)
			r.Epochs, r.Promise = r.Epochs[:1], Promise{1, 1}
		}, ActionTruncate, 500, "", false},
		{"empty", func(_ *Upstream, r *FollowRequest) {
			*r = FollowRequest{NodeID: 2, MaxFrame: 32}
		}, ActionReset, 200, "", false},
		{"empty, all is there", func(u *Upstream, r *FollowRequest) {
			u.First = 0
			*r = FollowRequest{NodeID: 2, MaxFrame: 32}
		}, ActionStream, 0, "", false},
		{"before the first", func(_ *Upstream, r *FollowRequest) { r.First, r.End = 0, 150 }, ActionReset, 200, "", false},
		{"parted before the first", func(u *Upstream, r *FollowRequest) {
			u.First, u.Lineage.Epochs = 600, List{{1, 0, 1}, {2, 500, 2}}
			r.Epochs, r.Promise, r.End = r.Epochs[:1], Promise{1, 1}, 900
		}, ActionReset, 600, "", false},
		{"parted before the slave's first", func(_ *Upstream, r *FollowRequest) {
			r.Epochs, r.Promise, r.First = r.Epochs[:1], Promise{1, 1}, 600
		}, ActionReset, 200, "", false},
		{"nothing common", func(_ *Upstream, r *FollowRequest) { r.Epochs, r.Promise = List{{1, 0, 9}}, Promise{1, 9} }, ActionReset, 200, "", false},
		{"tail differs", func(u *Upstream, _ *FollowRequest) { u.Tail = TailDiffers }, ActionCompare, 800, "", false},
		{"tail differs, compared", func(u *Upstream, r *FollowRequest) { u.Tail, r.ComparedTo = TailDiffers, 650 }, ActionTruncate, 650, "", false},
		{"tail differs, nothing equal", func(u *Upstream, r *FollowRequest) { u.Tail, r.ComparedTo = TailDiffers, NothingEqual }, ActionReset, 200, "", false},
		{"tail equal", func(u *Upstream, _ *FollowRequest) { u.Tail = TailEqual }, ActionStream, 800, "", false},
		{"RocketMQ's history", func(u *Upstream, r *FollowRequest) {
			u.Lineage.Epochs = List{{1, 700, 1}}
			r.Epochs, r.Promise = nil, Promise{}
		}, ActionCompare, 700, "", false},
		{"RocketMQ's, compared", func(u *Upstream, r *FollowRequest) {
			u.Lineage.Epochs = List{{1, 900, 1}}
			r.Epochs, r.Promise, r.ComparedTo = nil, Promise{}, 800
		}, ActionStream, 800, "", false},
		{"RocketMQ's, parted", func(u *Upstream, r *FollowRequest) {
			u.Lineage.Epochs = List{{1, 700, 1}}
			r.Epochs, r.Promise, r.ComparedTo = nil, Promise{}, 700
		}, ActionTruncate, 700, "", false},
		{"RocketMQ's, no bytes in both", func(u *Upstream, r *FollowRequest) {
			u.Lineage.Epochs = List{{1, 700, 1}}
			*r = FollowRequest{NodeID: 2, End: 150, FileSize: testSize}
		}, ActionReset, 200, "", false},
		{"other file size", func(_ *Upstream, r *FollowRequest) { r.FileSize = 1 }, ActionRefuse, 0, ReasonFileSize, false},
		{"other cluster", func(_ *Upstream, r *FollowRequest) { r.Cluster = "x" }, ActionRefuse, 0, ReasonWrongCluster, false},
		{"own id", func(_ *Upstream, r *FollowRequest) { r.NodeID = 1 }, ActionRefuse, 0, ReasonSameNode, false},
		{"cycle below", func(_ *Upstream, r *FollowRequest) { r.Downstream = []int64{1, 2} }, ActionRefuse, 0, ReasonCycle, false},
		{"cycle above", func(u *Upstream, _ *FollowRequest) { u.Path = []int64{1, 2, 5} }, ActionRefuse, 0, ReasonCycle, false},
		{"bad list", func(_ *Upstream, r *FollowRequest) { r.Epochs = List{{2, 0, 1}, {1, 0, 1}} }, ActionRefuse, 0, ReasonBadRequest, false},
		{"not open", func(u *Upstream, _ *FollowRequest) { u.Open = false }, ActionRefuse, 0, ReasonNotOpen, false},
		{"told of a newer one", func(_ *Upstream, r *FollowRequest) { r.Promise = Promise{3, 3} }, ActionRefuse, 0, ReasonStaleEpoch, true},
		{"told of its own candidacy", func(u *Upstream, r *FollowRequest) {
			u.Open, u.Lineage.Candidate, r.Promise = false, Promise{3, 3}, Promise{3, 3}
		}, ActionRefuse, 0, ReasonStaleEpoch, false},
		{"a slave below the promise", func(u *Upstream, r *FollowRequest) { slaveOf(u); r.Promise = Promise{3, 3} }, ActionRefuse, 0, ReasonStaleEpoch, false},
		{"equal promise, other id", func(_ *Upstream, r *FollowRequest) { r.Promise = Promise{2, 9}; r.Epochs = r.Epochs[:1] }, ActionRefuse, 0, ReasonEpochConflict, false},
	} {
		u, r := testUpstream(), testRequest()
		tc.change(&u, &r)
		a, down := DecideFollow(u, r)
		if a.Action != tc.action || a.Offset != tc.offset || a.Reason != tc.reason || down != tc.down {
			t.Errorf("%s: %+v, step down %t", tc.name, a, down)
			continue
		}
		if (a.Action == ActionRefuse) != (a.Remedy != "") {
			t.Errorf("%s: remedy %q", tc.name, a.Remedy)
		}
		agreeing(t, tc.name, u, r, a)
	}
}

// agreeing lets the slave check the answer: what a sound upstream says it takes as it is.
func agreeing(t *testing.T, name string, u Upstream, r FollowRequest, a FollowAnswer) {
	t.Helper()
	own := Own{
		Lineage: Lineage{Role: RoleSlave, Epochs: r.Epochs, Promise: r.Promise}, First: r.First, End: r.End, FileSize: r.FileSize,
		ComparedTo: r.ComparedTo,
	}
	p := DecideAnswer(own, a)
	if a.Action == ActionRefuse {
		if !p.Refused || p.Reason != a.Reason {
			t.Errorf("%s: plan %+v", name, p)
		}
		return
	}
	if a.Action == ActionCompare {
		if !p.Compare || p.CompareTo != a.Offset || p.CompareFrom != max(u.First, r.First) {
			t.Errorf("%s: plan %+v", name, p)
		}
		return
	}
	if p.Refused || p.Compare || p.Cut != (a.Action == ActionTruncate) || p.Reset != (a.Action == ActionReset) || (p.Cut || p.Reset) && p.At != a.Offset {
		t.Errorf("%s: plan %+v", name, p)
	}
	if !slices.Equal(p.Next.Epochs, u.Lineage.Epochs) || p.Next.Promise.Epoch < u.Lineage.Epochs.Last().Epoch {
		t.Errorf("%s: saves %+v", name, p.Next)
	}
	if p.Keep && (p.KeepFrom < r.First || p.KeepFrom >= r.End) || !p.Keep && p.Cut {
		t.Errorf("%s: keeps %t from %d of [%d, %d)", name, p.Keep, p.KeepFrom, r.First, r.End)
	}
	if want := int64(-1); u.Open && p.Want != u.End || !u.Open && p.Want != want {
		t.Errorf("%s: wants %d", name, p.Want)
	}
}

// TestDecideAnswer: what no sound upstream says is not done.
func TestDecideAnswer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(o *Own, a *FollowAnswer)
		reason string
	}{
		{"a cut that is too deep", func(_ *Own, a *FollowAnswer) { a.Action, a.Offset = ActionTruncate, 300 }, ReasonBadAnswer},
		{"a reset for nothing", func(_ *Own, a *FollowAnswer) { a.Action, a.Offset = ActionReset, 200 }, ReasonBadAnswer},
		{"from elsewhere", func(_ *Own, a *FollowAnswer) { a.Offset = 799 }, ReasonBadAnswer},
		{"no decision", func(_ *Own, a *FollowAnswer) { a.Action = ActionProgress }, ReasonBadAnswer},
		{"bad list", func(_ *Own, a *FollowAnswer) { a.Epochs = List{{0, 0, 1}} }, ReasonBadAnswer},
		{"no file size", func(_ *Own, a *FollowAnswer) { a.FileSize = 0 }, ReasonFileSize},
		{"below the promise", func(o *Own, _ *FollowAnswer) { o.Lineage.Promise = Promise{9, 9} }, ReasonStaleEpoch},
		{"equal to the promise, other id", func(o *Own, _ *FollowAnswer) {
			o.Lineage.Promise, o.Lineage.Epochs = Promise{2, 9}, o.Lineage.Epochs[:1]
		}, ReasonStaleEpoch},
		{"compare again", func(o *Own, a *FollowAnswer) { o.ComparedTo, a.Action, a.Offset = 700, ActionCompare, 800 }, ReasonBadAnswer},
		{"compare beyond", func(_ *Own, a *FollowAnswer) { a.Action, a.Offset = ActionCompare, 900 }, ReasonBadAnswer},
		{"a slave cuts one ahead", func(o *Own, a *FollowAnswer) {
			o.End, a.OpenMaster, a.Action, a.Offset = 1100, false, ActionTruncate, 1000
		}, ReasonAhead},
		{"a copy that cuts", func(o *Own, a *FollowAnswer) { o.Copying, o.End, a.Action, a.Offset = true, 1100, ActionTruncate, 1000 }, ReasonLogDiverges},
		{"revoked at once", func(_ *Own, a *FollowAnswer) { *a = FollowAnswer{Action: ActionRevoke, Reason: "STOPPED"} }, "STOPPED"},
	} {
		u, r := testUpstream(), testRequest()
		a, _ := DecideFollow(u, r)
		o := Own{Lineage: Lineage{Role: RoleSlave, Epochs: r.Epochs, Promise: r.Promise}, First: r.First, End: r.End, FileSize: r.FileSize}
		tc.change(&o, &a)
		if p := DecideAnswer(o, a); !p.Refused || p.Reason != tc.reason || p.Cut || p.Reset {
			t.Errorf("%s: %+v", tc.name, p)
		}
	}
}

func TestPlanOfANewHistory(t *testing.T) {
	u, r := testUpstream(), testRequest()
	a, _ := DecideFollow(u, r)
	o := Own{Lineage: Lineage{Role: RoleSlave, Epochs: r.Epochs, Promise: r.Promise}, First: r.First, End: r.End, FileSize: r.FileSize, Path: []int64{1}}
	if p := DecideAnswer(o, a); p.DropLinks {
		t.Error("links below are dropped though nothing changes")
	}
	o.Path = []int64{1, 7}
	if p := DecideAnswer(o, a); !p.DropLinks {
		t.Error("another path keeps the links below")
	}
	o.Path, o.FileSize = []int64{1}, 0
	if p := DecideAnswer(o, a); p.FileSize != testSize {
		t.Errorf("adopts the file size %d", p.FileSize)
	}
}

// TestCopyIgnoresEmptyEpochs: a starting master that has lost the bytes of its last reign can copy who has fewer epochs.
func TestCopyIgnoresEmptyEpochs(t *testing.T) {
	u := testUpstream()
	slaveOf(&u)
	own := Lineage{Role: RoleSyncMaster, Epochs: append(slices.Clone(u.Lineage.Epochs), Entry{3, 900, 3}), Promise: Promise{3, 3}, Candidate: Promise{4, 4}}
	l := CopyLineage(own, 800)
	a, down := DecideFollow(u, FollowRequest{NodeID: 2, Epochs: l.Epochs, Promise: l.Promise, First: 200, End: 800, FileSize: testSize})
	if a.Action != ActionStream || down {
		t.Fatalf("%+v", a)
	}
	p := DecideAnswer(Own{Lineage: own, First: 200, End: 800, FileSize: testSize, Copying: true}, a)
	if p.Refused || p.Next.Promise != (Promise{3, 3}) || p.Next.Candidate != (Promise{4, 4}) || p.Next.Role != RoleSyncMaster ||
		!slices.Equal(p.Next.Epochs, u.Lineage.Epochs) {
		t.Errorf("%+v", p)
	}
}

func TestRefusalOfAnotherClusterNamesBothAndTheKeys(t *testing.T) {
	u, r := testUpstream(), testRequest()
	u.Cluster, u.BrokerName, r.Cluster, r.BrokerName = "east", "a", "west", "b"
	a, _ := DecideFollow(u, r)
	for _, part := range []string{"upstream, node 1, has brokerClusterName east and brokerName a", "slave west and b"} {
		if !strings.Contains(a.Remedy, part) {
			t.Errorf("%q does not say %q", a.Remedy, part)
		}
	}
}
