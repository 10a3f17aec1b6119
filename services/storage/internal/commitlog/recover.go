package commitlog

import (
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/recovery"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// slack is what RocketMQ takes off a checkpoint's time, ms.
const slack = 3000

// recover finds the end of the log, cuts what lies behind it and fills in r.
func (l *Log) recover(r *Recovery) error {
	flushed, ours := l.cp.Flushed()
	if files := l.queue.Files(); len(files) > 0 {
		from := l.startFile(files, r.Clean)
		trusted := int64(-1)
		if r.Clean && ours {
			trusted = flushed // a clean stop of our own has left nothing behind it
		}
		w := recovery.Walk(files, from, trusted)
		r.FirstOffset, r.ScannedFrom, r.End, r.Rot = files[0].Start(), files[from].Start(), w.End, w.Rot
		l.lastStamp = w.Stamp
		partial := recovery.EndsInside(l.queue.Find(w.End), w.End, flushed)
		if ours && flushed > w.End && !partial {
			r.Lost = flushed - w.End
		}
		if !w.Clean {
			var err error
			if r.CutBytes, err = recovery.CutBehind(files, w.End); err != nil {
				return err //nolint:wrapcheck // Open wraps
			}
		}
		if err := l.queue.SyncRange(r.ScannedFrom, r.End); err != nil {
			return err //nolint:wrapcheck // Open wraps
		}
	} else if ours {
		r.Lost = flushed
	}
	r.CheckpointReadable = r.End
	if saved := l.cp.Get(checkpoint.Confirm); saved > 0 {
		r.CheckpointReadable = max(r.FirstOffset, min(saved, r.End))
		l.cp.Set(checkpoint.Confirm, r.CheckpointReadable)
	}
	l.cp.SetFlushed(r.End, 0)
	return nil
}

// startFile chooses the file whose records are checked first; those before it are known to be durable. The last flush
// that Tandem noted says it to the byte; without one the rules are RocketMQ's: after a clean stop the last file that has
// records, after a crash the last one whose first record is older than what log and queues had on disk.
func (l *Log) startFile(files []*mappedfile.File, clean bool) int {
	flushed, ours := l.cp.Flushed()
	oldest := max(0, min(l.cp.Get(checkpoint.Physic), l.cp.Get(checkpoint.Logics))-slack)
	for i := len(files) - 1; i > 0; i-- {
		if ours {
			if files[i].Start() <= flushed {
				return i
			}
			continue
		}
		stamp, ok := recovery.FirstStamp(files[i])
		if ok && (clean || stamp != 0 && stamp <= oldest) {
			return i
		}
	}
	return 0
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
