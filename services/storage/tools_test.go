package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
)

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(7, uint64(n))) //nolint:gosec // reproducible
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// metric returns the sum of a metric's series that have all the labels, as /metrics shows it; ok: there was one.
func (n *node) metric(name string, labels ...string) (sum float64, ok bool) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://"+n.app.env.DebugAddr().String()+"/metrics", http.NoBody)
	if err != nil {
		n.t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if have, _, _ := strings.Cut(series, "{"); have != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			n.t.Fatalf("metric %q: %v", line, err)
		}
		sum, ok = sum+v, true
	}
	return sum, ok
}

// awaitMetric waits until the metric is at least want.
func (n *node) awaitMetric(want float64, name string, labels ...string) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%s%v is %v", name, labels, want), func() bool {
		v, _ := n.metric(name, labels...)
		return v >= want
	})
}

// eventually waits for what has no mark.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(testkit.Patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// copyTree copies a folder.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// files returns the content of all files below the named folders of root, by path.
func files(t testing.TB, root string, folders ...string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, f := range folders {
		err := filepath.WalkDir(filepath.Join(root, f), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			out[rel], err = os.ReadFile(path)
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return out
}

// equalFiles fails t for each file that is missing, new or other.
func equalFiles(t testing.TB, want, have map[string][]byte) {
	t.Helper()
	for name, w := range want {
		switch h, ok := have[name]; {
		case !ok:
			t.Errorf("%s is missing", name)
		case !bytes.Equal(h, w):
			i := 0
			for i < min(len(h), len(w)) && h[i] == w[i] {
				i++
			}
			t.Errorf("%s differs from byte %d on (%d and %d bytes)", name, i, len(w), len(h))
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is new", name)
		}
	}
}
