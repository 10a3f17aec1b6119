package simtest

import (
	"fmt"
	"slices"
	"strings"
)

// Failure is a broken promise, with all that is needed to see it again.
type Failure struct {
	Reason string
	Step   int
	Time   int64
	opts   Options
	plan   []action
	trace  []string
}

// Options are those of the run that failed.
func (f *Failure) Options() Options { return f.opts }

// traceTail bounds what a Failure prints of its trace.
const traceTail = 120

// Replay is the flag that plays the run again.
func (f *Failure) Replay() string {
	s := fmt.Sprintf("-sim.nodes=%d -sim.seed=%d", f.opts.Nodes, f.opts.Seed)
	if f.opts.Keep != nil {
		keep := make([]string, len(f.opts.Keep))
		for i, k := range f.opts.Keep {
			keep[i] = fmt.Sprint(k)
		}
		s += " -sim.keep=" + strings.Join(append(keep, "-"), ",")
	}
	return s
}

func (f *Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  at %d, step %d; replay: %s\n  plan:\n", f.Reason, f.Time, f.Step, f.Replay())
	for i, a := range f.plan {
		if (f.opts.Keep == nil || slices.Contains(f.opts.Keep, i)) && a.at <= f.Time {
			fmt.Fprintf(&b, "    %d: %v\n", i, a)
		}
	}
	tail := f.trace[max(0, len(f.trace)-traceTail):]
	if len(tail) > 0 {
		fmt.Fprintf(&b, "  trace, last %d of %d lines:\n    %s\n", len(tail), len(f.trace), strings.Join(tail, "\n    "))
	}
	return b.String()
}

// Minimise drops actions from the plan of a failure as long as the run still fails, in at most budget runs, and returns
// the last failure with its trace.
func Minimise(f *Failure, budget int) *Failure {
	best := f
	keep := f.opts.Keep
	if keep == nil {
		keep = make([]int, 0, len(f.plan))
		for i, a := range f.plan {
			if a.at <= f.Time {
				keep = append(keep, i)
			}
		}
	}
	for size := max(1, len(keep)/2); size > 0 && budget > 0; size /= 2 {
		for from := 0; from < len(keep) && budget > 0; budget-- {
			fewer := slices.Concat([]int{}, keep[:from], keep[min(len(keep), from+size):])
			o := f.opts
			o.Keep = fewer
			if g, _ := Run(o); g != nil {
				best, keep = g, fewer
			} else {
				from += size
			}
		}
	}
	o := best.opts
	o.Trace = true
	if g, _ := Run(o); g != nil {
		return g
	}
	return best
}
