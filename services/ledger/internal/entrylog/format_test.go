package entrylog_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// example returns the bytes of the line of FORMAT.md that begins with prefix.
func example(t *testing.T, prefix string) []byte {
	t.Helper()
	text, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "    "+prefix); ok {
			b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "").Replace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("no example %q", prefix)
	return nil
}

func readFile(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n != len(b) {
		t.Fatal(n, err)
	}
	return b
}

// TestFormatExamples writes the examples of FORMAT.md and compares the files with it.
func TestFormatExamples(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	p := entry.New(0, []byte("hello"))
	appendTo(t, l, []raft.Entry{{Index: 0, Term: 1, Size: len(p), Payload: p}})
	appendTo(t, l, noOp(1, 2))
	// Fill the file so that a record of 100 bytes closes it.
	p = entry.New(0, bytes.Repeat([]byte("-"), dataSize-101-100-48))
	appendTo(t, l, []raft.Entry{{Index: 2, Term: 2, Size: len(p), Payload: p}})
	p = entry.New(0, make([]byte, 45))
	appendTo(t, l, []raft.Entry{{Index: 3, Term: 2, Size: len(p), Payload: p}})
	closeLog(t, l)
	data := readFile(t, fsys, root+"/data/00000000000000000000")
	for at, prefix := range map[int]string{0: "00: ", 53: "35: "} {
		want := example(t, prefix)
		if got := data[at : at+len(want)]; !bytes.Equal(got, want) {
			t.Errorf("at %d: %x, FORMAT.md has %x", at, got, want)
		}
	}
	if !bytes.Equal(data[dataSize-100:], append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 100}, make([]byte, 92)...)) {
		t.Errorf("end of the file: %x", data[dataSize-100:])
	}
	units := readFile(t, fsys, root+"/index/00000000000000000000")
	want := append(example(t, "u0: "), example(t, "u1: ")...)
	if !bytes.Equal(units[:64], want) {
		t.Errorf("units %x, FORMAT.md has %x", units[:64], want)
	}
}
