package entrylog_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

const (
	root     = "/n0"
	dataSize = 8 << 10
	idxSize  = 4 << 10 // 128 units
	boot     = "boot-1"
)

func options() entrylog.Options {
	return entrylog.Options{DataFileSize: dataSize, IndexFileSize: idxSize, BootID: boot, Grace: 50 * time.Millisecond}
}

func open(t testing.TB, fsys vfs.FS, o entrylog.Options) (*entrylog.Log, *entrylog.Recovery) {
	t.Helper()
	l, r, err := entrylog.Open(fsys, root, o)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

func closeLog(t testing.TB, l *entrylog.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// body is what entry i of a term holds: sizes vary so that files end in all ways.
func body(i raft.Index, term raft.Term) []byte {
	return bytes.Repeat([]byte{byte('a' + (int64(i)+int64(term))%26)}, 1+int(i*37%700))
}

// made makes the next entries.
func made(first raft.Index, n int, term raft.Term) []raft.Entry {
	var batch []raft.Entry
	for i := first; i < first+raft.Index(n); i++ {
		p := entry.New(int32(i), body(i, term))
		batch = append(batch, raft.Entry{Index: i, Term: term, Size: len(p), Payload: p})
	}
	return batch
}

func noOp(i raft.Index, term raft.Term) []raft.Entry {
	return []raft.Entry{{Index: i, Term: term, Kind: raft.NoOp, Size: entry.HeaderSize}}
}

func appendTo(t testing.TB, l *entrylog.Log, batch []raft.Entry) {
	t.Helper()
	if err := l.Append(batch); err != nil {
		t.Fatal(err)
	}
}

func sync(t testing.TB, l *entrylog.Log) {
	t.Helper()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
}

// contents reads all entries.
func contents(t testing.TB, l *entrylog.Log) []raft.Entry {
	t.Helper()
	var all []raft.Entry
	for i := l.First(); i <= l.Last(); {
		b, n, release, err := l.View(i, 1000, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		var part []raft.Entry
		part, err = entry.Split(part, bytes.Clone(b))
		release()
		if err != nil || len(part) != n || n == 0 {
			t.Fatalf("entries from %d: %d of %d, %v", i, len(part), n, err)
		}
		all = append(all, part...)
		i += raft.Index(n)
	}
	return all
}

// like compares entries, without their place and checksums.
func like(a, b raft.Entry) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Kind == b.Kind && a.Size == b.Size &&
		bytes.Equal(a.Payload[min(len(a.Payload), entry.HeaderSize):], b.Payload[min(len(b.Payload), entry.HeaderSize):])
}

func same(got, want []raft.Entry) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d entries, want %d", len(got), len(want))
	}
	for i := range got {
		if !like(got[i], want[i]) {
			return fmt.Errorf("entry %d/%d is not %d/%d", got[i].Index, got[i].Term, want[i].Index, want[i].Term)
		}
	}
	return nil
}

// runsOf are the runs of entries.
func runsOf(all []raft.Entry) []raft.Run {
	var runs []raft.Run
	for i, e := range all {
		if i == 0 || all[i-1].Term != e.Term {
			runs = append(runs, raft.Run{First: e.Index, Term: e.Term})
		}
	}
	return runs
}

// checkStart sees that what Open tells the core is what is in the log.
func checkStart(t testing.TB, l *entrylog.Log, r *entrylog.Recovery) {
	t.Helper()
	all := contents(t, l)
	if r.Last != l.Last() || r.Base.Index != l.First()-1 || fmt.Sprint(r.Runs) != fmt.Sprint(runsOf(all)) {
		t.Fatalf("start %+v, but the log has %d to %d in runs %v", r.Start, l.First(), l.Last(), runsOf(all))
	}
	if _, ok := raft.NewLineage(r.Base, r.Runs, r.Last); !ok {
		t.Fatalf("no lineage: %+v", r.Start)
	}
}

func cutTo(last raft.Index, term raft.Term) consensus.Cut {
	return consensus.Cut{Last: last, Term: term}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

// powerCut is what a loss of all that was not synced leaves, killed what the end of the process does.
func powerCut(fsys *memfs.FS) *memfs.FS { return fsys.CrashClone(memfs.OnlySynced) }
func killed(fsys *memfs.FS) *memfs.FS   { return fsys.CrashClone(memfs.All) }

// panics is a testing.TB for where a failure is an answer.
type panics struct{ testing.TB }

func (panics) Helper()                   {}
func (panics) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (panics) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
