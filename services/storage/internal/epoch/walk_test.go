package epoch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// soak says whether the full length is asked for.
func soak() bool { return os.Getenv("TANDEM_SOAK") != "" }

// simWalks is how many walks the test does.
func simWalks() uint64 {
	if soak() {
		return 1_000_000
	}
	return 5_000
}

func drawConfig(r *rand.Rand) simConfig {
	c := simConfig{nodes: 3, refuse: r.IntN(2) == 0, keep: simRecords, wipe: r.IntN(3) == 0, retain: r.IntN(3) == 0, acks: r.IntN(3) == 0, force: r.IntN(6) == 0}
	switch r.IntN(8) {
	case 0, 1:
		c.nodes = 5
	case 2:
		c.nodes = 4
	}
	c.required = 1 + r.IntN(c.nodes-1)
	switch r.IntN(4) {
	case 0:
		c.syncMask = 1<<c.nodes - 1
	case 1:
		c.syncMask = r.IntN(1 << c.nodes)
	}
	if r.IntN(8) == 0 {
		c.keep = 1
	}
	return c
}

// walk plays one seed; it returns what has become of it and how that came about.
func walk(w law, seed uint64) (*simState, []simAct) {
	r := rand.New(rand.NewPCG(seed, 0x7a6e)) //nolint:gosec // a seeded walk
	c := drawConfig(r)
	s := newSim(w, c)
	var tr []simAct
	length := 10 + r.IntN(60)
	for k := 0; k < length*3 && len(tr) < length; k++ {
		if a := s.randomAct(r); s.apply(a) {
			tr = append(tr, a)
			if s.check(); s.viol != "" {
				return s, tr
			}
		}
	}
	s.settle()
	s.check()
	return s, tr
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
				n.log[n.first:n.end], n.synced, n.lin.Epochs, n.lin.Promise, n.link, n.acked, n.r)
		}
		b.WriteString("  ")
		for r := range s.recs {
			x := &s.rec[r]
			fmt.Fprintf(&b, " %d/%d", x.stat, x.acks)
		}
		b.WriteString("\n")
	}
	texts := make([]string, len(tr))
	for i, a := range tr {
		texts[i] = a.String()
	}
	return b.String() + strings.Join(texts, "; ")
}

// TestWalks plays random histories with all rules: none may break a property, and each kind of event must have happened often.
func TestWalks(t *testing.T) {
	const parts = 4
	walks := simWalks()
	for part := range uint64(parts) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			steps, did := 0, map[string]uint64{}
			for seed := part; seed < walks; seed += parts {
				s, tr := walk(0, seed)
				if s.viol != "" {
					tr = shortest(0, s.c, tr, s.viol)
					t.Fatalf("seed %d: %s\n%s", seed, s.viol, describe(0, s.c, tr))
				}
				steps += len(tr)
				did[fmt.Sprintf("%d nodes", s.c.nodes)]++
				did["reset"] += s.resets
				did["truncate"] += s.cuts
				for _, a := range tr {
					did[kindOf(a)]++
				}
			}
			for _, what := range simEvents {
				if did[what] < walks/parts/200 {
					t.Errorf("%q happened only %d times", what, did[what])
				}
			}
			t.Logf("%d walks, %d steps: %v", walks/parts, steps, did)
		})
	}
}

// simEvents are the kinds of events that must not be missing.
var simEvents = []string{
	"put", "put with acks", "deliver", "ack", "readable", "sync", "crash", "power", "wipe", "clean", "restart", "open", "half",
	"halfcopy", "promote", "promote half", "force", "demote", "cut", "heal", "follow", "follow stopped 1", "follow stopped 2",
	"follow stopped 3", "follow stopped 4", "follow stopped 9", "retain", "reset", "truncate", "settle", "degraded", "timeout",
	"3 nodes", "4 nodes", "5 nodes",
}

func kindOf(a simAct) string {
	switch {
	case a.what == "put" && a.c > 0:
		return "put with acks"
	case a.what == "promote" && a.c > 0:
		return "promote half"
	case a.what == "follow" && a.c > 0:
		return fmt.Sprint("follow stopped ", a.c)
	}
	return a.what
}
