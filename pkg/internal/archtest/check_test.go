package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// source is one Go file.
type source struct {
	name    string
	test    bool
	lines   int
	imports []string
	doc     string // package comment
	long    []string
}

// pack is one package with its path below the module root.
type pack struct {
	path, name string
	files      []source
}

func (p *pack) generated() bool { return under(p.path, "gen") }

// under reports whether p is dir or below it.
func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// load parses all packages of the module in tree, nested modules aside.
func load(tree fs.FS) ([]*pack, error) {
	packs := map[string]*pack{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(tree, name)
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		src, pkgName, err := parse(tree, name)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		p := packs[dir]
		if p == nil {
			p = &pack{path: dir}
			packs[dir] = p
		}
		if !src.test {
			p.name = pkgName
		}
		p.files = append(p.files, src)
		return nil
	})
	sorted := make([]*pack, 0, len(packs))
	for _, p := range packs {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b *pack) int { return strings.Compare(a.path, b.path) })
	return sorted, err
}

// enter skips what the go command skips too.
func enter(tree fs.FS, dir string) error {
	base := path.Base(dir)
	if dir == "." {
		return nil
	}
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := fs.Stat(tree, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func parse(tree fs.FS, name string) (source, string, error) {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return source{}, "", err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, "", err
	}
	src := source{
		name:  path.Base(name),
		test:  strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(text, []byte("\n")),
		doc:   file.Doc.Text(),
	}
	for _, i := range file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return source{}, "", err
		}
		src.imports = append(src.imports, p)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		fn, ok := n.(*ast.FuncDecl)
		if !ok {
			return true
		}
		from, to := fset.Position(fn.Pos()).Line, fset.Position(fn.End()).Line
		if to-from+1 > maxFunction {
			src.long = append(src.long, fmt.Sprintf("%s:%d: function %s has %d lines, more than %d",
				name, from, fn.Name.Name, to-from+1, maxFunction))
		}
		return false
	})
	return src, file.Name.Name, nil
}

// checkImports holds the packages against the table.
func checkImports(packs []*pack) []string {
	var bad []string
	rules := table()
	for _, p := range packs {
		if p.generated() {
			continue
		}
		rule, ok := rules[p.path]
		if !ok {
			bad = append(bad, p.path+": no line in the table of archtest says what it may import")
			continue
		}
		for _, f := range p.files {
			for _, i := range f.imports {
				target, inside := strings.CutPrefix(i, module+"/")
				if !inside {
					continue
				}
				if why := refuse(p.path, target, rule, f.test); why != "" {
					bad = append(bad, fmt.Sprintf("%s/%s imports %s: %s", p.path, f.name, target, why))
				}
			}
		}
	}
	return bad
}

// refuse says why a file of package from may not import target, or nothing.
func refuse(from, target, rule string, test bool) string {
	if s, t := serviceOf(from), serviceOf(target); t != "" && s != t {
		return "it belongs to another service"
	}
	if test || target == from || target == "pkg/errdefs" && !under(from, "pkg/errdefs") {
		return ""
	}
	for _, word := range strings.Fields(rule) {
		if allows(word, from, target) {
			return ""
		}
	}
	return "the table does not allow it"
}

func allows(word, from, target string) bool {
	switch word {
	case anything:
		return true
	case anyPkg:
		return under(target, "pkg") && !slices.Contains(testOnly(), target)
	case own:
		return serviceOf(from) != "" && serviceOf(from) == serviceOf(target)
	case gen:
		return under(target, "gen")
	}
	if s := serviceOf(from); s != "" && target == s+"/internal/"+word {
		return true
	}
	if under(from, harnesses) && target == harnesses+"/"+word {
		return true
	}
	return target == "pkg/"+word
}

// harnesses run whole binaries.
const harnesses = "deploy/e2e"

// serviceOf returns services/NAME, or nothing for a package outside of services.
func serviceOf(p string) string {
	parts := strings.Split(p, "/")
	if len(parts) < 2 || parts[0] != "services" {
		return ""
	}
	return "services/" + parts[1]
}

// checkPure holds the pure packages against the world.
func checkPure(packs []*pack) []string {
	var bad []string
	forbidden, except := impure()
	for _, p := range packs {
		if !slices.Contains(pure(), p.path) {
			continue
		}
		for _, f := range p.files {
			if f.test || slices.Contains(f.imports, module+"/pkg/durable") {
				continue
			}
			for _, i := range f.imports {
				world := i != except && slices.ContainsFunc(forbidden, func(dir string) bool { return under(i, dir) })
				first, _, _ := strings.Cut(i, "/")
				foreign := strings.Contains(first, ".") && !under(i, module)
				if world || foreign {
					bad = append(bad, fmt.Sprintf("%s/%s imports %s: the package is to be pure", p.path, f.name, i))
				}
			}
		}
	}
	return bad
}

// checkSizes holds files, functions and packages against their limits.
func checkSizes(packs []*pack) []string {
	var bad []string
	for _, p := range packs {
		if p.generated() {
			continue
		}
		total := 0
		for _, f := range p.files {
			if f.test {
				continue
			}
			total += f.lines
			if f.lines > maxFile {
				bad = append(bad, fmt.Sprintf("%s/%s has %d lines, more than %d", p.path, f.name, f.lines, maxFile))
			}
			bad = append(bad, f.long...)
		}
		if total > maxPackage && !slices.Contains(unboundPackages(), p.path) {
			bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d", p.path, total, maxPackage))
		}
	}
	return bad
}

// checkDocs wants a doc.go that says what the package is; a command may say it in main.go.
func checkDocs(packs []*pack) []string {
	var bad []string
	for _, p := range packs {
		if p.generated() {
			continue
		}
		if slices.Contains(vagueNames(), p.name) {
			bad = append(bad, fmt.Sprintf("%s: %q says nothing about what the package is for", p.path, p.name))
		}
		start := "Package " + p.name + " "
		if p.name == "main" {
			start = ""
		}
		ok := slices.ContainsFunc(p.files, func(f source) bool {
			return (f.name == "doc.go" || p.name == "main" && f.name == "main.go") && f.doc != "" && strings.HasPrefix(f.doc, start)
		})
		if !ok {
			bad = append(bad, fmt.Sprintf("%s has no doc.go with a comment that begins with %q", p.path, start))
		}
	}
	return bad
}

// checkTop wants the top level to be exactly what topLevel lists.
func checkTop(tree fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return nil, err
	}
	rules, err := fs.ReadFile(tree, ".gitignore")
	if err != nil {
		return nil, err
	}
	var bad []string
	missing := topLevel()
	for _, e := range entries {
		if i := slices.Index(missing, e.Name()); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		} else if e.Name() != ".git" && !ignored(string(rules), e.Name()) {
			bad = append(bad, "the top level has "+e.Name()+", which does not belong there")
		}
	}
	for _, name := range missing {
		bad = append(bad, "the top level lacks "+name)
	}
	return bad, nil
}

// ignored understands the plain patterns that our .gitignore has.
func ignored(rules, name string) bool {
	for rule := range strings.Lines(rules) {
		rule = strings.Trim(strings.TrimSpace(rule), "/")
		if ok, err := path.Match(rule, name); err == nil && ok {
			return true
		}
	}
	return false
}
