package entrylog_test

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // what the archive has
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

const golden = "dledger-0.3.1.2"

// line is one line of dump.jsonl: an entry as Java's DLedger reads it.
type line struct {
	Index, Term, Pos                        int64
	Magic, Size, Channel, ChainCrc, BodyCrc int
	BodyLength                              int
	BodySHA1                                string
}

func dump(t *testing.T, dir string) []line {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "dump.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []line
	for s := bufio.NewScanner(f); s.Scan(); {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// files reads all files of a node but Tandem's own.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || strings.HasPrefix(name, "tandem/") {
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func differences(a, b map[string]string) string {
	var out []string
	for name := range a {
		if have, ok := b[name]; !ok || have != a[name] {
			out = append(out, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// TestGoldenStoresAreReadAsJavaReadsThem opens the three stores that DLedger wrote, compares every entry with what its
// own store reads, and closes them: no byte is another.
func TestGoldenStoresAreReadAsJavaReadsThem(t *testing.T) {
	dir := testkit.Golden(t, golden)
	want := dump(t, dir)
	votes := map[string]raft.NodeID{"n0": "n0", "n1": "n0", "n2": "n2"}
	for node, vote := range votes {
		root := filepath.Join(dir, "dledger-"+node)
		before := files(t, root)
		l, r, err := entrylog.Open(vfs.OS(), root, entrylog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if hard := (raft.HardState{Term: 2, Vote: vote, Voter: true}); !r.Java || r.HardState != hard || r.Last != 599 || r.Committed != 599 || r.CutBytes {
			t.Errorf("%s: recovered %+v", node, r)
		}
		compare(t, l, want)
		if data, index := l.FileSizes(); data != 65536 || index != 32768 {
			t.Errorf("%s: file sizes %d, %d", node, data, index)
		}
		closeLog(t, l)
		if d := differences(before, files(t, root)); d != "" {
			t.Errorf("%s: opened and closed, differs in %s", node, d)
		}
	}
}

func compare(t *testing.T, l *entrylog.Log, want []line) {
	t.Helper()
	if l.First() != 0 || l.Last() != raft.Index(len(want)-1) {
		t.Fatalf("entries %d to %d, want %d", l.First(), l.Last(), len(want))
	}
	for i, w := range want {
		b, n, release, err := l.View(raft.Index(i), 1, 1)
		if err != nil || n != 1 {
			t.Fatalf("entry %d: %d, %v", i, n, err)
		}
		h, err := entry.Read(b)
		sum := sha1.Sum(h.Body(b)) //nolint:gosec // what the archive has
		release()
		got := line{
			Index: int64(h.Index), Term: int64(h.Term), Pos: h.Pos, Magic: 1, Size: h.Size, Channel: int(h.Channel),
			BodyCrc: int(h.BodyCRC), BodyLength: h.Size - entry.HeaderSize, BodySHA1: hex.EncodeToString(sum[:]),
		}
		if err != nil || got != w || h.Sealed {
			t.Fatalf("entry %d: %+v, %v; Java reads %+v", i, got, err, w)
		}
	}
}

// TestGoldenStoreGoesOn appends to a store that DLedger wrote: what it wrote stays as it is, the folder still looks like
// one of its own, and the next Open reads only what is new.
func TestGoldenStoreGoesOn(t *testing.T) {
	dir := testkit.Golden(t, golden)
	root := filepath.Join(dir, "dledger-n1")
	before := files(t, root)
	l, _, err := entrylog.Open(vfs.OS(), root, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SaveHard(raft.HardState{Term: 3, Vote: "n1", Voter: true}); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, noOp(600, 3))
	for i := range 60 {
		appendTo(t, l, made(raft.Index(601+10*i), 10, 3))
	}
	sync(t, l)
	if err := l.Checkpoint(1100); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	after := files(t, root)
	if after["currterm"] != "voteLeader=n1\ncurrTerm=3\n" || after["checkpoint"] != "committedIndex=1100\nendIndex=1200\n" {
		t.Errorf("%q, %q", after["currterm"], after["checkpoint"])
	}
	for i := range int64(7) { // the eighth file had room
		if name := fmt.Sprintf("data/%020d", i*65536); after[name] != before[name] {
			t.Errorf("%s has changed", name)
		}
	}
	for name, data := range after {
		if size := map[string]int{"data": 65536, "index": 32768}[filepath.Dir(name)]; size != 0 && len(data) != size {
			t.Errorf("%s has %d bytes", name, len(data))
		}
	}
	l, r, err := entrylog.Open(vfs.OS(), root, entrylog.Options{})
	if err != nil || r.Java || !r.Clean || r.Scanned != 0 || fmt.Sprint(r.Runs) != "[{0 1} {200 2} {600 3}]" {
		t.Fatalf("%+v, %v", r, err)
	}
	all := contents(t, l)
	if len(all) != 1201 || all[600].Kind != raft.NoOp || !bytes.Equal(all[1000].Payload[entry.HeaderSize:], body(1000, 3)) {
		t.Errorf("%d entries", len(all))
	}
	closeLog(t, l)
}
