package queuefile

import (
	"fmt"

	"github.com/tandemlog/tandem/pkg/vfs"
)

const zeroStep = 4096 // bytes

// zeroBehind makes [from, size) of f zeros. It writes only where something else is, so that holes stay holes, and reports
// whether it wrote.
func zeroBehind(f vfs.File, from, size int64) (changed bool, err error) {
	var b, zeros [zeroStep]byte
	fd, holes := f.Fd()
	for from < size {
		if holes {
			at, more := nextData(fd, from)
			if !more {
				return changed, nil
			}
			if from = at; from >= size {
				return changed, nil
			}
		}
		n := min(zeroStep-from%zeroStep, size-from)
		if _, err := f.ReadAt(b[:n], from); err != nil {
			return changed, fmt.Errorf("read queue file: %w", err)
		}
		if b != zeros {
			if _, err := f.WriteAt(zeros[:n], from); err != nil {
				return changed, fmt.Errorf("zero queue file: %w", err)
			}
			changed = true
			clear(b[:])
		}
		from += n
	}
	return changed, nil
}
