package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tandemlog/tandem/pkg/vfs"
)

// Load reads the file for looking at it only: it is opened read-only, nothing is corrected, and the result must not be
// written. fs.ErrNotExist when there is none.
func Load(fsys vfs.FS, name string) (*File, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	c := &File{fsys: fsys, name: name}
	_, err = f.ReadAt(c.buf[:], 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	return c, nil
}

// Damaged reports whether Tandem's own fields are there and are not what was written.
func (c *File) Damaged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load(ours) == oursWord && binary.BigEndian.Uint32(c.buf[sum:]) != checksum(c.buf[:])
}
