package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client/ledger"
)

// appendFlags are those of ledger append.
type appendFlags struct {
	file    string
	count   int
	number  bool
	batch   int
	stream  bool
	noKey   bool
	channel int32
	quiet   bool
}

func (a *app) ledgerAppendCommand() *cobra.Command {
	var f appendFlags
	cmd := &cobra.Command{
		Use:   "append [BODY...]",
		Short: "Append entries and say where each one stands",
		Long: "Append one entry whose body is the arguments, or all of stdin when there are none;\n" +
			"with -f one entry for each line of a file (- is stdin). It is tried again until --timeout, and stands once.\n\n" +
			"An entry is there to stay once its index is printed. Exit code 1 with APPEND_UNKNOWN: it may stand, or come to.",
		Example: "  tandemctl ledger append hello\n" +
			"  tandemctl ledger append --count 100000 --number --stream --quiet load\n" +
			"  seq 1000 | tandemctl ledger append -f - --batch 100",
		RunE: func(cmd *cobra.Command, args []string) error { return a.ledgerAppend(cmd.Context(), &f, args) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "append each line of this `file`; - is stdin")
	fs.IntVar(&f.count, "count", 1, "append the entry this often")
	fs.BoolVar(&f.number, "number", false, "end each body with its number")
	fs.IntVar(&f.batch, "batch", 0, "append this many entries in one call")
	fs.BoolVar(&f.stream, "stream", false, "append over one stream, without waiting for one entry before the next")
	fs.BoolVar(&f.noKey, "no-key", false, "without an idempotence key: what may stand already is not sent again")
	fs.Int32Var(&f.channel, "channel", 0, "user field, stored with each entry")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "only the sum at the end")
	return cmd
}

func (f *appendFlags) check(args []string) error {
	switch {
	case f.count < 1:
		return usagef("--count %d is not above 0", f.count)
	case f.file != "" && len(args) > 0:
		return usagef("give either a body or --file")
	case f.file != "" && f.count > 1:
		return usagef("--count repeats one entry: it does not go with --file")
	case f.batch < 0 || f.batch > 4096:
		return usagef("--batch %d is not within 1 and 4096", f.batch)
	case f.batch > 0 && f.stream:
		return usagef("give either --batch or --stream")
	}
	return nil
}

func (a *app) ledgerAppend(ctx context.Context, f *appendFlags, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	bodies, failed, err := a.bodies(&putFlags{file: f.file, count: f.count}, args)
	if err != nil {
		return err
	}
	if f.number {
		bodies = numbered(bodies)
	}
	return a.withLedger(func(c *ledger.Client) error {
		t := &appendTally{a: a, quiet: f.quiet, began: time.Now()}
		appender := c.Appender(ledger.AppenderOptions{NoKey: f.noKey, Channel: f.channel, OnRetry: func(err error, _ time.Duration) { t.trouble.tell(a, err) }})
		var err error
		switch {
		case f.stream:
			err = t.stream(ctx, appender, bodies)
		case f.batch > 0:
			err = t.batches(ctx, appender, bodies, f.batch)
		default:
			err = t.each(ctx, appender, bodies)
		}
		return errors.Join(*failed, t.end(err))
	})
}

// numbered ends each body with its number.
func numbered(bodies iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		n := 0
		for body := range bodies {
			n++
			if !yield(fmt.Appendf(slices.Clone(body), " %d", n)) {
				return
			}
		}
	}
}

// appended is a line of append's JSON.
type appended struct {
	Index    int64 `json:"index,string"`
	Term     int64 `json:"term,string,omitempty"` // 0: over a stream it is not told
	Size     int   `json:"size"`
	Repeated bool  `json:"repeated,omitempty"`
}

// appendTally prints where entries stand and sums them up.
type appendTally struct {
	a      *app
	quiet  bool
	rows   *stream
	total  int
	failed int
	began  time.Time

	trouble trouble
}

func (t *appendTally) each(ctx context.Context, ap *ledger.Appender, bodies iter.Seq[[]byte]) error {
	for body := range bodies {
		one, cancel := context.WithTimeout(ctx, t.a.timeout)
		r, err := ap.Append(one, body)
		cancel()
		if err != nil {
			t.failed++
			return err
		}
		if err := t.add(appended{r.GetIndex(), r.GetTerm(), len(body), r.GetRepeated()}); err != nil {
			return err
		}
	}
	return nil
}

func (t *appendTally) batches(ctx context.Context, ap *ledger.Appender, bodies iter.Seq[[]byte], size int) error {
	for batch := range chunks(bodies, size) {
		one, cancel := context.WithTimeout(ctx, t.a.timeout)
		r, err := ap.AppendBatch(one, batch)
		cancel()
		if err != nil {
			t.failed += len(batch)
			return err
		}
		for i, index := range r.GetIndexes() {
			if err := t.add(appended{Index: index, Term: r.GetTerm(), Size: len(batch[i])}); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunks gathers bodies; the last chunk may be smaller.
func chunks(bodies iter.Seq[[]byte], size int) iter.Seq[[][]byte] {
	return func(yield func([][]byte) bool) {
		var chunk [][]byte
		for body := range bodies {
			if chunk = append(chunk, body); len(chunk) == size {
				if !yield(chunk) {
					return
				}
				chunk = nil
			}
		}
		if len(chunk) > 0 {
			yield(chunk)
		}
	}
}

func (t *appendTally) stream(ctx context.Context, ap *ledger.Appender, bodies iter.Seq[[]byte]) error {
	var first error // of a single entry
	ended := ap.Stream(ctx, func(s *ledger.Sender) error {
		for body := range bodies {
			_, err := s.Send(ctx, body, func(o ledger.Outcome) {
				err := o.Err
				if err != nil {
					t.failed++
				} else {
					err = t.add(appended{Index: o.Index, Size: len(body)})
				}
				if first == nil {
					first = err
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if first != nil {
		return first // it says more than the end of the stream
	}
	return ended
}

func (t *appendTally) add(e appended) error {
	t.total++
	t.trouble = trouble{}
	switch {
	case t.quiet:
		return nil
	case t.a.json():
		return printJSON(t.a.out, e)
	case t.total > maxRows:
		if t.total == maxRows+1 {
			say(t.a.out, "...")
		}
		return nil
	}
	if t.rows == nil {
		t.rows = &stream{w: t.a.out, header: []string{"INDEX", "TERM", "SIZE", ""}, widths: []int{12, 6, 8, 0}}
	}
	term, note := "-", ""
	if e.Term > 0 {
		term = itoa(e.Term)
	}
	if e.Repeated {
		note = "an earlier try had come through"
	}
	t.rows.row(itoa(e.Index), term, itoa(e.Size), note)
	return nil
}

// end prints the sum of several and returns the error of the command.
func (t *appendTally) end(err error) error {
	if !t.a.json() && (t.total+t.failed > 1 || t.quiet) {
		took := time.Since(t.began)
		sayf(t.a.out, "%d of %d committed in %s (%.0f/s)\n", t.total, t.total+t.failed, shortDuration(took), float64(t.total)/took.Seconds())
	}
	return err
}
