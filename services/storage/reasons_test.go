package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/storage/internal/role"
)

// shown are the packages whose errors Status may show as a reason.
var shown = []string{
	"services/storage/internal/role", "services/storage/internal/replication", "services/storage/internal/epoch",
	"services/storage/internal/commitlog", "pkg/vfs", "pkg/mappedfile", "pkg/durable",
}

// reasons finds in the sources what may become a reason: errors made with errdefs.New, and the calls that take a reason and a
// remedy by themselves.
type reasons struct {
	consts map[string]string // by name, without package
	all    map[string]bool   // by reason: it has a remedy of its own
	bare   []string          // calls with a reason and an empty remedy
}

// takes are functions with a reason and a remedy as their last arguments.
var takes = map[string]bool{"refused": true, "refuse": true, "refusalOf": true, "waits": true, "notOpen": true, "setOpen": true}

func (r *reasons) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.Ident:
		return r.consts[e.Name]
	case *ast.SelectorExpr:
		return r.consts[e.Sel.Name]
	}
	return ""
}

func (r *reasons) visit(fset *token.FileSet, f *ast.File) {
	with := map[ast.Expr]bool{} // what WithRemedy is called on
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := ""
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			name = fun.Name
		case *ast.SelectorExpr:
			if name = fun.Sel.Name; name == "WithRemedy" {
				with[fun.X] = true
			}
			if x, ok := fun.X.(*ast.Ident); ok && x.Name == "errdefs" && name == "New" {
				r.all[r.text(call.Args[1])] = with[call] || r.all[r.text(call.Args[1])]
			}
		}
		if lit, ok := call.Args[max(0, len(call.Args)-1):], takes[name]; ok && len(call.Args) > 1 {
			if b, ok := lit[0].(*ast.BasicLit); ok && b.Value == `""` && r.text(call.Args[len(call.Args)-2]) != "" {
				r.bare = append(r.bare, fset.Position(call.Pos()).String())
			}
		}
		return true
	})
}

// TestEveryReasonHasARemedy walks all reasons that Status may show.
func TestEveryReasonHasARemedy(t *testing.T) {
	r := &reasons{consts: map[string]string{}, all: map[string]bool{}}
	fset := token.NewFileSet()
	files := shownSources(t, fset)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == len(spec.Names) {
				for i, name := range spec.Names {
					if lit, ok := spec.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						r.consts[name.Name] = r.text(lit)
					}
				}
			}
			return true
		})
	}
	for _, f := range files {
		r.visit(fset, f)
	}
	if len(r.all) < 40 || !r.all["NO_OPEN_MASTER"] {
		t.Fatalf("found only %v", r.all)
	}
	for reason, own := range r.all {
		if reason != "" && !own && role.Remedy(reason) == "" { // "": passed on, with the remedy
			t.Errorf("reason %q has no remedy", reason)
		}
	}
	for _, at := range r.bare {
		t.Errorf("%s: a reason without a remedy", at)
	}
}

// shownSources parses what is shown.
func shownSources(t *testing.T, fset *token.FileSet) []*ast.File {
	t.Helper()
	root := testkit.ModuleRoot(t)
	var files []*ast.File
	for _, dir := range shown {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "memfs") {
				return err
			}
			f, err := parser.ParseFile(fset, name, nil, 0)
			files = append(files, f)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

var orders = regexp.MustCompile("`tandemctl (promote|demote|scrub|repair)(`| [^N%][^`]*`)")

// TestRemediesAreWholeCommands: an order to a node names it.
func TestRemediesAreWholeCommands(t *testing.T) {
	fset := token.NewFileSet()
	seen := 0
	for _, f := range shownSources(t, fset) {
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				seen += strings.Count(text, "`tandemctl ")
				if bad := orders.FindString(text); bad != "" {
					t.Errorf("%s: %s names no node", fset.Position(lit.Pos()), bad)
				}
			}
			return true
		})
	}
	if seen < 5 {
		t.Errorf("only %d commands found", seen)
	}
}
