package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/testkit"
)

// copyOf returns a copy of one store of a golden archive.
func copyOf(t *testing.T, archive, side string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), side)
	if err := copyFiles(filepath.Join(testkit.Golden(t, archive), side), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestEnd finds the end of each golden log where RocketMQ's own decoder found it.
func TestEnd(t *testing.T) {
	for _, archive := range []string{"rocketmq-5.3.3", "rocketmq-4.9.7", "rocketmq-5.3.3-crash"} {
		dir := testkit.Golden(t, archive)
		dump, err := os.ReadFile(filepath.Join(dir, "dump.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(dump), []byte("\n"))
		var last struct{ Offset, Size int64 }
		if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
			t.Fatal(err)
		}
		w := newWalker(filepath.Join(dir, "master"))
		if end, err := w.end(); err != nil || end != last.Offset+last.Size {
			t.Errorf("%s: end %d, %v, want %d", archive, end, err, last.Offset+last.Size)
		}
	}
}

// TestEndGrows follows a log whose next record and next file come later.
func TestEndGrows(t *testing.T) {
	store := t.TempDir()
	w := newWalker(store)
	expect := func(want int64) {
		t.Helper()
		if end, err := w.end(); err != nil || end != want {
			t.Fatalf("end %d, %v, want %d", end, err, want)
		}
	}
	file := func(name string, b ...byte) {
		t.Helper()
		if err := write(filepath.Join(store, "commitlog", name), bytes.NewReader(append(b, make([]byte, 64-len(b))...))); err != nil {
			t.Fatal(err)
		}
	}
	record := append([]byte{0, 0, 0, 40, 0xda, 0xa3, 0x20, 0xa7}, make([]byte, 32)...)
	expect(0)
	file("00000000000000000000")
	expect(0)
	file("00000000000000000000", 0, 0, 0, 40) // its size is there, the rest is being written
	expect(0)
	file("00000000000000000000", record...)
	expect(40)
	file("00000000000000000000", append(record, 0, 0, 0, 24, 0xcb, 0xd4, 0x31, 0x94)...)
	expect(64)
	file("00000000000000000064", record...)
	expect(104)
	file("00000000000000000064", append(record, 0, 0, 0, 25, 0xda, 0xa3, 0x20, 0xa7)...) // longer than the file
	if _, err := w.end(); err == nil {
		t.Error("a record beyond its file's end is none")
	}
}

// damage is one change to a store that a comparison has to see.
type damage struct {
	name   string
	change func(store string) error
	want   string // part of the error; empty: no difference
}

func damages() []damage {
	const log, queue = "commitlog/00000000000000524288", "consumequeue/TopicA/0/00000000000000000000"
	change := func(name string, at int64) func(string) error {
		return func(store string) error { return patch(filepath.Join(store, name), at, "?") }
	}
	empty := func(name string) func(string) error {
		return func(store string) error {
			return write(filepath.Join(store, name), bytes.NewReader(make([]byte, 2000)))
		}
	}
	return []damage{
		{"none", func(string) error { return nil }, ""},
		{"file made ahead", empty("consumequeue/TopicA/9/00000000000000000000"), ""},
		{"byte of the log", change(log, 1234), "differ first at byte 1234"},
		{"byte of a queue", change(queue, 47), "differ first at byte 47"},
		{"log file gone", func(s string) error { return os.Remove(filepath.Join(s, log)) }, log[10:]},
		{"queue file gone", func(s string) error { return os.Remove(filepath.Join(s, queue)) }, queue[13:]},
		{"queue file short", func(s string) error { return os.Truncate(filepath.Join(s, queue), 1980) }, "differ first at byte 1980"},
		{"one queue too many", func(s string) error {
			return write(filepath.Join(s, "consumequeue/TopicA/9/00000000000000000000"), strings.NewReader(strings.Repeat("x", 2000)))
		}, "TopicA/9"},
	}
}

// TestSameStores compares what RocketMQ's master and slave wrote, and finds each damage from either side.
func TestSameStores(t *testing.T) {
	for _, d := range damages() {
		t.Run(d.name, func(t *testing.T) {
			a, b := copyOf(t, "rocketmq-5.3.3", "master"), copyOf(t, "rocketmq-5.3.3", "slave")
			if err := d.change(b); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := sameStores(a, b); !says(err, d.want) {
					t.Errorf("sameStores: %v, want %q", err, d.want)
				}
				a, b = b, a
			}
		})
	}
}

// TestPartOf compares a slave that has less, from a later file on, with its master.
func TestPartOf(t *testing.T) {
	whole := copyOf(t, "rocketmq-5.3.3-crash", "master")
	later := func(t *testing.T) string {
		t.Helper()
		part := copyOf(t, "rocketmq-5.3.3-crash", "slave")
		if err := os.Remove(filepath.Join(part, "commitlog/00000000000000000000")); err != nil {
			t.Fatal(err)
		}
		return part
	}
	got, err := partOf(later(t), whole)
	if err != nil || got.from != 262144 || got.end != 9235815 || got.units < 1000 {
		t.Fatalf("partOf: %+v, %v", got, err)
	}
	for name, change := range map[string]func(part string) error{
		"byte of the log": func(part string) error {
			return patch(filepath.Join(part, "commitlog/00000000000000524288"), 4321, "x")
		},
		"byte of a queue": func(part string) error {
			return patch(firstQueueFile(part), 7, "x")
		},
		"unit taken out": func(part string) error {
			return patch(lastQueueFile(part), 0, strings.Repeat("\x00", unit))
		},
	} {
		part := later(t)
		if err := change(part); err != nil {
			t.Fatal(err)
		}
		if _, err := partOf(part, whole); err == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

func says(err error, want string) bool {
	if want == "" || err == nil {
		return want == "" && err == nil
	}
	return strings.Contains(err.Error(), want)
}

func patch(name string, at int64, with string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(with), at)
	return errors.Join(err, f.Close())
}

func queueFiles(store string) []string {
	var names []string
	_ = filepath.WalkDir(filepath.Join(store, "consumequeue"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.Contains(path, "TopicLoad") {
			names = append(names, path)
		}
		return err
	})
	return names
}

func firstQueueFile(store string) string { return queueFiles(store)[0] }

// lastQueueFile is one whose units all point behind the first log file.
func lastQueueFile(store string) string { names := queueFiles(store); return names[len(names)-1] }

func TestSameLines(t *testing.T) {
	for _, got := range [][]string{{"b"}, {"a", "b", "b"}, {"a", "c"}, nil} {
		if sameLines([]string{"a", "b"}, got) == nil {
			t.Errorf("%v is not a, b", got)
		}
	}
	if err := sameLines([]string{"a", "b"}, []string{"b", "a"}); err != nil {
		t.Error(err)
	}
}
