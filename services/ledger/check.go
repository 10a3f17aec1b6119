package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/check"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
)

// checkCommand is `ledger check`: exit code 0 when the folder is sound, 1 when it is damaged, 2 when the command line is wrong.
func checkCommand() service.Command[Config] {
	return service.Command[Config]{
		Name: "check", Args: "[-json] [DIR]",
		Summary: "check the entries, the index and the promises of a stopped ledger or DLedger node (default: storePath); changes nothing",
		Run: func(ctx context.Context, c *Config, args []string, out io.Writer) error {
			return runCheck(ctx, vfs.OS(), c, args, out)
		},
	}
}

var errDamaged = errdefs.New(errdefs.DataLoss, "DAMAGED", "the folder is damaged").
	WithRemedy("move it away and start the node empty: it copies the log from the group and votes again when it has caught up")

func runCheck(ctx context.Context, fsys vfs.FS, c *Config, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	asJSON := fs.Bool("json", false, "one JSON object a line")
	if err := fs.Parse(args); err != nil {
		return errdefs.Invalid("check", "%v; usage: ledger check [-json] [DIR]", err)
	}
	dir := c.StorePath
	switch fs.NArg() {
	case 0:
	case 1:
		dir = fs.Arg(0)
	default:
		return errdefs.Invalid("check", "takes one folder, not %d; usage: ledger check [-json] [DIR]", fs.NArg())
	}
	p := &printer{out: out, json: *asJSON}
	began := time.Now()
	r, err := check.Folder(ctx, fsys, dir, p.finding)
	if err != nil {
		return err
	}
	if err := p.report(dir, &r, time.Since(began)); err != nil {
		return err
	}
	if r.Damages > 0 {
		return errDamaged.With("damages", r.Damages)
	}
	return nil
}

// printer writes findings as they come.
type printer struct {
	out  io.Writer
	json bool
}

// findingLine is a line of JSON; numbers that may exceed 2^53 are strings.
type findingLine struct {
	Damage bool   `json:"damage"`
	Kind   string `json:"kind"`
	Index  int64  `json:"index,string"`
	Offset int64  `json:"offset,string"`
	Detail string `json:"detail"`
}

func (p *printer) finding(f check.Finding) error {
	if p.json {
		return json.NewEncoder(p.out).Encode(findingLine{!f.Note, f.Kind, int64(f.Index), f.Offset, f.Detail})
	}
	word, place := "DAMAGE", ""
	if f.Note {
		word = "note"
	}
	if f.Offset >= 0 {
		place = fmt.Sprintf("entry %d at offset %d: ", f.Index, f.Offset)
	}
	_, err := fmt.Fprintf(p.out, "%-6s  %-5s  %s%s\n", word, f.Kind, place, f.Detail)
	return err
}

func (p *printer) report(dir string, r *check.Report, took time.Duration) error {
	if p.json {
		return json.NewEncoder(p.out).Encode(struct {
			Folder string        `json:"folder"`
			Report *check.Report `json:"report"`
		}{dir, r})
	}
	word := "SOUND"
	if r.Damages > 0 {
		word = "DAMAGED"
	}
	_, err := fmt.Fprintf(p.out, "%s: %s: entries %d to %d in %d files, %d sealed, %d no-ops, committed %d; term %d, vote %q, voter %t; %d units compared; %d damages, %d notes (%v)\n",
		word, dir, r.First, r.Last, r.Files, r.Sealed, r.NoOps, r.Committed, r.Term, r.Vote, r.Voter, r.Units, r.Damages, r.Notes, took.Round(time.Millisecond))
	return err
}

// bootstrapCommand is `ledger bootstrap`. It is no flag of the service: one that stays in a start script would make a wiped node vote.
func bootstrapCommand() service.Command[Config] {
	return service.Command[Config]{
		Name:    "bootstrap",
		Summary: "make the empty folder that of a voter of a brand-new group, once, before the first start; do so for every member",
		Run: func(_ context.Context, c *Config, args []string, out io.Writer) error {
			return runBootstrap(vfs.OS(), c, args, out)
		},
	}
}

func runBootstrap(fsys vfs.FS, c *Config, args []string, out io.Writer) error {
	if len(args) > 0 {
		return errdefs.Invalid("bootstrap", "takes no arguments; usage: ledger [-config FILE] bootstrap")
	}
	log, _, err := entrylog.Open(fsys, c.StorePath, c.logOptions())
	if err != nil {
		return fmt.Errorf("open the log in %s: %w", c.StorePath, err)
	}
	if err := errors.Join(log.Bootstrap(), log.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s in %s is a voter of the new group %s now\n", c.SelfID, c.StorePath, c.Group)
	return err
}
