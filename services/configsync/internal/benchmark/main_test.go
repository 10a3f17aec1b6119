package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommands: each command works on a small table, wrong ones are refused, and nothing is left behind.
func TestCommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tables")
	good := []string{
		"open topics=2500 dir=" + dir, "check count=5", "delta count=5", "fetch count=5", "empty count=5", "empty-stream count=5", "full count=2",
		"protobuf count=2", "json count=2", "own-json count=2", "spent",
	}
	bad := []string{"open topics=1 dir=" + dir, "check", "check count=0", "nonsense count=1"}
	var out bytes.Buffer
	if err := run(t.Context(), strings.NewReader(strings.Join(append(good, bad...), "\n")), &out); err != nil {
		t.Fatal(err)
	}
	answers := json.NewDecoder(&out)
	for i, line := range append(good, bad...) {
		var a answer
		if err := answers.Decode(&a); err != nil {
			t.Fatal(err)
		}
		if refused := a.Error != ""; refused != (i >= len(good)) {
			t.Errorf("%s: %v", line, a)
		}
		if strings.Contains(line, "count=") && i < len(good) && a.Number["p50 us"] <= 0 {
			t.Errorf("%s took no time: %v", line, a)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}
