package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Of a record only this much is known here: 4 bytes size, 4 bytes magic; a filler ends a file.
const (
	magicV1     = 0xdaa320a7
	magicV2     = 0xdaa320ab
	magicFiller = 0xcbd43194
	headSize    = 8
)

// walker follows the records of a log that is being written.
type walker struct {
	dir     string
	size    int64 // of a file
	at      int64
	started bool
}

func newWalker(store string) *walker { return &walker{dir: filepath.Join(store, "commitlog")} }

// end returns the end of the last record.
func (w *walker) end() (int64, error) {
	if !w.started {
		names, err := logFiles(w.dir)
		if err != nil || len(names) == 0 {
			return 0, err
		}
		info, err := os.Stat(filepath.Join(w.dir, names[0]))
		if err != nil {
			return 0, err
		}
		w.size, w.started = info.Size(), true
		w.at, _ = strconv.ParseInt(names[0], 10, 64) // 20 digits
	}
	for {
		next, err := w.step()
		if err != nil || next == w.at {
			return w.at, err
		}
		w.at = next
	}
}

// step returns where the record at w.at ends, or w.at where there is none.
func (w *walker) step() (int64, error) {
	start := w.at - w.at%w.size
	f, err := os.Open(filepath.Join(w.dir, fmt.Sprintf("%020d", start)))
	if errors.Is(err, fs.ErrNotExist) {
		return w.at, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // read only
	head := make([]byte, headSize)
	for at := w.at; ; {
		if _, err := f.ReadAt(head, at-start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		size, magic := int64(binary.BigEndian.Uint32(head)), binary.BigEndian.Uint32(head[4:])
		switch {
		case size == 0 || magic == 0: // the head of a record that is being written
			return at, nil
		case magic == magicFiller:
			return start + w.size, nil
		case magic != magicV1 && magic != magicV2 || at+size > start+w.size:
			return 0, fmt.Errorf("%s: no record at offset %d: size %d, magic %08x", w.dir, at, size, magic)
		}
		if at += size; at == start+w.size {
			return at, nil
		}
	}
}

// logFiles returns the names of a row of files, in order.
func logFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if len(e.Name()) == 20 && strings.Trim(e.Name(), "0123456789") == "" && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// tree returns the row files under root that hold anything but zeros, by their path.
func tree(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || len(e.Name()) != 20 {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if len(bytes.TrimRight(b, "\x00")) > 0 {
			files[rel] = b
		}
		return err
	})
	return files, err
}

// tally is what two stores were found to share.
type tally struct {
	from, end         int64 // of the log
	logFiles          int
	queues, units     int
	queueFiles, blank int
}

func (t tally) String() string {
	return fmt.Sprintf("%d log files up to %d, %d queue files of %d queues, %d units", t.logFiles, t.end, t.queueFiles, t.queues, t.units)
}

// sameStores compares log and queues file by file, whole files with their zeros; files of zeros alone, made ahead, do not count.
func sameStores(a, b string) (tally, error) {
	t, err := sameFiles(filepath.Join(a, "commitlog"), filepath.Join(b, "commitlog"))
	if err != nil {
		return t, err
	}
	q, err := sameFiles(filepath.Join(a, "consumequeue"), filepath.Join(b, "consumequeue"))
	if err != nil {
		return t, err
	}
	if t.end, err = newWalker(a).end(); err != nil {
		return t, err
	}
	t.queues, t.queueFiles, t.units = q.queues, q.logFiles, q.units
	if t.logFiles < 3 || t.queues < 3 {
		return t, fmt.Errorf("only %v: too little to prove anything", t)
	}
	return t, nil
}

const unit = 20

// filler marks units that stand for nothing, at the start of a queue that began later than 0.
var filler = []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}

func sameFiles(a, b string) (t tally, err error) {
	fa, err := tree(a)
	if err != nil {
		return t, err
	}
	fb, err := tree(b)
	if err != nil {
		return t, err
	}
	queues := map[string]bool{}
	for _, name := range sortedKeys(fa) {
		have, ok := fb[name]
		if !ok {
			return t, fmt.Errorf("%s has no %s, %s has", b, name, a)
		}
		if at := firstDifference(fa[name], have); at >= 0 {
			return t, fmt.Errorf("%s: %s (%d bytes) and %s (%d bytes) differ first at byte %d", name, a, len(fa[name]), b, len(have), at)
		}
		t.logFiles++
		queues[filepath.Dir(name)] = true
		t.units += len(bytes.TrimRight(have, "\x00")) / unit
	}
	for _, name := range sortedKeys(fb) {
		if _, ok := fa[name]; !ok {
			return t, fmt.Errorf("%s has no %s, %s has", a, name, b)
		}
	}
	t.queues = len(queues)
	return t, nil
}

// firstDifference returns -1 where a and b are the same bytes.
func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

func sortedKeys(m map[string][]byte) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// partOf compares what part has with the same places of whole: its log from its first file to its last record, and every
// queue unit of it that is no filler. Units of whole that point into part's log must be in part.
func partOf(part, whole string) (t tally, err error) {
	w := newWalker(part)
	if t.end, err = w.end(); err != nil {
		return t, err
	}
	names, err := logFiles(w.dir)
	if err != nil || len(names) == 0 {
		return t, errors.Join(err, fmt.Errorf("%s has no log files", part))
	}
	t.from, _ = strconv.ParseInt(names[0], 10, 64) // 20 digits
	for start := t.from; start < t.end; start += w.size {
		name := filepath.Join("commitlog", fmt.Sprintf("%020d", start))
		p, err := os.ReadFile(filepath.Join(part, name))
		if err != nil {
			return t, err
		}
		f, err := os.ReadFile(filepath.Join(whole, name))
		if err != nil {
			return t, err
		}
		n := min(w.size, t.end-start)
		if at := firstDifference(p[:n], f[:n]); at >= 0 {
			return t, fmt.Errorf("%s: %s and %s differ first at byte %d", name, part, whole, at)
		}
		t.logFiles++
	}
	return t, t.partOfQueues(filepath.Join(part, "consumequeue"), filepath.Join(whole, "consumequeue"))
}

func (t *tally) partOfQueues(part, whole string) error {
	p, err := tree(part)
	if err != nil {
		return err
	}
	f, err := tree(whole)
	if err != nil {
		return err
	}
	queues := map[string]bool{}
	for _, name := range sortedKeys(p) {
		t.queueFiles++
		queues[filepath.Dir(name)] = true
		for at := 0; at+unit <= len(p[name]); at += unit {
			u := p[name][at : at+unit]
			switch {
			case bytes.HasPrefix(u, filler):
				t.blank++
			case isZero(u):
			case at+unit > len(f[name]) || !bytes.Equal(u, f[name][at:at+unit]):
				return fmt.Errorf("queue file %s: unit %d of %s (%x) is not in %s", name, at/unit, part, u, whole)
			default:
				t.units++
			}
		}
	}
	t.queues = len(queues)
	for _, name := range sortedKeys(f) {
		for at := 0; at+unit <= len(f[name]); at += unit {
			u := f[name][at : at+unit]
			offset, size := int64(binary.BigEndian.Uint64(u)), int64(binary.BigEndian.Uint32(u[8:]))
			if size == 0 || offset < t.from || offset+size > t.end || bytes.HasPrefix(u, filler) {
				continue
			}
			if have := p[name]; at+unit > len(have) || !bytes.Equal(u, have[at:at+unit]) {
				return fmt.Errorf("queue file %s: unit %d of %s (%x) is not in %s", name, at/unit, whole, u, part)
			}
		}
	}
	return nil
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
