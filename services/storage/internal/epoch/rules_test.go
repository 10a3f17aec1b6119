package epoch

import (
	"strings"
	"testing"
)

// ruleCase is one rule, a shortest history that breaks a property without it, and, where such histories are
// common, how many seeds the walks need at most to find one; the rarer ones are looked for in a soak.
type ruleCase struct {
	name   string
	rule   rule
	breaks string
	c      simConfig
	trace  string
	seeds  uint64 // 0: too rare to wait for
}

func conf(required int, refuse bool, syncMask int) simConfig {
	return simConfig{required: required, refuse: refuse, syncMask: syncMask, keep: simRecords, wipe: true}
}

func ruleCases() []ruleCase {
	small := conf(1, false, 0)
	small.keep = 1
	return []ruleCase{
		{"FENCE", ruleFence, "P2", conf(1, true, 0), "promote 1 6; put 0; catchup 2 2 2", 10000},
		{"REACHED", ruleReached, "P2", conf(1, true, 0), "put 0; catchup 1 1; promote 0 5; power 0", 10000},
		{"STARTORDER", ruleStartOrder, "P2", conf(1, true, 0), "put 0; catchup 1 1; promote 0 5; power 0", 10000},
		{"QUORUM", ruleQuorum, "P2", conf(1, true, 0), "put 0; catchup 1; promote 2 4", 5000},
		{"NOTOPEN", ruleNotOpen, "P2", conf(1, false, 4), "put 0; catchup 1 1; power 0; restart 0; follow 1 0", 20000},
		{"CHAINAHEAD", ruleChainAhead, "P2", conf(1, true, 0), "put 0; catchup 1 1 2; power 0; follow 1 2", 5000},
		{"WHOLE", ruleWhole, "P2", conf(1, true, 0), "put 0; catchup 1; crash 1; power 0; boot 0", 10000},
		{"OWNSTART", ruleOwnStart, "P2", conf(1, false, 0), "put 0; put 0; promote 2 6; put 2; promote 0 3; follow 1 0; deliver 1; ack 1; wipe 0", 0},
		{
			"OPENQ", ruleOpenQuorum, "P2", conf(1, false, 7),
			"promote 2 6; cut 1 0; power 0; cut 0 2; follow 1 2; catchup 1 1 2; boot 0 2 3; put 0; put 2", 400000,
		},
		{"DROPNEW", ruleDropNew, "P2", conf(1, true, 0), "promote 0 3; put 0 2; catchup 2 1; power 0", 25000},
		{"DROPEMPTY", ruleDropEmpty, "P5", conf(1, false, 0), "put 0; promote 0 7; put 0; promote 0 5; power 0", 25000},
		{"RFLUSH", ruleFlushed, "P3", conf(1, true, 5), "put 0; catchup 1 1; power 0; cut 0 1; boot 0", 200000},
		{
			"CKCLIP", ruleClipCheckpoint, "P3", conf(1, true, 0),
			"put 0; catchup 1; checkpoint 1; power 1; power 0; restart 0; restart 1; promote 1 7; follow 0 1; ack 0; put 1; crash 1; restart 1; power 1", 0,
		},
		{"EMPTY", ruleEmpty, "P2", conf(1, false, 4), "put 0; catchup 1; wipe 1; restart 1; promote 2 6", 250000},
		{"LOWREF", ruleLowRef, "P2", small, "promote 1 6; put 0; put 0; settle; put 1; settle 2 2; power 1 1; follow 2", 0},
		{"PUTREC", ruleEndPuts, "P2", conf(2, false, 0), "put 0; promote 2 4; settle; put 2; deliver 0; promote 0 1", 250000},
		{
			"MAXE", ruleMaxE, "P2", conf(1, false, 3),
			"promote 1 6; put 1; put 1; promote 0 5; follow 2 0; sync 1; catchup 2 1 2; put 0; sync 1; power 1 2", 0,
		},
		{"KEEP", ruleKeep, "P4", small, "put 0; put 0; promote 1 6", 10000},
		{"RESTR", ruleNewReadable, "P6", conf(1, true, 0), "put 0; catchup 1; crash 0", 2000},
	}
}

// TestEachRuleIsNeeded plays each trace with its rule off, which must break the property named, and with all rules on.
func TestEachRuleIsNeeded(t *testing.T) {
	for _, tc := range ruleCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tr := parseTrace(tc.trace)
			if v, _ := replay(law(tc.rule), tc.c, tr); !strings.HasPrefix(v, tc.breaks) {
				t.Errorf("without the rule: %q, want %s\n%s", v, tc.breaks, describe(law(tc.rule), tc.c, tr))
			}
			if v, _ := replay(0, tc.c, tr); v != "" {
				t.Errorf("with the rule: %s\n%s", v, describe(0, tc.c, tr))
			}
		})
	}
}

// TestWalksFindMissingRules proves that the walks see: without a rule some seed breaks a property.
func TestWalksFindMissingRules(t *testing.T) {
	for _, tc := range ruleCases() {
		if tc.seeds == 0 || tc.seeds > 25000 && !soak() {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for seed := range tc.seeds {
				if s, _ := walk(law(tc.rule), seed); s.viol != "" {
					return
				}
			}
			t.Errorf("no violation in %d walks", tc.seeds)
		})
	}
}
