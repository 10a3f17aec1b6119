package simtest_test

import (
	"flag"
	"strconv"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/simtest"
)

var (
	seeds = flag.Int("sim.seeds", 250, "seeds to play, for 3 nodes and for 5")
	first = flag.Uint64("sim.first", 1, "first seed")
	seed  = flag.Uint64("sim.seed", 0, "play this seed only, with its trace")
	nodes = flag.Int("sim.nodes", 3, "nodes for -sim.seed")
	keep  = flag.String("sim.keep", "", "actions of the plan to keep for -sim.seed, comma separated; - for none")
)

// TestSimulation plays seeds and wants no promise broken. More seeds: go test -run TestSimulation -args -sim.seeds=5000.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		t.Skip("-sim.seed names one seed, which TestReplay plays")
	}
	for _, n := range []int{3, 5} {
		t.Run(strconv.Itoa(n)+" nodes", func(t *testing.T) {
			var sum simtest.Stats
			for s := range uint64(*seeds) {
				f, stats := simtest.Run(simtest.Options{Seed: *first + s, Nodes: n})
				if f != nil {
					t.Fatalf("seed %d: %v", *first+s, simtest.Minimise(f, 200))
				}
				sum.Add(stats)
			}
			t.Logf("%d seeds: %+v", *seeds, sum)
			if least := min(sum.Leaders, sum.Commits, sum.Reads, sum.Crashes, sum.Wipes, sum.Rejoins, sum.Cuts, sum.Resets, sum.Transfers,
				sum.DiskErrors, sum.Repeated); *seeds >= 50 && least == 0 {
				t.Errorf("something was never exercised: %+v", sum)
			}
		})
	}
}

// TestReplay plays the seed of -sim.seed again, which a failure has printed.
func TestReplay(t *testing.T) {
	if *seed == 0 {
		t.Skip("plays one seed again, and -sim.seed names none")
	}
	o := simtest.Options{Seed: *seed, Nodes: *nodes, Trace: true}
	if *keep != "" {
		o.Keep = []int{}
		for _, k := range strings.Split(*keep, ",") {
			if i, err := strconv.Atoi(k); err == nil {
				o.Keep = append(o.Keep, i)
			}
		}
	}
	if f, _ := simtest.Run(o); f != nil {
		t.Fatal(f)
	}
}

// TestSameSeedSameRun holds what replaying rests on.
func TestSameSeedSameRun(t *testing.T) {
	for s := range uint64(5) {
		_, a := simtest.Run(simtest.Options{Seed: s, Nodes: 3})
		_, b := simtest.Run(simtest.Options{Seed: s, Nodes: 3, Trace: true})
		if a != b {
			t.Errorf("seed %d: %+v, then %+v", s, a, b)
		}
	}
}
