package archtest

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tree is the module that this file is in.
func tree() fs.FS { return os.DirFS("../../..") }

func loadTree(t *testing.T) []*pack {
	t.Helper()
	packs, err := load(tree())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(packs, func(p *pack) bool { return p.path == "pkg/internal/archtest" }) {
		t.Fatal("this is not the module")
	}
	return packs
}

func report(t *testing.T, bad []string) {
	t.Helper()
	for _, b := range bad {
		t.Error(b)
	}
}

func TestImports(t *testing.T)  { report(t, checkImports(loadTree(t))) }
func TestPurity(t *testing.T)   { report(t, checkPure(loadTree(t))) }
func TestSizes(t *testing.T)    { report(t, checkSizes(loadTree(t))) }
func TestDocs(t *testing.T)     { report(t, checkDocs(loadTree(t))) }
func TestTopLevel(t *testing.T) { bad, err := checkTop(tree()); report(t, bad); fail(t, err) }

func fail(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTable finds mistakes in the table itself: a word that stands for no package, a pure package without a line.
func TestTable(t *testing.T) {
	rules := table()
	known := func(p string) bool { _, ok := rules[p]; return ok }
	for from, rule := range rules {
		for _, word := range strings.Fields(rule) {
			if slices.Contains([]string{anything, anyPkg, own, gen}, word) {
				continue
			}
			if !known("pkg/"+word) && !known(serviceOf(from)+"/internal/"+word) && !known(harnesses+"/"+word) {
				t.Errorf("%s: %q is no package of the table", from, word)
			}
		}
	}
	for _, p := range slices.Concat(pure(), testOnly(), unboundPackages()) {
		if !known(p) {
			t.Errorf("%s has no line in the table", p)
		}
	}
}

// TestRulesBite breaks each rule once in a made-up module.
func TestRulesBite(t *testing.T) {
	imports := func(names ...string) string {
		var b strings.Builder
		for _, n := range names {
			b.WriteString("import _ \"" + n + "\"\n")
		}
		return b.String()
	}
	in := func(p string) string { return module + "/" + p }
	const (
		message = "services/storage/internal/message"
		epoch   = "services/storage/internal/epoch"
	)
	for _, tc := range []struct {
		name, file, text string
		check            func([]*pack) []string
		want             string // empty: nothing to complain about
	}{
		{"unknown package", "pkg/extra/a.go", "package extra\n", checkImports, "no line in the table"},
		{"not allowed", "pkg/durable/a.go", "package durable\n" + imports(in("pkg/watermark")), checkImports, "does not allow"},
		{"allowed", "pkg/durable/a.go", "package durable\n" + imports(in("pkg/vfs"), in("pkg/errdefs")), checkImports, ""},
		{"errdefs imports", "pkg/errdefs/a.go", "package errdefs\n" + imports(in("pkg/watermark")), checkImports, "does not allow"},
		{"test package", "pkg/durable/a.go", "package durable\n" + imports(in("pkg/vfs/memfs")), checkImports, "does not allow"},
		{"test package in main", "services/storage/a.go", "package main\n" + imports(in("pkg/testkit")), checkImports, "does not allow"},
		{"test package in a test", "pkg/durable/a_test.go", "package durable\n" + imports(in("pkg/testkit")), checkImports, ""},
		{"own service", "services/storage/internal/rpc/a.go", "package rpc\n" + imports(in("services/storage/internal/store")), checkImports, ""},
		{"other service", "services/ledger/a.go", "package main\n" + imports(in("services/storage/internal/store")), checkImports, "another service"},
		{"other service in a test", "services/ledger/a_test.go", "package main\n" + imports(in("services/storage/internal/store")), checkImports, "another service"},
		{"pkg on a service", "pkg/testkit/a.go", "package testkit\n" + imports(in("services/storage/internal/store")), checkImports, "another service"},
		{"generated code", "gen/tandem/x.go", "package x\n" + imports(in("pkg/grpcx")), checkImports, ""},
		{"nested module", "deploy/e2e/peers/a.go", "package main\n" + imports(in("pkg/testkit")), checkImports, ""},
		{"net in pure", message + "/a.go", "package message\n" + imports("net"), checkPure, "pure"},
		{"below net in pure", message + "/a.go", "package message\n" + imports("net/http"), checkPure, "pure"},
		{"netip in pure", message + "/a.go", "package message\n" + imports("net/netip", "encoding/binary"), checkPure, ""},
		{"slog in pure", message + "/a.go", "package message\n" + imports("log/slog"), checkPure, "pure"},
		{"sync in pure", message + "/a.go", "package message\n" + imports("sync/atomic"), checkPure, "pure"},
		{"another module in pure", message + "/a.go", "package message\n" + imports("go.opentelemetry.io/otel/metric"), checkPure, "pure"},
		{"own module in pure", message + "/a.go", "package message\n" + imports(in("pkg/errdefs")), checkPure, ""},
		{"clock in a test of pure", message + "/a_test.go", "package message\n" + imports("time"), checkPure, ""},
		{"clock in a decision", epoch + "/a.go", "package epoch\n" + imports("time"), checkPure, "pure"},
		{"os beside durable", epoch + "/a.go", "package epoch\n" + imports("os", in("pkg/durable")), checkPure, ""},
		{"clock elsewhere", "pkg/durable/a.go", "package durable\n" + imports("time"), checkPure, ""},
		{"long file", "pkg/vfs/a.go", "package vfs\n" + strings.Repeat("\n", maxFile), checkSizes, "vfs/a.go has 501 lines"},
		{"full file", "pkg/vfs/a.go", "package vfs\n" + strings.Repeat("\n", maxFile-1), checkSizes, ""},
		{"long test", "pkg/vfs/a_test.go", "package vfs\n" + strings.Repeat("\n", 2*maxPackage), checkSizes, ""},
		{"long generated file", "gen/a.go", "package gen\n" + strings.Repeat("\n", 2*maxPackage), checkSizes, ""},
		{"long function", "pkg/vfs/a.go", "package vfs\nfunc f() {\n" + strings.Repeat("\n", maxFunction-1) + "}\n", checkSizes, "function f has 61 lines"},
		{"full function", "pkg/vfs/a.go", "package vfs\nfunc f() {\n" + strings.Repeat("\n", maxFunction-2) + "}\n", checkSizes, ""},
		{"no doc", "pkg/vfs/a.go", "package vfs\n", checkDocs, "no doc.go"},
		{"doc elsewhere", "pkg/vfs/a.go", "// Package vfs is.\npackage vfs\n", checkDocs, "no doc.go"},
		{"doc", "pkg/vfs/doc.go", "// Package vfs is.\npackage vfs\n", checkDocs, ""},
		{"doc of another", "pkg/vfs/doc.go", "// Package fs is.\npackage vfs\n", checkDocs, "no doc.go"},
		{"command without", "services/storage/main.go", "package main\n", checkDocs, "no doc.go"},
		{"command", "services/storage/main.go", "// Storage is.\npackage main\n", checkDocs, ""},
		{"vague name", "pkg/util/doc.go", "// Package util is.\npackage util\n", checkDocs, "says nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			packs, err := load(fstest.MapFS{
				tc.file:                   {Data: []byte(tc.text)},
				"deploy/e2e/peers/go.mod": {Data: []byte("module peers\n")},
				"pkg/vfs/testdata/bad.go": {Data: []byte("not Go")},
			})
			fail(t, err)
			got := strings.Join(tc.check(packs), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestALongPackage(t *testing.T) {
	half := &fstest.MapFile{Data: []byte("package x\n" + strings.Repeat("\n", maxFile-1))}
	for dir, want := range map[string]string{"pkg/vfs": "pkg/vfs has 2000 lines", "services/tandemctl": ""} {
		packs, err := load(fstest.MapFS{dir + "/a.go": half, dir + "/b.go": half, dir + "/c.go": half, dir + "/d.go": half})
		fail(t, err)
		if got := strings.Join(checkSizes(packs), "\n"); got != want && !strings.HasPrefix(got, want+",") {
			t.Errorf("%s: %q", dir, got)
		}
	}
}

func TestTopLevelBites(t *testing.T) {
	top := func(change func(m fstest.MapFS)) string {
		m := fstest.MapFS{".git/HEAD": {}, "bin/storage": {}, "x.prof": {}}
		for _, name := range topLevel() {
			m[name] = &fstest.MapFile{}
		}
		m[".gitignore"] = &fstest.MapFile{Data: []byte("/bin/\n*.prof\n")}
		change(m)
		bad, err := checkTop(m)
		fail(t, err)
		return strings.Join(bad, "\n")
	}
	if got := top(func(fstest.MapFS) {}); got != "" {
		t.Errorf("the right one: %q", got)
	}
	if got := top(func(m fstest.MapFS) { m["notes.txt"] = &fstest.MapFile{} }); !strings.Contains(got, "has notes.txt") {
		t.Errorf("one more: %q", got)
	}
	if got := top(func(m fstest.MapFS) { delete(m, "LICENSE") }); !strings.Contains(got, "lacks LICENSE") {
		t.Errorf("one less: %q", got)
	}
}
