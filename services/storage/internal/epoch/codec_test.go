package epoch

import (
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

func golden() Lineage {
	return Lineage{
		Role: RoleSyncMaster, Epochs: List{{1, 0, 0xa1}, {4, 900, 0xc4}}, Promise: Promise{4, 0xc4}, Candidate: Promise{5, 0xd5},
		Unclean: true, Open: true, SyncFlush: true, Boot: `9f2c-"1"`, Held: 4096,
		Cluster: "c", BrokerName: "broker-a", FileSize: 1024,
	}
}

// blocks returns the fenced blocks of FORMAT.md.
func blocks(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i, part := range strings.Split(string(doc), "```\n") {
		if i%2 == 1 {
			out = append(out, part)
		}
	}
	return out
}

func TestFormatExample(t *testing.T) {
	text, err := golden().MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	b := blocks(t)
	if b[0] != string(text) {
		t.Errorf("FORMAT.md has\n%swritten is\n%s", b[0], text)
	}
	for i, part := range strings.Split(b[1], "...\n") {
		raw, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "").Replace(part))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && !strings.HasPrefix(string(text), string(raw)) || i == 1 && !strings.HasSuffix(string(text), string(raw)) {
			t.Errorf("hex of part %d is %q", i, raw)
		}
	}
	var l Lineage
	if err := l.UnmarshalText(text); err != nil || !reflect.DeepEqual(l, golden()) {
		t.Errorf("read back %+v, %v", l, err)
	}
}

func TestBadLineages(t *testing.T) {
	text, err := golden().MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	for _, tc := range []struct{ old, repl, line string }{
		{"lineage 2", "lineage 3", "1"},
		{"lineage 2", "lineage 1", "11"},
		{"cluster \"", "cluster ", "11"},
		{"file-size 1024", "file-size -1", ""},
		{"role sync-master", "role unset", "2"},
		{"role sync-master", "rule sync-master", "2"},
		{"promise 4", "promise x", "3"},
		{"empty false", "empty maybe", "5"},
		{"boot \"", "boot ", "9"},
		{"held 4096", "held", "10"},
		{"epoch 4 900", "epoch 4 900 1", "15"},
		{"epoch 4 900", "epic 4 900", "15"},
		{"end\n", "end\nmore\n", "17"},
		{"end\n", "", ""},
		{"held 4096", "held -1", ""},
		{"epoch 4 900", "epoch 1 900", ""},
		{"epoch 1 0", "epoch 1 901", ""},
		{"900 00000000000000c4", "900 0000000000000000", ""},
	} {
		var l Lineage
		err := l.UnmarshalText([]byte(strings.Replace(good, tc.old, tc.repl, 1)))
		if err == nil || !errors.Is(err, ErrBadLineage) && !errors.Is(err, ErrBadList) {
			t.Errorf("%q for %q: %v", tc.repl, tc.old, err)
			continue
		}
		if e := errdefs.As(err); tc.line != "" && e.Meta["line"] != tc.line {
			t.Errorf("%q for %q: %v, want line %s", tc.repl, tc.old, err, tc.line)
		}
		if l.Role != RoleUnset {
			t.Errorf("%q left %+v behind", tc.repl, l)
		}
	}
}

// TestTheFirstVersionIsRead: it lacks what names the store.
func TestTheFirstVersionIsRead(t *testing.T) {
	text, err := golden().MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	first := strings.NewReplacer("lineage 2", "lineage 1", "cluster \"c\"\n", "", "broker \"broker-a\"\n", "", "file-size 1024\n", "").Replace(string(text))
	want := golden()
	want.Cluster, want.BrokerName, want.FileSize = "", "", 0
	var l Lineage
	if err := l.UnmarshalText([]byte(first)); err != nil || !reflect.DeepEqual(l, want) {
		t.Errorf("read %+v, %v", l, err)
	}
}

func FuzzLineage(f *testing.F) {
	text, err := golden().MarshalText()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("lineage 1\nrole slave\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var l, again Lineage
		if l.UnmarshalText(b) != nil {
			return
		}
		text, err := l.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalText(text); err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("%+v became %+v, %v", l, again, err)
		}
	})
}

// TestCompareFindsTheByte compares logs that differ from one byte on, at every interesting place.
func TestCompareFindsTheByte(t *testing.T) {
	const from, to = 1000, 1000 + 3*compareStretch + 777
	for _, at := range []int64{
		from, from + 1, from + compareLeast - 1, from + compareLeast, from + compareStretch - 1, from + compareStretch, to - 1, to - 777, to,
	} {
		c := NewCompare(from, to)
		calls := 0
		for a, b, stretch, more := c.Next(); more; a, b, stretch, more = c.Next() {
			if calls++; calls > 40 {
				t.Fatalf("difference at %d: no end", at)
			}
			if b <= a || b > to || stretch < compareLeast || b-a > compareRound {
				t.Fatalf("asks for [%d, %d) in %d", a, b, stretch)
			}
			var mine, theirs []uint32
			for s := a; s < b; s += stretch {
				mine = append(mine, 7)
				theirs = append(theirs, 7)
				if min(b, s+stretch) > at {
					theirs[len(theirs)-1] = 8
				}
			}
			if err := c.Step(mine, theirs, b); err != nil {
				t.Fatal(err)
			}
		}
		if c.Equal() != at {
			t.Errorf("found %d, want %d", c.Equal(), at)
		}
	}
}

func TestCompareRefusesOtherSums(t *testing.T) {
	c := NewCompare(0, 10)
	for _, bad := range []struct {
		mine, theirs []uint32
		to           int64
	}{{[]uint32{1}, nil, 10}, {[]uint32{1}, []uint32{1, 2}, 10}, {[]uint32{1}, []uint32{1}, 9}, {nil, []uint32{1}, 10}} {
		if err := c.Step(bad.mine, bad.theirs, bad.to); !errors.Is(err, ErrBadSums) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := NewCompare(5, 5).Step(nil, nil, 5); !errors.Is(err, ErrBadSums) || NewCompare(5, 5).Equal() != 5 {
		t.Errorf("nothing to compare: %v", err)
	}
}
