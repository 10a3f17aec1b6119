package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// runs runs the binary with args and returns what it writes and its exit code.
func (n *node) runs(args ...string) (string, int) {
	n.t.Helper()
	cmd := servicetest.Command(childVar, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	servicetest.Fork(n.t, cmd)
	if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
		n.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func TestExitCodesOfCheck(t *testing.T) {
	t.Parallel()
	n := alone(t).start().awaitOpen()
	n.fill(20)
	dir := n.cfg.StorePathRootDir
	expect := func(code int, text string, args ...string) {
		t.Helper()
		if out, got := n.runs(append([]string{"check"}, args...)...); got != code || !strings.Contains(out, text) {
			t.Errorf("check %v: exit code %d, want %d:\n%s", args, got, code, out)
		}
	}
	expect(3, "in use", dir)
	n.halt()
	expect(0, "SOUND", dir)
	expect(0, "usage: storage", "-h")
	expect(2, "usage: storage", "-x")
	expect(2, "holds no store", t.TempDir())
	if err := os.Truncate(filepath.Join(dir, "commitlog", mappedfile.Name(0)), 5000); err != nil {
		t.Fatal(err)
	}
	expect(1, "bring them back", dir)
}

// TestAFileThatWasCutShort: check tells it once, and no start takes its length for that of the log's files, whatever the config says.
func TestAFileThatWasCutShort(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files  int
		forget bool // the lineage is one of the first version, which has no file size
		size   int64
	}{
		"the only one":                 {1, false, 4 << 10},
		"the only one, an old lineage": {1, true, 5000},
		"the last":                     {2, true, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := alone(t).start().awaitOpen()
			n.fill(20)
			for n.end64() < int64(tc.files-1)*256<<10 {
				n.fill(20)
			}
			n.halt()
			file := filepath.Join(n.cfg.StorePathRootDir, "commitlog", mappedfile.Name(int64(tc.files-1)*256<<10))
			if err := os.Truncate(file, tc.size); err != nil {
				t.Fatal(err)
			}
			if tc.forget {
				n.forgetFileSize()
			}
			out, err := n.check()
			if !errors.Is(err, errDamaged) || strings.Count(out, "was cut short: it has") != 1 || strings.Count(out, "\n") > 6 {
				t.Errorf("check: %v\n%s", err, out)
			}
			for _, change := range []func(*Config){small, asOnDisk} {
				n.change(change)
				if err := n.tryStart(); err == nil || !strings.Contains(err.Error(), "was cut short") || !strings.Contains(err.Error(), "bring the file back") {
					t.Fatalf("start: %v", err)
				}
			}
			if info, err := os.Stat(file); err != nil || info.Size() != tc.size {
				t.Errorf("the file was changed: %v, %v", info, err)
			}
		})
	}
}

// forgetFileSize takes the file size out of the lineage.
func (n *node) forgetFileSize() {
	n.t.Helper()
	name := filepath.Join(n.cfg.StorePathRootDir, "tandem", "lineage")
	data, _, err := durable.ReadChecked(n.fs, name)
	var l epoch.Lineage
	if err == nil {
		err = l.UnmarshalText(data)
	}
	if l.FileSize == 0 {
		n.t.Error("the lineage does not know the file size")
	}
	l.FileSize = 0
	if err == nil {
		data, err = l.MarshalText()
	}
	if err == nil {
		err = durable.WriteChecked(n.fs, name, data)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}
