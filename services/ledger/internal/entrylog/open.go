package entrylog

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
)

// Open takes the folder of a node, Java's dledger-<id> too, finishes what a crash interrupted, finds the end of the log
// and makes all of it durable. A folder that was closed cleanly is not changed before the first write. Errors: ErrDamaged,
// durable.ErrCorrupt, mappedfile's, vfs.ErrLocked, entry.ErrUnsupported; each says what to do.
func Open(fsys vfs.FS, root string, o Options) (*Log, *Recovery, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	if err := durable.MkdirAll(fsys, filepath.Join(root, meta.Dir)); err != nil {
		return nil, nil, err
	}
	lock, err := durable.Lock(fsys, path(root, lockFile))
	if err != nil {
		return nil, nil, err
	}
	n := &opening{Log: &Log{fsys: fsys, root: root, o: o, lock: lock}, r: &Recovery{}}
	if err := n.open(); err != nil {
		return nil, nil, errors.Join(err, n.release())
	}
	return n.Log, n.r, nil
}

func (o *Options) check() error {
	for _, f := range []struct {
		field string
		size  int64
	}{{"dataFileSize", o.DataFileSize}, {"indexFileSize", o.IndexFileSize}} {
		if f.size != 0 && (f.size < minFile || f.size > maxFile || f.size%entry.UnitSize != 0) {
			return errdefs.Invalid(f.field, "%d is not a multiple of %d from %d to %d", f.size, entry.UnitSize, minFile, maxFile)
		}
	}
	if o.MaxEntry <= entry.HeaderSize || o.MaxEntry > entry.MaxSize {
		return errdefs.Invalid("maxEntry", "%d is not above %d and at most %d", o.MaxEntry, entry.HeaderSize, entry.MaxSize)
	}
	return nil
}

// maxFile is what DLedger can map.
const maxFile = 1<<31 - entry.UnitSize

// opening is a Log that is not there yet.
type opening struct {
	*Log
	r       *Recovery
	javaEnd meta.Checkpoint // what DLedger noted last, in a folder that is its own
	dirty   bool            // known is not what tandem/log holds
}

func (n *opening) release() error {
	var errs []error
	for _, q := range []*mappedfile.Queue{n.data, n.idx} {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(append(errs, n.lock.Close())...)
}

func (n *opening) open() error {
	if err := n.load(); err != nil {
		return err
	}
	if err := n.openData(); err != nil {
		return err
	}
	if err := n.openIndex(); err != nil {
		return err
	}
	if err := n.resume(); err != nil {
		return err
	}
	if err := n.recover(); err != nil {
		return err
	}
	n.judgeVote()
	return n.publish()
}

// load reads the small files and decides whose word counts.
func (n *opening) load() error {
	hard, hardFound, err := meta.ReadHard(n.fsys, n.root)
	if err != nil {
		return err
	}
	n.known, n.found, err = meta.ReadLogOf(n.fsys, n.root, n.o.Owner)
	if err != nil {
		return err
	}
	if hardFound && !n.found { // it is the first to be written
		return durable.ErrCorrupt.With("file", meta.LogFile).WithMsg("the file is gone").WithRemedy(meta.Remedy)
	}
	term, termFound, err := meta.ReadTerm(n.fsys, n.root)
	if err != nil {
		return err
	}
	switch {
	case hardFound && termFound && term.Term > hard.Term:
		n.r.Java = true
		hard.Term, hard.Vote = term.Term, term.Vote
		if !hard.Voter {
			hard.Vote = ""
		}
	case hardFound && termFound && term.Term == hard.Term && hard.Vote == "" && hard.Voter:
		hard.Vote = term.Vote
	case hardFound:
	case n.found:
		hard = raft.HardState{Term: term.Term}
		n.r.NoVote = "what the node has promised is gone (tandem/hard)"
	case termFound:
		n.r.Java = true
		hard = raft.HardState{Term: term.Term, Vote: term.Vote, Voter: true}
	}
	n.hard = hard
	n.javaEnd = meta.Checkpoint{Committed: raft.NoIndex, End: raft.NoIndex}
	if n.found {
		return nil
	}
	n.known = meta.Fresh()
	n.known.Mark.Pos, n.known.Base.Pos = 0, 0
	c, ok, err := meta.ReadCheckpoint(n.fsys, n.root)
	if err == nil && ok {
		n.r.Java, n.javaEnd, n.known.Committed = true, c, max(raft.NoIndex, c.Committed)
	}
	return err
}

func (n *opening) openData() error {
	q, err := mappedfile.Open(n.fsys, path(n.root, dataDir), mappedfile.Options{
		FileSize: n.o.DataFileSize, DefaultSize: defaultDataSize, Mapped: true, Reserve: true, Temp: path(n.root, newData), Grace: n.o.Grace,
	})
	if err != nil {
		return fmt.Errorf("open entries: %w", err)
	}
	n.data = q
	if size := q.FileSize(); size < minFile || size > maxFile {
		return mappedfile.ErrSize.With("size", size).WithMsg("the data files have a length that no DLedger uses")
	}
	return nil
}

// openIndex opens the index; one that cannot be whole is begun anew.
func (n *opening) openIndex() error {
	o := mappedfile.Options{
		FileSize: n.o.IndexFileSize, DefaultSize: defaultIndexSize, Mapped: true, Reserve: true, Temp: path(n.root, newIndex), Grace: n.o.Grace,
	}
	dir := path(n.root, indexDir)
	q, err := mappedfile.Open(n.fsys, dir, o)
	if errors.Is(err, mappedfile.ErrGap) || errors.Is(err, mappedfile.ErrSize) && o.FileSize == 0 {
		if o.DefaultSize, err = n.clearIndex(dir); err != nil {
			return fmt.Errorf("clear index: %w", err)
		}
		q, err = mappedfile.Open(n.fsys, dir, o)
	}
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	n.idx = q
	n.r.Foreign = append(n.data.Foreign(), q.Foreign()...)
	if size := q.FileSize(); size < minFile || size > maxFile || size%entry.UnitSize != 0 {
		return mappedfile.ErrSize.With("size", size).WithMsg("the index files have a length that no DLedger uses")
	}
	return nil
}

// clearIndex removes the files of the index and returns the length they had.
func (n *opening) clearIndex(dir string) (int64, error) {
	infos, err := n.fsys.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	size := int64(defaultIndexSize)
	for i := len(infos) - 1; i >= 0; i-- {
		if _, ok := mappedfile.ParseName(infos[i].Name); !ok || infos[i].Dir {
			continue
		}
		if err := n.fsys.Remove(filepath.Join(dir, infos[i].Name)); err != nil {
			return 0, err
		}
		if s := infos[i].Size; s >= minFile && s <= maxFile && s%entry.UnitSize == 0 {
			size = s
		}
	}
	return size, n.fsys.SyncDir(dir)
}

// resume finishes a cut and a purge that a crash interrupted.
func (n *opening) resume() error {
	if c := n.known.Cut; c != nil {
		if err := apply(n.data, n.idx, *c); err != nil {
			return fmt.Errorf("finish cut behind %d: %w", c.Index, err)
		}
		k := settled(n.known)
		if err := meta.WriteLog(n.fsys, n.root, k); err != nil {
			return err
		}
		n.known = k
	}
	if err := dropBefore(n.data, n.idx, n.known.Base); err != nil {
		return fmt.Errorf("finish purge up to %d: %w", n.known.Base.Index, err)
	}
	return nil
}

// judgeVote takes the vote from a node that may have forgotten what it promised.
func (n *opening) judgeVote() {
	s := n.known.Open
	n.r.Clean = n.found && s == nil
	n.dirty = n.dirty || s != nil // what is found may be promised again, and may be what a failed sync left
	lost := ""
	switch {
	case n.end.Term > n.hard.Term:
		lost = "entries of a later term than the vote file"
		n.hard.Term, n.hard.Vote = n.end.Term, ""
	case s != nil && s.Async && (s.BootID == "" || s.BootID != n.o.BootID):
		lost = "the machine or its disk failed while entries were acknowledged before they were durable"
	case n.javaEnd.End > n.end.Index:
		lost = "entries that DLedger had are gone"
	}
	if lost != "" && n.hard.Voter {
		n.hard.Voter, n.hard.Vote, n.r.NoVote = false, "", lost
		n.dirty = true
	}
}

// publish makes the log usable.
func (n *opening) publish() error {
	l := n.Log
	l.synced = l.end
	l.first.Store(int64(l.known.Base.Index) + 1)
	l.last.Store(int64(l.end.Index))
	l.committed = max(l.known.Base.Index, min(l.known.Committed, l.end.Index))
	n.r.HardState, n.r.Base, n.r.Last, n.r.Committed = l.hard, l.known.Base.Mark(), l.end.Index, l.committed
	if !n.dirty {
		return nil
	}
	if err := l.begin(); err != nil && !errors.Is(err, vfs.ErrNoSpace) {
		return err
	}
	return nil
}
