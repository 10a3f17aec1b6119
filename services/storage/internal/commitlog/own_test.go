package commitlog_test

import (
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// TestOwnFromIsWhereOnlyAppendWrote: what was there before Open, or came by AppendRaw, is not this process's.
func TestOwnFromIsWhereOnlyAppendWrote(t *testing.T) {
	fsys := memfs.New()
	l, _ := open(t, fsys, options())
	ends := fill(t, l, 10)
	want := func(what string, own int64) {
		t.Helper()
		if got := l.OwnFrom(); got != own {
			t.Errorf("%s: own from %d, want %d", what, got, own)
		}
	}
	want("appended", 0)
	raw := contents(t, l)
	closeLog(t, l, true)
	l, _ = open(t, fsys, options())
	defer closeLog(t, l, true)
	want("opened", l.End())
	if err := l.Truncate(ends[3]); err != nil {
		t.Fatal(err)
	}
	want("cut", ends[3])
	put(t, l, record(1, 10))
	want("appended behind the cut", ends[3])
	if err := l.Truncate(ends[3]); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendRaw(ends[3], [][]byte{raw[ends[3]:ends[6]], raw[ends[6]:ends[8]]}); err != nil {
		t.Fatal(err)
	}
	want("received", ends[8])
	put(t, l, record(2, 10))
	want("appended behind what was received", ends[8])
}
