package told

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// name of the file in the folder of what RocketMQ does not have.
const name = "reign"

// ErrBroken says that the file cannot be read: a node that does not know what it has promised must not run.
var ErrBroken = errdefs.New(errdefs.DataLoss, "REIGN_BROKEN", "the file of the reign that a peer told of cannot be read").
	WithRemedy("while this node's peers run: remove it and its .bak and start, the master tells of its reign; else restore it")

// File is the file. All methods may be called concurrently.
type File struct {
	fsys vfs.FS
	path string

	mu    sync.Mutex // guards the file and
	reign int64      // what it is known to say
}

// Open reads the file in dir, which exists and is this process's alone. Where there is none, no peer has told anything.
func Open(fsys vfs.FS, dir string) (*File, error) {
	f := &File{fsys: fsys, path: filepath.Join(dir, name)}
	data, source, err := durable.ReadChecked(fsys, f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err == nil && source == durable.Backup:
		err = errors.New("there is only an older copy, of before the last one that was told")
	case errdefs.As(err) != nil && errors.Is(err, durable.ErrCorrupt):
		err = errdefs.As(err).WithRemedy("") // the one below is that of this file
	case err == nil:
		text, whole := strings.CutSuffix(string(data), "\n")
		f.reign, err = strconv.ParseInt(text, 10, 64)
		if err == nil && (!whole || f.reign < 0) {
			err = fmt.Errorf("it says %q", data)
		}
	}
	if err != nil {
		return nil, ErrBroken.With("file", f.path).Wrap(err)
	}
	return f, nil
}

// Reign returns the highest reign that is saved; 0: none.
func (f *File) Reign() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reign
}

// Save has saved the reign, or a higher one, when it returns nil. After an error the file says the old or the new one.
func (f *File) Save(reign int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if reign <= f.reign {
		return nil
	}
	if err := durable.WriteChecked(f.fsys, f.path, fmt.Appendf(nil, "%d\n", reign)); err != nil {
		return fmt.Errorf("save the reign that a peer told of: %w", err)
	}
	f.reign = reign
	return nil
}
