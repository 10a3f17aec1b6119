package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/checkargs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/disk"
	"github.com/tandemlog/tandem/services/configsync/internal/role/told"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// checkCommand is `configsync check`: exit code 0 when the tables are whole, 1 when not, 2 when the command line is wrong or there is
// no table.
func checkCommand() service.Command[Config] {
	return service.Command[Config]{
		Name: "check", Args: checkargs.Usage,
		Summary: "check the tables of a stopped config sync node or RocketMQ broker (default: storePathRootDir); changes nothing",
		Run: func(_ context.Context, c *Config, args []string, out io.Writer) error {
			return runCheck(vfs.OS(), c.StorePathRootDir, args, out)
		},
	}
}

var errDamaged = errdefs.New(errdefs.DataLoss, "DAMAGED", "tables are broken").
	WithRemedy("start the node beside one that has them: it asks its peers; or import them with `tandemctl config import --replace`")

var errNoTables = errdefs.New(errdefs.InvalidArgument, "NO_TABLES", "the folder holds no tables").
	WithRemedy("name the folder that has config/ in it (storePathRootDir); that of a node that never ran has none yet")

const checkUsage = `Checks the tables in DIR (default: storePathRootDir) of a stopped config sync node or RocketMQ broker and changes nothing.
-json writes one JSON object a line. Exit code: 0 whole; 1 broken; 2 the command line is wrong, or DIR holds no tables.`

// runCheck checks the folder that args name.
func runCheck(fsys vfs.FS, dir string, args []string, out io.Writer) error {
	dir, asJSON, err := checkargs.Read("configsync", checkUsage, dir, args, out)
	if err != nil {
		return err
	}
	if info, err := fsys.Stat(dir); err != nil || !info.Dir {
		return errdefs.Invalid("check", "%s is no folder that can be read", dir)
	}
	if filepath.Base(dir) != configDir {
		dir = filepath.Join(dir, configDir)
	}
	var found []disk.Inspection
	files, damages := 0, 0
	for _, k := range entry.Kinds() {
		in, err := disk.Inspect(fsys, dir, k)
		if err != nil {
			return err
		}
		found, files = append(found, in), files+len(in.Files)
		if in.Broken != nil {
			damages++
		}
	}
	if files+damages == 0 {
		return errNoTables.With("folder", dir)
	}
	for i := range found {
		if err := report(out, asJSON, &found[i]); err != nil {
			return err
		}
	}
	if damages > 0 {
		return errDamaged.With("tables", damages)
	}
	_, err = told.Open(fsys, filepath.Join(dir, disk.OwnDir)) // the node does not start on a broken one
	return err
}

// checkLine is a line of JSON, for a kind.
type checkLine struct {
	Kind    string      `json:"kind"`
	Whole   bool        `json:"whole"`
	Why     string      `json:"why,omitempty"`
	Source  string      `json:"source"`
	Entries int         `json:"entries"`
	Version string      `json:"version"`
	Foreign bool        `json:"foreign,omitempty"`
	Files   []fileState `json:"files,omitempty"`
}

type fileState struct {
	File    string `json:"file"`
	Role    string `json:"role"`
	Entries int    `json:"entries"`
	Version string `json:"version"`
	Torn    bool   `json:"torn,omitempty"`
	Error   string `json:"error,omitempty"`
}

// report writes what was found of a kind.
func report(out io.Writer, asJSON bool, in *disk.Inspection) error {
	l := checkLine{
		Kind: in.Kind.String(), Whole: in.Broken == nil, Source: in.Source.String(), Entries: in.Entries, Version: in.Version.String(), Foreign: in.Foreign,
	}
	if in.Broken != nil {
		l.Why = in.Broken.Error()
	}
	for _, f := range in.Files {
		state := fileState{File: f.File, Role: f.Role, Entries: f.Entries, Version: f.Version.String(), Torn: f.Torn}
		if f.Err != nil {
			state.Error = f.Err.Error()
		}
		l.Files = append(l.Files, state)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(l)
	}
	return l.write(out)
}

func (l *checkLine) write(out io.Writer) error {
	word, tail := "WHOLE", ""
	if !l.Whole {
		word, tail = "BROKEN", ": "+l.Why
	}
	if l.Foreign {
		tail += ", another program has written it since"
	}
	_, err := fmt.Fprintf(out, "%-6s  %s: %d entries, version %s, from %s%s\n", word, l.Kind, l.Entries, l.Version, l.Source, tail)
	for _, f := range l.Files {
		note := ""
		switch {
		case f.Error != "":
			note = ": " + f.Error
		case f.Torn:
			note = ", its last change was never finished and is left out"
		}
		if err == nil {
			_, err = fmt.Fprintf(out, "        %s %s: %d entries, version %s%s\n", f.Role, f.File, f.Entries, f.Version, note)
		}
	}
	return err
}
