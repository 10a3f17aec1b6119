package queuefile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// Folder is one queue's folder as found on disk.
type Folder struct {
	Topic string
	ID    int32
	Files []Found
}

// Found is a file in it.
type Found struct{ Start, Size int64 }

func (d *Folder) path(f Found) string {
	return filepath.Join(d.Topic, strconv.Itoa(int(d.ID)), mappedfile.Name(f.Start))
}

// Scan lists all queue files below dir, which need not exist. Names that are none are left alone and counted; legal says
// which topics are.
func Scan(fsys vfs.FS, dir string, legal func(topic string) bool) (found []Folder, foreign int, err error) {
	topics, err := list(fsys, dir)
	if err != nil {
		return nil, 0, err
	}
	for _, t := range topics {
		if !t.Dir || !legal(t.Name) {
			foreign++
			continue
		}
		ids, err := list(fsys, filepath.Join(dir, t.Name))
		if err != nil {
			return nil, 0, err
		}
		for _, i := range ids {
			id, err := strconv.ParseInt(i.Name, 10, 32)
			if !i.Dir || err != nil || id < 0 || strconv.FormatInt(id, 10) != i.Name {
				foreign++
				continue
			}
			d := Folder{Topic: t.Name, ID: int32(id)}
			n, err := d.scan(fsys, filepath.Join(dir, t.Name, i.Name))
			if err != nil {
				return nil, 0, err
			}
			foreign += n
			if len(d.Files) > 0 {
				found = append(found, d)
			}
		}
	}
	return found, foreign, nil
}

func (d *Folder) scan(fsys vfs.FS, dir string) (foreign int, err error) {
	files, err := list(fsys, dir)
	if err != nil {
		return 0, err
	}
	for _, e := range files {
		start, ok := mappedfile.ParseName(e.Name)
		if !ok || e.Dir {
			foreign++
			continue
		}
		d.Files = append(d.Files, Found{start, e.Size})
	}
	return foreign, nil
}

func list(fsys vfs.FS, dir string) ([]vfs.Info, error) {
	infos, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list queue files: %w", err)
	}
	return infos, nil
}

// Length returns the length that queue files have: that of the longest, or what is remembered, else what is configured;
// 0 when nothing says so. It must be a multiple of unit, and what is configured must agree. Shorter files are what a
// crash leaves behind.
func Length(found []Folder, configured, remembered, unit int64) (int64, error) {
	size, longest := remembered, "the summary"
	for _, d := range found {
		for _, f := range d.Files {
			if f.Size > size {
				size, longest = f.Size, d.path(f)
			}
		}
	}
	if size == 0 {
		size, longest = configured, "the config"
	}
	if size < 0 || size%unit != 0 || (configured != 0 && configured != size) {
		return 0, ErrSize.With("file", longest).With("size", size).With("configured", configured).
			WithRemedy("leave the queue file size out of the config to take that of the files, a multiple of %d", unit)
	}
	for _, d := range found {
		for _, f := range d.Files {
			if size > 0 && f.Start%size != 0 {
				return 0, ErrSize.With("file", d.path(f)).With("want", size).
					WithMsg("a queue file's name is no multiple of the file size").
					WithRemedy("remove the file; the queue is built from the log")
			}
		}
	}
	return size, nil
}
