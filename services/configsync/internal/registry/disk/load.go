package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/journal"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

const backupSuffix = ".bak"

// Loaded is what the disk says of one kind.
type Loaded struct {
	Table    *table.Table
	Source   Source
	Replayed int   // records behind the file
	Foreign  bool  // another program wrote the file since
	Broken   error // why the table is not whole
	Why      error // why the file could not be read

	good bool // the file itself can be read
	same bool // the file has all of the table
}

// Source says where a table came from.
type Source uint8

// Sources.
const (
	Fresh       Source = iota // there was nothing
	FromFile                  // the JSON file
	FromBackup                // its backup
	FromJournal               // the journal alone
	Nothing                   // no copy could be used
)

// String returns the source in one word.
func (s Source) String() string {
	names := [...]string{"fresh", "file", "backup", "journal", "nothing"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// Open reads the table of a kind. It fails where a file is of an unknown shape, and where the disk does not say what is
// there.
func Open(fsys vfs.FS, dir string, kind entry.Kind) (*Disk, Loaded, error) {
	j, segments, err := journal.Open(fsys, filepath.Join(dir, OwnDir), kind.String())
	if err != nil {
		return nil, Loaded{}, err
	}
	d := &Disk{fsys: fsys, dir: dir, kind: kind, journal: j}
	l, err := d.read(segments)
	switch {
	case err != nil:
	case l.Foreign && unsaved(segments):
		err = j.Aside()
	default:
		err = j.Renew() // what is shown from now on has been saved
	}
	if err != nil {
		return nil, Loaded{}, errors.Join(err, j.Close())
	}
	d.good = l.good
	if numbers := j.Numbers(); len(numbers) > 0 {
		d.segment, d.backup = numbers[0], numbers[0]
	}
	if l.same {
		d.saved = l.Table
	}
	return d, l, nil
}

// unsaved reports whether the newest segment has changes that its file has not.
func unsaved(segments []journal.Segment) bool {
	return len(segments) > 0 && len(segments[len(segments)-1].Records) > 0
}

// readFile reads a JSON file. ErrShape is for the operator; any other error means that it cannot be used.
func (d *Disk) readFile(name string) (*table.Table, error) {
	data, err := durable.ReadFile(d.fsys, filepath.Join(d.dir, name))
	if err != nil {
		return nil, err
	}
	t, err := jsonfile.Decode(d.kind, data)
	switch {
	case errors.Is(err, fastjson.ErrSyntax):
		return nil, fmt.Errorf("read %s: %w", name, err)
	case err != nil:
		return nil, ErrShape.With("file", name).Wrap(err)
	}
	return t, nil
}

func (d *Disk) read(segments []journal.Segment) (Loaded, error) {
	segments = slices.DeleteFunc(slices.Clone(segments), func(s journal.Segment) bool {
		return s.Base == nil && !s.Damaged // a crash while it was begun
	})
	for _, s := range segments {
		if _, err := parseBase(d.kind, s.Base); s.Base != nil && err != nil {
			// Its checksum is good: another version wrote it.
			return Loaded{}, journal.ErrFormat.With("journal", d.kind).With("segment", s.Number).Wrap(err)
		}
	}
	main, mainErr := d.readFile(d.kind.File())
	if errors.Is(mainErr, ErrShape) {
		return Loaded{}, mainErr
	}
	if mainErr == nil {
		l := Loaded{Table: main, Source: FromFile, good: true}
		l.connect(segments)
		if l.Foreign {
			l.Table = inherit(main, segments)
			l.Foreign = len(segments) > 0
		}
		l.same = l.Replayed == 0 && !l.Foreign && l.Broken == nil
		return l, nil
	}
	backup, backupErr := d.readFile(d.kind.File() + backupSuffix)
	if errors.Is(backupErr, ErrShape) {
		return Loaded{}, backupErr
	}
	l := Loaded{Table: backup, Source: FromBackup, Why: mainErr}
	if backupErr != nil {
		l.Table, l.Source = table.New(d.kind), FromJournal
	}
	l.connect(segments)
	none := errors.Is(mainErr, fs.ErrNotExist) && errors.Is(backupErr, fs.ErrNotExist)
	switch {
	case none && len(segments) == 0:
		return Loaded{Table: l.Table, Source: Fresh, same: true}, nil
	case l.Foreign && backupErr == nil && l.newer(segments):
		l.Foreign = false // RocketMQ's backup of RocketMQ's file
	case l.Foreign || backupErr != nil && l.Replayed == 0 && !none:
		return notWhole(d.kind, errors.Join(mainErr, backupErr)), nil
	}
	return l, nil
}

func notWhole(kind entry.Kind, cause error) Loaded {
	return Loaded{Table: table.New(kind), Source: Nothing, Broken: ErrBroken.With("file", kind.File()).Wrap(cause)}
}

// connect finds the segment that goes on where the table ends, and takes what it and those behind it say. foreign: there
// is none.
func (l *Loaded) connect(segments []journal.Segment) {
	for i := len(segments) - 1; i >= 0; i-- {
		b, err := l.base(segments[i])
		if err != nil {
			continue
		}
		t := l.Table.WithEpochs(b.epochs.Entries)
		if t.Version() == b.version && t.Sum() == b.sum {
			l.Table = t
			l.replay(segments[i:])
			return
		}
	}
	l.Foreign = true
	for _, s := range segments {
		if s.Damaged {
			l.Broken = ErrBroken.With("journal", s.Number).With("kind", l.Table.Kind()).WithMsg("what follows the file cannot be read")
		}
	}
}

func (l *Loaded) base(s journal.Segment) (base, error) {
	if s.Base == nil {
		return base{}, errors.New("no base")
	}
	return parseBase(l.Table.Kind(), s.Base)
}

// replay takes the records of segments, of which the first fits. Where they have a hole the table is not whole.
func (l *Loaded) replay(segments []journal.Segment) {
	for _, s := range segments {
		b, err := l.base(s)
		if err == nil && (l.Table.Version() != b.version || l.Table.Sum() != b.sum) {
			err = fmt.Errorf("it follows version %v, not %v", b.version, l.Table.Version())
		}
		for _, payload := range s.Records {
			if err == nil {
				err = l.take(payload)
			}
		}
		if err == nil && s.Damaged {
			err = errors.New("a record is broken, and whole ones lie behind it")
		}
		if err != nil {
			l.Broken = ErrBroken.With("journal", s.Number).With("kind", l.Table.Kind()).Wrap(err)
			return
		}
	}
}

func (l *Loaded) take(payload []byte) error {
	d, err := parseDelta(l.Table.Kind(), payload)
	if err != nil {
		return err
	}
	t, report, err := table.Follow(l.Table, d, table.FollowOptions{Force: d.Full})
	if err != nil {
		return err
	}
	if report.OtherContent {
		return table.ErrOtherContent.With("version", d.To)
	}
	l.Table = t
	l.Replayed++
	return nil
}

// newer reports whether a table that no segment fits is newer than the newest of them, or there is none.
func (l *Loaded) newer(segments []journal.Segment) bool {
	for i := len(segments) - 1; i >= 0; i-- {
		if b, err := l.base(segments[i]); err == nil {
			return l.Table.Version().Compare(b.version) > 0
		}
	}
	return true
}

// inherit gives the offsets of a file that another program wrote the epochs that the journal knows.
func inherit(t *table.Table, segments []journal.Segment) *table.Table {
	if !t.Kind().Offsets() {
		return t
	}
	for _, s := range segments {
		if b, err := parseBase(t.Kind(), s.Base); err == nil {
			t = t.WithEpochs(b.epochs.Entries)
		}
		for _, payload := range s.Records {
			if d, err := parseDelta(t.Kind(), payload); err == nil {
				t = t.WithEpochs(d.All())
			}
		}
	}
	return t
}
