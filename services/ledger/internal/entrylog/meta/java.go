package meta

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Java's files in the folder of a node.
const (
	TermFile       = "currterm"
	CheckpointFile = "checkpoint"
)

func broken(name string) *errdefs.Error {
	return durable.ErrCorrupt.With("file", name).WithRemedy(Remedy)
}

// Term is what Java's MemberState keeps.
type Term struct {
	Term raft.Term
	Vote raft.NodeID // empty: none
}

// Checkpoint is what Java's DLedgerMmapFileStore keeps, up to three seconds old.
type Checkpoint struct {
	Committed raft.Index
	End       raft.Index
}

// ReadTerm reads currterm; ok is false when it is missing or holds no term.
func ReadTerm(fsys vfs.FS, root string) (t Term, ok bool, err error) {
	p, err := readProperties(fsys, root, TermFile)
	if err != nil || p == nil {
		return Term{}, false, err
	}
	n, perr := strconv.ParseInt(p["currTerm"], 10, 64)
	return Term{Term: raft.Term(n), Vote: raft.NodeID(p["voteLeader"])}, perr == nil && n >= 0, nil
}

// WriteTerm writes currterm, unless it is the same already.
func WriteTerm(fsys vfs.FS, root string, t Term) error {
	return writeProperties(fsys, root, TermFile, fmt.Appendf(nil, "voteLeader=%s\ncurrTerm=%d\n", t.Vote, t.Term))
}

// ReadCheckpoint reads checkpoint; ok is false when it is missing or holds no numbers.
func ReadCheckpoint(fsys vfs.FS, root string) (c Checkpoint, ok bool, err error) {
	p, err := readProperties(fsys, root, CheckpointFile)
	if err != nil || p == nil {
		return Checkpoint{}, false, err
	}
	committed, cerr := strconv.ParseInt(p["committedIndex"], 10, 64)
	end, eerr := strconv.ParseInt(p["endIndex"], 10, 64)
	return Checkpoint{Committed: raft.Index(committed), End: raft.Index(end)}, cerr == nil && eerr == nil, nil
}

// WriteCheckpoint writes checkpoint, unless it is the same already.
func WriteCheckpoint(fsys vfs.FS, root string, c Checkpoint) error {
	return writeProperties(fsys, root, CheckpointFile, fmt.Appendf(nil, "committedIndex=%d\nendIndex=%d\n", c.Committed, c.End))
}

// maxProperties bounds a file that holds two numbers.
const maxProperties = 64 << 10

// readProperties reads a file of Java properties as far as DLedger's need: lines with a key and a value. nil: no file.
func readProperties(fsys vfs.FS, root, name string) (map[string]string, error) {
	path := filepath.Join(root, name)
	info, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if info.Size > maxProperties {
		return map[string]string{}, nil
	}
	data, err := durable.ReadFile(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return parseProperties(data), nil
}

func parseProperties(data []byte) map[string]string {
	p := map[string]string{}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' || line[0] == '!' {
			continue
		}
		at := bytes.IndexAny(line, "=: \t")
		if at < 0 {
			p[string(line)] = ""
			continue
		}
		p[string(line[:at])] = string(bytes.TrimLeft(line[at:], "=: \t"))
	}
	return p
}

func writeProperties(fsys vfs.FS, root, name string, data []byte) error {
	path := filepath.Join(root, name)
	old, err := durable.ReadFile(fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := durable.WriteFile(fsys, path, data); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
