package main

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// example is that of services/ledger/internal/entrylog/FORMAT.md: two entries, and the record that closes a file.
const example = `00000001 00000035 0000000000000000 0000000000000001 0000000000000000 00000000 699a94d9 3610a686 00000005 68656c6c6f
00000001 00000030 0000000000000001 0000000000000002 0000000000000035 54444d01 74b888cc 00000000 00000000
ffffffff 00000064`

// next begins the second file.
const next = `00000001 00000031 0000000000000002 0000000000000002 0000000000000065 00000007 00000000 8cdc1683 00000001 78`

func writeData(t *testing.T, files ...string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, text := range files {
		b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(folder, "data", strings.Repeat("0", 19)+string(rune('0'+i)))
		if err := os.WriteFile(name, append(b, make([]byte, 92)...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestReadEntries(t *testing.T) {
	all, err := readEntries(writeData(t, example, next))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 {
		t.Fatalf("%d entries, not 3", len(all))
	}
	if e := all[0]; e.index != 0 || e.term != 1 || string(e.body) != "hello" {
		t.Errorf("the first entry is %+v", e)
	}
	if e := all[1]; e.index != 1 || e.term != 2 || e.channel != 0x54444d01 || len(e.body) != 0 {
		t.Errorf("the no-op is %+v", e)
	}
	if e := all[2]; e.index != 2 || e.channel != 7 || string(e.body) != "x" {
		t.Errorf("the entry of the second file is %+v", e)
	}
}

// TestReadEntriesEnds: at what does not follow, does not fit, or is not what was written.
func TestReadEntriesEnds(t *testing.T) {
	for what, c := range map[string]struct {
		text string
		want int
	}{
		"nothing":       {"", 0},
		"another index": {next, 0},
		"length":        {strings.Replace(example, "00000005 68", "000000ff 68", 1), 0},
		"body":          {strings.Replace(example, "68656c6c6f", "68656c0000", 1), 0},
		"magic":         {strings.Replace(example, "00000001 00000030", "00000000 00000030", 1), 1},
	} {
		all, err := readEntries(writeData(t, c.text))
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != c.want {
			t.Errorf("%s: %d entries, not %d", what, len(all), c.want)
		}
	}
}

// TestSumOf: the checksum sees what replicas have in common, each part of it.
func TestSumOf(t *testing.T) {
	base := []entry{{index: 0, term: 1, channel: 2, body: []byte("ab")}}
	for what, other := range map[string][]entry{
		"index":   {{index: 1, term: 1, channel: 2, body: []byte("ab")}},
		"term":    {{index: 0, term: 2, channel: 2, body: []byte("ab")}},
		"channel": {{index: 0, term: 1, channel: 3, body: []byte("ab")}},
		"body":    {{index: 0, term: 1, channel: 2, body: []byte("ac")}},
		"length":  {{index: 0, term: 1, channel: 2, body: []byte("a")}},
		"nothing": {},
	} {
		if string(sumOf(base)) == string(sumOf(other)) {
			t.Errorf("another %s has the same sum", what)
		}
	}
}
