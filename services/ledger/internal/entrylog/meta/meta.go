package meta

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Names below the folder of a node.
const (
	Dir      = "tandem"
	hardFile = Dir + "/hard"
	LogFile  = Dir + "/log"
)

type hardJSON struct {
	Term  raft.Term   `json:"term"`
	Vote  raft.NodeID `json:"vote"`
	Voter bool        `json:"voter"`
}

// Remedy is what to do about a broken file.
const Remedy = "move the node's folder away and start it empty: it joins again without a vote until it has caught up"

// Point is a place between two entries: entry Index of Term ends before offset Pos.
type Point struct {
	Index raft.Index `json:"index"`
	Term  raft.Term  `json:"term"`
	Pos   int64      `json:"pos"` // -1: wherever the next entry comes to stand
}

// Mark names the entry before the point.
func (p Point) Mark() raft.Mark { return raft.Mark{Index: p.Index, Term: p.Term} }

// Cut is a cut that was begun: all behind Point goes, with Reset all before it too.
type Cut struct {
	Point
	Reset bool `json:"reset,omitempty"`
}

// Session is who has the log open for writing.
type Session struct {
	BootID string `json:"boot_id"`
	Async  bool   `json:"async"` // it acknowledges what is not durable
}

// Log is what is known of a log without reading it.
type Log struct {
	Base      Point      `json:"base"` // the log begins behind it
	Mark      Point      `json:"mark"` // durable up to here, index included
	Committed raft.Index `json:"committed"`
	Cut       *Cut       `json:"cut,omitempty"`
	Open      *Session   `json:"open,omitempty"`  // nil after a clean end
	Owner     *Owner     `json:"owner,omitempty"` // nil: not known
}

// Fresh is the log of a new folder.
func Fresh() Log {
	none := Point{Index: raft.NoIndex, Term: raft.NoTerm}
	return Log{Base: none, Mark: none, Committed: raft.NoIndex}
}

// ReadHard returns what the node has promised; ok is false when there is no such file. One that is broken is
// durable.ErrCorrupt, whatever its backup says.
func ReadHard(fsys vfs.FS, root string) (h raft.HardState, ok bool, err error) {
	var j hardJSON
	ok, err = read(fsys, root, hardFile, &j)
	if err == nil && ok && (j.Term < 0 || j.Vote != "" && !j.Voter) {
		err = broken(hardFile).With("term", j.Term)
	}
	return raft.HardState{Term: j.Term, Vote: j.Vote, Voter: j.Voter}, ok, err
}

// WriteHard replaces what the node has promised; it is durable on return.
func WriteHard(fsys vfs.FS, root string, h raft.HardState) error {
	return write(fsys, root, hardFile, hardJSON(h))
}

// ReadLog returns what is known of the log; ok is false when there is no such file.
func ReadLog(fsys vfs.FS, root string) (l Log, ok bool, err error) {
	ok, err = read(fsys, root, LogFile, &l)
	if err == nil && ok && (l.Base.Index < raft.NoIndex || l.Mark.Index < l.Base.Index || l.Base.Pos < -1 || l.Mark.Pos < l.Base.Pos) {
		err = broken(LogFile).With("base", l.Base.Index).With("mark", l.Mark.Index)
	}
	return l, ok, err
}

// WriteLog replaces what is known of the log; it is durable on return.
func WriteLog(fsys vfs.FS, root string, l Log) error { return write(fsys, root, LogFile, l) }

// Distrust notes, if the disk still can, that entries which were acknowledged before they were durable may be gone, as if the machine
// had gone down.
func Distrust(fsys vfs.FS, root string, l Log) {
	l.Open = &Session{Async: true}
	_ = WriteLog(fsys, root, l) // the log has failed already
}

func read(fsys vfs.FS, root, name string, into any) (bool, error) {
	path := filepath.Join(root, filepath.FromSlash(name))
	data, source, err := durable.ReadChecked(fsys, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, durable.ErrCorrupt): // an older copy of a promise is worse than none: the remedy is the one here
		return false, broken(name).Wrap(err)
	case err != nil:
		return false, fmt.Errorf("read %s: %w", name, err)
	case source != durable.Main:
		return false, broken(name)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, broken(name).Wrap(err)
	}
	return true, nil
}

func write(fsys vfs.FS, root, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	path := filepath.Join(root, filepath.FromSlash(name))
	if err := durable.WriteChecked(fsys, path, data); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
