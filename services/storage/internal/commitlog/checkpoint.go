package commitlog

import "github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"

// CheckpointView reads the checkpoint and sets what others know. Run and Close save it.
type CheckpointView struct{ file *checkpoint.File }

// Checkpoint returns the view.
func (l *Log) Checkpoint() CheckpointView { return CheckpointView{l.cp} }

// Physic returns the time, ms, up to which records are durable in the log.
func (v CheckpointView) Physic() int64 { return v.file.Get(checkpoint.Physic) }

// Logics returns the time, ms, up to which units are durable in the queues.
func (v CheckpointView) Logics() int64 { return v.file.Get(checkpoint.Logics) }

// Index returns the time, ms, up to which keys are durable in the index.
func (v CheckpointView) Index() int64 { return v.file.Get(checkpoint.Index) }

// SetLogics notes the store timestamp, ms, of the last record whose unit was dispatched. Call it after the queues were
// synced: recovery skips what is older.
func (v CheckpointView) SetLogics(storeTimestamp int64) {
	v.file.Set(checkpoint.Logics, storeTimestamp)
}

// SetIndex notes the store timestamp, ms, of the last record whose keys are in a synced index file.
func (v CheckpointView) SetIndex(storeTimestamp int64) { v.file.Set(checkpoint.Index, storeTimestamp) }
