package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/recovery"
)

// ErrNoFolder says that there is nothing to check.
var ErrNoFolder = errdefs.New(errdefs.InvalidArgument, "NO_LEDGER", "the folder holds no ledger").
	WithRemedy("name the folder of a node: storePath, or DLedger's dledger-<id>")

// Finding is one thing that was met.
type Finding struct {
	Note   bool   // nothing is lost by it
	Kind   string // entry, index, state, file
	Index  raft.Index
	Offset int64 // of the entry, bytes; -1: none
	Detail string
}

// Report is what a check has seen.
type Report struct {
	First     raft.Index `json:"first"`
	Last      raft.Index `json:"last"`
	Committed raft.Index `json:"committed"`
	Term      raft.Term  `json:"term"` // promised
	Vote      string     `json:"vote"`
	Voter     bool       `json:"voter"`
	Files     int        `json:"files"`
	Entries   int64      `json:"entries"`
	NoOps     int64      `json:"noOps"`
	Sealed    int64      `json:"sealed"` // entries with Tandem's checksums
	Bytes     int64      `json:"bytes"`
	Units     int64      `json:"units"` // compared
	Damages   int        `json:"damages"`
	Notes     int        `json:"notes"`
}

// Folder checks the folder root; emit gets each finding as it is met. The error says why the check could not be made, or is
// that of emit.
func Folder(ctx context.Context, fsys vfs.FS, root string, emit func(Finding) error) (Report, error) {
	c := &check{ctx: ctx, fsys: still{fsys}, root: root, emit: emit, r: Report{Last: raft.NoIndex, Committed: raft.NoIndex}}
	if _, err := fsys.Stat(filepath.Join(root, "data")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return c.r, ErrNoFolder.With("folder", root)
		}
		return c.r, fmt.Errorf("look for entries: %w", err)
	}
	lock, err := fsys.LockShared(filepath.Join(root, meta.Dir, "lock"))
	switch {
	case err == nil:
		defer func() { _ = lock.Close() }() // nothing was written
	case !errors.Is(err, fs.ErrNotExist): // DLedger has no lock
		return c.r, err
	}
	for _, step := range []func() error{c.state, c.files, c.entries} {
		if err := step(); err != nil {
			return c.r, errors.Join(err, c.close())
		}
	}
	return c.r, c.close()
}

// still is a file system in which nothing is removed.
type still struct{ vfs.FS }

// Remove implements vfs.FS.
func (still) Remove(name string) error {
	return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
}

type check struct {
	ctx  context.Context //nolint:containedctx // of one call
	fsys vfs.FS
	root string
	emit func(Finding) error
	r    Report

	log       meta.Log
	found     bool // tandem/log is there
	hard      raft.HardState
	hardFound bool
	data, idx *mappedfile.Queue
}

func (c *check) close() error {
	var errs []error
	for _, q := range []*mappedfile.Queue{c.data, c.idx} {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}

func (c *check) damage(kind string, at raft.Index, offset int64, format string, args ...any) error {
	c.r.Damages++
	return c.emit(Finding{Kind: kind, Index: at, Offset: offset, Detail: fmt.Sprintf(format, args...)})
}

func (c *check) note(kind string, at raft.Index, offset int64, format string, args ...any) error {
	c.r.Notes++
	return c.emit(Finding{Note: true, Kind: kind, Index: at, Offset: offset, Detail: fmt.Sprintf(format, args...)})
}

// state reads the small files.
func (c *check) state() error {
	var err error
	c.log = meta.Fresh()
	c.log.Base.Pos, c.log.Mark.Pos = 0, 0
	known, found, err := meta.ReadLog(c.fsys, c.root)
	if err != nil {
		return c.damage("state", raft.NoIndex, -1, "%v", err)
	}
	if c.found = found; found {
		c.log = known
	}
	if c.hard, c.hardFound, err = meta.ReadHard(c.fsys, c.root); err != nil {
		return c.damage("state", raft.NoIndex, -1, "%v", err)
	}
	term, termFound, err := meta.ReadTerm(c.fsys, c.root)
	if err != nil {
		return c.damage("state", raft.NoIndex, -1, "%v", err)
	}
	c.r.Committed = c.log.Committed
	switch {
	case c.hardFound && !c.found:
		return c.damage("state", raft.NoIndex, -1, "%s is gone although tandem/hard is there", meta.LogFile)
	case !c.hardFound && c.found:
		return c.damage("state", raft.NoIndex, -1, "tandem/hard is gone: what the node has promised is not known")
	case !c.hardFound && termFound: // DLedger's
		c.hard = raft.HardState{Term: term.Term, Vote: term.Vote, Voter: true}
		if p, ok, err := meta.ReadCheckpoint(c.fsys, c.root); err == nil && ok {
			c.r.Committed = p.Committed
		}
	case c.hardFound && termFound && term.Term > c.hard.Term:
		err = c.note("state", raft.NoIndex, -1, "currterm has the higher term %d: DLedger has used the folder since", term.Term)
		c.hard.Term, c.hard.Vote = term.Term, term.Vote // as the next start takes them
	}
	c.r.Term, c.r.Vote, c.r.Voter = c.hard.Term, string(c.hard.Vote), c.hard.Voter
	switch {
	case err != nil:
		return err
	case c.log.Cut != nil:
		return c.note("state", c.log.Cut.Index, c.log.Cut.Pos, "a cut behind this entry was begun: the next start finishes it")
	case c.log.Open != nil:
		return c.note("state", raft.NoIndex, -1, "the node was not stopped cleanly")
	}
	return nil
}

// files opens entries and index.
func (c *check) files() error {
	var err error
	if c.data, err = mappedfile.Open(c.fsys, filepath.Join(c.root, "data"), mappedfile.Options{Mapped: true}); err != nil {
		return c.damage("file", raft.NoIndex, -1, "entries: %v", err)
	}
	c.r.Files = len(c.data.Files())
	for _, name := range c.data.Foreign() {
		if err := c.note("file", raft.NoIndex, -1, "data/%s is no file of the log: DLedger does not start on the folder", name); err != nil {
			return err
		}
	}
	if c.idx, err = mappedfile.Open(c.fsys, filepath.Join(c.root, "index"), mappedfile.Options{Mapped: true}); err != nil {
		return c.note("file", raft.NoIndex, -1, "the index is made anew by the next start: %v", err)
	}
	return nil
}

// base returns where the entries begin: a folder from which DLedger has removed files begins with its first file.
func (c *check) base() (meta.Point, error) {
	f := c.data.First()
	if f == nil || c.found || f.Start() == 0 {
		return c.log.Base, nil
	}
	h, err := entry.Read(f.Bytes())
	if err != nil {
		return c.log.Base, err
	}
	return meta.Point{Index: h.Index - 1, Term: h.Term, Pos: h.Pos}, nil
}

// entries walks the log.
func (c *check) entries() error {
	if c.data == nil {
		return nil
	}
	base, err := c.base()
	if err != nil {
		return c.damage("entry", raft.NoIndex, c.data.First().Start(), "the first entry cannot be read: %v", err)
	}
	c.r.First = base.Index + 1
	res, err := recovery.Walk(c.data.Files(), base, c.visit)
	c.r.Last, c.r.Bytes = res.End.Index, res.Scanned
	switch {
	case errors.Is(err, recovery.ErrDamaged), errors.Is(err, entry.ErrUnsupported):
		return c.damage("entry", res.End.Index+1, res.End.Pos, "%v", err)
	case err != nil:
		return err
	case c.log.Mark.Index > res.End.Index && c.found:
		return c.damage("entry", res.End.Index+1, res.End.Pos, "entries up to %d were durable: %v", c.log.Mark.Index, res.Torn)
	case res.End.Term > c.hard.Term && c.hardFound:
		return c.damage("state", res.End.Index, res.End.Pos, "the entry is of term %d, and the node has promised only term %d", res.End.Term, c.hard.Term)
	case res.Behind:
		return c.note("entry", res.End.Index+1, res.End.Pos, "something stands behind the last entry, which the next start removes: %v", res.Torn)
	}
	return nil
}

// visit compares the unit of an entry.
func (c *check) visit(h *entry.Header) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	c.r.Entries++
	if h.Kind() == raft.NoOp {
		c.r.NoOps++
	}
	if h.Sealed {
		c.r.Sealed++
	}
	if c.idx == nil {
		return nil
	}
	c.r.Units++
	at := int64(h.Index) * entry.UnitSize
	f := c.idx.Find(at)
	if f != nil {
		if u, ok := entry.ReadUnit(f.Bytes()[at-f.Start():]); ok && u == entry.UnitOf(h) {
			return nil
		}
	}
	if h.Index <= c.log.Mark.Index && c.found {
		return c.damage("index", h.Index, h.Pos, "the index does not lead to the entry")
	}
	return c.note("index", h.Index, h.Pos, "the index does not lead to the entry; the next start puts it right")
}
