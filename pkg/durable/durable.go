package durable

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// ErrCorrupt says that a file and, where it has one, its backup are not what was written.
var ErrCorrupt = errdefs.New(errdefs.DataLoss, "FILE_CORRUPT", "the file is not what was written")

const (
	tmpSuffix    = ".tmp"
	backupSuffix = ".bak"
	maxSize      = 1 << 30 // of a file that is read in one piece
	headerMax    = 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Source says which file ReadChecked took.
type Source uint8

// Sources. A Backup holds what the file held before the last write that was begun: it may be older than something that
// was reported durable.
const (
	Main Source = iota + 1
	Backup
)

// WriteFile replaces name with data. The directory must exist.
func WriteFile(fsys vfs.FS, name string, data []byte) error {
	if err := replace(fsys, name, data); err != nil {
		return err
	}
	return syncDirOf(fsys, name)
}

// WriteChecked replaces name with a checksummed data and keeps the content before as name+".bak", if it was whole.
func WriteChecked(fsys vfs.FS, name string, data []byte) error {
	old, err := ReadFile(fsys, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
		return err
	}
	if err == nil {
		if _, err := unseal(old); err == nil {
			if err := replace(fsys, name+backupSuffix, old); err != nil {
				return err
			}
		}
	}
	if err := replace(fsys, name, seal(data)); err != nil {
		return err
	}
	return syncDirOf(fsys, name)
}

// ReadChecked returns the data of the last WriteChecked, or of the one before when the file is broken or gone. The error
// is ErrCorrupt when neither is whole, fs.ErrNotExist when neither is there, else that of the disk.
func ReadChecked(fsys vfs.FS, name string) ([]byte, Source, error) {
	data, mainErr := readSealed(fsys, name)
	if mainErr == nil {
		return data, Main, nil
	}
	if !errors.Is(mainErr, fs.ErrNotExist) && !errors.Is(mainErr, ErrCorrupt) {
		return nil, 0, mainErr
	}
	data, backupErr := readSealed(fsys, name+backupSuffix)
	switch {
	case backupErr == nil:
		return data, Backup, nil
	case errors.Is(backupErr, fs.ErrNotExist):
		return nil, 0, mainErr
	}
	return nil, 0, backupErr
}

// ReadFile returns the content of name, which must not exceed 1 GiB.
func ReadFile(fsys vfs.FS, name string) (data []byte, err error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	if size > maxSize {
		return nil, ErrCorrupt.With("file", name).With("size", size).WithMsg("the file is too large to be read in one piece")
	}
	data = make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return data[:n], nil
}

// MkdirAll makes dir and what is missing above it, each name durable.
func MkdirAll(fsys vfs.FS, dir string) error {
	dir = filepath.Clean(dir)
	info, err := fsys.Stat(dir)
	switch {
	case err == nil && info.Dir:
		return nil
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("make directory: %w", errors.Join(err, fsys.MkdirAll(dir, 0o755)))
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := MkdirAll(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return syncDirOf(fsys, dir)
}

// Lock takes RocketMQ's folder lock: a file with the word "lock" whose byte 0 is locked. vfs.ErrLocked when a broker or
// another Tandem has it. Close of the result releases it; the file stays.
func Lock(fsys vfs.FS, name string) (io.Closer, error) {
	l, err := fsys.Lock(name)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := label(fsys, name); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// label writes the word only where it is not there yet, so that a full disk cannot keep a folder from being opened.
func label(fsys vfs.FS, name string) error {
	word := []byte("lock")
	have, err := ReadFile(fsys, name)
	if err != nil || bytes.Equal(have, word) {
		return err
	}
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("label lock: %w", err)
	}
	if err := fill(f, word); err != nil {
		return fmt.Errorf("label lock: %w", err)
	}
	return nil
}

// replace puts data under name; the name is durable after a sync of the directory.
func replace(fsys vfs.FS, name string, data []byte) error {
	tmp := name + tmpSuffix
	f, err := fsys.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	err = fill(f, data)
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return fmt.Errorf("write file: %w", errors.Join(err, remove(fsys, tmp)))
	}
	return nil
}

// fill writes data, makes it durable and closes f in any case.
func fill(f vfs.File, data []byte) error {
	_, err := f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func remove(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", filepath.Base(name), err)
	}
	return nil
}

func syncDirOf(fsys vfs.FS, name string) error {
	if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

func readSealed(fsys vfs.FS, name string) ([]byte, error) {
	raw, err := ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	data, err := unseal(raw)
	if err != nil {
		return nil, ErrCorrupt.With("file", name).Wrap(err).
			WithRemedy("restore it from a copy, or remove it and its .bak if what it says may be forgotten")
	}
	return data, nil
}

func seal(data []byte) []byte {
	b := make([]byte, 0, len(data)+headerMax)
	b = fmt.Appendf(b, "tandem1 %08x %d\n", crc32.Checksum(data, castagnoli), len(data))
	return append(b, data...)
}

func unseal(raw []byte) ([]byte, error) {
	head, _, ok := bytes.Cut(raw[:min(len(raw), headerMax)], []byte("\n"))
	if !ok {
		return nil, errors.New("no header line")
	}
	data := raw[len(head)+1:]
	fields := bytes.Split(head, []byte(" "))
	if len(fields) != 3 || string(fields[0]) != "tandem1" {
		return nil, fmt.Errorf("header %q, want tandem1, checksum and length", head)
	}
	sum, err := strconv.ParseUint(string(fields[1]), 16, 32)
	if err != nil || len(fields[1]) != 8 {
		return nil, fmt.Errorf("checksum %q is not eight hex digits", fields[1])
	}
	if want := strconv.Itoa(len(data)); string(fields[2]) != want {
		return nil, fmt.Errorf("%s bytes, the header says %q", want, fields[2])
	}
	if got := crc32.Checksum(data, castagnoli); got != uint32(sum) {
		return nil, fmt.Errorf("checksum %08x, the header says %08x", got, sum)
	}
	return data, nil
}
