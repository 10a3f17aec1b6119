package disk

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
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
	must(t, f.MkdirAll("/c/tandem", 0o755))
	must(t, f.SyncDir("/"))
	must(t, f.SyncDir("/c"))
	return f
}

func poke(t testing.TB, f vfs.FS, name string, data []byte) {
	t.Helper()
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	must(t, err)
	_, err = file.WriteAt(data, 0)
	must(t, errors.Join(err, file.Close()))
}

// node is a disk with what it should hold.
type node struct {
	*Disk
	fs    *memfs.FS
	table *table.Table
	n     int64
}

func start(t testing.TB, f *memfs.FS, kind entry.Kind) *node {
	t.Helper()
	d, l, err := Open(f, "/c", kind)
	must(t, err)
	must(t, l.Broken)
	return &node{Disk: d, fs: f, table: l.Table, n: l.Table.Version().Counter}
}

// next is a table after a change of any sort.
func (n *node) next(t testing.TB) *table.Table {
	t.Helper()
	n.n++
	e := n.table.Edit(1, n.n)
	switch kind := n.table.Kind(); kind {
	case entry.Topics:
		must(t, e.Put(entry.NewTopic(fmt.Sprint("t", n.n))))
		e.Delete(fmt.Sprint("t", n.n-2))
	case entry.Groups:
		must(t, e.Put(entry.NewGroup(fmt.Sprint("g", n.n))))
	case entry.ConsumerOffsets:
		epoch, err := e.NewEpoch()
		must(t, err)
		e.Commit(table.Commit{Topic: "T", Group: "G", Queue: int32(n.n % 3), Offset: n.n})
		if n.n%3 == 0 {
			e.ResetAll([]table.Reset{{Topic: "T", Group: "H", Offset: n.n%2 - 1}}, epoch)
		}
	case entry.DelayOffsets:
		_, err := e.CommitDelay(1, n.n)
		must(t, err)
		must(t, e.ResetDelay(2, n.n%2-1, uint32(n.n)))
	}
	next, d := e.Done()
	if d == nil {
		t.Fatal("no change")
	}
	return next
}

func (n *node) change(t testing.TB) {
	t.Helper()
	next := n.next(t)
	must(t, n.Record(n.table, next, false))
	n.table = next
}

func (n *node) save(t testing.TB) {
	t.Helper()
	must(t, n.Begin(n.table))
	must(t, n.WriteTemp(jsonfile.AppendFile(nil, n.table)))
	must(t, n.End(n.table))
}

func is(a, b *table.Table) bool { return a.Version() == b.Version() && a.Sum() == b.Sum() }

func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	must(t, err)
	_, block, _ := strings.Cut(string(doc), "```hex\n")
	block, _, _ = strings.Cut(block, "```")
	want, err := hex.DecodeString(strings.Join(strings.Fields(block), ""))
	must(t, err)
	b := table.NewBuilder(entry.ConsumerOffsets)
	must(t, b.Add(table.Entry{Key: "T@G", Change: 2, Value: entry.NewOffsets(
		entry.QueueOffset{Offset: 45}, entry.QueueOffset{Queue: 1, Epoch: 2, Offset: entry.NoOffset})}))
	must(t, b.Add(table.Entry{Key: "U@G", Change: 3, Value: entry.NewOffsets(entry.QueueOffset{Offset: 5})}))
	own := b.Table(entry.Version{State: 1, Counter: 3, Timestamp: 1000}, table.FormFull, nil)
	if got := appendBase(nil, own); !slices.Equal(got, want) {
		t.Errorf("the base is\n%s", hex.Dump(got))
	}
	parsed, err := parseBase(entry.ConsumerOffsets, want)
	if err != nil || parsed.version != own.Version() || parsed.sum != own.Sum() || len(parsed.epochs.Entries) != 1 {
		t.Errorf("%+v, %v", parsed, err)
	}
}
