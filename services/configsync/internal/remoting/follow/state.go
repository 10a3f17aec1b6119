package follow

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Results of rounds.
const (
	roundUnchanged = "unchanged"
	roundFull      = "full"
	roundFailed    = "failed"
)

// State is how the sync of one kind goes.
type State struct {
	// InSync: the last answer was taken, or there was nothing to take.
	InSync                   bool
	LastSuccess, LastFailure time.Time
	LastError                error // nil: none since the last success
	// Refused counts what was not taken, by reason; Rounds all answers, by result.
	Refused, Rounds map[string]int64
}

type kindState struct {
	kind entry.Kind

	mu    sync.Mutex // guards the following
	st    State
	lower int // offsets of the master that were lower and not taken, in the last round
}

// took notes an answer that was taken, with so many lower offsets that were not; true: more than before.
func (k *kindState) took(changed bool, lower int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	more := lower > k.lower
	k.lower = lower
	if lower > 0 {
		count(&k.st.Refused, ErrLower.Reason)
	}
	if changed {
		count(&k.st.Rounds, roundFull)
	} else {
		count(&k.st.Rounds, roundUnchanged)
	}
	k.st.InSync, k.st.LastSuccess = true, time.Now()
	return more
}

// recovered clears the last error; true: there was one.
func (k *kindState) recovered() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	had := k.st.LastError != nil
	k.st.LastError = nil
	return had
}

// failed notes what was not taken; true: the time before it was for another reason, or was.
func (k *kindState) failed(err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	news := k.st.LastError == nil || reason(k.st.LastError) != reason(err)
	k.st.InSync, k.st.LastError, k.st.LastFailure = false, err, time.Now()
	count(&k.st.Rounds, roundFailed)
	count(&k.st.Refused, reason(err))
	return news
}

func count(m *map[string]int64, key string) {
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
func (f *Follower) State(k entry.Kind) State {
	ks := f.kinds[k]
	ks.mu.Lock()
	defer ks.mu.Unlock()
	st := ks.st
	st.Refused, st.Rounds = maps.Clone(st.Refused), maps.Clone(st.Rounds)
	return st
}

// Lower returns how many offsets of a kind were lower on the master in the last round, and not taken.
func (f *Follower) Lower(k entry.Kind) int {
	ks := f.kinds[k]
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.lower
}

// instrument registers what State and Lower tell, read when somebody collects.
func (f *Follower) instrument(meter metric.Meter) {
	if meter == nil {
		return
	}
	failed := func(err error) {
		if err != nil {
			f.o.Log.Error("metric not registered", slog.Any("error", err))
		}
	}
	counters := func(name, text, label string, of func(State) map[string]int64) {
		_, err := meter.Int64ObservableCounter(name, metric.WithUnit("{answer}"), metric.WithDescription(text),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				for _, k := range entry.Kinds() {
					for value, n := range of(f.State(k)) {
						o.Observe(n, metric.WithAttributes(attribute.String("kind", k.String()), attribute.String(label, value)))
					}
				}
				return nil
			}))
		failed(err)
	}
	counters("tandem.configsync.legacy.rounds", "Answers of the RocketMQ master by result.", "result", func(st State) map[string]int64 { return st.Rounds })
	counters("tandem.configsync.legacy.refused", "What was not taken of the RocketMQ master, by reason.", "reason", func(st State) map[string]int64 { return st.Refused })
	_, err := meter.Int64ObservableGauge("tandem.configsync.legacy.lower", metric.WithUnit("{offset}"),
		metric.WithDescription("Offsets of the RocketMQ master that are lower and were not taken."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, k := range entry.Kinds() {
				o.Observe(int64(f.Lower(k)), metric.WithAttributes(attribute.String("kind", k.String())))
			}
			return nil
		}))
	failed(err)
}
