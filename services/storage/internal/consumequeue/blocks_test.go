package consumequeue

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
)

// blocks returns the bytes that the files below root take up.
func blocks(t *testing.T, root string) int64 {
	t.Helper()
	var used int64
	check(t, filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			used += st.Blocks * 512
		}
		return nil
	}))
	return used
}
