package epoch

import (
	"reflect"
	"slices"
	"testing"
)

func TestPart(t *testing.T) {
	a := List{{1, 0, 1}, {2, 700, 2}, {4, 900, 4}}
	for _, tc := range []struct {
		name       string
		a          List
		aEnd       int64
		b          List
		bEnd       int64
		at         int64
		common     int
		wantNoRank bool
	}{
		{"equal", a, 1000, a, 1000, 1000, 3, false},
		{"behind", a, 1000, a, 950, 950, 3, false},
		{"behind an epoch", a, 1000, a, 650, 650, 3, false},
		{"other last epoch", a, 1000, List{{1, 0, 1}, {2, 700, 2}, {3, 800, 3}}, 990, 800, 2, false},
		{"other id", a, 1000, List{{1, 0, 1}, {2, 700, 9}}, 990, 700, 1, false},
		{"other start", a, 1000, List{{1, 0, 1}, {2, 600, 2}}, 990, 600, 1, false},
		{"nothing common", a, 1000, List{{1, 0, 9}}, 990, 0, 0, false},
		{"RocketMQ's history", List{{1, 500, 1}}, 800, nil, 300, 300, 0, false},
		{"both RocketMQ's", nil, 800, nil, 300, 300, 0, false},
		{"one forked off", List{{1, 500, 1}}, 800, List{{1, 200, 2}}, 400, 200, 0, false},
	} {
		for range 2 {
			if at, common := Part(tc.a, tc.aEnd, tc.b, tc.bEnd); at != tc.at || common != tc.common {
				t.Errorf("%s: %d, %d, want %d, %d", tc.name, at, common, tc.at, tc.common)
			}
			tc.a, tc.aEnd, tc.b, tc.bEnd = tc.b, tc.bEnd, tc.a, tc.aEnd // it is the same from both sides
		}
	}
}

func TestRank(t *testing.T) {
	l := List{{1, 0, 1}, {2, 700, 2}, {4, 900, 4}}
	for end, want := range map[int64]Rank{0: {1, 0}, 699: {1, 699}, 700: {2, 700}, 899: {2, 899}, 900: {4, 900}, 5000: {4, 5000}} {
		if got := law(0).rank(l, end); got != want {
			t.Errorf("end %d: %v, want %v", end, got, want)
		}
	}
	if law(0).rank(nil, 50) != (Rank{0, 50}) || !Less(Rank{1, 900}, Rank{2, 0}) || !Less(Rank{2, 1}, Rank{2, 2}) || Less(Rank{2, 2}, Rank{2, 2}) {
		t.Error("ranks are not ordered by epoch, then end")
	}
}

func TestAppendEpoch(t *testing.T) {
	l := List{{1, 0, 1}, {2, 700, 2}, {3, 900, 3}}
	p := Promise{5, 5}
	for end, want := range map[int64]List{
		0:    {{5, 0, 5}},
		700:  {{1, 0, 1}, {5, 700, 5}},
		701:  {{1, 0, 1}, {2, 700, 2}, {5, 701, 5}},
		1000: {{1, 0, 1}, {2, 700, 2}, {3, 900, 3}, {5, 1000, 5}},
	} {
		if got := law(0).appendEpoch(l, end, p); !slices.Equal(got, want) || got.Check() != nil {
			t.Errorf("end %d: %v, want %v", end, got, want)
		}
	}
	if len(l) != 3 || l[2] != (Entry{3, 900, 3}) {
		t.Errorf("the old list was changed: %v", l)
	}
}

func TestDecidePromise(t *testing.T) {
	slave := Lineage{Role: RoleSlave, Epochs: List{{3, 0, 3}}, Promise: Promise{4, 4}}
	master := Lineage{Role: RoleSyncMaster, Epochs: List{{3, 0, 3}}, Promise: Promise{3, 3}, Open: true}
	starting := Lineage{Role: RoleSyncMaster, Epochs: List{{3, 0, 3}}, Promise: Promise{3, 3}, Candidate: Promise{5, 50}}
	for _, tc := range []struct {
		name           string
		l              Lineage
		p              Promise
		promised, down bool
		links, changed bool
	}{
		{"only asks", slave, Promise{}, false, false, false, false},
		{"newer", slave, Promise{5, 5}, true, false, true, true},
		{"the same again", slave, Promise{4, 4}, true, false, true, false},
		{"equal, other id", slave, Promise{4, 9}, false, false, false, false},
		{"older", slave, Promise{3, 3}, false, false, false, false},
		{"a master", master, Promise{4, 4}, true, true, true, true},
		{"a master's own", master, Promise{3, 3}, false, false, false, false},
		{"another candidate, lower", starting, Promise{4, 4}, false, false, false, false},
		{"another candidate, equal", starting, Promise{5, 5}, false, false, false, false},
		{"another candidate, higher", starting, Promise{6, 6}, true, true, true, true},
	} {
		d := DecidePromise(tc.l, tc.p, nil)
		if d.Promised != tc.promised || d.StepDown != tc.down || d.DropLinks != tc.links || d.Changed != tc.changed {
			t.Errorf("%s: %+v", tc.name, d)
		}
		switch {
		case d.Changed && (d.Next.Promise != tc.p || d.Next.Role != RoleSlave || d.Next.Open || d.Next.Candidate != Promise{}):
			t.Errorf("%s: saves %+v", tc.name, d.Next)
		case !d.Changed && !reflect.DeepEqual(d.Next, tc.l):
			t.Errorf("%s: changed to %+v", tc.name, d.Next)
		}
	}
}

func TestDecideOpen(t *testing.T) {
	list := List{{1, 0, 1}}
	peer := func(id int64, end int64, f func(h *Heard)) Heard {
		h := Heard{NodeID: id, Epochs: list, Promise: list.Last(), End: end, Whole: true}
		if f != nil {
			f(&h)
		}
		return h
	}
	promised := func(h *Heard) { h.Promised, h.Promise = true, Promise{2, 20} }
	base := OpenState{
		Lineage: Lineage{Role: RoleSyncMaster, Epochs: list, Promise: list.Last()}, End: 100, Sync: true, N: 3, Required: 1,
	}
	for _, tc := range []struct {
		name   string
		change func(s *OpenState)
		want   OpenAction
		reason string
		reign  Promise
	}{
		{"nobody heard", func(*OpenState) {}, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"one whole peer", func(s *OpenState) { s.Heard = []Heard{peer(1, 100, nil)} }, OpenAsk, "", Promise{2, 0}},
		{"one peer, not whole", func(s *OpenState) {
			s.Heard = []Heard{peer(1, 100, func(h *Heard) { h.Whole = false })}
		}, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"all, none whole", func(s *OpenState) {
			s.Lineage.Unclean = true
			f := func(h *Heard) { h.Whole = false }
			s.Heard = []Heard{peer(1, 100, f), peer(2, 100, f)}
		}, OpenAsk, "", Promise{2, 0}},
		{"not whole itself", func(s *OpenState) { s.Lineage.Unclean = true; s.Heard = []Heard{peer(1, 100, nil)} }, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"alone", func(s *OpenState) { s.N = 1 }, OpenAsk, "", Promise{2, 0}},
		{"alone, bytes are gone", func(s *OpenState) { s.N, s.Lineage.Held = 1, 101 }, OpenWait, ReasonLogLost, Promise{}},
		{"alone, bytes are gone, forced", func(s *OpenState) { s.N, s.Lineage.Held, s.Force = 1, 101, true }, OpenAsk, "", Promise{2, 0}},
		{"async, bytes are gone, one heard", func(s *OpenState) {
			s.Sync, s.Waited, s.Lineage.Held, s.Heard = false, true, 101, []Heard{peer(1, 100, nil)}
		}, OpenWait, ReasonLogLost, Promise{}},
		{"async, bytes are gone, all heard", func(s *OpenState) {
			s.Sync, s.Waited, s.Lineage.Held, s.Heard = false, true, 101, []Heard{peer(1, 100, nil), peer(2, 100, nil)}
		}, OpenAsk, "", Promise{2, 0}},
		{"required 2: itself", func(s *OpenState) { s.Required = 2 }, OpenAsk, "", Promise{2, 0}},
		{"required above n", func(s *OpenState) { s.Required = 9; s.Lineage.Empty = true }, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"clean stop", func(s *OpenState) { s.Clean, s.Lineage.Open = true, true }, OpenContinue, "", Promise{1, 1}},
		{"clean stop, was not open", func(s *OpenState) { s.Clean = true }, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"clean stop, not whole", func(s *OpenState) { s.Clean, s.Lineage.Open, s.Lineage.Unclean = true, true, true }, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"clean stop, newer promise", func(s *OpenState) {
			s.Clean, s.Lineage.Open, s.Lineage.Promise = true, true, Promise{7, 7}
		}, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"a newer reign", func(s *OpenState) {
			s.Heard = []Heard{peer(1, 100, func(h *Heard) { h.Promise = Promise{5, 5} })}
		}, OpenStepDown, "", Promise{5, 5}},
		{"its own candidacy", func(s *OpenState) {
			s.Lineage.Candidate = Promise{5, 5}
			s.Heard = []Heard{peer(1, 100, func(h *Heard) { h.Promise = Promise{4, 5} })}
		}, OpenAsk, "", Promise{6, 5}},
		{"another epoch of the number", func(s *OpenState) {
			s.Heard = []Heard{peer(1, 100, func(h *Heard) { h.Promise.ID, h.Epochs = 9, List{{1, 0, 9}} })}
		}, OpenWait, ReasonEpochConflict, Promise{}},
		{"a longer log", func(s *OpenState) { s.Heard = []Heard{peer(1, 101, nil)} }, OpenCopy, "", Promise{}},
		{"a longer log, tried", func(s *OpenState) { s.Heard, s.Diverged = []Heard{peer(1, 101, nil)}, true }, OpenWait, ReasonLogDiverges, Promise{}},
		{"a longer log, tried, forced", func(s *OpenState) {
			s.Heard, s.Diverged, s.Force = []Heard{peer(1, 101, nil)}, true, true
		}, OpenAsk, "", Promise{2, 0}},
		{"a better log that parts", func(s *OpenState) {
			s.Lineage.Promise = Promise{2, 2}
			s.Heard = []Heard{peer(1, 50, func(h *Heard) { h.Epochs = List{{1, 0, 1}, {2, 40, 2}}; h.Promise = Promise{2, 2} })}
		}, OpenWait, ReasonLogDiverges, Promise{}},
		{"promotion of a worse log", func(s *OpenState) {
			s.Promote, s.Lineage.Role, s.Heard = true, RoleSlave, []Heard{peer(1, 101, nil)}
		}, OpenWait, ReasonNotBest, Promise{}},
		{"promotion that has begun, a longer log", func(s *OpenState) { s.Promote, s.Heard = true, []Heard{peer(1, 101, nil)} }, OpenCopy, "", Promise{}},
		{"promotion that has asked, a longer log", func(s *OpenState) {
			s.Promote, s.Asked, s.Heard = true, Promise{2, 20}, []Heard{peer(1, 101, promised)}
		}, OpenCopy, "", Promise{}},
		{"promotion that has begun, a better log that parts", func(s *OpenState) {
			s.Promote, s.Heard = true, []Heard{peer(1, 50, func(h *Heard) { h.Epochs = List{{1, 0, 1}, {2, 40, 2}} })}
		}, OpenWait, ReasonLogDiverges, Promise{}},
		{"promotion after a clean stop", func(s *OpenState) {
			s.Promote, s.Clean, s.Lineage.Open, s.Heard = true, true, true, []Heard{peer(1, 100, nil)}
		}, OpenAsk, "", Promise{2, 0}},
		{"promotion with too few", func(s *OpenState) { s.Promote, s.Lineage.Role = true, RoleSlave }, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"forced promotion with too few", func(s *OpenState) { s.Promote, s.Force, s.Lineage.Role = true, true, RoleSlave }, OpenAsk, "", Promise{2, 0}},
		{"forced promotion that nobody promises", func(s *OpenState) {
			s.Promote, s.Force, s.Asked, s.Heard = true, true, Promise{2, 20}, []Heard{peer(1, 100, nil)}
		}, OpenNow, "", Promise{2, 20}},
		{"promotion above a newer promise", func(s *OpenState) {
			s.Promote, s.Heard = true, []Heard{peer(1, 100, func(h *Heard) { h.Promise = Promise{5, 5} })}
		}, OpenAsk, "", Promise{6, 0}},
		{"forced promotion", func(s *OpenState) { s.Promote, s.Force, s.Heard = true, true, []Heard{peer(1, 101, nil)} }, OpenAsk, "", Promise{2, 0}},
		{"promised", func(s *OpenState) {
			s.Asked, s.Heard = Promise{2, 20}, []Heard{peer(1, 100, promised)}
			s.Lineage.Candidate = s.Asked
		}, OpenNow, "", Promise{2, 20}},
		{"not promised", func(s *OpenState) {
			s.Asked, s.Heard = Promise{2, 20}, []Heard{peer(1, 100, nil)}
			s.Lineage.Candidate = s.Asked
		}, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"async, early", func(s *OpenState) { s.Sync = false; s.Heard = []Heard{peer(1, 100, nil)} }, OpenWait, ReasonNotEnoughNodes, Promise{}},
		{"async, waited", func(s *OpenState) { s.Sync, s.Waited = false, true }, OpenAsk, "", Promise{2, 0}},
		{"async, a longer log", func(s *OpenState) { s.Sync, s.Waited, s.Heard = false, true, []Heard{peer(1, 101, nil)} }, OpenCopy, "", Promise{}},
	} {
		s := base
		s.Lineage = base.Lineage.Clone()
		tc.change(&s)
		d := DecideOpen(s)
		if d.Action != tc.want || d.Reason != tc.reason || d.Reign != tc.reign || d.Action == OpenWait && d.Remedy == "" {
			t.Errorf("%s: %+v", tc.name, d)
		}
	}
}

func TestDecideEmptyFollow(t *testing.T) {
	heard := []Heard{{Promise: Promise{3, 3}}, {Promise: Promise{2, 2}, Epochs: List{{5, 0, 5}}}}
	for _, tc := range []struct {
		promise     Promise
		heard       []Heard
		n, required int
		follow      bool
		want        Promise
	}{
		{Promise{}, heard[:1], 3, 1, false, Promise{}},
		{Promise{}, heard, 3, 1, true, Promise{5, 5}},
		{Promise{1, 1}, nil, 3, 1, true, Promise{1, 1}},
		{Promise{}, heard[:1], 2, 1, true, Promise{3, 3}},
		{Promise{}, nil, 1, 0, true, Promise{}},
		{Promise{}, heard[:1], 5, 0, true, Promise{3, 3}},
	} {
		d := DecideEmptyFollow(Lineage{Role: RoleSlave, Promise: tc.promise}, tc.heard, tc.n, tc.required)
		if d.Follow != tc.follow || d.Next.Promise != tc.want || d.Follow != (d.Missing == 0) || d.Changed != (tc.want != tc.promise) {
			t.Errorf("%+v: %+v", tc, d)
		}
	}
}

func TestReadable(t *testing.T) {
	base := Progress{Written: 100, Flushed: 80, Acked: 60, InSync: 1, Required: 1, OwnStart: 50, Sync: true}
	for _, tc := range []struct {
		name   string
		change func(p *Progress)
		want   int64
		by     Limit
	}{
		{"acked", func(*Progress) {}, 60, LimitAcked},
		{"async", func(p *Progress) { p.Sync = false }, 100, LimitWritten},
		{"async, sync flush", func(p *Progress) { p.Sync, p.SyncFlush = false, true }, 80, LimitFlushed},
		{"sync flush behind the acks", func(p *Progress) { p.SyncFlush, p.Acked = true, 90 }, 80, LimitFlushed},
		{"acks of an older reign", func(p *Progress) { p.Acked = 49 }, 0, LimitAcked},
		{"too few in sync", func(p *Progress) { p.InSync = 0 }, 100, LimitWritten},
		{"too few in sync, sync flush", func(p *Progress) { p.InSync, p.SyncFlush = 0, true }, 80, LimitFlushed},
		{"too few in sync, refused", func(p *Progress) { p.InSync, p.Refuse = 0, true }, 0, LimitInSync},
	} {
		p := base
		tc.change(&p)
		if n, by := Readable(p); n != tc.want || by != tc.by {
			t.Errorf("%s: %d by %d", tc.name, n, by)
		}
	}
}

func TestBooted(t *testing.T) {
	l := Lineage{Role: RoleSyncMaster, Epochs: List{{1, 0, 1}}, Promise: Promise{1, 1}, Open: true, Boot: "x", Held: 50}
	for _, tc := range []struct {
		name           string
		b              Boot
		sync           bool
		unclean, open  bool
		wantRole       Role
		wantForgetting bool
	}{
		{"clean", Boot{Role: RoleSyncMaster, Clean: true, ID: "y", End: 50}, false, false, true, RoleSyncMaster, false},
		{"killed", Boot{Role: RoleSyncMaster, ID: "x", End: 50}, false, false, false, RoleSyncMaster, false},
		{"machine down", Boot{Role: RoleSyncMaster, ID: "y", End: 50}, false, true, false, RoleSyncMaster, false},
		{"machine down, sync flush", Boot{Role: RoleSyncMaster, ID: "y", End: 50}, true, false, false, RoleSyncMaster, false},
		{"the log is shorter", Boot{Role: RoleSyncMaster, Clean: true, ID: "x", End: 49}, true, true, false, RoleSyncMaster, false},
		{"the log has lost", Boot{Role: RoleSyncMaster, Clean: true, ID: "x", End: 60, Lost: true}, true, true, false, RoleSyncMaster, false},
		{"config says slave", Boot{Role: RoleSlave, Clean: true, ID: "x", End: 50}, false, false, true, RoleSyncMaster, false},
		{"config says async", Boot{Role: RoleAsyncMaster, Clean: true, ID: "x", End: 50}, false, false, true, RoleAsyncMaster, false},
		{"from the backup", Boot{Role: RoleSyncMaster, Clean: true, ID: "x", End: 50, Restored: true}, false, false, false, RoleSyncMaster, true},
	} {
		l.SyncFlush = tc.sync
		got := Booted(l, tc.b)
		if got.Unclean != tc.unclean || got.Open != tc.open || got.Role != tc.wantRole || got.Boot != tc.b.ID || got.Empty != tc.wantForgetting ||
			(got.Promise == Promise{}) != tc.wantForgetting {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
	l.SyncFlush, l.Boot = false, ""
	if got := Booted(l, Boot{Role: RoleSyncMaster, End: 50}); !got.Unclean {
		t.Error("without boot ids a crash counts as one of the process alone")
	}
	slave := Lineage{Role: RoleSlave, Promise: Promise{2, 2}}
	if got := Booted(slave, Boot{Role: RoleSyncMaster, Clean: true}); got.Role != RoleSlave {
		t.Errorf("the config made a slave %v", got.Role)
	}
	for _, tc := range []struct {
		b     Boot
		whole bool
	}{{Boot{Clean: true}, false}, {Boot{Clean: true, End: 5}, true}, {Boot{End: 5}, false}} {
		if got := NewLineage(tc.b); got.Whole() != tc.whole {
			t.Errorf("%+v: %+v", tc.b, got)
		}
	}
}

func TestOutrankedAndContested(t *testing.T) {
	l := Lineage{Epochs: List{{3, 0, 3}}, Promise: Promise{3, 3}}
	same, newer, twin := Heard{Promise: Promise{3, 3}}, Heard{Promise: Promise{4, 4}}, Heard{Promise: Promise{3, 9}}
	open := twin
	open.OpenMaster = true
	if Outranked(l, []Heard{same, twin}) || !Outranked(l, []Heard{same, newer}) {
		t.Error("outranked by the wrong one")
	}
	if Contested(l, []Heard{same, newer, twin}) || !Contested(l, []Heard{open}) {
		t.Error("contested by the wrong one")
	}
}

func TestDecideDrain(t *testing.T) {
	l := Lineage{Role: RoleSyncMaster, Epochs: List{{1, 0, 1}, {3, 70, 3}}}
	slave := l
	slave.Role = RoleSlave
	for name, tc := range map[string]struct {
		l     Lineage
		open  bool
		reign Promise
		want  string
	}{
		"its follower":       {l, true, Promise{3, 3}, ""},
		"of an older reign":  {l, true, Promise{1, 1}, ReasonOtherReign},
		"of another epoch 3": {l, true, Promise{3, 4}, ReasonOtherReign},
		"not open":           {l, false, Promise{3, 3}, ReasonNotOpenMaster},
		"a slave":            {slave, true, Promise{3, 3}, ReasonNotOpenMaster},
	} {
		reason, remedy := DecideDrain(tc.l, tc.open, DrainRequest{Reign: tc.reign})
		if reason != tc.want || (reason == "") != (remedy == "") {
			t.Errorf("%s: %q, %q", name, reason, remedy)
		}
	}
}
