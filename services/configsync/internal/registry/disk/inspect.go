package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/journal"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Finding is what one file of a folder is.
type Finding struct {
	Kind entry.Kind
	File string // below the folder
	// Role is "file", "backup" or "journal".
	Role    string
	Entries int           // of a table, or records of a segment
	Version entry.Version // of a table, or at the end of a segment
	Err     error         // nil: it can be read
	Torn    bool          // the segment ends with a write that a crash cut off, which is no damage
}

// Inspection is what a folder has of one kind.
type Inspection struct {
	Kind    entry.Kind
	Files   []Finding
	Entries int           // of the table that Open would give
	Version entry.Version // of that
	Source  Source
	Foreign bool
	Broken  error // why it would not be whole
}

// Inspect reads all that a folder has of a kind and changes nothing.
func Inspect(fsys vfs.FS, dir string, kind entry.Kind) (Inspection, error) {
	out := Inspection{Kind: kind}
	d := &Disk{fsys: fsys, dir: dir, kind: kind}
	for _, f := range []Finding{{File: kind.File(), Role: "file"}, {File: kind.File() + backupSuffix, Role: "backup"}} {
		t, err := d.readFile(f.File)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		f.Kind, f.Err = kind, err
		if err == nil {
			f.Entries, f.Version = t.Len(), t.Version()
		}
		out.Files = append(out.Files, f)
	}
	_, segments, err := journal.Open(fsys, filepath.Join(dir, OwnDir), kind.String())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	for _, s := range segments {
		out.Files = append(out.Files, segment(kind, s))
	}
	l, err := d.read(segments)
	if err != nil {
		l = Loaded{Table: table.New(kind), Source: Nothing, Broken: err}
	}
	out.Entries, out.Version, out.Source, out.Foreign, out.Broken = l.Table.Len(), l.Table.Version(), l.Source, l.Foreign, l.Broken
	return out, nil
}

func segment(kind entry.Kind, s journal.Segment) Finding {
	f := Finding{Kind: kind, File: filepath.Join(OwnDir, journal.FileName(kind.String(), s.Number)), Role: "journal", Entries: len(s.Records), Torn: s.Torn}
	if s.Damaged {
		f.Err = ErrBroken.WithMsg("a record is broken, and whole ones lie behind it")
		return f
	}
	payload := s.Base
	if len(s.Records) > 0 {
		payload = s.Records[len(s.Records)-1]
	}
	if payload == nil {
		return f
	}
	delta, err := parseDelta(kind, payload)
	if err != nil {
		f.Err = fmt.Errorf("read segment: %w", err)
		return f
	}
	f.Version = delta.To
	return f
}
