package testkit_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

func TestGoldenMasterAndSlave(t *testing.T) {
	for _, name := range []string{"rocketmq-4.9.7", "rocketmq-5.3.3", "rocketmq-5.3.3-crash"} {
		t.Run(name, func(t *testing.T) {
			dir := testkit.Golden(t, name)
			c := testkit.Same(t, testkit.OSStore(filepath.Join(dir, "master")), testkit.OSStore(filepath.Join(dir, "slave")))
			if c.From != 0 || c.To < 500_000 || c.Units < 600 {
				t.Errorf("compared only %+v", c)
			}
			if crash := strings.HasSuffix(name, "crash"); crash != (c.EndA > c.EndB) {
				t.Errorf("ends %d and %d", c.EndA, c.EndB)
			}
			for _, file := range []string{"dump.jsonl", "feed.txt"} {
				if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// inMemory copies a store to memfs.
func inMemory(t *testing.T, dir string) testkit.Store {
	t.Helper()
	m := memfs.New()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name := "/" + strings.TrimPrefix(path, dir)
		if err != nil || d.IsDir() {
			return errors.Join(err, m.MkdirAll(name, 0o755))
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return put(m, name, data, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Store{FS: m, Dir: "/"}
}

func put(m vfs.FS, name string, data []byte, at int64) error {
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Close())
}

func TestDiffFindsEachKindOfDifference(t *testing.T) {
	dir := testkit.Golden(t, "rocketmq-5.3.3")
	a := inMemory(t, filepath.Join(dir, "master"))
	whole, err := testkit.Diff(a, a)
	if err != nil || len(whole.Differences) > 0 || whole.Units == 0 {
		t.Fatalf("with itself: %+v %v", whole, err)
	}
	queue := firstQueue(t, a)
	for _, tc := range []struct {
		name   string
		spoil  func(m *memfs.FS) error
		want   string
		sameTo int64
	}{
		{"a byte of the log", func(m *memfs.FS) error { return flip(m, "/commitlog/00000000000000262144", 77) }, "offset 262221", whole.To},
		{"a unit", func(m *memfs.FS) error { return flip(m, queue, 19) }, "unit 0: offset", whole.To},
		{"a missing unit", func(m *memfs.FS) error { return put(m, queue, make([]byte, 20), 20) }, "unit 1: only the second", whole.To},
		{"a missing queue", func(m *memfs.FS) error { return m.RemoveAll(filepath.Dir(queue)) }, "only the second", whole.To},
		{"a missing log file", func(m *memfs.FS) error { return m.Remove("/commitlog/00000000000000262144") }, "no file has offset", whole.To},
		{"first file expired", func(m *memfs.FS) error { return m.Remove("/commitlog/00000000000000000000") }, "", whole.To},
		{"a file made ahead", func(m *memfs.FS) error {
			return put(m, "/commitlog/00000000000099876864", make([]byte, 262144), 0)
		}, "", whole.To},
		{"foreign names", func(m *memfs.FS) error {
			return errors.Join(put(m, "/commitlog/note", []byte("x"), 0), m.MkdirAll("/consumequeue/.trash/0", 0o755))
		}, "", whole.To},
		{"nothing at all", func(m *memfs.FS) error { return m.RemoveAll("/commitlog") }, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := a.FS.(*memfs.FS).CrashClone(memfs.All)
			if err := tc.spoil(m); err != nil {
				t.Fatal(err)
			}
			c, err := testkit.Diff(testkit.Store{FS: m, Dir: "/"}, a)
			got := fmt.Sprint(c.Differences, err)
			if tc.want == "" && got != "[] <nil>" || !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %q", got, tc.want)
			}
			if c.To != tc.sameTo {
				t.Errorf("compared to %d, not %d", c.To, tc.sameTo)
			}
		})
	}
}

func TestSameFailsItsTest(t *testing.T) {
	dir := testkit.Golden(t, "rocketmq-5.3.3")
	a := inMemory(t, filepath.Join(dir, "master"))
	m := a.FS.(*memfs.FS).CrashClone(memfs.All)
	if err := flip(m, "/commitlog/00000000000000000000", 5); err != nil {
		t.Fatal(err)
	}
	if !caught(func(t testing.TB) { testkit.Same(t, a, testkit.Store{FS: m, Dir: "/"}) }) {
		t.Error("unequal stores pass")
	}
	if caught(func(t testing.TB) { testkit.Same(t, a, a) }) {
		t.Error("equal stores do not pass")
	}
}

// firstQueue returns the first file of a queue that has at least two units.
func firstQueue(t *testing.T, s testkit.Store) string {
	t.Helper()
	topics, err := s.FS.ReadDir("/consumequeue")
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		name := filepath.Join("/consumequeue", topic.Name, "0", "00000000000000000000")
		f, err := s.FS.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			continue
		}
		b := make([]byte, 40)
		if _, err := f.ReadAt(b, 0); err == nil && b[31] != 0 {
			return name
		}
	}
	t.Fatal("no queue with two units")
	return ""
}

func flip(m vfs.FS, name string, at int64) error {
	f, err := m.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	b[0] ^= 0x40
	return put(m, name, b, at)
}
