package commitlog

import (
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/recovery"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// recover finds the end of the log, cuts what lies behind it and fills in r.
func (l *Log) recover(r *Recovery) error {
	flushed, ours := l.cp.Flushed()
	if files := l.queue.Files(); len(files) > 0 {
		w, from := recovery.Find(files, recovery.Known{
			Clean: r.Clean, SameBoot: r.SameBoot, Flushed: flushed, Ours: ours,
			OnDisk: min(l.cp.Get(checkpoint.Physic), l.cp.Get(checkpoint.Logics)),
		})
		r.FirstOffset, r.ScannedFrom, r.End, r.Rot = files[0].Start(), files[from].Start(), w.End, w.Rot
		l.lastStamp = w.Stamp
		partial := recovery.EndsInside(l.queue.Find(w.End), w.End, flushed)
		if ours && flushed > w.End && !partial {
			r.Lost = flushed - w.End
		}
		if !w.Clean {
			var err error
			if r.CutBytes, err = recovery.CutBehind(files, w.End); err != nil {
				return err
			}
		}
		if err := l.queue.SyncRange(r.ScannedFrom, r.End); err != nil {
			return err
		}
		if ours && !r.Clean { // what is behind Flushed may be what a failed sync left
			if err := l.queue.Renew(flushed, r.End); err != nil {
				return err
			}
		}
	} else if ours {
		r.Lost = flushed
	}
	r.CheckpointReadable = r.End
	saved := l.cp.Get(checkpoint.Confirm)
	if saved >= 0 && ours { // RocketMQ 5 leaves the start of the record that was the last at its own start
		r.CheckpointReadable = max(r.FirstOffset, min(saved, r.End))
	}
	// From now on the checkpoint is ours, and 0 in it says that nothing was readable yet.
	l.cp.Set(checkpoint.Confirm, r.CheckpointReadable)
	l.cp.SetFlushed(r.End, 0)
	return nil
}

// WholeEnd returns the offset behind the last whole record. It is below End where a slave's stream has stopped inside a
// record: before this node writes records of its own the log must be cut there.
func (l *Log) WholeEnd() (int64, error) {
	end := l.End()
	f := l.queue.Find(end - 1)
	if f == nil {
		return end, nil
	}
	b, release, err := l.View(f.Start(), int(end-f.Start()))
	if err != nil {
		return 0, err
	}
	defer release()
	n := recovery.Whole(b, f.Start())
	if len(b)-n < message.BlankSize && end == f.End() {
		return end, nil // too small a rest for a blank record
	}
	return f.Start() + int64(n), nil
}
