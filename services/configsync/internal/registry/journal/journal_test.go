package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newDir(t testing.TB) *memfs.FS {
	t.Helper()
	f := memfs.New()
	must(t, f.MkdirAll("/j", 0o755))
	must(t, f.SyncDir("/"))
	return f
}

func openIn(t testing.TB, f vfs.FS) (*Journal, []Segment) {
	t.Helper()
	j, segments, err := Open(f, "/j", "topics")
	must(t, err)
	return j, segments
}

// text is what a journal says, a line for a segment.
func text(segments []Segment) string {
	var b strings.Builder
	for _, s := range segments {
		fmt.Fprintf(&b, "%d:%s", s.Number, s.Base)
		for _, r := range s.Records {
			fmt.Fprintf(&b, ",%s", r)
		}
		if s.Torn {
			b.WriteString(" torn")
		}
		if s.Damaged {
			b.WriteString(" damaged")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func poke(t testing.TB, f vfs.FS, name string, data []byte) {
	t.Helper()
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	must(t, err)
	_, err = file.WriteAt(data, 0)
	must(t, errors.Join(err, file.Close()))
}

func peek(t testing.TB, f vfs.FS, name string) []byte {
	t.Helper()
	data, err := readAll(f, name)
	must(t, err)
	return data
}

func TestLife(t *testing.T) {
	f := newDir(t)
	j, segments := openIn(t, f)
	if len(segments) != 0 || j.Open() {
		t.Fatalf("%v", segments)
	}
	for n := range 3 {
		number, err := j.Rotate(fmt.Appendf(nil, "base%d", n))
		must(t, err)
		if number != int64(n+1) {
			t.Errorf("segment %d", number)
		}
		must(t, j.Append([]byte("a")))
		must(t, j.Append(nil))
		must(t, j.Append(bytes.Repeat([]byte("b"), n)))
	}
	must(t, j.Drop(2))
	if !slices.Equal(j.Numbers(), []int64{2, 3}) || j.Size() == 0 {
		t.Errorf("%v", j.Numbers())
	}
	must(t, j.Close())
	poke(t, f, "/j/topics.x.journal", nil)
	poke(t, f, "/j/topics.07.journal", nil)
	poke(t, f, "/j/groups.9.journal", nil)
	j, segments = openIn(t, f)
	if got := text(segments); got != "2:base1,a,,b\n3:base2,a,,bb\n" {
		t.Errorf("%s", got)
	}
	must(t, j.Aside())
	number, err := j.Rotate([]byte("new"))
	must(t, err)
	must(t, j.Close())
	if _, segments = openIn(t, f); number != 4 || text(segments) != "4:new\n" {
		t.Errorf("%d: %s", number, text(segments))
	}
	if _, err := f.Stat("/j/topics.2.journal.aside"); err != nil {
		t.Error(err)
	}
}

func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	must(t, err)
	_, block, _ := strings.Cut(string(doc), "```hex\n")
	block, _, _ = strings.Cut(block, "```")
	want, err := hex.DecodeString(strings.Join(strings.Fields(block), ""))
	must(t, err)
	f := newDir(t)
	j, _ := openIn(t, f)
	_, err = j.Rotate([]byte("base"))
	must(t, err)
	must(t, j.Append([]byte("a change")))
	if got := peek(t, f, "/j/topics.1.journal"); !bytes.Equal(got, want) {
		t.Errorf("the file is\n%s", hex.Dump(got))
	}
}

// TestT16_EveryCrashPoint loses power before each operation: what was reported durable is there, and of what was under way
// all or nothing.
func TestT16_EveryCrashPoint(t *testing.T) {
	f := newDir(t)
	j, _ := openIn(t, f)
	var done, under string // the last segment, as it must be at least, and may be
	points := 0
	f.SetHook(func(op memfs.Op) memfs.Action {
		if !op.Kind.Mutates() {
			return memfs.Proceed
		}
		points++
		keeps := []memfs.Keep{memfs.OnlySynced, memfs.All}
		for seed := range uint32(20) {
			keeps = append(keeps, memfs.Torn(seed))
		}
		for _, keep := range keeps {
			_, segments := openIn(t, f.CrashClone(keep))
			last := ""
			for _, s := range segments {
				if s.Damaged {
					t.Errorf("before %v of %s: a crash is taken for rot: %s", op.Kind, op.Name, text(segments))
				}
				s.Torn = false
				if s.Base != nil {
					last = text([]Segment{s})
				}
			}
			if last != done && last != under {
				t.Errorf("before %v of %s: %q, want %q or %q", op.Kind, op.Name, last, done, under)
			}
		}
		return memfs.Proceed
	})
	for n := 1; n <= 3; n++ {
		under = fmt.Sprintf("%d:%s\n", n, strings.Repeat("base", 3000))
		_, err := j.Rotate([]byte(strings.Repeat("base", 3000)))
		must(t, err)
		done = under
		for _, record := range []string{"short", strings.Repeat("long", 5000), "last"} {
			under = strings.TrimSuffix(done, "\n") + "," + record + "\n"
			must(t, j.Append([]byte(record)))
			done = under
		}
		must(t, j.Drop(int64(n)))
	}
	if points < 3*10 {
		t.Errorf("only %d crash points", points)
	}
}

// TestT16_EveryFault lets each step fail, undone and done: what failed is not there after the next success, or the journal
// says that it does not know and takes nothing any more.
func TestT16_EveryFault(t *testing.T) {
	boom := errors.New("boom")
	faults := 0
	for _, action := range []memfs.Action{memfs.FailBefore(boom), memfs.FailAfter(boom)} {
		for step := 1; step <= 6; step++ {
			f := newDir(t)
			j, _ := openIn(t, f)
			at, failed := f.Ops()+step, memfs.Op{}
			f.SetHook(func(op memfs.Op) memfs.Action {
				if op.Seq == at {
					failed = op
					return action
				}
				return memfs.Proceed
			})
			want := ""
			_, err := j.Rotate([]byte("base"))
			if err == nil {
				err = j.Append([]byte("one"))
				want = "one"
			}
			f.SetHook(nil)
			if !errors.Is(err, boom) {
				t.Fatalf("step %d: %v", step, err)
			}
			if sync := failed.Kind == memfs.KindSync || failed.Kind == memfs.KindSyncDir; errors.Is(err, ErrFault) != sync {
				t.Errorf("step %d, %v: %v", step, failed.Kind, err)
			}
			if errors.Is(err, ErrFault) {
				faults++
				_, again := j.Rotate([]byte("base"))
				if !errors.Is(again, ErrFault) || j.Open() && !errors.Is(j.Append([]byte("x")), ErrFault) {
					t.Errorf("step %d: it goes on", step)
				}
				continue
			}
			if want == "" {
				_, err = j.Rotate([]byte("base"))
				must(t, err)
			}
			must(t, j.Append([]byte("2")))
			_, segments := openIn(t, f.CrashClone(memfs.OnlySynced))
			if got := text(segments[len(segments)-1:]); !strings.HasSuffix(got, ":base,2\n") {
				t.Errorf("step %d, %v of %s: %q", step, failed.Kind, failed.Name, got)
			}
		}
	}
	if faults != 6 {
		t.Errorf("%d faults", faults)
	}
}

func TestAFailedWriteThatCannotBeUndoneIsAFault(t *testing.T) {
	f := newDir(t)
	j, _ := openIn(t, f)
	_, err := j.Rotate(nil)
	must(t, err)
	f.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindWrite || op.Kind == memfs.KindTruncate {
			return memfs.FailBefore(nil)
		}
		return memfs.Proceed
	})
	if err := j.Append([]byte("x")); !errors.Is(err, ErrFault) {
		t.Errorf("%v", err)
	}
}

func TestT12_AFullDiskLeavesTheJournal(t *testing.T) {
	f := newDir(t)
	j, _ := openIn(t, f)
	_, err := j.Rotate([]byte("base"))
	must(t, err)
	must(t, j.Append([]byte("one")))
	f.SetQuota(f.Used())
	if err := j.Append(make([]byte, 100_000)); !errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, ErrFault) {
		t.Errorf("append: %v", err)
	}
	if _, err := j.Rotate(make([]byte, 100_000)); !errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, ErrFault) {
		t.Errorf("rotate: %v", err)
	}
	f.SetQuota(0)
	must(t, j.Append([]byte("two")))
	if _, segments := openIn(t, f.CrashClone(memfs.OnlySynced)); text(segments) != "1:base,one,two\n" {
		t.Errorf("%s", text(segments))
	}
}

func TestAnotherVersionStopsTheStart(t *testing.T) {
	f := newDir(t)
	poke(t, f, "/j/topics.4.journal", []byte("TANDEMJ2 whatever"))
	if _, _, err := Open(f, "/j", "topics"); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "topics.4.journal") {
		t.Errorf("%v", err)
	}
}

func TestRotIsToldFromATornTail(t *testing.T) {
	f := newDir(t)
	j, _ := openIn(t, f)
	_, err := j.Rotate([]byte("base"))
	must(t, err)
	for _, r := range []string{"one", "two", "three"} {
		must(t, j.Append([]byte(r)))
	}
	whole := peek(t, f, "/j/topics.1.journal")
	last := len(whole) - len("three") - headSize
	for n := range whole {
		if n == len(magic)-1 {
			continue // another version
		}
		rotten := slices.Clone(whole)
		rotten[n] ^= 1
		poke(t, f, "/j/topics.1.journal", rotten)
		_, segments := openIn(t, f)
		if s := segments[0]; !s.Torn || s.Damaged != (n < last) {
			t.Errorf("byte %d of %d: %s", n, len(whole), text(segments))
		}
		poke(t, f, "/j/topics.1.journal", whole[:n])
		_, segments = openIn(t, f)
		if s := segments[0]; s.Damaged || !strings.HasPrefix("1:base,one,two,three", strings.TrimSuffix(text([]Segment{s}), " torn\n")) && s.Base != nil && s.Torn {
			t.Errorf("cut at %d: %s", n, text(segments))
		}
	}
}
