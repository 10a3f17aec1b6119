package queuefile

import (
	"errors"

	"golang.org/x/sys/unix"
)

// nextData returns the first offset at or behind off that is not in a hole of the file; false when there is none.
func nextData(fd uintptr, off int64) (int64, bool) {
	at, err := unix.Seek(int(fd), off, unix.SEEK_DATA) //nolint:gosec // a descriptor fits an int
	switch {
	case errors.Is(err, unix.ENXIO):
		return off, false
	case err != nil: // a file system without holes
		return off, true
	}
	return at, true
}
