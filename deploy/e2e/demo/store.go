package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// unpack unpacks a golden archive into dir, without the archive's own top folder.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, rel, ok := strings.Cut(filepath.ToSlash(filepath.Clean(h.Name)), "/")
		if !ok || !filepath.IsLocal(rel) {
			continue
		}
		name := filepath.Join(dir, rel)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = writeFile(name, r)
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(name string, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// logBytes joins the files of a commitlog folder up to end.
func logBytes(store string, end int64) ([]byte, error) {
	files, err := os.ReadDir(filepath.Join(store, "commitlog"))
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(store, "commitlog", f.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	if int64(len(all)) < end {
		return nil, fmt.Errorf("%s holds %d bytes, its log should end at %d", store, len(all), end)
	}
	return all[:end], nil
}

// queueUnits returns the units of every queue of a store, as bytes by topic/queue, without the zeros at the end.
func queueUnits(store string) (map[string][]byte, error) {
	out := map[string][]byte{}
	root := filepath.Join(store, "consumequeue")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		out[rel] = append(out[rel], b...)
		return err
	})
	const unit = 20
	for k, b := range out {
		for len(b) >= unit && bytes.Equal(b[len(b)-unit:], make([]byte, unit)) {
			b = b[:len(b)-unit]
		}
		out[k] = b
	}
	return out, err
}

// beginWith reports the first queue of have that does not begin with want's units.
func beginWith(have, want map[string][]byte) error {
	if len(want) == 0 {
		return errors.New("RocketMQ's slave has no queues to compare with")
	}
	for k, w := range want {
		if !bytes.HasPrefix(have[k], w) {
			return fmt.Errorf("queue %s does not begin with the %d units that RocketMQ's slave built", k, len(w)/20)
		}
	}
	return nil
}
