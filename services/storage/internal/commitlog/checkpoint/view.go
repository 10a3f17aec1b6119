package checkpoint

// View reads a checkpoint and sets what others than the log know. The log writes it.
type View struct{ file *File }

// NewView makes a view.
func NewView(f *File) View { return View{f} }

// Physic returns the time, ms, up to which records are durable in the log.
func (v View) Physic() int64 { return v.file.Get(Physic) }

// Logics returns the time, ms, up to which units are durable in the queues.
func (v View) Logics() int64 { return v.file.Get(Logics) }

// Index returns the time, ms, up to which keys are durable in the index.
func (v View) Index() int64 { return v.file.Get(Index) }

// SetLogics notes the store timestamp, ms, of the last record whose unit was dispatched. Call it after the queues were
// synced: recovery skips what is older.
func (v View) SetLogics(storeTimestamp int64) {
	v.file.Set(Logics, storeTimestamp)
}

// SetIndex notes the store timestamp, ms, of the last record whose keys are in a synced index file.
func (v View) SetIndex(storeTimestamp int64) { v.file.Set(Index, storeTimestamp) }
