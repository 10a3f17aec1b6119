package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/journal"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

// TestT16_EveryCrashPoint changes and saves a table of each kind, restarts included, and loses power before each operation in
// several ways: what comes up is whole, and the last version that was recorded or the one under way.
func TestT16_EveryCrashPoint(t *testing.T) {
	for _, kind := range entry.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			f := newDir(t)
			n := start(t, f, kind)
			var under *table.Table
			points := 0
			hook := func(op memfs.Op) memfs.Action {
				if !op.Kind.Mutates() {
					return memfs.Proceed
				}
				points++
				keeps := []memfs.Keep{memfs.OnlySynced, memfs.All}
				for seed := range uint32(12) {
					keeps = append(keeps, memfs.Torn(seed))
				}
				for _, keep := range keeps {
					_, l, err := Open(f.CrashClone(keep), "/c", kind)
					if err != nil || l.Broken != nil || l.Foreign {
						t.Errorf("keep %d before %v of %s: %v %+v", keep, op.Kind, op.Name, err, l)
					} else if !is(l.Table, n.table) && !is(l.Table, under) {
						t.Errorf("keep %d before %v of %s: %v, want %v", keep, op.Kind, op.Name, l.Table.Version(), n.table.Version())
					}
				}
				return memfs.Proceed
			}
			for round := range 4 {
				f.SetHook(hook)
				for range 3 {
					under = n.next(t)
					must(t, n.Record(n.table, under, false))
					n.table = under
				}
				must(t, n.Begin(n.table))
				must(t, n.WriteTemp(jsonfile.AppendFile(nil, n.table)))
				saved := n.table
				under = n.next(t) // a change while the file is written
				must(t, n.Record(n.table, under, false))
				n.table = under
				must(t, n.End(saved))
				if round%2 == 1 {
					f.SetHook(nil)
					must(t, n.Close())
					n = start(t, f, kind)
					under = n.table
				}
			}
			if points < 60 {
				t.Errorf("only %d crash points", points)
			}
			infos, err := f.ReadDir("/c/tandem")
			must(t, err)
			if len(infos) > 4 {
				t.Errorf("segments nobody needs: %v", infos)
			}
		})
	}
}

// TestT16_EveryFault lets each step of a change and a save fail, undone and done: the change is there or not, as it was
// answered, and after a failure that is no fault everything works again.
func TestT16_EveryFault(t *testing.T) {
	boom := errors.New("boom")
	for _, action := range []memfs.Action{memfs.FailBefore(boom), memfs.FailAfter(boom)} {
		for step := 1; ; step++ {
			f := newDir(t)
			n := start(t, f, entry.Topics)
			n.change(t)
			n.save(t)
			at := f.Ops() + step
			f.SetHook(func(op memfs.Op) memfs.Action {
				if op.Seq == at {
					return action
				}
				return memfs.Proceed
			})
			next := n.next(t)
			err := n.Record(n.table, next, false)
			if err == nil {
				n.table = next
				err = errors.Join(n.Begin(n.table), n.WriteTemp(jsonfile.AppendFile(nil, n.table)))
			}
			if err == nil {
				err = n.End(n.table)
			}
			f.SetHook(nil)
			if err == nil {
				if step < 10 {
					t.Errorf("only %d steps", step)
				}
				break
			}
			_, l, openErr := Open(f.CrashClone(memfs.OnlySynced), "/c", entry.Topics)
			if !errors.Is(err, boom) || openErr != nil || l.Broken != nil || !is(l.Table, n.table) && !is(l.Table, next) {
				t.Errorf("step %d: %v, then %v %+v", step, err, openErr, l)
			}
			if errors.Is(err, journal.ErrFault) {
				continue
			}
			n.change(t)
			n.save(t)
			n.change(t)
			if _, l, err := Open(f.CrashClone(memfs.OnlySynced), "/c", entry.Topics); err != nil || l.Broken != nil || !is(l.Table, n.table) {
				t.Errorf("step %d, went on: %v %+v", step, err, l)
			}
		}
	}
}

// broken says in which ways a file can be unusable.
func broken() map[string]func(t *testing.T, f *memfs.FS, name string) {
	text := func(data string) func(*testing.T, *memfs.FS, string) {
		return func(t *testing.T, f *memfs.FS, name string) { poke(t, f, name, []byte(data)) }
	}
	return map[string]func(*testing.T, *memfs.FS, string){
		"empty": text(""), "half": text(`{"dataVersion":{"counter":3},"topicConfigTa`), "garbage": text("\x00\x01garbage"),
		"missing": func(t *testing.T, f *memfs.FS, name string) { must(t, f.Remove(name)) },
		"unreadable": func(t *testing.T, f *memfs.FS, name string) {
			f.SetHook(func(op memfs.Op) memfs.Action {
				if op.Kind == memfs.KindRead && op.Name == name {
					return memfs.FailBefore(nil)
				}
				return memfs.Proceed
			})
		},
	}
}

// TestT16_BrokenFiles: with a broken file the backup and the journal have everything, and with both broken the table is not
// whole, never empty truth; nothing is thrown away.
func TestT16_BrokenFiles(t *testing.T) {
	for name, spoil := range broken() {
		t.Run(name, func(t *testing.T) {
			f := newDir(t)
			n := start(t, f, entry.Topics)
			for range 3 {
				n.change(t)
				n.save(t)
			}
			n.change(t)
			must(t, n.Close())
			spoil(t, f, "/c/topics.json")
			d, l, err := Open(f, "/c", entry.Topics)
			if err != nil || l.Broken != nil || l.Source != FromBackup || l.Why == nil || !is(l.Table, n.table) {
				t.Fatalf("%v, %+v", err, l)
			}
			f.SetHook(nil)
			again := &node{Disk: d, fs: f, table: l.Table, n: 100}
			again.save(t)
			if name != "missing" && name != "unreadable" {
				_, err := f.Stat("/c/topics.json.broken")
				must(t, err)
			}
			must(t, again.Close())
			again = start(t, f, entry.Topics)
			if !is(again.table, n.table) {
				t.Errorf("saved again: %v", again.table.Version())
			}
			must(t, again.Close())
			spoil(t, f, "/c/topics.json")
			if _, l, err := Open(f, "/c", entry.Topics); err != nil || l.Broken != nil || l.Source != FromBackup || !is(l.Table, n.table) {
				t.Errorf("broken again: %v, %+v", err, l)
			}
			poke(t, f, "/c/topics.json.bak", []byte("{"))
			_, l, err = Open(f, "/c", entry.Topics)
			if err != nil || !errors.Is(l.Broken, ErrBroken) || l.Source != Nothing {
				t.Errorf("both broken: %v, %+v", err, l)
			}
		})
	}
}

func TestAJournalAloneIsEnough(t *testing.T) {
	f := newDir(t)
	n := start(t, f, entry.Groups)
	for range 3 {
		n.change(t)
	}
	must(t, n.Close())
	if _, l, err := Open(f, "/c", entry.Groups); err != nil || l.Broken != nil || l.Source != FromJournal || !is(l.Table, n.table) || l.Replayed != 3 {
		t.Errorf("%v, %+v", err, l)
	}
	poke(t, f, "/c/subscriptionGroup.json", []byte("half"))
	if _, l, err := Open(f, "/c", entry.Groups); err != nil || l.Broken != nil || !is(l.Table, n.table) {
		t.Errorf("%v, %+v", err, l)
	}
}

// TestAnOldBackupIsNoTruth: without the journal that leads on from it.
func TestAnOldBackupIsNoTruth(t *testing.T) {
	f := newDir(t)
	n := start(t, f, entry.Topics)
	for range 3 {
		n.change(t)
		n.save(t)
	}
	must(t, n.Close())
	must(t, f.Remove("/c/topics.json"))
	infos, err := f.ReadDir("/c/tandem")
	must(t, err)
	must(t, f.Remove("/c/tandem/"+infos[0].Name))
	if _, l, err := Open(f, "/c", entry.Topics); err != nil || !errors.Is(l.Broken, ErrBroken) {
		t.Errorf("%v, %+v", err, l)
	}
}

func TestRotInTheJournal(t *testing.T) {
	f := newDir(t)
	n := start(t, f, entry.Topics)
	n.change(t)
	n.save(t)
	for range 3 {
		n.change(t)
	}
	must(t, n.Close())
	infos, err := f.ReadDir("/c/tandem")
	must(t, err)
	name := "/c/tandem/" + infos[len(infos)-1].Name
	file, err := f.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	size, err := file.Size()
	must(t, err)
	for at := range size {
		b := make([]byte, 1)
		_, err := file.ReadAt(b, at)
		must(t, err)
		_, err = file.WriteAt([]byte{b[0] ^ 1}, at)
		must(t, err)
		_, l, err := Open(f.CrashClone(memfs.All), "/c", entry.Topics)
		if at == 7 && errors.Is(err, journal.ErrFormat) {
			l.Broken = err // it could be the journal of another version
			err = nil
		}
		if err != nil || l.Broken == nil && l.Table.Version().Counter < n.table.Version().Counter-1 {
			t.Errorf("byte %d of %d: %v, %v and whole", at, size, err, l.Table.Version())
		}
		_, err = file.WriteAt(b, at)
		must(t, err)
	}
}

// TestT16_UnknownShape: a file that a newer version may have written stops the start and stays as it is.
func TestT16_UnknownShape(t *testing.T) {
	for _, kind := range entry.Kinds() {
		for text, main := range map[string]bool{`{"newTable":{}}`: true, `{"offsetTable":[],"topicConfigTable":[],"subscriptionGroupTable":[]}`: false} {
			f := newDir(t)
			name := "/c/" + kind.File()
			if !main {
				name += ".bak"
			}
			poke(t, f, name, []byte(text))
			if _, _, err := Open(f, "/c", kind); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), filepath.Base(name)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestAnotherProgramsFile: a broker has run on the folder; its file is believed and gets the epochs that it cannot know.
func TestAnotherProgramsFile(t *testing.T) {
	for _, crashed := range []bool{false, true} {
		f := newDir(t)
		n := start(t, f, entry.ConsumerOffsets)
		for n.table.ResetEpoch() < 1 {
			n.change(t)
		}
		n.save(t)
		q, _ := n.table.Offset("T", "H", 0)
		if crashed {
			n.change(t)
		}
		must(t, n.Close())
		if q.Offset == entry.NoOffset || q.Epoch != 1 {
			t.Fatalf("%+v", q)
		}
		java := `{"offsetTable":{"T@G":{0:1000},"T@H":{0:500},"N@G":{0:7}}}`
		poke(t, f, "/c/consumerOffset.json", []byte(java))
		d, l, err := Open(f, "/c", entry.ConsumerOffsets)
		if err != nil || l.Broken != nil || !l.Foreign {
			t.Fatalf("%v, %+v", err, l)
		}
		if q, _ := l.Table.Offset("T", "H", 0); q != (entry.QueueOffset{Epoch: 1, Offset: 500}) {
			t.Errorf("%+v", q)
		}
		if q, _ := l.Table.Offset("N", "G", 0); q != (entry.QueueOffset{Offset: 7}) {
			t.Errorf("%+v", q)
		}
		asides, err := f.ReadDir("/c/tandem")
		must(t, err)
		if got := strings.Contains(fmt.Sprint(asides), ".aside"); got != crashed {
			t.Errorf("crashed %v: %v", crashed, asides)
		}
		again := &node{Disk: d, fs: f, table: l.Table, n: 50}
		again.change(t)
		must(t, again.Close())
		if last := start(t, f, entry.ConsumerOffsets); !is(last.table, again.table) {
			t.Errorf("a change of it is lost: %v", last.table.Version())
		}
	}
}

func TestGoldenFolders(t *testing.T) {
	folders, err := filepath.Glob("../../table/jsonfile/testdata/*")
	must(t, err)
	for _, folder := range folders {
		for _, kind := range entry.Kinds() {
			f := newDir(t)
			data, err := os.ReadFile(filepath.Join(folder, kind.File()))
			must(t, err)
			poke(t, f, "/c/"+kind.File(), data)
			n := start(t, f, kind)
			if n.Due(n.table) {
				t.Errorf("%s %v: a file that nobody changed is due", folder, kind)
			}
			first := n.table
			n.n += 1000
			n.change(t)
			must(t, n.Close())
			n2 := start(t, f, kind)
			if !is(n2.table, n.table) || n2.table.Len() < first.Len() {
				t.Errorf("%s %v: %v after %v", folder, kind, n2.table.Version(), n.table.Version())
			}
			n2.save(t)
			must(t, n2.Close())
			if n3 := start(t, f, kind); !is(n3.table, n.table) || n3.Due(n3.table) {
				t.Errorf("%s %v: saved and loaded %v", folder, kind, n3.table.Version())
			}
		}
	}
}

func TestInspectChangesNothing(t *testing.T) {
	f := newDir(t)
	n := start(t, f, entry.Topics)
	for range 2 {
		n.change(t)
		n.save(t)
	}
	n.change(t)
	must(t, n.Close())
	spoiled := "/c/topics.json"
	for _, want := range []string{"file backup journal journal ", "!file backup journal journal ", "!file !backup journal journal broken"} {
		before := f.Ops()
		in, err := Inspect(f, "/c", entry.Topics)
		must(t, err)
		got := ""
		for _, x := range in.Files {
			if x.Err != nil {
				got += "!"
			}
			got += x.Role + " "
			if x.Err == nil && x.Version.IsZero() {
				t.Errorf("%+v", x)
			}
		}
		if in.Broken != nil {
			got += "broken"
		} else if in.Version != n.table.Version() || in.Entries != n.table.Len() {
			t.Errorf("%+v", in)
		}
		if got != want || f.Ops() != before {
			t.Errorf("%q, want %q; %d operations", got, want, f.Ops()-before)
		}
		poke(t, f, spoiled, []byte("{"))
		spoiled = "/c/topics.json.bak"
	}
	if in, err := Inspect(f, "/nowhere", entry.Groups); err != nil || len(in.Files) != 0 || in.Source != Fresh || in.Broken != nil {
		t.Errorf("%+v, %v", in, err)
	}
	poke(t, f, "/c/topics.json", []byte("{}"))
	if in, err := Inspect(f, "/c", entry.Topics); err != nil || !errors.Is(in.Broken, ErrShape) {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestT12_AFullDisk(t *testing.T) {
	f := newDir(t)
	n := start(t, f, entry.Topics)
	n.change(t)
	n.save(t)
	n.change(t)
	f.SetQuota(f.Used())
	big := entry.NewTopic("big")
	big.Attributes = map[string]string{"a": strings.Repeat("x", 100_000)}
	e := n.table.Edit(1, 1)
	must(t, e.Put(big))
	next, _ := e.Done()
	if err := n.Record(n.table, next, false); !errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, journal.ErrFault) {
		t.Errorf("record: %v", err)
	}
	err := n.Begin(n.table)
	if err == nil {
		err = n.WriteTemp(make([]byte, 100_000))
	}
	if !errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, journal.ErrFault) {
		t.Errorf("save: %v", err)
	}
	if _, err := f.Stat("/c/topics.json.tmp"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file still takes space: %v", err)
	}
	if _, l, err := Open(f, "/c", entry.Topics); err != nil || l.Broken != nil || !is(l.Table, n.table) {
		t.Errorf("restart while full: %v, %+v", err, l)
	}
	f.SetQuota(0)
	n.change(t)
	n.save(t)
	if _, l, err := Open(f.CrashClone(memfs.OnlySynced), "/c", entry.Topics); err != nil || l.Broken != nil || !is(l.Table, n.table) {
		t.Errorf("with space again: %v, %+v", err, l)
	}
}

// TestWhatAFailedSyncLeft: the kernel calls a page clean that a failed sync has not brought to the disk, and a sync of the next
// process says nothing of it. What that process builds on is on the disk all the same.
func TestWhatAFailedSyncLeft(t *testing.T) {
	f := newDir(t)
	n := start(t, f, entry.Topics)
	first := n.next(t)
	must(t, n.Record(n.table, first, false))
	n.table = first
	f.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindSync {
			return memfs.FailBefore(nil)
		}
		return memfs.Proceed
	})
	if err := n.Record(n.table, n.next(t), false); !errors.Is(err, journal.ErrFault) {
		t.Fatal(err)
	}
	f.SetHook(nil)
	must(t, n.Close())

	n = start(t, f, entry.Topics)
	if n.table.Version() == first.Version() {
		t.Fatal("the record that was not synced is not seen")
	}
	last := n.next(t)
	must(t, n.Record(n.table, last, false))
	must(t, n.Close())
	d, l, err := Open(f.CrashClone(memfs.OnlySynced), "/c", entry.Topics)
	must(t, err)
	if l.Broken != nil || !is(l.Table, last) {
		t.Errorf("what was durable is gone after a loss of power: version %v, want %v: %v", l.Table.Version(), last.Version(), l.Broken)
	}
	must(t, d.Close())
}
