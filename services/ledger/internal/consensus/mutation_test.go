package consensus_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/simtest"
)

var mutationSeeds = flag.Uint64("sim.mutationseeds", 2000, "seeds within which a planted fault must be found")

// TestMutations plants one fault at a time in all nodes and wants the simulation to notice: it is no use otherwise.
func TestMutations(t *testing.T) {
	for _, f := range consensus.Faults() {
		t.Run(strings.ReplaceAll(f.Name, " ", "_"), func(t *testing.T) {
			if found := hunt(f); found != nil {
				t.Logf("found by seed %d: %s", found.Options().Seed, found.Reason)
				return
			}
			t.Errorf("not found in %d seeds", *mutationSeeds)
		})
	}
}

// hunt plays seeds with f planted until one fails.
func hunt(f consensus.Fault) *simtest.Failure {
	plant := func(cfg consensus.Config, s consensus.Start, log push.Log, now raft.Ticks) (*consensus.Core, error) {
		c, err := consensus.New(cfg, s, log, now)
		if err == nil {
			f.Plant(c)
		}
		return c, err
	}
	for seed := range *mutationSeeds {
		if found, _ := simtest.Run(simtest.Options{Seed: seed, Nodes: 3 + 2*int(seed%2), New: plant}); found != nil {
			return found
		}
	}
	return nil
}

// TestFailureIsMinimisedAndReplayed holds what a failing seed is worth.
func TestFailureIsMinimisedAndReplayed(t *testing.T) {
	for _, f := range consensus.Faults()[2:6] {
		found := hunt(f)
		if found == nil {
			t.Fatalf("%s: not found", f.Name)
		}
		small := simtest.Minimise(found, 60)
		again, _ := simtest.Run(small.Options())
		if again == nil || again.Reason != small.Reason || again.Step != small.Step {
			t.Errorf("%s: %q at step %d, then %+v", f.Name, small.Reason, small.Step, again)
		}
		text := small.String()
		if !strings.Contains(text, small.Replay()) || !strings.Contains(text, "trace, last") || !strings.Contains(text, small.Reason) {
			t.Errorf("%s: the report lacks something: %.200s", f.Name, text)
		}
		if small.Options().Keep == nil {
			t.Errorf("%s: nothing could be left out", f.Name)
		}
	}
}
