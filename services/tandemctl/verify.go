package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// verifyFlags are those of verify.
type verifyFlags struct {
	until    string
	from     int64
	wait     time.Duration
	stretch  int64
	progress bool
}

func (a *app) verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify A B",
		Short: "Prove that the logs of two nodes are the same bytes, or find the first that differs",
		Long: "Walk both logs in checksummed stretches; where one differs, narrow it down to the byte.\n" +
			"The exit code is 1 when the logs differ or one of them stays shorter than the other.\n\n" +
			"Logs may grow meanwhile: compared is up to the longer one's end at the start, and the other gets --wait\n" +
			"to arrive there. --until min compares only what both have now, --until N up to an offset.",
		Example: "  tandemctl verify 10.0.0.1:10911 10.0.0.2:10911\n" +
			"  tandemctl verify --until min -o json 10.0.0.1:10911 10.0.0.2:10911",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("verify takes two addresses: tandemctl verify 10.0.0.1:10911 10.0.0.2:10911")
			}
			if args[0] == args[1] {
				return usagef("%s stands there twice: name two nodes, or look for damage in one with `tandemctl scrub %s`", args[0], args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.verify(cmd.Context(), &f, args[0], args[1]) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.until, "until", "end", "compare up to: end, min or an `offset`")
	fs.Int64Var(&f.from, "from", -1, "first `offset`; -1: the first that both logs have")
	fs.DurationVar(&f.wait, "wait", 5*time.Second, "`time` that the shorter log gets to grow to the end")
	fs.Int64Var(&f.stretch, "stretch", 1<<20, "`bytes` under one checksum, 4096 to 67108864")
	fs.BoolVar(&f.progress, "progress", false, "show progress even without a terminal")
	return cmd
}

func (f *verifyFlags) check() error {
	if f.stretch < minStretch || f.stretch > 64<<20 {
		return usagef("--stretch %d is not within 4096 and 67108864", f.stretch)
	}
	if f.until == "end" || f.until == "min" {
		return nil
	}
	if n, err := strconv.ParseInt(f.until, 10, 64); err != nil || n < 0 {
		return usagef("--until %q is none of end, min, an offset", f.until)
	}
	return nil
}

func (a *app) verify(ctx context.Context, f *verifyFlags, addrA, addrB string) error {
	if err := f.check(); err != nil {
		return err
	}
	c, err := a.dial(ctx, addrA, addrB)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is lost by a failed goodbye
	la, err := c.Admin(addrA)
	if err != nil {
		return err
	}
	lb, err := c.Admin(addrB)
	if err != nil {
		return err
	}
	p := &progress{w: a.errOut, on: f.progress || isTerminal(a.errOut)}
	v := &verifier{a: la, b: lb, f: f, progress: p}
	r, err := v.run(ctx)
	p.clear()
	if err != nil {
		return err
	}
	if err := a.printVerdict(r); err != nil {
		return err
	}
	if !r.Equal {
		return errReported
	}
	return nil
}

// verdict is the result, and the JSON line, of a comparison.
type verdict struct {
	Equal bool     `json:"equal"`
	From  int64    `json:"from,string"`
	To    int64    `json:"to,string"` // compared up to here
	A     logEnds  `json:"a"`
	B     logEnds  `json:"b"`
	Diff  *diff    `json:"difference,omitempty"`
	Notes []string `json:"notes,omitempty"`
	took  time.Duration
}

// logEnds is where a log stands.
type logEnds struct {
	Address  string `json:"address"`
	First    int64  `json:"first,string"`
	Written  int64  `json:"written,string"`
	Readable int64  `json:"readable,string"`
}

// diff is the first place at which two logs differ.
type diff struct {
	Offset int64  `json:"offset,string"`
	Why    string `json:"why"`         // BYTES, or SHORTER when one log ends there
	A      string `json:"a,omitempty"` // up to 16 bytes from Offset, hex
	B      string `json:"b,omitempty"`
}

func (a *app) printVerdict(r *verdict) error {
	if a.json() {
		return printJSON(a.out, r)
	}
	table(a.out, []string{"NODE", "FIRST", "READABLE", "WRITTEN"}, [][]string{
		{r.A.Address, itoa(r.A.First), itoa(r.A.Readable), itoa(r.A.Written)},
		{r.B.Address, itoa(r.B.First), itoa(r.B.Readable), itoa(r.B.Written)},
	})
	say(a.out)
	for _, n := range r.Notes {
		sayf(a.out, "note: %s\n", n)
	}
	size := sizeText(r.To - r.From)
	switch {
	case r.Equal:
		sayf(a.out, "SAME: %s from %d to %d are equal byte for byte (%s)\n", size, r.From, r.To, shortDuration(r.took))
	case r.Diff.Why == whyShorter:
		sayf(a.out, "DIFFERENT: equal from %d to %d, where one log ends and the other goes on\n", r.From, r.Diff.Offset)
		a.advise("if replication is under way, wait or raise --wait; --until min compares only what both have; `tandemctl status` shows why a slave lags")
	default:
		sayf(a.out, "DIFFERENT: the first byte that differs is at offset %d\n  A %s\n  B %s\n", r.Diff.Offset, r.Diff.A, r.Diff.B)
		a.advise(fmt.Sprintf("`tandemctl range --addr NODE --from %d --to %d | xxd` shows more of each", max(r.From, r.Diff.Offset-64), r.Diff.Offset+64))
		a.advise(fmt.Sprintf("`tandemctl scrub NODE` finds which one is damaged, for `tandemctl repair NODE --from PEER`; where it calls both sound, you say which is "+
			"right: `tandemctl repair NODE --from RIGHT --range %d-%d` takes its bytes", r.Diff.Offset, r.Diff.Offset+1))
	}
	return nil
}

// hexAt renders the bytes of b from i that are shown, apart.
func hexAt(b []byte, i int) string {
	b = b[i:min(len(b), i+shownBytes)]
	var out bytes.Buffer
	for j := range b {
		if j > 0 {
			out.WriteByte(' ')
		}
		out.WriteString(hex.EncodeToString(b[j : j+1]))
	}
	return out.String()
}

// firstDifference returns the first index at which a and b differ; the shorter one's length when it is the other's prefix.
func firstDifference(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

var errNoProgress = errors.New("a node answered a checksum of nothing; is its version that of this tandemctl?")
