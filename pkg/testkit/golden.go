package testkit

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// goldenGlob finds an archive below the module root: each lies with the service that decodes it.
const goldenGlob = "services/*/testdata/golden/"

// maxArchive bounds what one archive may unpack to.
const maxArchive = 1 << 30

// Golden unpacks the archive called name ("rocketmq-5.3.3", "rocketmq-5.3.3-crash", "rocketmq-4.9.7") into a folder of
// t's own and returns the folder that has master/, slave/, dump.jsonl and feed.txt, in 4.9.7 also wire/; "dledger-0.3.1.2"
// has dledger-n0/ to dledger-n2/ and dump.jsonl.
func Golden(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	found, err := filepath.Glob(filepath.Join(ModuleRoot(t), goldenGlob+name+".tar.gz"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d archives of that name", len(found))
	}
	if err == nil {
		err = unpack(found[0], dir)
	}
	if err != nil {
		t.Fatalf("golden store %s: %v", name, err)
	}
	return filepath.Join(dir, name)
}

// ModuleRoot returns the folder of go.mod above the working directory.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	start, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("no go.mod above %s", start)
		}
	}
}

func unpack(archive, dir string) (err error) {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	r := tar.NewReader(io.LimitReader(z, maxArchive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := unpackOne(root, h, r); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, r io.Reader) (err error) {
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(filepath.Clean(h.Name), 0o755)
	case tar.TypeReg:
	default:
		return fmt.Errorf("entry of type %q", h.Typeflag)
	}
	if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err = io.Copy(f, r); err != nil {
		return err
	}
	return root.Chtimes(h.Name, h.ModTime, h.ModTime)
}
