package check

import (
	"context"
	"errors"
	"math"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// DefaultRate is how much of the log a scrub reads in a second unless it is told otherwise, bytes.
const DefaultRate = 64 << 20

// ErrLogCut says that the log was cut, or has lost its oldest files, while it was read.
var ErrLogCut = errdefs.New(errdefs.Aborted, "LOG_CUT", "the log was cut while it was checked").WithRemedy("run it again")

// Live is a log in use. Its written mark is closed, and replaced, when the log is cut.
type Live interface {
	FirstOffset() int64
	FileSize() int64
	Written() *watermark.Mark
	// View returns bytes of one file, at most to the log's end; they are valid until release is called, exactly once.
	View(offset int64, limit int) (b []byte, release func(), err error)
}

// Scrubber checks a log in use.
type Scrubber struct {
	log        Live
	queues     *consumequeue.Set
	dispatched func() int64
	levels     message.DelayLevels
	metrics    *metrics
}

// NewScrubber makes a Scrubber; dispatched returns the offset below which every record has its unit, levels are those that the
// units were made with.
func NewScrubber(log Live, queues *consumequeue.Set, dispatched func() int64, levels message.DelayLevels, m metric.Meter) (*Scrubber, error) {
	ms, err := newMetrics(m)
	if err != nil {
		return nil, err
	}
	return &Scrubber{log: log, queues: queues, dispatched: dispatched, levels: levels, metrics: ms}, nil
}

// Scrub is one run.
type Scrub struct {
	// From is lowered to the start of its file, 0 is the log's first offset. To 0 is the log's end now.
	From, To int64
	Rate     int64 // bytes of the log in a second; 0: DefaultRate
	Emit     func(Finding) error
	Progress func(offset, to int64) // may be nil
}

// Scrubbed sums up a run.
type Scrubbed struct {
	Result

	From, To int64
	Damages  int64
	Took     time.Duration
}

// Run checks [From, To) and the units of its records. Errors: ErrLogCut, those of ctx and of Emit, those of reading.
func (s *Scrubber) Run(ctx context.Context, o Scrub) (Scrubbed, error) {
	began := time.Now()
	l := s.live(o.Rate)
	out, err := s.span(o)
	if err != nil || out.From == out.To {
		return out, err
	}
	opts := Options{
		From: out.From, To: out.To, Queues: liveQueues{s.queues}, Levels: s.levels, Whole: out.From == s.log.FirstOffset(),
		Dispatched: min(s.dispatched(), out.To),
		Emit: func(f Finding) error {
			if err := l.valid(); err != nil {
				return err // it was not there, the log was cut
			}
			if f.Note {
				return nil
			}
			out.Damages++
			s.metrics.damage(f.Kind)
			return o.Emit(f)
		},
	}
	if o.Progress != nil {
		opts.Progress = func(offset int64) { o.Progress(offset, out.To) }
	}
	out.Result, err = Records(ctx, l, opts)
	out.Took = time.Since(began)
	if errors.Is(err, errOutside) {
		err = ErrLogCut
	}
	return out, err
}

func (s *Scrubber) span(o Scrub) (Scrubbed, error) {
	first, end := s.log.FirstOffset(), s.log.Written().Load()
	out := Scrubbed{From: o.From, To: o.To}
	if out.From == 0 {
		out.From = first
	}
	if out.To == 0 {
		out.To = end
	}
	switch {
	case out.From < first || out.From > end:
		return out, errOutside.WithField("from_offset").With("offset", o.From).With("first", first).With("end", end)
	case out.To < out.From || out.To > end:
		return out, errOutside.WithField("to_offset").With("offset", o.To).With("from", out.From).With("end", end)
	}
	out.From -= out.From % s.log.FileSize()
	return out, nil
}

var errOutside = errdefs.New(errdefs.OutOfRange, "OFFSET_OUTSIDE", "the offset is outside of the log")

// Align widens [from, to) to whole records, or damaged stretches, of the log.
func (s *Scrubber) Align(ctx context.Context, from, to int64) (int64, int64, error) {
	if from < s.log.FirstOffset() || to > s.log.Written().Load() || from >= to {
		return 0, 0, errOutside.WithField("from_offset").With("offset", from).With("to", to).
			With("first", s.log.FirstOffset()).With("end", s.log.Written().Load())
	}
	l := s.live(math.MaxInt64)
	a, b := from, to
	w := &walk{
		log: l, at: from - from%s.log.FileSize(), o: Options{To: s.log.Written().Load(), Emit: func(Finding) error { return nil }},
		main: window{log: l, to: s.log.Written().Load(), ahead: chunk}, probe: window{log: l, to: s.log.Written().Load(), ahead: probe},
	}
	w.step = func(start, end int64) bool {
		if start <= from {
			a = start
		}
		b = max(to, end)
		return end >= to
	}
	err := w.run(ctx)
	return a, b, err
}

// live is the log as Records reads it: at a bounded rate, and as long as it is not cut.
type live struct {
	log   Live
	mark  *watermark.Mark
	began time.Time
	rate  float64 // bytes a second
	read  int64
	count func(n int64)
}

func (s *Scrubber) live(rate int64) *live {
	if rate <= 0 {
		rate = DefaultRate
	}
	return &live{log: s.log, mark: s.log.Written(), began: time.Now(), rate: float64(rate), count: s.metrics.read}
}

// FileSize implements Log.
func (l *live) FileSize() int64 { return l.log.FileSize() }

// valid returns why what was read is not the log any more.
func (l *live) valid() error {
	if err := l.mark.Err(); errors.Is(err, watermark.ErrTruncated) {
		return ErrLogCut
	}
	return nil
}

// ReadAt implements Log.
func (l *live) ReadAt(ctx context.Context, p []byte, offset int64) error {
	if err := l.pace(ctx, int64(len(p))); err != nil {
		return err
	}
	for len(p) > 0 {
		b, release, err := l.log.View(offset, len(p))
		if err != nil {
			if l.valid() != nil || offset < l.log.FirstOffset() {
				return ErrLogCut
			}
			return err //nolint:wrapcheck // says what it did
		}
		n := copy(p, b)
		release()
		if n == 0 {
			return ErrLogCut
		}
		p, offset = p[n:], offset+int64(n)
	}
	return l.valid()
}

// pace waits until n more bytes are within the rate.
func (l *live) pace(ctx context.Context, n int64) error {
	l.count(n)
	wait := time.Until(l.began.Add(time.Duration(float64(l.read) / l.rate * float64(time.Second))))
	l.read += n
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return ctx.Err() //nolint:wrapcheck // as it is
}

// liveQueues are the queues of a store in use.
type liveQueues struct{ set *consumequeue.Set }

// Lookup implements Queues.
func (q liveQueues) Lookup(topic string, id int32) Queue {
	if one := q.set.Lookup(topic, id); one != nil {
		return one
	}
	return nil
}

// List implements Queues.
func (q liveQueues) List() []Queue {
	all := q.set.List()
	out := make([]Queue, len(all))
	for i, one := range all {
		out[i] = one
	}
	return out
}
