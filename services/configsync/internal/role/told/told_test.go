package told

import (
	"encoding/hex"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

func open(t *testing.T, fsys *memfs.FS) *File {
	t.Helper()
	f, err := Open(fsys, "d")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newFS(t *testing.T) *memfs.FS {
	t.Helper()
	fsys := memfs.New()
	if err := durable.MkdirAll(fsys, "d"); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func save(t *testing.T, f *File, reign int64) {
	t.Helper()
	if err := f.Save(reign); err != nil {
		t.Fatal(err)
	}
}

// TestSavedIsSaved: whatever has been saved is there after a power cut, the highest of all.
func TestSavedIsSaved(t *testing.T) {
	fsys := newFS(t)
	f := open(t, fsys)
	if f.Reign() != 0 {
		t.Errorf("a new node was told of %d", f.Reign())
	}
	for _, told := range []struct{ save, want int64 }{{5, 5}, {3, 5}, {1<<63 - 1, 1<<63 - 1}} {
		save(t, f, told.save)
		if again := open(t, fsys.CrashClone(memfs.OnlySynced)); again.Reign() != told.want {
			t.Errorf("%d after %d was told, want %d", again.Reign(), told.save, told.want)
		}
	}
}

// TestBrokenFile: neither half a file nor the copy of before the last one is taken for what was told.
func TestBrokenFile(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "garbage": "x", "half": "tandem1 e3069283 9\n", "gone": "-"} {
		fsys := newFS(t)
		f := open(t, fsys)
		save(t, f, 5)
		save(t, f, 6)
		var err error
		if name == "gone" {
			err = fsys.Remove("d/reign")
		} else {
			err = durable.WriteFile(fsys, "d/reign", []byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(fsys, "d"); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fsys := newFS(t)
	for _, text := range []string{"5", "-1\n", "five\n", "9223372036854775808\n", ""} {
		if err := durable.WriteChecked(fsys, "d/reign", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(fsys, "d"); !errors.Is(err, ErrBroken) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestFormatExample holds the example of FORMAT.md against what is written.
func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```hex\n(.*?)```").FindSubmatch(doc)
	if block == nil {
		t.Fatal("FORMAT.md has no example")
	}
	fsys := newFS(t)
	save(t, open(t, fsys), 5)
	got, err := durable.ReadFile(fsys, "d/reign")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(strings.Fields(string(block[1])), ""); hex.EncodeToString(got) != want {
		t.Errorf("written is %x, FORMAT.md has %s", got, want)
	}
}
