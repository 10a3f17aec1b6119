package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// Field is the position of a number in the file, see FORMAT.md.
type Field int

// Fields of RocketMQ.
const (
	Physic  Field = 0  // physicMsgTimestamp, ms: records up to this time are durable in the log
	Logics  Field = 8  // logicsMsgTimestamp, ms: their units are durable in the queues
	Index   Field = 16 // indexMsgTimestamp, ms: their keys are durable in the index
	Confirm Field = 32 // confirmPhyOffset: Readable; 0 in RocketMQ's: the end of the log
)

const (
	size = 4096

	ours     Field = 4064               // magic of the fields below, which RocketMQ neither writes nor changes
	flushed  Field = 4072               // Flushed, offset
	witness  Field = 4080               // physicMsgTimestamp when flushed was written
	sum      Field = 4088               // CRC-32C of [ours, sum)
	oursWord       = 0x54414E44454D3031 // "TANDEM01"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// File is RocketMQ's StoreCheckpoint. Bytes that nobody here knows are kept.
type File struct {
	fsys vfs.FS
	name string

	writeMu sync.Mutex
	file    vfs.File // nil until the file could be made; guarded by writeMu

	mu    sync.Mutex
	buf   [size]byte
	dirty bool
}

// Open reads the file, or makes it with zeros; on a full disk it is made at the first Write that succeeds. Times that
// cannot be, negative or more than a day ahead of now, count as none.
func Open(fsys vfs.FS, name string, now time.Time) (*File, error) {
	c := &File{fsys: fsys, name: name}
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		c.dirty = true
		if err := c.Write(); err != nil && !errors.Is(err, vfs.ErrNoSpace) {
			return nil, err
		}
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	if _, err := f.ReadAt(c.buf[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("read checkpoint: %w", err), f.Close())
	}
	c.file = f
	limit := now.Add(24 * time.Hour).UnixMilli()
	for _, pos := range []Field{Physic, Logics, Index} {
		if v := c.Get(pos); v < 0 || v > limit {
			c.Set(pos, 0)
		}
	}
	return c, nil
}

// Get returns a number as it will stand in the file.
func (c *File) Get(pos Field) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load(pos)
}

func (c *File) load(pos Field) int64 { return int64(binary.BigEndian.Uint64(c.buf[pos:])) }

func (c *File) store(pos Field, v int64) {
	if c.load(pos) != v {
		binary.BigEndian.PutUint64(c.buf[pos:], uint64(v))
		c.dirty = true
	}
}

// Set changes a number; Write makes it durable.
func (c *File) Set(pos Field, v int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(pos, v)
}

// SetFlushed notes that the log is durable below end, whose last record has the given time; 0: not known.
func (c *File) SetFlushed(end, stamp int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stamp != 0 {
		c.store(Physic, stamp)
	}
	c.store(ours, oursWord)
	c.store(flushed, end)
	c.store(witness, c.load(Physic))
	binary.BigEndian.PutUint32(c.buf[sum:], checksum(c.buf[:]))
}

// Flushed returns the offset below which the log was durable; false when a broker has used the folder since.
func (c *File) Flushed() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	valid := c.load(ours) == oursWord && c.load(witness) == c.load(Physic) &&
		binary.BigEndian.Uint32(c.buf[sum:]) == checksum(c.buf[:])
	return c.load(flushed), valid
}

// Write makes what was set durable, if anything changed.
func (c *File) Write() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.mu.Lock()
	buf, dirty := c.buf, c.dirty
	c.dirty = false
	c.mu.Unlock()
	if !dirty {
		return nil
	}
	err := c.put(buf[:])
	if err != nil {
		c.mu.Lock()
		c.dirty = true
		c.mu.Unlock()
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

func (c *File) put(buf []byte) error {
	if c.file != nil {
		if _, err := c.file.WriteAt(buf, 0); err != nil {
			return err
		}
		if err := c.file.Sync(); err != nil {
			return mappedfile.ErrSync.With("file", filepath.Base(c.name)).Wrap(err)
		}
		return nil
	}
	if err := durable.WriteFile(c.fsys, c.name, buf); err != nil {
		return err
	}
	var err error
	c.file, err = c.fsys.OpenFile(c.name, os.O_RDWR, 0)
	return err
}

// Close lets go of the file; what was set and not written is lost.
func (c *File) Close() error {
	if c.file == nil {
		return nil
	}
	if err := c.file.Close(); err != nil {
		return fmt.Errorf("close checkpoint: %w", err)
	}
	return nil
}

func checksum(buf []byte) uint32 { return crc32.Checksum(buf[ours:sum], castagnoli) }
