package epoch

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func TestAnEpochTooFar(t *testing.T) {
	slave := Lineage{Role: RoleSlave, Epochs: List{{3, 0, 3}}, Promise: Promise{4, 4}}
	starting := Lineage{Role: RoleSyncMaster, Epochs: List{{3, 0, 3}}, Promise: Promise{3, 3}, Candidate: Promise{5, 50}}
	knows := []Heard{{NodeID: 1, Promise: Promise{4 + Farthest, 9}}}
	for _, tc := range []struct {
		name  string
		l     Lineage
		heard []Heard
		epoch int64
		far   bool
	}{
		{"the farthest", slave, nil, 4 + Farthest, false},
		{"one more", slave, nil, 5 + Farthest, true},
		{"one more, which a peer makes likely", slave, knows, 5 + Farthest, false},
		{"a candidate's farthest", starting, nil, 5 + Farthest, false},
		{"a candidate's, one more", starting, nil, 6 + Farthest, true},
		{"nothing is known", Lineage{Role: RoleSlave}, nil, 1 << 62, true},
		{"the last number there is", slave, nil, math.MaxInt64, true},
		{"the last one, which a peer makes likely", slave, []Heard{{NodeID: 1, Promise: Promise{math.MaxInt64 - 1, 9}}}, math.MaxInt64, true},
	} {
		d := DecidePromise(tc.l, Promise{tc.epoch, 7}, tc.heard)
		if d.TooFar != tc.far || d.Promised == tc.far || d.Changed == tc.far || d.StepDown && tc.far || d.DropLinks && tc.far {
			t.Errorf("%s: %+v", tc.name, d)
		}
	}
}

// TestNoCallerMovesAMasterTooFar: what a Follow tells is held to the same bound.
func TestNoCallerMovesAMasterTooFar(t *testing.T) {
	for far, want := range map[int64]string{Farthest: ReasonStaleEpoch, Farthest + 1: ReasonEpochTooFar, 1<<62 - 2: ReasonEpochTooFar} {
		u, r := testUpstream(), testRequest()
		r.Promise = Promise{u.Lineage.Known().Epoch + far, 7}
		if a, down := DecideFollow(u, r); a.Action != ActionRefuse || a.Reason != want || down != (want == ReasonStaleEpoch) {
			t.Errorf("%d above: %s %s, down %t", far, a.Action, a.Reason, down)
		}
	}
}

// TestNoNumberIsTheLast: what is taken over from another node leaves room for a candidate.
func TestNoNumberIsTheLast(t *testing.T) {
	for _, h := range []Heard{
		{Promise: Promise{math.MaxInt64, 1}},
		{Promise: Promise{-1, 1}},
		{Epochs: List{{math.MaxInt64, 0, 1}}},
	} {
		if err := h.Check(); !errors.Is(err, ErrBadList) {
			t.Errorf("%+v: %v", h, err)
		}
	}
	h := Heard{NodeID: 1, Epochs: List{{maxEpoch, 0, 1}}, Promise: Promise{maxEpoch, 1}, Whole: true}
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	d := DecideOpen(OpenState{Lineage: Lineage{Role: RoleSlave}, Promote: true, Force: true, Sync: true, N: 2, Heard: []Heard{h}})
	if d.Action != OpenAsk || d.Reign.Epoch <= maxEpoch {
		t.Errorf("%+v", d)
	}
}

// TestThePromotionAfterAJump: callers that nobody knows take nodes as far as they can, again and again. Whoever is promoted afterwards is
// believed by every node that asks its peers, as OnPromise does.
func TestThePromotionAfterAJump(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		nodes := make([]Lineage, 2+rng.IntN(4))
		heard := func(except int) (hs []Heard) {
			for i, l := range nodes {
				if i != except {
					hs = append(hs, Heard{NodeID: int64(i), Epochs: l.Epochs, Promise: l.Promise, Whole: true})
				}
			}
			return hs
		}
		for i := range nodes {
			nodes[i] = Lineage{Role: RoleSlave, Epochs: List{{1, 0, 1}}, Promise: Promise{1, 1}}
		}
		for range rng.IntN(20) {
			i := rng.IntN(len(nodes))
			d := DecidePromise(nodes[i], Promise{nodes[i].Known().Epoch + 1 + rng.Int64N(Farthest), ID(rng.Uint64() | 1)}, nil)
			if !d.Promised {
				t.Fatalf("seed %d: %+v", seed, d)
			}
			nodes[i] = d.Next
		}
		c := rng.IntN(len(nodes))
		d := DecideOpen(OpenState{Lineage: nodes[c], Promote: true, Sync: true, N: len(nodes), Required: 1, Heard: heard(c)})
		if d.Action != OpenAsk {
			t.Fatalf("seed %d: %+v", seed, d)
		}
		for i, l := range nodes {
			if i == c {
				continue
			}
			if p := DecidePromise(l, Promise{d.Reign.Epoch, 7}, heard(i)); !p.Promised {
				t.Errorf("seed %d: node %d at %d does not believe %d", seed, i, l.Known().Epoch, d.Reign.Epoch)
			}
		}
	}
}
