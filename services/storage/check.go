package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/checkargs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/check/folder"
)

// checkCommand is `storage check`.
func checkCommand() service.Command[Config] {
	return service.Command[Config]{
		Name: "check", Args: checkargs.Usage,
		Summary: "check the log and the queues of a stopped storage or RocketMQ broker (default: storePathRootDir); changes nothing;\n                exit code 0 sound, 1 damaged, 2 usage, 3 not checked (in use, not readable)",
		Run: func(ctx context.Context, c *Config, args []string, out io.Writer) error {
			return runCheck(ctx, vfs.OS(), c, args, out, terminal(os.Stderr))
		},
	}
}

var errDamaged = errdefs.New(errdefs.DataLoss, "DAMAGED", "the folder is damaged").
	WithRemedy("records: start the storage and repair it with `tandemctl repair NODE --from PEER`; queues: the same, or remove consumequeue/ and tandem/queues, they are built anew from the log; " +
		"files: bring them back from a copy, or start this node in an empty folder, as a slave of a node that has the log")

const checkUsage = `Checks the log and the queues in DIR (default: storePathRootDir) of a stopped storage or RocketMQ broker and changes nothing.
-json writes one JSON object a line. Exit code: 0 sound; 1 damaged; 2 the command line is wrong, or DIR holds no store; 3 it could
not be checked: a process uses the folder, or it cannot be read.`

// runCheck checks the folder that args name. Progress goes to term unless that is nil.
func runCheck(ctx context.Context, fsys vfs.FS, c *Config, args []string, out, term io.Writer) error {
	dir, asJSON, err := checkargs.Read("storage", checkUsage, c.StorePathRootDir, args, out)
	if err != nil {
		return err
	}
	if err := checkFolder(fsys, "check", dir); err != nil {
		return err
	}
	p := &printer{out: out, term: term, json: asJSON}
	began := time.Now()
	r, err := folder.Check(ctx, fsys, dir, folder.Options{Levels: c.levels, Now: began, Emit: p.finding, Progress: p.progress})
	p.clear()
	if err != nil {
		return err
	}
	if err := p.report(dir, r, time.Since(began)); err != nil {
		return err
	}
	if r.Damages > 0 {
		return errDamaged.With("damages", r.Damages)
	}
	return nil
}

// terminal returns f when it is one.
func terminal(f *os.File) io.Writer {
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil { //nolint:gosec // a descriptor fits an int
		return nil
	}
	return f
}

// printer writes findings as they come, under a line of progress on a terminal.
type printer struct {
	out, term io.Writer
	json      bool
	drawn     time.Time
}

// findingLine is a line of JSON; numbers that may exceed 2^53 are strings.
type findingLine struct {
	Damage      bool   `json:"damage"`
	Kind        string `json:"kind"`
	Offset      int64  `json:"offset,string"`
	End         int64  `json:"end,string"`
	Field       string `json:"field,omitempty"`
	Detail      string `json:"detail"`
	Topic       string `json:"topic,omitempty"`
	Queue       *int32 `json:"queue,omitempty"`
	QueueOffset *int64 `json:"queueOffset,string,omitempty"`
	File        string `json:"file,omitempty"`
}

func (p *printer) finding(f check.Finding) error {
	p.clear()
	if p.json {
		l := findingLine{!f.Note, f.Kind.String(), f.Offset, f.End, f.Field, f.Detail, f.Topic, nil, nil, f.File}
		if f.Topic != "" {
			l.Queue, l.QueueOffset = &f.QueueID, &f.QueueOffset
		}
		return json.NewEncoder(p.out).Encode(l)
	}
	word := "DAMAGE"
	if f.Note {
		word = "note"
	}
	_, err := fmt.Fprintf(p.out, "%-6s  %-6s  %s: %s\n", word, f.Kind, f.Place(), f.Detail)
	return err
}

func (p *printer) report(dir string, r folder.Report, took time.Duration) error {
	if p.json {
		return json.NewEncoder(p.out).Encode(struct {
			Folder string        `json:"folder"`
			Report folder.Report `json:"report"`
		}{dir, r})
	}
	word := "SOUND"
	if r.Damages > 0 {
		word = "DAMAGED"
	}
	_, err := fmt.Fprintf(p.out, "%s: %s: log %d to %d in %d files, %d records; %d queues, %d units compared, %d records not dispatched yet; %d kept ranges; %d damages, %d notes (%v)\n",
		word, dir, r.First, r.End, r.Files, r.Records, r.Queues, r.Units, r.Undone, r.Kept, r.Damages, r.Notes, took.Round(time.Millisecond))
	return err
}

const drawEvery = 200 * time.Millisecond

func (p *printer) progress(offset, first, end int64) {
	if now := time.Now(); p.term != nil && now.Sub(p.drawn) >= drawEvery {
		p.drawn = now
		_, _ = fmt.Fprintf(p.term, "\r\x1b[K%3d%%  offset %d of %d", (offset-first)*100/max(end-first, 1), offset, end) // for people only
	}
}

func (p *printer) clear() {
	if p.term != nil && !p.drawn.IsZero() {
		_, _ = io.WriteString(p.term, "\r\x1b[K") // as above
	}
}
