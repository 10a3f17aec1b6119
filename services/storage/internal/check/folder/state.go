package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/cut"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/mend"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/summary"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Files of a storage beside log and queues.
const (
	checkpointFile = "checkpoint"
	lineageFile    = "tandem/lineage"
	summaryFile    = "tandem/queues"
	cutFile        = "tandem/cut"
)

// state is what the small files say; nil: the file is not there, or cannot be read, which was told.
type state struct {
	checkpoint *checkpoint.File
	flushed    int64
	ours       bool // flushed counts
	lineage    *epoch.Lineage
	summary    *summary.Summary
	pending    bool // a cut or a repair was interrupted
}

func (f *folder) readState() error {
	for _, read := range []func() error{f.readCheckpoint, f.readLineage, f.readSummary, f.readPending} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) readCheckpoint() error {
	c, err := checkpoint.Load(f.fsys, filepath.Join(f.root, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return f.damaged(checkpointFile, "%v", err)
	}
	f.state.checkpoint = c
	f.state.flushed, f.state.ours = c.Flushed()
	if c.Damaged() {
		if err := f.damaged(checkpointFile, "Tandem's fields do not have the checksum that stands behind them"); err != nil {
			return err
		}
	}
	tomorrow := f.o.Now.AddDate(0, 0, 1).UnixMilli()
	for _, field := range []struct {
		name string
		pos  checkpoint.Field
	}{{"physicMsgTimestamp", checkpoint.Physic}, {"logicsMsgTimestamp", checkpoint.Logics}, {"indexMsgTimestamp", checkpoint.Index}} {
		if v := c.Get(field.pos); v < 0 || v > tomorrow {
			if err := f.damaged(checkpointFile, "%s is %d, which is no time: it counts as none", field.name, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// readSealed reads a checksummed file and tells when it is not what was written; nil: there is nothing to go by.
func (f *folder) readSealed(file string) ([]byte, error) {
	data, source, err := durable.ReadChecked(f.fsys, filepath.Join(f.root, filepath.FromSlash(file)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, durable.ErrCorrupt):
		return nil, f.damaged(file, "neither it nor its backup is what was written")
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", file, err)
	case source == durable.Backup:
		return data, f.damaged(file, "is not what was written; its backup is whole, and may be older than what was promised")
	}
	return data, nil
}

func (f *folder) readLineage() error {
	data, err := f.readSealed(lineageFile)
	if err != nil {
		return err
	}
	if data == nil {
		return f.tellForgotten()
	}
	var l epoch.Lineage
	if err := l.UnmarshalText(data); err != nil {
		return f.damaged(lineageFile, "%v", err)
	}
	f.state.lineage = &l
	return nil
}

// tellForgotten tells that a folder which Tandem has used has no lineage.
func (f *folder) tellForgotten() error {
	for _, name := range []string{lineageFile, lineageFile + ".bak"} {
		if _, err := f.fsys.Stat(filepath.Join(f.root, filepath.FromSlash(name))); !errors.Is(err, fs.ErrNotExist) {
			return nil // it was told what is wrong with it
		}
	}
	if !f.state.ours {
		return nil
	}
	return f.note(lineageFile, "is gone, and Tandem has used this folder: the next start knows neither this node's role nor what it has promised; "+
		"as a slave it may cut its log and fetch it again")
}

func (f *folder) readSummary() error {
	data, err := f.readSealed(summaryFile)
	if err != nil || data == nil {
		return err
	}
	s, err := summary.Decode(data)
	if err != nil {
		return f.damaged(summaryFile, "%v; the queues are built anew from the log", err)
	}
	f.state.summary, f.r.Summary = s, true
	return nil
}

func (f *folder) readPending() error {
	c, err := cut.Pending(f.fsys, f.root)
	if err != nil {
		return f.damaged(cutFile, "%v", err)
	}
	if c != nil {
		f.state.pending = true
		if err := f.note(cutFile, "a cut to %d was interrupted: the next start finishes it", c.To); err != nil {
			return err
		}
	}
	p, err := mend.Pending(f.fsys, f.root)
	if err != nil {
		return f.damaged(mend.Note, "%v", err)
	}
	if p != nil {
		f.state.pending = true
		return f.note(mend.Note, "a repair of [%d, %d) was interrupted: the next start finishes it", p.From, p.To)
	}
	return nil
}

// judgeEnd says what the end of the log is worth.
func (f *folder) judgeEnd(res check.Result) error {
	if f.state.pending {
		return nil
	}
	tail, claim := res.Tail, res.Claim
	if f.log.files == 0 {
		if f.state.ours && f.state.flushed > 0 {
			return f.damaged("commitlog", "is empty, and was durable up to %d", f.state.flushed)
		}
		return nil
	}
	lost := f.state.ours && f.state.flushed > res.End
	part := f.state.flushed - res.End
	if lost && (part < claim || part < 8) { // a slave may stop inside of a record
		f.r.End, lost = f.state.flushed, false
		if tail.End <= f.state.flushed {
			return nil
		}
	}
	switch {
	case lost:
		x := check.Finding{Kind: check.BadRecord, Offset: res.End, End: f.state.flushed, Field: tail.Field, Detail: "the log was durable up to the end of this stretch, and is zeros from its start on"}
		if tail.Kind != 0 && tail.End > tail.Offset {
			x.Detail = fmt.Sprintf("the log was durable up to the end of this stretch: %s", tail.Detail)
		}
		return f.emit(x)
	case tail.Kind == 0 || tail.End <= tail.Offset:
		return nil
	case f.r.Clean && !f.state.ours:
		return f.emit(tail)
	}
	tail.Kind, tail.Note = check.TornEnd, true
	tail.Detail = "what was being written when the process ended; the next start cuts it: " + tail.Detail
	return f.emit(tail)
}

// judgeState holds checkpoint and lineage against the log.
func (f *folder) judgeState() error {
	end := f.r.End
	if f.state.pending {
		return nil
	}
	if c := f.state.checkpoint; c != nil && f.state.ours {
		if v := c.Get(checkpoint.Confirm); v > max(end, f.state.flushed) {
			// Slaves may have confirmed what an async flush has not saved when the machine goes down; a start lowers it.
			x := check.Finding{
				Kind: check.BadFile, File: checkpointFile, Note: !f.r.Clean,
				Detail: fmt.Sprintf("confirmPhyOffset is %d, behind the end of the log at %d", v, end),
			}
			if err := f.emit(x); err != nil {
				return err
			}
		}
	}
	l := f.state.lineage
	if l == nil {
		return nil
	}
	if err := f.judgeHeld(l.Held, end); err != nil {
		return err
	}
	for _, e := range l.Epochs {
		if l.Open && e.Start > max(end, f.state.flushed) {
			if err := f.damaged(lineageFile, "this node opened epoch %d at %d, behind the end of the log at %d", e.Epoch, e.Start, end); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeHeld holds the lineage's end against that of the log. Between a cut and the lineage that knows of it a crash leaves the
// lineage ahead, by what the cut has kept.
func (f *folder) judgeHeld(held, end int64) error {
	if held <= end || f.state.ours && f.state.flushed >= held {
		return nil
	}
	kept, err := commitlog.ListRollbacks(f.fsys, f.root)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	for _, k := range kept {
		if k.Whole && k.From == end && k.To >= held {
			return f.note(lineageFile, "the log was cut from %d to %d, and the process ended before that was written down", held, end)
		}
	}
	return f.damaged(lineageFile, "the log was held up to %d and ends at %d", held, end)
}

// judgeSummary holds the summary of queues against log and queues.
func (f *folder) judgeSummary(queues *queueFiles) error {
	s := f.state.summary
	if s == nil || f.state.pending {
		return nil
	}
	if s.Dispatched > max(f.r.End, f.state.flushed) {
		x := check.Finding{
			Kind: check.BadFile, File: summaryFile, Note: !f.r.Clean,
			Detail: fmt.Sprintf("the queues were built up to %d, behind the end of the log at %d", s.Dispatched, f.r.End),
		}
		if err := f.emit(x); err != nil {
			return err
		}
	}
	for _, e := range s.Queues {
		if e.Min == e.Max {
			continue
		}
		q := queues.by[e.Topic][e.ID]
		if q != nil {
			var last [1]consumequeue.Unit
			if _, err := q.Read(e.Max-1, last[:]); err != nil {
				return err
			}
			if last[0].Size > 0 && last[0].Offset >= 0 {
				continue
			}
		}
		x := check.Finding{
			Kind: check.BadFile, File: summaryFile,
			Detail: fmt.Sprintf("queue %s/%d had units up to %d and is shorter; the next start builds it from the log", e.Topic, e.ID, e.Max),
		}
		if err := f.emit(x); err != nil {
			return err
		}
	}
	return nil
}

// listKept tells the ranges beside the log.
func (f *folder) listKept() error {
	all, err := commitlog.ListRollbacks(f.fsys, f.root)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	for _, k := range all {
		x := check.Finding{
			Kind: check.Kept, Note: true, Offset: k.From, End: k.To, File: filepath.Join("rollback", k.Name),
			Detail: fmt.Sprintf("%d bytes that the master of epoch %d had cut", k.Bytes, k.Epoch),
		}
		if !k.Whole {
			x.Detail = "a part of a range whose cut a crash has prevented: the log has it"
		}
		if err := f.emit(x); err != nil {
			return err
		}
	}
	mended, err := mend.List(f.fsys, f.root)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	for _, k := range mended {
		x := check.Finding{
			Kind: check.Kept, Note: true, Offset: k.From, End: k.To, File: filepath.Join("repair", k.Name),
			Detail: fmt.Sprintf("%d bytes that a repair has replaced", k.Bytes),
		}
		if err := f.emit(x); err != nil {
			return err
		}
	}
	f.r.Kept = len(all) + len(mended)
	return nil
}
