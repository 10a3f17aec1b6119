package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/checkargs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/check"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
)

// checkCommand is `ledger check`.
func checkCommand() service.Command[Config] {
	return service.Command[Config]{
		Name: "check", Args: checkargs.Usage,
		Summary: "check the entries, the index and the promises of a stopped ledger or DLedger node (default: storePath); changes nothing;\n                exit code 0 sound, 1 damaged, 2 usage, 3 not checked (in use, not readable)",
		Run: func(ctx context.Context, c *Config, args []string, out io.Writer) error {
			return runCheck(ctx, vfs.OS(), c, args, out)
		},
	}
}

var errDamaged = errdefs.New(errdefs.DataLoss, "DAMAGED", "the folder is damaged").
	WithRemedy("move it away and start the node empty: it copies the log from the group and votes again when it has caught up")

const checkUsage = `Checks the entries, the index and the promises in DIR (default: storePath) of a stopped ledger or DLedger node and changes nothing.
-json writes one JSON object a line. Exit code: 0 sound; 1 damaged; 2 the command line is wrong, or DIR holds no ledger; 3 it could
not be checked: a process uses the folder, or it cannot be read.`

func runCheck(ctx context.Context, fsys vfs.FS, c *Config, args []string, out io.Writer) error {
	dir, asJSON, err := checkargs.Read("ledger", checkUsage, c.StorePath, args, out)
	if err != nil {
		return err
	}
	p := &printer{out: out, json: asJSON}
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
