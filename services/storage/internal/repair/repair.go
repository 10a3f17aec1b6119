package repair

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// maxFindings bounds what one repair deals with.
const maxFindings = 100_000

// Request is one repair.
type Request struct {
	Source   string // gRPC address
	From, To int64  // both 0: everything that a scrub finds
	DryRun   bool
	Rate     int64                     // of the scrub, bytes a second
	Found    func(check.Finding) error // what the scrub meets
	Progress func(offset, to int64)    // of the scrub; may be nil
	Done     func(Range) error
}

// Range is what was done with one stretch of the log.
type Range struct {
	From, To int64
	Changed  int64    // bytes that were, or with DryRun would be, replaced
	Units    int      // written anew
	Kept     []string // files below repair/
	Err      error    // why it, or the rest of it, was left as it is
}

// Summary adds up ranges.
type Summary struct {
	Repaired, Left int64
	Changed, Units int64
}

// job is a Request under way.
type job struct {
	*Keeper
	Request

	heard  epoch.Heard
	parted int64     // the logs are the same history below
	common int       // epochs that both have
	bad    []stretch // to be replaced, in order
	around []stretch // damaged besides, not to be replaced
	units  []check.Finding
	sum    Summary
}

type stretch struct{ from, to int64 }

// Repair carries out r. An error says that it could not be begun or not be finished; what was left as it is for a reason of its own
// is told by Done.
func (k *Keeper) Repair(ctx context.Context, r Request) (Summary, error) {
	if !k.busy.TryLock() {
		return Summary{}, ErrBusy
	}
	defer k.busy.Unlock()
	j := &job{Keeper: k, Request: r}
	if err := j.ask(ctx); err != nil {
		return j.sum, err
	}
	if err := j.find(ctx); err != nil {
		return j.sum, err
	}
	for _, s := range j.bad {
		if err := j.finish(ctx, j.stretch(ctx, s)); err != nil {
			return j.sum, err
		}
	}
	for _, u := range j.units {
		if err := j.finish(ctx, j.unit(u)); err != nil {
			return j.sum, err
		}
	}
	return j.sum, nil
}

// ask finds out up to where the source has this node's history.
func (j *job) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var err error
	if j.heard, err = j.o.Sources.Promise(ctx, j.Source, j.o.Self); err != nil {
		return j.notHeard(err)
	}
	if size := j.log.FileSize(); j.heard.FileSize != size {
		return ErrDiffers.With("file_size", size).With("source_file_size", j.heard.FileSize)
	}
	j.parted, j.common = epoch.Part(j.o.Epochs(), j.log.Written().Load(), j.heard.Epochs, j.heard.End)
	return nil
}

// notHeard says why the source does not answer, in the words of the node that asks: those of the source name this node.
func (j *job) notHeard(err error) error {
	switch e := errdefs.As(err); {
	case e == nil:
	case e.Reason == epoch.ReasonWrongCluster:
		return ErrStranger.With("source", j.Source).With("source_cluster", e.Meta["cluster"]).With("source_broker_name", e.Meta["broker_name"]).
			With("cluster", j.o.Self.Cluster).With("broker_name", j.o.Self.BrokerName)
	case e.Field == "node_id":
		return errdefs.Invalid("source", "the node at %s has the brokerId %d of this one: it is this node, or one of another group", j.Source, j.o.Self.NodeID).
			WithRemedy("name another node of this one's group as the source")
	}
	return fmt.Errorf("ask the source at %s: %w", j.Source, err)
}

// find fills in what is damaged.
func (j *job) find(ctx context.Context) error {
	s := check.Scrub{From: j.From, To: j.To, Rate: j.Rate, Progress: j.Progress, Emit: j.found}
	if j.From == 0 && j.To == 0 {
		_, err := j.scrub(ctx, s)
		return err
	}
	a, b, err := j.o.Scrubs.Align(ctx, j.From, j.To)
	if err != nil {
		return err
	}
	// What is damaged around it is no proof of another history.
	s.From, s.To = max(a-around, j.log.FirstOffset()), min(b+around, j.log.Written().Load())
	s.Emit = func(f check.Finding) error {
		if f.Kind == check.BadRecord {
			j.bad = append(j.bad, stretch{f.Offset, f.End})
		}
		return nil
	}
	if _, err := j.o.Scrubs.Run(ctx, s); err != nil {
		return err
	}
	j.bad = slices.DeleteFunc(j.bad, func(s stretch) bool { return s.from < b && s.to > a })
	j.around = append(j.around, j.bad...)
	j.bad = []stretch{{a, b}}
	return nil
}

func (j *job) found(f check.Finding) error {
	if len(j.bad)+len(j.units) >= maxFindings {
		return errdefs.Newf(errdefs.ResourceExhausted, "TOO_DAMAGED", "there are more than %d damages", maxFindings).
			WithRemedy("empty the folder and let the node follow anew")
	}
	if f.Kind == check.BadRecord {
		if n := len(j.bad); n > 0 && j.bad[n-1].to == f.Offset {
			j.bad[n-1].to = f.End
		} else {
			j.bad = append(j.bad, stretch{f.Offset, f.End})
		}
	} else {
		j.units = append(j.units, f)
	}
	return j.Found(f)
}

// finish tells r.
func (j *job) finish(ctx context.Context, r Range) error {
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // as it is
	}
	if r.Err != nil && !j.survives(r.Err) {
		return r.Err
	}
	j.sum.Changed += r.Changed
	j.sum.Units += int64(r.Units)
	if r.Err == nil {
		j.sum.Repaired++
	} else {
		j.sum.Left++
	}
	if !j.DryRun {
		j.metrics.done(r.Changed, r.Err != nil)
		log := j.o.Log.With(slog.String("source", j.Source), slog.Int64("from", r.From), slog.Int64("to", r.To),
			slog.Int64("changed", r.Changed), slog.Int("units", r.Units))
		if r.Err != nil {
			log.WarnContext(ctx, "range left as it is", slog.String("reason", errdefs.ReasonOf(r.Err)), slog.Any("error", r.Err))
		} else {
			j.o.Book.Repaired(r.From, r.To)
			log.InfoContext(ctx, "range repaired")
		}
	}
	return j.Done(r)
}

// survives reports whether the next range is worth a try after err.
func (j *job) survives(err error) bool {
	switch errdefs.ClassOf(err) {
	case errdefs.FailedPrecondition, errdefs.OutOfRange, errdefs.Aborted, errdefs.Unavailable, errdefs.ResourceExhausted:
		return true
	case errdefs.DataLoss:
		return errdefs.ReasonOf(err) != "LOG_FAULTED"
	default:
		return false
	}
}

// unit mends the unit of a record that is sound.
func (j *job) unit(f check.Finding) Range {
	r := Range{From: f.Offset, To: f.End}
	switch {
	case f.Kind == check.UnitStray:
		r.Err = ErrNoRecord.With("topic", f.Topic).With("queue", f.QueueID).With("queue_offset", f.QueueOffset).With("offset", f.Offset)
	case j.DryRun:
		r.Units = 1
	default:
		r.Units, r.Err = j.o.Queues.Mend(f.Offset, f.End)
	}
	return r
}
