package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// hasLog reports whether a store folder has log files.
func hasLog(dir string) bool {
	names, err := os.ReadDir(filepath.Join(dir, "commitlog"))
	return err == nil && len(names) > 0
}

// checkStore says what is wrong with a folder that is no store.
func checkStore(from string) error {
	if from == "" || hasLog(from) {
		return nil
	}
	if inner := storesIn(from); len(inner) > 0 {
		return usagef("--from %s has no commitlog folder, but these have: %s", from, strings.Join(inner, ", "))
	}
	return usagef("--from %s has no commitlog folder with files: name the folder that RocketMQ calls storePathRootDir", from)
}

// apart makes sure that the store is not copied into itself.
func apart(from, dir string) error {
	if from == "" {
		return nil
	}
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(from, dir); err == nil && filepath.IsLocal(rel) {
		return usagef("--dir %s lies inside of the store %s", dir, from)
	}
	return nil
}

// takeOver copies the store of --from to the master's folder.
func (p *playground) takeOver() error {
	from, to := p.f.from, p.nodes[0].dir
	if hasLog(to) {
		return usagef("%s has data already: leave --from out to go on with it, or choose another --dir", to)
	}
	sayf(p.a.errOut, "copying %s\n", from)
	if err := copyTree(from, to); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	return nil
}

// storesIn returns the folders at most two levels below dir that hold a store.
func storesIn(dir string) []string {
	var found []string
	for _, pattern := range []string{"*", "*/*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			continue
		}
		for _, n := range names {
			if hasLog(n) {
				found = append(found, n)
			}
		}
	}
	return found
}

// copyTree copies folders and files. The lock stays behind, and so does what a Tandem storage knows of its group (tandem/,
// rollback/): the copy begins a lineage of its own. The original is only read.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case rel == "tandem" || rel == "rollback":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case rel == "lock" || !d.Type().IsRegular():
			return nil
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}

// copyFile copies a file and leaves holes where it has only zeroes: log files are long and mostly empty.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read from
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buf, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	at := int64(0)
	for {
		n, readErr := io.ReadFull(in, buf)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := out.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(readErr, io.EOF), errors.Is(readErr, io.ErrUnexpectedEOF):
			return out.Truncate(at)
		case readErr != nil:
			return readErr
		}
	}
}
