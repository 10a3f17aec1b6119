package epoch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const simWalks = 20_000

func drawConfig(r *rand.Rand) simConfig {
	c := simConfig{required: 1 + r.IntN(2), refuse: r.IntN(2) == 0, keep: simRecords, wipe: r.IntN(3) == 0}
	switch r.IntN(4) {
	case 0:
		c.syncMask = 7
	case 1:
		c.syncMask = r.IntN(8)
	}
	if r.IntN(8) == 0 {
		c.keep = 1
	}
	return c
}

// walk plays one seed; it returns the violation, "" for none, and how it came about.
func walk(w law, seed uint64) (string, simConfig, []simAct, int) {
	r := rand.New(rand.NewPCG(seed, 0x7a6e)) //nolint:gosec // a seeded walk
	c := drawConfig(r)
	s := newSim(w, c)
	var tr []simAct
	length := 10 + r.IntN(60)
	for k := 0; k < length*3 && len(tr) < length; k++ {
		if a := randomAct(r, c.wipe); s.apply(a) {
			tr = append(tr, a)
			if s.check(); s.viol != "" {
				return s.viol, c, tr, len(tr)
			}
		}
	}
	s.settle()
	s.check()
	return s.viol, c, tr, len(tr)
}

// replay plays a trace, then settles.
func replay(w law, c simConfig, tr []simAct) (string, int) {
	s := newSim(w, c)
	for i, a := range tr {
		s.apply(a)
		if s.check(); s.viol != "" {
			return s.viol, i + 1
		}
	}
	s.settle()
	s.check()
	return s.viol, len(tr)
}

// shortest leaves out events, singly and in pairs, while the violation stays.
func shortest(w law, c simConfig, tr []simAct, viol string) []simAct {
	without := func(i, j int) bool {
		t := append([]simAct{}, tr...)
		if j >= 0 {
			t = append(t[:j], t[j+1:]...)
		}
		t = append(t[:i], t[i+1:]...)
		v, n := replay(w, c, t)
		if !strings.HasPrefix(v, viol[:2]) {
			return false
		}
		tr = t[:n]
		return true
	}
	for again := true; again; {
		again = false
		for i := len(tr) - 1; i >= 0; i-- {
			if i < len(tr) && without(i, -1) {
				again = true
			}
		}
		for i := 0; i < len(tr) && !again; i++ {
			for j := i + 1; j < len(tr) && !again; j++ {
				again = without(i, j)
			}
		}
	}
	return tr
}

func describe(w law, c simConfig, tr []simAct) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", c)
	s := newSim(w, c)
	for _, a := range tr {
		ok := s.apply(a)
		fmt.Fprintf(&b, "%-18s %-5t", a, ok)
		for i := range s.n {
			n := &s.n[i]
			fmt.Fprintf(&b, "  %d %s open=%t up=%t log=%v synced=%d %v promise=%v link=%d acked=%d R=%d", i, n.lin.Role, n.open, n.up,
				n.log[:n.end], n.synced, n.lin.Epochs, n.lin.Promise, n.link, n.acked, n.r)
		}
		fmt.Fprintf(&b, "  %v\n", s.stat[:s.recs])
	}
	texts := make([]string, len(tr))
	for i, a := range tr {
		texts[i] = a.String()
	}
	return b.String() + strings.Join(texts, "; ")
}

// TestWalks plays random histories with all rules: none may break a property.
func TestWalks(t *testing.T) {
	const parts = 4
	for part := range uint64(parts) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			steps := 0
			for seed := part; seed < simWalks; seed += parts {
				v, c, tr, n := walk(0, seed)
				steps += n
				if v != "" {
					tr = shortest(0, c, tr, v)
					t.Fatalf("seed %d: %s\n%s", seed, v, describe(0, c, tr))
				}
			}
			if steps < simWalks/parts*10 {
				t.Errorf("only %d steps: the walks do not walk", steps)
			}
		})
	}
}
