package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestReadme: what the Markdown files point at is there: files, headings, tests, targets of make.
func TestReadme(t *testing.T) { bad, err := checkReadme(tree()); report(t, bad); fail(t, err) }

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	quoted   = regexp.MustCompile("`([^`\n]+)`")
	ourPath  = regexp.MustCompile(`^(?:services|pkg|deploy|proto|gen|\.github|\.ci)/[\w./{},*-]*$`)
	testName = regexp.MustCompile(`\bTest[A-Z]\w*[^\W_]\b`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	makeCall = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)")
	makeRule = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSlug   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// checkReadme checks all Markdown files of tree.
func checkReadme(tree fs.FS) (bad []string, err error) {
	docs, tests, rules := map[string]string{}, map[string]bool{}, map[string]bool{}
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "bin" || name == ".bin"):
			return fs.SkipDir
		case path.Ext(name) != ".md" && !strings.HasSuffix(name, "_test.go") && name != "Makefile":
			return nil
		}
		b, err := fs.ReadFile(tree, name)
		if path.Ext(name) == ".md" {
			docs[name] = string(b)
			return err
		}
		into, found := tests, testFunc
		if name == "Makefile" {
			into, found = rules, makeRule
		}
		for _, m := range found.FindAllStringSubmatch(string(b), -1) {
			into[m[1]] = true
		}
		return err
	})
	for name, text := range docs {
		bad = append(bad, checkLinks(tree, name, text)...)
		for _, m := range makeCall.FindAllStringSubmatch(text, -1) {
			if !rules[m[1]] {
				bad = append(bad, name+": make has no target "+m[1])
			}
		}
		for _, test := range testName.FindAllString(text, -1) {
			if !tests[test] {
				bad = append(bad, name+": there is no test "+test)
			}
		}
	}
	slices.Sort(bad)
	return bad, err
}

// checkLinks checks the links of a file, and the paths from the top of the module that it quotes.
func checkLinks(tree fs.FS, name, text string) (bad []string) {
	prose := fence.ReplaceAllString(text, "")
	for _, m := range link.FindAllStringSubmatch(quoted.ReplaceAllString(prose, ""), -1) {
		file, anchor, _ := strings.Cut(m[1], "#")
		switch at := path.Join(path.Dir(name), file); {
		case strings.Contains(m[1], "://"):
		case file == "":
			if !slices.Contains(anchors(prose), anchor) {
				bad = append(bad, name+": no heading is #"+anchor)
			}
		case !exists(tree, at):
			bad = append(bad, fmt.Sprintf("%s: there is no %s", name, at))
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(prose, -1) {
		if !ourPath.MatchString(m[1]) {
			continue
		}
		for _, p := range braces(strings.TrimSuffix(m[1], "/")) {
			if !exists(tree, p) {
				bad = append(bad, fmt.Sprintf("%s: there is no %s", name, p))
			}
		}
	}
	return bad
}

func exists(tree fs.FS, pattern string) bool {
	found, err := fs.Glob(tree, pattern)
	return err == nil && len(found) > 0
}

// braces writes a{b,c} out as ab and ac.
func braces(text string) []string {
	before, rest, ok := strings.Cut(text, "{")
	inside, after, closed := strings.Cut(rest, "}")
	if !ok || !closed {
		return []string{text}
	}
	var all []string
	for _, one := range strings.Split(inside, ",") {
		all = append(all, braces(before+one+after)...)
	}
	return all
}

// anchors are the names of headings in links.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(strings.ToLower(noSlug.ReplaceAllString(m[1], "")), " ", "-"))
	}
	return all
}

// TestReadmeBites: each kind of thing that is not there is found.
func TestReadmeBites(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	made := fstest.MapFS{
		"Makefile":  file("demo: build\n\tmake x\n"),
		"a_test.go": file("package a\n\nfunc TestThere(t *testing.T) {}\n"),
		"pkg/a":     file(""), "pkg/b": file(""), "docs/c.md": file("[up](../README.md)"),
		"README.md": file("# A, b `c`\n[x](#a-b-c) [y](docs/c.md) `pkg/{a,b}` `pkg/*` TestThere `make demo`, if you make use of it\n```sh\nmake demo\n[1](2)\n```\n"),
	}
	if bad, err := checkReadme(made); err != nil || len(bad) > 0 {
		t.Errorf("%v, %v", bad, err)
	}
	for text, want := range map[string]string{
		"[x](#b)":                    "README.md: no heading is #b",
		"[x](d.md)":                  "README.md: there is no d.md",
		"`pkg/{a,c}`":                "README.md: there is no pkg/c",
		"TestGone":                   "README.md: there is no test TestGone",
		"`make tea`":                 "README.md: make has no target tea",
		"```sh\nmake coffee # \n```": "README.md: make has no target coffee",
	} {
		made["README.md"] = file(text)
		if bad, err := checkReadme(made); err != nil || !slices.Equal(bad, []string{want}) {
			t.Errorf("%q: %q, %v; want %q", text, bad, err, want)
		}
	}
}
