package mappedfile

// Pages are made ready for stores `stretch` bytes at a time while those fill that within `quick`: one call for all of them costs a
// third of a fault for each. Slower stores pay for the faults, as a page that is ready goes to disk with the next flush, written
// or not.
const (
	stretch = 256 << 10
	quick   = 50 // ms
)

// Pages makes the pages in front of one writer of one file ready. The zero value is for a file that nothing was stored to yet.
type Pages struct {
	seen  int64 // end in the file of what was made ready, or passed by
	since int64 // when the first store into it came, ms
}

// Use is called before n bytes are stored at pos of f's Writable memory, at the time ms. It changes no byte, and where it fails the
// stores fault as they would without it.
func (p *Pages) Use(f *File, pos, n, ms int64) {
	if pos+n <= p.seen {
		return
	}
	if f.write != nil && ms-p.since < quick {
		_ = f.write.Populate(pos, min(n+stretch, f.size-pos))
	}
	p.seen, p.since = pos+n+stretch, ms
}
