package registry

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newDisk(t testing.TB) *memfs.FS {
	t.Helper()
	f := memfs.New()
	must(t, f.MkdirAll("/c", 0o755))
	must(t, f.SyncDir("/"))
	return f
}

func open(t testing.TB, f *memfs.FS) *Registry {
	t.Helper()
	r, err := Open(f, "/c", Options{})
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// reopen opens what a crash leaves.
func reopen(t testing.TB, r *Registry, keep memfs.Keep) *Registry {
	t.Helper()
	f, ok := r.fsys.(*memfs.FS)
	if !ok {
		t.Fatal("not on memfs")
	}
	return open(t, f.CrashClone(keep))
}

// stop does what Run does at its end, and closes.
func stop(t testing.TB, r *Registry) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, r.Run(ctx))
	must(t, r.Close())
}

func poke(t testing.TB, f *memfs.FS, name, data string) {
	t.Helper()
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	must(t, err)
	_, err = file.WriteAt([]byte(data), 0)
	must(t, errors.Join(err, file.Close()))
}

func putTopics(t testing.TB, r *Registry, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := r.PutTopic(t.Context(), entry.NewTopic(name), Condition{})
		must(t, err)
	}
}

func at(offset int64) table.Commit { return table.Commit{Topic: "T", Group: "G", Offset: offset} }

func commit(t testing.TB, r *Registry, commits ...table.Commit) {
	t.Helper()
	_, err := r.CommitOffsets(t.Context(), commits, true)
	must(t, err)
}

func offsetOf(r *Registry) int64 {
	q, _ := r.Offset("T", "G", 0)
	return q.Offset
}

// pull is a slave's round: it asks, puts the chunks together, and takes them.
func pull(t testing.TB, slave, master *Registry, kind entry.Kind) (table.Report, error) {
	t.Helper()
	own := slave.Snapshot(kind)
	reply, err := master.Fetch(kind, own.Version(), own.Sum())
	if err != nil || reply.Unchanged {
		return table.Report{}, err
	}
	d, err := assemble(kind, slices.Collect(reply.Chunks))
	if err != nil {
		return table.Report{}, err
	}
	if d.Full != reply.Full || d.To != reply.Version || d.Sum != reply.Sum {
		t.Errorf("the reply says %+v, the delta %v %v", reply, d.Full, d.To)
	}
	return slave.Follow(t.Context(), d, table.FollowOptions{})
}

func assemble(kind entry.Kind, chunks [][]byte) (*table.Delta, error) {
	a := chunk.NewAssembly(kind)
	for _, c := range chunks {
		if err := a.Add(c); err != nil {
			return nil, err
		}
	}
	return a.Delta()
}

func same(t testing.TB, a, b *Registry) bool {
	t.Helper()
	for _, kind := range entry.Kinds() {
		x, y := a.Snapshot(kind), b.Snapshot(kind)
		for d := range table.Diff(x, y) {
			t.Logf("%v: %+v", kind, d)
			return false
		}
		if x.Sum() != y.Sum() || x.Version() != y.Version() {
			t.Logf("%v: %v and %v", kind, x.Version(), y.Version())
			return false
		}
	}
	return true
}
