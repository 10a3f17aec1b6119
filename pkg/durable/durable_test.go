package durable_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// poke overwrites or, without data, cuts a file behind the package's back.
func poke(t testing.TB, f vfs.FS, name string, data []byte) {
	t.Helper()
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	must(t, err)
	_, err = file.WriteAt(data, 0)
	must(t, errors.Join(err, file.Close()))
}

func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	must(t, err)
	_, block, _ := strings.Cut(string(doc), "```hex\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("FORMAT.md has no example")
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(block), ""))
	must(t, err)
	f := memfs.New()
	must(t, durable.WriteChecked(f, "x", []byte("role: master\n")))
	got, err := durable.ReadFile(f, "x")
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestWriteAndRead(t *testing.T) {
	for name, f := range map[string]vfs.FS{"os": vfs.OS(), "memfs": memfs.New()} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			must(t, durable.MkdirAll(f, dir))
			must(t, durable.MkdirAll(f, dir))
			file := filepath.Join(dir, "x")
			for _, data := range []string{"first", "", "a longer third one", "4"} {
				must(t, durable.WriteChecked(f, file, []byte(data)))
				if got, src, err := durable.ReadChecked(f, file); string(got) != data || src != durable.Main || err != nil {
					t.Errorf("got %q %v %v", got, src, err)
				}
				must(t, durable.WriteFile(f, file+".raw", []byte(data)))
				if got, err := durable.ReadFile(f, file+".raw"); string(got) != data || err != nil {
					t.Errorf("raw: got %q %v", got, err)
				}
			}
			infos, err := f.ReadDir(dir)
			must(t, err)
			if len(infos) != 3 {
				t.Errorf("temporary files are left: %+v", infos)
			}
			if err := durable.MkdirAll(f, filepath.Join(file, "sub")); err == nil {
				t.Error("made a directory below a file")
			}
		})
	}
}

func TestBrokenFiles(t *testing.T) {
	whole := func(data string) []byte {
		f := memfs.New()
		must(t, durable.WriteChecked(f, "x", []byte(data)))
		b, err := durable.ReadFile(f, "x")
		must(t, err)
		return b
	}
	good := whole("some data")
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 0x10
	for name, raw := range map[string][]byte{
		"empty":         {},
		"zeros":         make([]byte, len(good)),
		"cut":           good[:len(good)-1],
		"only the head": good[:bytes.IndexByte(good, '\n')],
		"longer":        append(bytes.Clone(good), 0),
		"flipped":       flipped,
		"other version": bytes.Replace(good, []byte("tandem1"), []byte("tandem2"), 1),
		"upper case":    bytes.Replace(good, []byte(" 9"), []byte(" +9"), 1),
		"fields":        []byte("tandem1 00000000\n"),
		"short sum":     []byte("tandem1 0 0\n"),
		"no line":       bytes.Repeat([]byte("x"), 500),
	} {
		t.Run(name, func(t *testing.T) {
			f := memfs.New()
			poke(t, f, "x", raw)
			_, _, err := durable.ReadChecked(f, "x")
			if !errors.Is(err, durable.ErrCorrupt) || !strings.Contains(err.Error(), "file=x") {
				t.Errorf("without backup: %v", err)
			}
			poke(t, f, "x.bak", whole("older"))
			if got, src, err := durable.ReadChecked(f, "x"); string(got) != "older" || src != durable.Backup || err != nil {
				t.Errorf("with backup: %q %v %v", got, src, err)
			}
			must(t, durable.WriteChecked(f, "x", []byte("newer")))
			poke(t, f, "x", raw)
			if got, src, err := durable.ReadChecked(f, "x"); string(got) != "older" || src != durable.Backup || err != nil {
				t.Errorf("a broken file became the backup: %q %v %v", got, src, err)
			}
			poke(t, f, "x.bak", raw)
			if _, _, err := durable.ReadChecked(f, "x"); !errors.Is(err, durable.ErrCorrupt) {
				t.Errorf("both broken: %v", err)
			}
			must(t, f.Remove("x"))
			if _, _, err := durable.ReadChecked(f, "x"); !errors.Is(err, durable.ErrCorrupt) {
				t.Errorf("gone, backup broken: %v", err)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	f := memfs.New()
	if _, _, err := durable.ReadChecked(f, "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	must(t, durable.WriteChecked(f, "x", []byte("1")))
	must(t, durable.WriteChecked(f, "x", []byte("2")))
	must(t, f.Remove("x"))
	if got, src, err := durable.ReadChecked(f, "x"); string(got) != "1" || src != durable.Backup || err != nil {
		t.Errorf("got %q %v %v", got, src, err)
	}
}

// TestAReadErrorIsNotCorruption: falling back to an older promise because of a passing error would be unsafe.
func TestAReadErrorIsNotCorruption(t *testing.T) {
	f := memfs.New()
	must(t, durable.WriteChecked(f, "x", []byte("1")))
	must(t, durable.WriteChecked(f, "x", []byte("2")))
	boom := errors.New("boom")
	f.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindRead && op.Name == "x" {
			return memfs.FailBefore(boom)
		}
		return memfs.Proceed
	})
	if _, _, err := durable.ReadChecked(f, "x"); !errors.Is(err, boom) {
		t.Errorf("read: %v", err)
	}
	if err := durable.WriteChecked(f, "x", []byte("3")); !errors.Is(err, boom) {
		t.Errorf("write: %v", err)
	}
}

// write is one of the two ways to write a file, read the way back.
type format struct {
	name  string
	write func(vfs.FS, string, []byte) error
	read  func(vfs.FS, string) (string, error)
}

func formats() []format {
	return []format{
		{"plain", durable.WriteFile, func(f vfs.FS, name string) (string, error) {
			b, err := durable.ReadFile(f, name)
			return string(b), err
		}},
		{"checked", durable.WriteChecked, func(f vfs.FS, name string) (string, error) {
			b, src, err := durable.ReadChecked(f, name)
			if err == nil && src != durable.Main {
				return "", fmt.Errorf("took the %v", src)
			}
			return string(b), err
		}},
	}
}

// TestT16_EveryCrashPoint writes three versions and, after each operation, loses power in several ways: the file is the
// last version that was reported durable, or the one being written.
func TestT16_EveryCrashPoint(t *testing.T) {
	for _, fm := range formats() {
		t.Run(fm.name, func(t *testing.T) {
			f := memfs.New()
			must(t, fm.write(f, "x", []byte("v0")))
			version, points := 0, 0
			check := func(op memfs.Op) memfs.Action {
				if !op.Kind.Mutates() {
					return memfs.Proceed
				}
				points++
				keeps := []memfs.Keep{memfs.OnlySynced, memfs.All}
				for seed := range uint32(30) {
					keeps = append(keeps, memfs.Torn(seed))
				}
				for _, keep := range keeps {
					got, err := fm.read(f.CrashClone(keep), "x")
					if got != fmt.Sprintf("v%d", version) && got != fmt.Sprintf("v%d", version+1) {
						t.Errorf("keep %d before %v of %s: %q %v, version %d is durable", keep, op.Kind, op.Name, got, err, version)
					}
				}
				return memfs.Proceed
			}
			f.SetHook(check)
			for version = range 3 {
				must(t, fm.write(f, "x", fmt.Appendf(nil, "v%d", version+1)))
			}
			version = 3
			check(memfs.Op{Kind: memfs.KindSync})
			if got, err := fm.read(f.CrashClone(memfs.OnlySynced), "x"); got != "v3" || err != nil {
				t.Errorf("in the end: %q %v", got, err)
			}
			if points < 3*5 {
				t.Errorf("only %d crash points", points)
			}
		})
	}
}

// TestT16_EveryFault lets each step fail, undone and done: the file is old or new, and the next write works.
func TestT16_EveryFault(t *testing.T) {
	boom := errors.New("boom")
	for _, fm := range formats() {
		for _, action := range []memfs.Action{memfs.FailBefore(boom), memfs.FailAfter(boom)} {
			for step := 1; ; step++ {
				f := memfs.New()
				must(t, fm.write(f, "x", []byte("old")))
				at := f.Ops() + step
				f.SetHook(func(op memfs.Op) memfs.Action {
					if op.Seq == at {
						return action
					}
					return memfs.Proceed
				})
				err := fm.write(f, "x", []byte("new"))
				if err == nil {
					if step < 5 {
						t.Errorf("%s: only %d steps", fm.name, step)
					}
					break
				}
				if !errors.Is(err, boom) {
					t.Errorf("%s step %d: %v", fm.name, step, err)
				}
				for _, keep := range []memfs.Keep{memfs.OnlySynced, memfs.All} {
					if got, err := fm.read(f.CrashClone(keep), "x"); got != "old" && got != "new" {
						t.Errorf("%s step %d keep %d: %q %v", fm.name, step, keep, got, err)
					}
				}
				must(t, fm.write(f, "x", []byte("next")))
				if got, err := fm.read(f.CrashClone(memfs.OnlySynced), "x"); got != "next" {
					t.Errorf("%s step %d, written again: %q %v", fm.name, step, got, err)
				}
			}
		}
	}
}

func TestT12_AFullDiskLeavesTheOldFile(t *testing.T) {
	for _, fm := range formats() {
		f := memfs.New()
		must(t, fm.write(f, "x", []byte("old")))
		f.SetQuota(f.Used() + 8192)
		if err := fm.write(f, "x", make([]byte, 100_000)); !errors.Is(err, vfs.ErrNoSpace) {
			t.Errorf("%s: %v", fm.name, err)
		}
		if got, err := fm.read(f, "x"); got != "old" || err != nil {
			t.Errorf("%s: %q %v", fm.name, got, err)
		}
		if _, err := f.Stat("x.tmp"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the temporary file still takes space: %v", fm.name, err)
		}
	}
}

func TestMkdirAllIsDurable(t *testing.T) {
	f := memfs.New()
	must(t, durable.MkdirAll(f, "a/b/c"))
	if info, err := f.CrashClone(memfs.OnlySynced).Stat("a/b/c"); err != nil || !info.Dir {
		t.Errorf("%+v %v", info, err)
	}
}

func TestLock(t *testing.T) {
	for name, f := range map[string]vfs.FS{"os": vfs.OS(), "memfs": memfs.New()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, durable.MkdirAll(f, dir))
			file := filepath.Join(dir, "lock")
			l, err := durable.Lock(f, file)
			must(t, err)
			if got, err := durable.ReadFile(f, file); string(got) != "lock" || err != nil {
				t.Errorf("content %q %v", got, err)
			}
			if _, err := durable.Lock(f, file); !errors.Is(err, vfs.ErrLocked) {
				t.Errorf("second: %v", err)
			}
			must(t, l.Close())
			l, err = durable.Lock(f, file)
			must(t, err)
			must(t, l.Close())
		})
	}
}

func TestALockThatCannotBeLabelledIsReleased(t *testing.T) {
	f := memfs.New()
	boom := errors.New("boom")
	f.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindWrite {
			return memfs.FailBefore(boom)
		}
		return memfs.Proceed
	})
	if _, err := durable.Lock(f, "lock"); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	f.SetHook(nil)
	l, err := durable.Lock(f, "lock")
	must(t, err)
	must(t, l.Close())
}
