package consumequeue

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"

	"github.com/tandemlog/tandem/pkg/durable"
)

// summary is the content of tandem/queues: when the log is read up to dispatched, the queues have these lengths.
type summary struct {
	fileSize   int64
	dispatched int64
	queues     []extent
}

type extent struct {
	topic    string
	id       int32
	min, max int64
}

const summaryHead = "queues 1"

func (s *Set) summaryName() string { return filepath.Join(s.root, "tandem", "queues") }

func (u *summary) encode() []byte {
	b := fmt.Appendf(nil, "%s\nfilesize %d\ndispatched %d\n", summaryHead, u.fileSize, u.dispatched)
	for _, e := range u.queues {
		b = strconv.AppendInt(b, e.min, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, e.max, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(e.id), 10)
		b = append(b, ' ')
		b = append(b, e.topic...)
		b = append(b, '\n')
	}
	return b
}

func decodeSummary(b []byte) (*summary, error) {
	lines := bytes.Split(b, []byte("\n"))
	if len(lines) < 4 || string(lines[0]) != summaryHead || len(lines[len(lines)-1]) != 0 {
		return nil, errors.New("not a summary of queues")
	}
	u := &summary{queues: make([]extent, 0, len(lines)-4)}
	for i, f := range []struct {
		name string
		to   *int64
	}{{"filesize ", &u.fileSize}, {"dispatched ", &u.dispatched}} {
		text, ok := bytes.CutPrefix(lines[1+i], []byte(f.name))
		n, err := strconv.ParseInt(string(text), 10, 64)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("line %d: want %sand a number", 2+i, f.name)
		}
		*f.to = n
	}
	for i, line := range lines[3 : len(lines)-1] {
		e, err := decodeExtent(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", 4+i, err)
		}
		u.queues = append(u.queues, e)
	}
	return u, nil
}

func decodeExtent(line []byte) (extent, error) {
	f := bytes.SplitN(line, []byte(" "), 4)
	if len(f) != 4 {
		return extent{}, errors.New("want min, max, queue and topic")
	}
	lo, err1 := strconv.ParseInt(string(f[0]), 10, 64)
	hi, err2 := strconv.ParseInt(string(f[1]), 10, 64)
	id, err3 := strconv.ParseInt(string(f[2]), 10, 32)
	if err := errors.Join(err1, err2, err3, legal(f[3])); err != nil {
		return extent{}, err
	}
	if lo < 0 || hi < lo || id < 0 {
		return extent{}, fmt.Errorf("queue %d from %d to %d", id, lo, hi)
	}
	return extent{string(f[3]), int32(id), lo, hi}, nil
}

// loadSummary returns nil when there is none that can be believed.
func (s *Set) loadSummary() (*summary, error) {
	data, source, err := durable.ReadChecked(s.fsys, s.summaryName())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // no summary is no error
	case errors.Is(err, durable.ErrCorrupt):
		s.o.Log.Warn("summary of queues is broken, all queues are built anew", slog.Any("error", err))
		return nil, nil //nolint:nilnil // it can be made again
	case err != nil:
		return nil, fmt.Errorf("read summary of queues: %w", err)
	}
	u, err := decodeSummary(data)
	if err != nil {
		s.o.Log.Warn("summary of queues makes no sense, all queues are built anew", slog.Any("error", err),
			slog.String("source", source.String()))
		return nil, nil //nolint:nilnil // it can be made again
	}
	return u, nil
}

// save writes the summary; what it says is durable already. s.flushing is held.
func (s *Set) save(u *summary) error {
	if err := durable.MkdirAll(s.fsys, filepath.Dir(s.summaryName())); err != nil {
		return fmt.Errorf("write summary of queues: %w", err)
	}
	if err := durable.WriteChecked(s.fsys, s.summaryName(), u.encode()); err != nil {
		return fmt.Errorf("write summary of queues: %w", err)
	}
	return nil
}

// summarize says what is visible. s.writing is held.
func (s *Set) summarize() *summary {
	u := &summary{fileSize: s.fileSize, dispatched: s.dispatched}
	for _, q := range s.all() {
		if q.known {
			u.queues = append(u.queues, extent{q.topic, q.id, q.min, q.max})
		}
	}
	return u
}
