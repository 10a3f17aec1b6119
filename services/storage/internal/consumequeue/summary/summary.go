package summary

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// Summary says what the queues hold.
type Summary struct {
	FileSize   int64 // of every queue file, bytes
	Dispatched int64 // log offset below which every message is in its queue
	Queues     []Extent
}

// Extent is what one queue holds: queue offsets [Min, Max).
type Extent struct {
	Topic    string
	ID       int32
	Min, Max int64
}

const head = "queues 1"

// ErrFormat says that the text is not a summary.
var ErrFormat = errors.New("not a summary of queues")

func name(root string) string { return filepath.Join(root, "tandem", "queues") }

// Load reads the summary of the store folder root. The error is fs.ErrNotExist, durable.ErrCorrupt, ErrFormat, or the
// disk's.
func Load(fsys vfs.FS, root string) (*Summary, error) {
	data, _, err := durable.ReadChecked(fsys, name(root))
	if err != nil {
		return nil, fmt.Errorf("read summary of queues: %w", err)
	}
	return Decode(data)
}

// Save writes the summary durably. The one before stays as its backup.
func (s *Summary) Save(fsys vfs.FS, root string) error {
	if err := durable.MkdirAll(fsys, filepath.Dir(name(root))); err != nil {
		return fmt.Errorf("write summary of queues: %w", err)
	}
	if err := durable.WriteChecked(fsys, name(root), s.Encode()); err != nil {
		return fmt.Errorf("write summary of queues: %w", err)
	}
	return nil
}

// Encode returns the text.
func (s *Summary) Encode() []byte {
	b := fmt.Appendf(nil, "%s\nfilesize %d\ndispatched %d\n", head, s.FileSize, s.Dispatched)
	for _, e := range s.Queues {
		b = strconv.AppendInt(b, e.Min, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, e.Max, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(e.ID), 10)
		b = append(b, ' ')
		b = append(b, e.Topic...)
		b = append(b, '\n')
	}
	return b
}

// Decode reads the text; a failure is ErrFormat with the line.
func Decode(b []byte) (*Summary, error) {
	lines := bytes.Split(b, []byte("\n"))
	if len(lines) < 4 || string(lines[0]) != head || len(lines[len(lines)-1]) != 0 {
		return nil, ErrFormat
	}
	s := &Summary{Queues: make([]Extent, 0, len(lines)-4)}
	for i, f := range []struct {
		name string
		to   *int64
	}{{"filesize ", &s.FileSize}, {"dispatched ", &s.Dispatched}} {
		text, ok := bytes.CutPrefix(lines[1+i], []byte(f.name))
		n, err := strconv.ParseInt(string(text), 10, 64)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("%w: line %d: want %sand a number", ErrFormat, 2+i, f.name)
		}
		*f.to = n
	}
	for i, line := range lines[3 : len(lines)-1] {
		e, ok := decodeExtent(line)
		if !ok {
			return nil, fmt.Errorf("%w: line %d: want min, max, queue and topic", ErrFormat, 4+i)
		}
		s.Queues = append(s.Queues, e)
	}
	return s, nil
}

func decodeExtent(line []byte) (Extent, bool) {
	f := bytes.SplitN(line, []byte(" "), 4)
	if len(f) != 4 {
		return Extent{}, false
	}
	lo, err1 := strconv.ParseInt(string(f[0]), 10, 64)
	hi, err2 := strconv.ParseInt(string(f[1]), 10, 64)
	id, err3 := strconv.ParseInt(string(f[2]), 10, 32)
	ok := errors.Join(err1, err2, err3) == nil && lo >= 0 && hi >= lo && id >= 0 && len(f[3]) > 0
	return Extent{string(f[3]), int32(id), lo, hi}, ok
}
