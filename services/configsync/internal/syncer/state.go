package syncer

import (
	"maps"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Results of rounds.
const (
	roundUnchanged = "unchanged"
	roundDelta     = "delta"
	roundFull      = "full"
	roundFailed    = "failed"
)

// State is how the sync of one kind goes.
type State struct {
	// InSync: the last answer was taken, or there was nothing to take.
	InSync                   bool
	LastSuccess, LastFailure time.Time
	LastError                error // nil: none since the last success
	// Refused counts answers that were not taken, by reason; Rounds all, by result.
	Refused, Rounds map[string]int64
}

// kindState is the state of one kind.
type kindState struct {
	kind  entry.Kind
	apply sync.Mutex // held while an answer is merged

	mu sync.Mutex // guards the following
	st State
	// Where offsets of this version were other than the master's, and the whole of its table was joined already.
	differed    entry.Version
	differedSum uint64
}

// differedAt notes that offsets are other than the master's, and reports whether that was known.
func (k *kindState) differedAt(v entry.Version, sum uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.differed == v && k.differedSum == sum
	k.differed, k.differedSum = v, sum
	return known
}

func (k *kindState) succeeded(result string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.st.InSync, k.st.LastError, k.st.LastSuccess = true, nil, time.Now()
	k.count(&k.st.Rounds, result)
}

func (k *kindState) failed(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.st.InSync, k.st.LastError, k.st.LastFailure = false, err, time.Now()
	k.count(&k.st.Rounds, roundFailed)
	k.count(&k.st.Refused, reason(err))
}

func (k *kindState) count(m *map[string]int64, key string) {
	if *m == nil {
		*m = map[string]int64{}
	}
	(*m)[key]++
}

func reason(err error) string {
	if r := errdefs.ReasonOf(err); r != "" {
		return r
	}
	return "UNKNOWN"
}

// State returns how the sync of one kind goes.
func (s *Syncer) State(k entry.Kind) State {
	ks := s.kinds[k]
	ks.mu.Lock()
	defer ks.mu.Unlock()
	st := ks.st
	st.Refused, st.Rounds = maps.Clone(st.Refused), maps.Clone(st.Rounds)
	return st
}
