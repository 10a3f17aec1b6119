package main

import (
	"go/ast"
	"go/parser"
	gofmt "go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// Every metric says what it is, in its HELP.
func TestEveryMetricIsDescribed(t *testing.T) {
	t.Parallel()
	nodes := group(t, syncMaster, 1)
	for _, n := range nodes {
		n.start()
	}
	master, s := nodes[0].awaitOpen(), nodes[1]
	all := master.putSome(400)
	for _, n := range nodes {
		n.awaitEnd(master.end64())
	}
	if _, err := master.message().Get(t.Context(), &storagev1.GetRequest{Topic: "TopicTest", MaxMessages: 1}); err != nil {
		t.Fatal(err)
	}
	s.rot(all)
	if _, _, err := s.scrub(&storagev1.ScrubRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.repair(&storagev1.RepairRequest{Source: master.cfg.Listen}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		help := map[string]bool{}
		for line := range strings.Lines(n.metrics()) {
			fields := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "# HELP "):
				help[fields[2]] = len(fields) > 3
			case strings.HasPrefix(line, "# TYPE "):
				seen[fields[2]] = true
				if !help[fields[2]] {
					t.Errorf("%s is not described", fields[2])
				}
			}
		}
	}
	for _, name := range []string{
		"storage_put_messages_total", "storage_get_messages_total", "storage_log_written_bytes", "storage_role_open", "storage_follow_answers_total",
		"storage_scrub_damages_total", "storage_repair_ranges_total", "storage_damage_known", "storage_dispatch_messages_total",
		"storage_replication_slave_bytes_total", "storage_queue_units_total", "rpc_server_call_duration_seconds",
	} {
		if !seen[name] {
			t.Errorf("no %s", name)
		}
	}
}

// Those that a test run does not come across are found in the sources: each has a unit and a description.
func TestEveryInstrumentIsDescribed(t *testing.T) {
	root := testkit.ModuleRoot(t)
	kinds := regexp.MustCompile("^(Int64|Float64)(Observable)?(Counter|UpDownCounter|Gauge|Histogram)$")
	found := 0
	walk := func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, 0)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && len(call.Args) > 0 && kinds.MatchString(sel.Sel.Name) {
				found++
				var b strings.Builder
				if err := gofmt.Fprint(&b, fset, call); err != nil {
					t.Error(err)
				}
				if !strings.Contains(b.String(), "WithDescription(") || !strings.Contains(b.String(), "WithUnit(") {
					t.Errorf("%s has no unit or no description: %s", fset.Position(call.Pos()), b.String())
				}
			}
			return true
		})
		return err
	}
	for _, dir := range []string{"pkg", "services/storage"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), walk); err != nil {
			t.Fatal(err)
		}
	}
	if found < 20 {
		t.Errorf("found only %d", found)
	}
}
