package epoch

// rule names one of the rules without which data can be lost. Each stands where it works, so that it can
// be found; only the simulation ever switches one off.
type rule uint32

const (
	ruleFence      rule = 1 << iota // who is heard has promised, and follows nothing lower
	ruleLowRef                      // an upstream below the caller's promise refuses
	ruleReached                     // logs rank by the highest epoch whose start they have reached
	ruleQuorum                      // a promotion hears N - required whole nodes
	ruleWhole                       // nodes that may lack something do not count
	ruleStartOrder                  // a starting master copies the best-ranked log it hears
	ruleNotOpen                     // a master that is not open refuses
	ruleChainAhead                  // a slave never cuts a node that is merely ahead of it
	ruleOwnStart                    // reports below the start of the own epoch confirm nothing
	ruleFlushed                     // Readable never passes Flushed with sync flush
	ruleDropNew                     // opening closes the links
	ruleDropEmpty                   // a new epoch drops every entry at or past the end
	ruleKeep                        // what cannot be kept is not cut
	ruleMaxE                        // a new number is above all numbers heard
	ruleOpenQuorum                  // a starting master needs the quorum as well
	ruleEmpty                       // who has forgotten its promises hears and promises first
	ruleEndPuts                     // a step-down ends the waiting puts
)

// law is the set of rules that are off. Its zero value is what runs.
type law rule

func (w law) holds(r rule) bool { return rule(w)&r == 0 }
