package testkit

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
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
)

// Store is a store folder: the one that has commitlog/ and consumequeue/.
type Store struct {
	FS  vfs.FS
	Dir string
}

// OSStore is a store folder on the disk.
func OSStore(dir string) Store { return Store{vfs.OS(), dir} }

// Comparison is what Diff found.
type Comparison struct {
	From, To    int64    // bytes of the log that both have
	EndA, EndB  int64    // end of each log: behind its last byte that is not zero
	Units       int      // queue units that both have
	Differences []string // empty: nothing differs
}

const (
	diffStretch = 1 << 20
	unitSize    = 20
	maxFindings = 20
)

// Same fails t where Diff finds a difference, and returns what was compared.
func Same(t testing.TB, a, b Store) Comparison {
	t.Helper()
	c, err := Diff(a, b)
	if err != nil {
		t.Fatalf("compare %s and %s: %v", a.Dir, b.Dir, err)
	}
	for _, d := range c.Differences {
		t.Errorf("%s and %s: %s", a.Dir, b.Dir, d)
	}
	return c
}

// Diff compares two stores: the bytes of the logs from the common start to the common end, and the queues unit by unit. A
// unit that only one side has, or has otherwise, is a difference if both have the record that it points to. Files made
// ahead, filled with zeros, and unequal ends are none.
func Diff(a, b Store) (Comparison, error) {
	la, err := openLog(a)
	if err != nil {
		return Comparison{}, err
	}
	defer la.close()
	lb, err := openLog(b)
	if err != nil {
		return Comparison{}, err
	}
	defer lb.close()
	c := Comparison{From: max(la.start, lb.start), EndA: la.end, EndB: lb.end}
	c.To = max(c.From, min(la.end, lb.end))
	if err := c.logs(la, lb); err != nil {
		return c, err
	}
	return c, c.queues(a, b)
}

func (c *Comparison) add(format string, args ...any) {
	if len(c.Differences) < maxFindings {
		c.Differences = append(c.Differences, fmt.Sprintf(format, args...))
	}
}

func (c *Comparison) logs(a, b *fileRow) error {
	bufA, bufB := make([]byte, diffStretch), make([]byte, diffStretch)
	for at := c.From; at < c.To; at += diffStretch {
		n := min(diffStretch, c.To-at)
		if err := errors.Join(a.read(bufA[:n], at), b.read(bufB[:n], at)); err != nil {
			return err
		}
		if i := firstDifference(bufA[:n], bufB[:n]); i >= 0 {
			c.add("the logs differ first at offset %d: %02x and %02x", at+int64(i), bufA[i], bufB[i])
			return nil
		}
	}
	return nil
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// fileRow is files named by their first offset, read as one.
type fileRow struct {
	start, end int64
	files      []rowFile
}

type rowFile struct {
	start, size int64
	f           vfs.File
}

func openLog(s Store) (*fileRow, error) { return openRow(s.FS, filepath.Join(s.Dir, "commitlog")) }

// openRow opens the files of dir; one that is not there is a row without bytes.
func openRow(fsys vfs.FS, dir string) (*fileRow, error) {
	r := &fileRow{}
	infos, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	for _, info := range infos {
		start, err := strconv.ParseInt(info.Name, 10, 64)
		if err != nil || info.Dir || len(info.Name) != 20 {
			continue
		}
		f, err := fsys.OpenFile(filepath.Join(dir, info.Name), os.O_RDONLY, 0)
		if err != nil {
			r.close()
			return nil, fmt.Errorf("open file: %w", err)
		}
		r.files = append(r.files, rowFile{start, info.Size, f})
	}
	if len(r.files) == 0 {
		return r, nil
	}
	r.start = r.files[0].start
	r.end, err = r.lastByte()
	if err != nil {
		r.close()
	}
	return r, err
}

func (r *fileRow) close() {
	for _, f := range r.files {
		_ = f.f.Close()
	}
}

// lastByte returns the offset behind the last byte that is not zero.
func (r *fileRow) lastByte() (int64, error) {
	buf := make([]byte, diffStretch)
	for _, f := range slices.Backward(r.files) {
		for to := f.size; to > 0; {
			from := max(0, to-diffStretch)
			b := buf[:to-from]
			if _, err := f.f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
				return 0, fmt.Errorf("read file: %w", err)
			}
			if rest := bytes.TrimRight(b, "\x00"); len(rest) > 0 {
				return f.start + from + int64(len(rest)), nil
			}
			to = from
		}
	}
	return r.start, nil
}

// read fills p from offset at; a hole between files is an error.
func (r *fileRow) read(p []byte, at int64) error {
	for _, f := range r.files {
		if at < f.start || at >= f.start+f.size {
			continue
		}
		n := min(int64(len(p)), f.start+f.size-at)
		if _, err := f.f.ReadAt(p[:n], at-f.start); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read file: %w", err)
		}
		if p, at = p[n:], at+n; len(p) == 0 {
			return nil
		}
	}
	return fmt.Errorf("no file has offset %d", at)
}

// queues compares every queue that one of the two has.
func (c *Comparison) queues(a, b Store) error {
	names := map[string]struct{}{}
	for _, s := range []Store{a, b} {
		root := filepath.Join(s.Dir, "consumequeue")
		topics, err := list(s.FS, root)
		if err != nil {
			return err
		}
		for _, topic := range topics {
			ids, err := list(s.FS, filepath.Join(root, topic))
			if err != nil {
				return err
			}
			for _, id := range ids {
				names[filepath.Join(topic, id)] = struct{}{}
			}
		}
	}
	for name := range names {
		if err := c.queue(a, b, name); err != nil {
			return err
		}
	}
	slices.Sort(c.Differences)
	return nil
}

func list(fsys vfs.FS, dir string) ([]string, error) {
	infos, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	var names []string
	for _, info := range infos {
		if info.Dir && !strings.HasPrefix(info.Name, ".") {
			names = append(names, info.Name)
		}
	}
	return names, nil
}

func (c *Comparison) queue(a, b Store, name string) error {
	ra, err := openRow(a.FS, filepath.Join(a.Dir, "consumequeue", name))
	if err != nil {
		return err
	}
	defer ra.close()
	rb, err := openRow(b.FS, filepath.Join(b.Dir, "consumequeue", name))
	if err != nil {
		return err
	}
	defer rb.close()
	from, to := ra.start, max(ra.end, rb.end)
	switch {
	case len(ra.files) == 0:
		from = rb.start
	case len(rb.files) > 0:
		from = min(ra.start, rb.start)
	}
	for at := from / unitSize * unitSize; at < to; at += unitSize {
		ua, okA := ra.unit(at)
		ub, okB := rb.unit(at)
		switch {
		case okA && okB && ua == ub:
			c.Units++
		case okA && okB && (c.both(ua) || c.both(ub)):
			c.add("queue %s, unit %d: %v and %v", name, at/unitSize, ua, ub)
		case okA && c.both(ua):
			c.add("queue %s, unit %d: only the first has %v", name, at/unitSize, ua)
		case okB && c.both(ub):
			c.add("queue %s, unit %d: only the second has %v", name, at/unitSize, ub)
		}
	}
	return nil
}

// both reports whether both logs have the record of u.
func (c *Comparison) both(u unit) bool { return u.offset >= c.From && u.offset+int64(u.size) <= c.To }

type unit struct {
	offset int64
	size   int32
	tags   int64
}

func (u unit) String() string {
	return fmt.Sprintf("offset %d size %d tags %d", u.offset, u.size, u.tags)
}

// unit returns the unit at byte offset at; false where there is none.
func (r *fileRow) unit(at int64) (unit, bool) {
	var b [unitSize]byte
	if r.read(b[:], at) != nil {
		return unit{}, false
	}
	u := unit{
		offset: int64(binary.BigEndian.Uint64(b[:])),
		size:   int32(binary.BigEndian.Uint32(b[8:])),
		tags:   int64(binary.BigEndian.Uint64(b[12:])),
	}
	return u, u.size > 0
}
