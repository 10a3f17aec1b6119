package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is a small file system of its own, for the node that is to find it full.
type disk struct{ dir string }

// diskSize has room for what a node writes in a window, many times.
const diskSize = 64 << 20

// mountDisk mounts a tmpfs on dir. Where that is not allowed there is none, and no error: full says so.
func mountDisk(dir string) (*disk, error) {
	err := syscall.Mount("tandem", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize))
	switch {
	case err == nil:
		return &disk{dir}, nil
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENODEV):
		return nil, nil //nolint:nilnil // no disk is an answer
	}
	return nil, fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill takes all the room that is left, to the last byte.
func (d *disk) fill() error {
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	for size := 1 << 20; size > 0 && err == nil; {
		if _, err = f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size, err = size/2, nil
		}
	}
	return errors.Join(err, f.Close())
}

// free gives the room back.
func (d *disk) free() error {
	if err := os.Remove(d.ballast()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// close unmounts the disk. Nothing of it is left.
func (d *disk) close() error { return syscall.Unmount(d.dir, 0) }
